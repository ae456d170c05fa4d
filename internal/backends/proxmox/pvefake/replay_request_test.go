//go:build pve || proxmox_real

package pvefake

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

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
