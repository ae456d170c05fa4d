package pvefake

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"time"
)

// reply is one answer on its way out.
type reply struct {
	status   int
	reason   string
	body     []byte
	ctype    string
	cut      bool // no answer, connection reset
	truncate bool // half an answer, then reset
	close    bool
}

// dataReply is a 200 with {"data": data}.
func dataReply(data any) reply {
	top := map[string]any{"data": data}
	if l, ok := data.(counted); ok {
		top["data"], top["total"] = l.rows, l.total
	}
	body, err := json.Marshal(top)
	if err != nil {
		return reply{status: 500, reason: err.Error()}
	}
	return reply{status: 200, reason: "OK", body: body, ctype: "application/json;charset=UTF-8"}
}

// counted is a list with the total beside it, as the task calls answer.
type counted struct {
	rows  any
	total int
}

func errorReply(e *apiError) reply {
	r := reply{status: e.status, reason: oneLine(e.text), cut: e.cut, close: e.status != 500}
	switch {
	case e.empty:
	case e.plain:
		r.body = []byte(e.text)
	default:
		top := map[string]any{"data": nil, "message": e.text + "\n"}
		if e.status == 501 {
			top["message"] = e.text
		}
		if e.params != nil {
			top["errors"] = e.params
		}
		r.body, _ = json.Marshal(top)
		r.ctype = "application/json;charset=UTF-8"
	}
	return r
}

func (r reply) response(req *http.Request) *http.Response {
	h := http.Header{}
	now := time.Now().UTC().Format(http.TimeFormat)
	h.Set("Cache-Control", "max-age=0")
	h.Set("Date", now)
	h.Set("Expires", now)
	h.Set("Pragma", "no-cache")
	h.Set("Server", "pve-api-daemon/3.0")
	if r.ctype != "" {
		h.Set("Content-Type", r.ctype)
	}
	body, length := r.body, int64(len(r.body))
	if r.truncate {
		body = body[:len(body)/2]
	}
	return &http.Response{
		Status: strconv.Itoa(r.status) + " " + r.reason, StatusCode: r.status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: h, Request: req, Close: r.close,
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: length,
	}
}
