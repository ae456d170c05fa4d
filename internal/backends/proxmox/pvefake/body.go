package pvefake

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

type bodyKind int

const (
	bodyForm bodyKind = iota
	bodyUpload
)

var uploadPath = regexp.MustCompile(`^/nodes/[^/]+/storage/[^/]+/upload$`)

// readParams collects the parameters of path, query and body, as pveproxy
// decodes them. A fault of the body comes back as an error to be answered
// after authentication.
func (r *request) readParams(vars map[string]string) (bodyKind, error) {
	r.params = map[string]string{}
	kind, err := r.readBody()
	q, qerr := url.ParseQuery(r.http.URL.RawQuery)
	if qerr != nil && err == nil {
		err = httpErr(400, "bad query")
	}
	addForm(r.params, q)
	for k, v := range vars {
		if got, dup := r.params[k]; dup && got != v && err == nil {
			err = paramErr(k, "duplicate parameter (already defined in URI) with conflicting values!")
		}
		r.params[k] = v
	}
	return kind, err
}

func addForm(params map[string]string, form url.Values) {
	for k, v := range form {
		params[k] = strings.Join(v, "\x00")
	}
}

func (r *request) readBody() (bodyKind, error) {
	if r.http.Method != http.MethodPost && r.http.Method != http.MethodPut {
		return bodyForm, nil
	}
	ctype := r.http.Header.Get("Content-Type")
	media, _, _ := strings.Cut(ctype, ";")
	media = strings.ToLower(strings.TrimSpace(media))
	if r.http.Method == http.MethodPost && uploadPath.MatchString(r.path) {
		if media != "multipart/form-data" {
			return bodyUpload, &apiError{cut: true}
		}
		if len(r.http.TransferEncoding) > 0 {
			return bodyUpload, nil
		}
		return bodyUpload, r.readUpload(ctype)
	}
	if r.http.ContentLength > maxForm {
		return bodyForm, httpErr(501, "for data too large")
	}
	if r.http.ContentLength != 0 && media != "" && media != "application/x-www-form-urlencoded" && media != "application/json" {
		return bodyForm, httpErr(506, "upload 'Content-Type '"+media+"' not implemented")
	}
	raw, err := io.ReadAll(io.LimitReader(r.http.Body, maxForm+1))
	if err != nil {
		return bodyForm, &apiError{cut: true}
	}
	if media == "application/json" {
		return bodyForm, addJSON(r.params, raw)
	}
	form, err := url.ParseQuery(string(raw))
	if err != nil {
		return bodyForm, httpErr(400, "bad form")
	}
	addForm(r.params, form)
	return bodyForm, nil
}

// addJSON decodes a JSON object. The texts are those of Perl's JSON module and
// of pveproxy, which runs into the other types.
func addJSON(params map[string]string, raw []byte) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var top any
	if err := dec.Decode(&top); err != nil {
		offset := len(raw)
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			offset = int(syntax.Offset)
		}
		return httpErr(500, fmt.Sprintf("malformed JSON string, neither tag, array, object, number, string or atom, "+
			"at character offset %d (before \"(end of string)\") at /usr/share/perl5/PVE/APIServer/AnyEvent.pm line 934.\n", offset))
	}
	obj, ok := top.(map[string]any)
	if !ok {
		return httpErr(500, "Not a HASH reference at /usr/share/perl5/PVE/APIServer/AnyEvent.pm line 978.\n")
	}
	for k, v := range obj {
		switch x := v.(type) {
		case nil:
			params[k] = jsonNull
		case bool:
			params[k] = map[bool]string{true: "1", false: "0"}[x]
		case string:
			params[k] = x
		case json.Number:
			params[k] = x.String()
		case map[string]any:
			params[k] = jsonHash
		case []any:
			params[k] = jsonArray
		}
	}
	return nil
}

// readUpload reads the parts in order. pveproxy stops at the file: fields
// after it do not exist.
func (r *request) readUpload(ctype string) error {
	if r.http.ContentLength > maxRefused && !r.authorized() {
		return nil
	}
	_, after, _ := strings.Cut(ctype, "boundary=")
	_, params, err := mime.ParseMediaType(ctype)
	if err != nil || params["boundary"] == "" || strings.HasPrefix(after, `"`) {
		return httpErr(500, "upload failed at /usr/share/perl5/PVE/APIServer/AnyEvent.pm line 1370.\n")
	}
	mr := multipart.NewReader(r.http.Body, params["boundary"])
	for {
		part, err := mr.NextRawPart()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return &apiError{cut: true}
		}
		value, err := io.ReadAll(part)
		if err != nil {
			return &apiError{cut: true}
		}
		_, disp, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
		if err != nil {
			return httpErr(500, "upload failed at /usr/share/perl5/PVE/APIServer/AnyEvent.pm line 1370.\n")
		}
		name, isFile := disp["filename"]
		if !isFile {
			r.params[disp["name"]] = string(value)
			continue
		}
		if disp["name"] != "filename" {
			return httpErr(500, fmt.Sprintf("wrong field name '%s' for file upload, expected 'filename' "+
				"at /usr/share/perl5/PVE/APIServer/AnyEvent.pm line 1325.\n", disp["name"]))
		}
		r.file, r.sent = value, name
		r.params["filename"] = name
		_, _ = io.Copy(io.Discard, r.http.Body)
		return nil
	}
}

// authorized tells whether an upload would be refused before its body is read.
func (r *request) authorized() bool {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	who, err := r.c.authenticate(r.http.Header.Get("Authorization"), "")
	if err != nil || r.m == nil {
		return false
	}
	_, vars := r.c.schema.find(r.http.Method, r.path)
	return r.c.checkMethod(who, r.m.Perms, vars) == nil
}
