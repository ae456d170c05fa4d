package gcpfake

import (
	"regexp"
)

// replay is a request that was carried out, by its requestId.
type replay struct {
	method, path, body string
	operation          object
}

var uuid = regexp.MustCompile(`^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$`)

const zeroUUID = "00000000-0000-0000-0000-000000000000"

// replay answers a repeated request with the operation of the first, whatever became of its
// target since. A requestId that comes with another request is refused.
func (c *call) replay(body []byte) (out object, replayed bool, err error) {
	id := c.query.Get("requestId")
	if id == "" {
		return nil, false, nil
	}
	if !uuid.MatchString(id) || id == zeroUUID {
		return nil, false, invalid("requestId", id, "The request ID must be a valid UUID.")
	}
	first, ok := c.s.byRequest[c.project+"/"+id]
	if !ok {
		return nil, false, nil
	}
	if first.method != c.m.ID || first.path != c.target() || first.body != string(body) {
		return nil, false, invalid("requestId", id, "The request ID was already used for a different request.")
	}
	return first.operation, true, nil
}

// remember keeps what a requestId did. A request that was refused is not kept: repeated, it is
// judged anew.
func (c *call) remember(body []byte, out object) {
	id := c.query.Get("requestId")
	if id == "" || out["kind"] != "compute#operation" {
		return
	}
	c.s.byRequest[c.project+"/"+id] = replay{method: c.m.ID, path: c.target(), body: string(body),
		operation: out}
}

// target says what a call is about, for comparison.
func (c *call) target() string {
	all := ""
	for _, k := range sortedKeys(c.vars) {
		all += k + "=" + c.vars[k] + "/"
	}
	return all
}
