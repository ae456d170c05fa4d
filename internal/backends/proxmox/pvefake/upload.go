package pvefake

import (
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"hash"
	"regexp"
	"slices"
	"strings"
	"time"
)

var unsafeName = regexp.MustCompile(`[^-a-zA-Z0-9_.]`)

// normalName is PVE::Storage::normalize_content_filename: the last part of the
// path, with every other character an underscore.
func normalName(s string) string {
	s = s[strings.LastIndexAny(s, `/\`)+1:]
	return unsafeName.ReplaceAllString(strings.TrimSpace(s), "_")
}

var checksums = map[string]func() hash.Hash{
	"md5": md5.New, "sha1": sha1.New, "sha224": sha256.New224, "sha256": sha256.New,
	"sha384": sha512.New384, "sha512": sha512.New,
}

func upload(r *request) (any, error) {
	content, name := r.params["content"], normalName(r.params["filename"])
	st, err := r.c.usable(r.params["storage"], r.node.name)
	if err != nil {
		return nil, err
	}
	ext := map[string]string{"iso": `\.(?i:iso|img)$`, "vztmpl": `\.tar\.(gz|xz|zst)$`, "import": `\.(ova|ovf|qcow2|raw|vmdk)$`}[content]
	if !regexp.MustCompile(ext).MatchString(name) {
		return nil, paramErr("filename", "wrong file extension")
	}
	if !slices.Contains(st.Content, content) {
		return nil, die("storage '%s' does not support '%s' content", st.ID, content)
	}
	node, data := r.node.name, r.file
	tmp := "/var/tmp/pveupload-" + strings.ReplaceAll(newUUID(), "-", "")
	file := st.Path + "/template/" + content + "/" + name
	return r.c.fork(r.who, node, "imgcopy", "", func(t *task) error {
		t.logf("starting file import from: %s", tmp)
		if err := t.sleep(300 * time.Millisecond); err != nil {
			return err
		}
		if want := r.params["checksum"]; want != "" {
			h := checksums[r.params["checksum-algorithm"]]()
			h.Write(data)
			got := hex.EncodeToString(h.Sum(nil))
			if !strings.EqualFold(got, want) {
				t.logf("calculating checksum...")
				return die("checksum mismatch: got '%s' != expect '%s'", got, want)
			}
			t.logf("calculating checksum...OK, checksum verified")
		}
		if st, err = r.c.usable(st.ID, node); err != nil {
			return err
		}
		old := st.on(node)[content+"/"+name]
		room := st.avail(node)
		if old != nil {
			room += old.used
		}
		t.logf("target node: %s\ntarget file: %s\nfile size is: %d\ncommand: cp -- %s %s", node, file, len(data), tmp, file)
		if int64(len(data)) > room {
			return die("import failed: cp: error writing '%s': No space left on device", file)
		}
		st.put(node, &volume{name: content + "/" + name, format: content, content: content,
			size: int64(len(data)), used: int64(len(data)+4095) &^ 4095, ctime: r.c.clock.now().Unix(), data: data})
		t.logf("finished file import successfully")
		return nil
	})
}
