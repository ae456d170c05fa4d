package pvefake

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

// capture is one recorded request and its answer by a real node.
type capture struct {
	name    string
	Request struct {
		Method   string
		Path     string
		Params   map[string]any
		Token    *string
		Encoding string
	}
	Status int
	Reason string
	Body   string

	exit    string // of its task, when that was recorded
	taskTyp string
	hasTask bool
}

// recordings are all captures: the requests to replay, and all by name.
type recordings struct {
	replay []*capture
	byName map[string]*capture
	privs  map[string][]string       // privileges on / in the recordings permissions.*
	res    map[string]*regexp.Regexp // patterns of scene.is: thousands of uses of few
}

func (r recordings) matches(pattern, name string) bool {
	re := r.res[pattern]
	if re == nil {
		re = regexp.MustCompile(pattern)
		r.res[pattern] = re
	}
	return re.MatchString(name)
}

func loadCaptures(t *testing.T) recordings {
	t.Helper()
	dir, err := FindSchema()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "captures", "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no recorded answers in %s/captures (%v): they come with the schema", dir, err)
	}
	byName := map[string]*capture{}
	var all []*capture
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		c := &capture{name: strings.TrimSuffix(filepath.Base(f), ".json")}
		if err := json.Unmarshal(raw, c); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		// agent is the token that requests without one were sent with.
		if c.Request.Token == nil && !strings.Contains(string(raw), `"token": null`) {
			agent := "proxyfleet@pve!agent"
			c.Request.Token = &agent
		}
		byName[c.name] = c
		all = append(all, c)
	}
	out := recordings{byName: byName, res: map[string]*regexp.Regexp{}}
	for _, c := range all {
		base, kind, _ := cutLast(c.name, ".")
		owner := byName[base]
		if owner == nil || kind != "task-status" && kind != "task-log" {
			if kind != "task-log" && kind != "task-status" || strings.HasPrefix(c.name, "while-cloning.") {
				out.replay = append(out.replay, c)
			}
			continue
		}
		if kind == "task-status" {
			var b struct {
				Data struct{ Exitstatus, Type string }
			}
			if err := json.Unmarshal([]byte(c.Body), &b); err != nil {
				t.Fatal(err)
			}
			owner.exit, owner.taskTyp, owner.hasTask = b.Data.Exitstatus, b.Data.Type, true
		}
	}
	out.privs = map[string][]string{}
	for _, name := range []string{"permissions.agent", "permissions.auditor"} {
		var b struct{ Data map[string]map[string]int }
		if err := json.Unmarshal([]byte(byName[name].Body), &b); err != nil {
			t.Fatal(err)
		}
		out.privs[name] = slices.Collect(maps.Keys(b.Data["/"]))
	}
	return out
}

func cutLast(s, sep string) (string, string, bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+1:], true
	}
	return s, "", false
}

// TestTheFakeAnswersAsARealNodeDid builds, for every recorded answer, the
// state that it was recorded in, sends the same request and compares status,
// reason, body and the end of the task.
func TestTheFakeAnswersAsARealNodeDid(t *testing.T) {
	n := 0
	all := loadCaptures(t)
	for _, rec := range all.replay {
		if _, skip := notModelled[rec.name]; skip {
			continue
		}
		n++
		t.Run(rec.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { replay(t, all, rec) })
		})
	}
	if n < 550 {
		t.Errorf("only %d recorded answers were replayed; too many are listed as not modelled", n)
	}
}

func replay(t *testing.T, all recordings, rec *capture) {
	s := newScene(t, all, rec)
	req := s.request(rec)
	resp, err := s.c.RoundTripper().RoundTrip(req)
	if rec.Status == 0 {
		if err == nil {
			t.Fatalf("got %s, want a closed connection", resp.Status)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != rec.Status {
		t.Fatalf("got %s %s, want %d %s", resp.Status, body, rec.Status, rec.Reason)
	}
	if _, reason, _ := strings.Cut(resp.Status, " "); oneLine(reason) != oneLine(rec.Reason) {
		t.Errorf("reason: got %q, want %q", reason, rec.Reason)
	}
	s.compare(rec, body)
	if !rec.hasTask {
		return
	}
	if err := s.c.WaitIdle(t.Context()); err != nil {
		t.Fatal(err)
	}
	var data struct{ Data *string }
	_ = json.Unmarshal(body, &data)
	if data.Data == nil {
		return // the recording followed another call's task
	}
	for _, task := range s.c.Tasks() {
		if task.UPID != *data.Data {
			continue
		}
		if task.Exit != rec.exit && !sameButQemu(task.Exit, rec.exit) {
			t.Errorf("task ended %q, want %q; log %q", task.Exit, rec.exit, task.Log)
		}
		if task.Type != rec.taskTyp {
			t.Errorf("task type %q, want %q", task.Type, rec.taskTyp)
		}
		return
	}
	t.Errorf("no task %s", *data.Data)
}

var (
	bandwidthRE = regexp.MustCompile(` -r \d+K`)
	sha256RE    = regexp.MustCompile(`got '[0-9a-f]{64}'`)
)

// sameButQemu ignores the bandwidth option of a recorded qemu-img call and the
// checksum of a file that was not recorded.
func sameButQemu(got, want string) bool {
	got = sha256RE.ReplaceAllString(got, "got #")
	return sha256RE.ReplaceAllString(bandwidthRE.ReplaceAllString(want, ""), "got #") == got
}

// request makes the recorded request; secrets and UPIDs are the scene's own.
func (s *scene) request(rec *capture) *http.Request {
	target := "https://pve.invalid" + s.path(rec.Request.Path)
	var body io.Reader
	ctype := ""
	p := rec.Request.Params
	switch {
	case p["_raw_body"] != nil:
		body, ctype = strings.NewReader(s.raw(rec)), p["_content_type"].(string)
	case p["_multipart"] != nil:
		body, ctype = s.multipart(p["_multipart"].([]any))
	case rec.Request.Encoding == "application/json":
		raw, _ := json.Marshal(p)
		body, ctype = bytes.NewReader(raw), "application/json"
	case rec.Request.Method == "GET" || rec.Request.Method == "DELETE" || rec.Request.Method == "PATCH":
		if len(p) > 0 {
			target += "?" + values(p).Encode()
		}
	default:
		body, ctype = strings.NewReader(values(p).Encode()), "application/x-www-form-urlencoded"
	}
	req, err := http.NewRequest(rec.Request.Method, target, body)
	if err != nil {
		s.t.Fatal(err)
	}
	if ctype != "" {
		req.Header.Set("Content-Type", ctype)
	}
	if p["_chunked"] == true {
		req.ContentLength, req.TransferEncoding = -1, []string{"chunked"}
	}
	if body == nil {
		req.Body = http.NoBody
	}
	s.authorize(rec, req)
	return req
}

func values(p map[string]any) url.Values {
	v := url.Values{}
	for k, x := range p {
		switch x := x.(type) {
		case bool:
			v.Set(k, map[bool]string{true: "1", false: "0"}[x])
		case float64:
			v.Set(k, fmt.Sprintf("%.0f", x))
		default:
			v.Set(k, fmt.Sprint(x))
		}
	}
	return v
}

var sizedRE = regexp.MustCompile(`^<(\d+) bytes>$`)

// expand turns "<374784 bytes>" into that many. The recordings leave the
// content of large bodies out.
func expand(s string) string {
	m := sizedRE.FindStringSubmatch(s)
	if m == nil {
		return s
	}
	var n int
	_, _ = fmt.Sscan(m[1], &n)
	n = min(n, 2<<20) // enough to be too large; tiny is smaller here, too
	return strings.Repeat("x", n)
}

func (s *scene) multipart(parts []any) (io.Reader, string) {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for _, x := range parts {
		p := x.(map[string]any)
		val := expand(p["value"].(string))
		if p["name"] == "checksum" && strings.HasPrefix(val, "fa2b") {
			val = sha256Of(expand("<374784 bytes>"))
		}
		var err error
		var pw io.Writer
		if name, isFile := p["filename"].(string); isFile {
			pw, err = w.CreateFormFile(p["name"].(string), name)
		} else {
			pw, err = w.CreateFormField(p["name"].(string))
		}
		if err == nil {
			_, err = io.WriteString(pw, val)
		}
		if err != nil {
			s.t.Fatal(err)
		}
	}
	_ = w.Close()
	return bytes.NewReader(b.Bytes()), w.FormDataContentType()
}

// raw is a body given as text. Those of uploads are described only by their
// size and are made anew; the others are text read as Latin-1.
func (s *scene) raw(rec *capture) string {
	text := rec.Request.Params["_raw_body"].(string)
	if sizedRE.MatchString(text) && strings.Contains(rec.Request.Path, "/upload") {
		head := "--b0undary\r\nContent-Disposition: form-data; name=\"content\"\r\n"
		if strings.Contains(rec.name, "go-style") {
			head += "Content-Type: text/plain\r\n"
		}
		return head + "\r\niso\r\n--b0undary\r\nContent-Disposition: form-data; name=\"filename\"; filename=\"x.iso\"\r\n" +
			"Content-Type: application/octet-stream\r\n\r\n" + expand("<374784 bytes>") + "\r\n--b0undary--\r\n"
	}
	var b bytes.Buffer
	for _, r := range expand(text) {
		b.WriteByte(byte(r))
	}
	return b.String()
}
