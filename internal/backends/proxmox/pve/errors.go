package pve

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
)

// Statuses of pveproxy's own for a request that it passes on to another node or to
// pvedaemon (AnyEvent::HTTP's pseudo statuses).
const (
	statusNoConnection = 595 // no connection was made: nothing was carried out
	statusBroken       = 596 // TLS, sending or the response's header failed
	statusOther        = 599
)

// maxText bounds what of a server's text is kept.
const maxText = 2048

// Error is an answer that is not a success.
type Error struct {
	Method, Path string
	Status       int
	Text         string            // what the server said, without a line feed at the end
	Params       map[string]string // parameter → what is wrong with it, of a 400
}

func (e *Error) Error() string {
	s := fmt.Sprintf("%s %s: %d %s", e.Method, e.Path, e.Status, e.Text)
	if len(e.Params) > 0 {
		names := make([]string, 0, len(e.Params))
		for name := range e.Params {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			s += fmt.Sprintf(" %s: %s;", name, strings.TrimSpace(e.Params[name]))
		}
		s = strings.TrimSuffix(s, ";")
	}
	return strings.TrimSpace(s)
}

// answerError reads a response that is no success. The text stands in the body, in the
// reason phrase, or both; 401 and 595 have an empty body, what the HTTP layer itself
// refuses is plain text.
func answerError(method, path string, r *http.Response) *Error {
	e := &Error{Method: method, Path: path, Status: r.StatusCode}
	_, e.Text, _ = strings.Cut(r.Status, " ")
	body, _ := io.ReadAll(io.LimitReader(r.Body, 64<<10))
	var said struct {
		Message string            `json:"message"`
		Errors  map[string]string `json:"errors"`
	}
	if json.Unmarshal(body, &said) == nil {
		e.Params = said.Errors
		if m := strings.TrimSpace(said.Message); m != "" {
			e.Text = m
		}
	} else if e.Text == "" || e.Text == http.StatusText(e.Status) {
		if m := strings.TrimSpace(string(body)); m != "" && !strings.HasPrefix(m, "<") {
			e.Text = m
		}
	}
	if len(e.Text) > maxText {
		e.Text = e.Text[:maxText] + " …"
	}
	return e
}

// status returns the status of an answer in err, 0 without one.
func status(err error) int {
	var e *Error
	if errors.As(err, &e) {
		return e.Status
	}
	return 0
}

// says reports whether err is an answer with this status whose text has part in it.
func says(err error, code int, part string) bool {
	var e *Error
	return errors.As(err, &e) && e.Status == code && strings.Contains(e.Text, part)
}

// IsNoVM reports that the VM does not exist on the node that was asked. It may be on
// another.
func IsNoVM(err error) bool {
	var e *Error
	if !errors.As(err, &e) || e.Status != http.StatusInternalServerError {
		return false
	}
	return strings.HasPrefix(e.Text, "Configuration file 'nodes/") && strings.Contains(e.Text, "does not exist") ||
		strings.HasPrefix(e.Text, "unable to find configuration file for VM ")
}

// IsTaken reports that a VMID is in use.
func IsTaken(err error) bool {
	return says(err, 500, "config file already exists") || says(err, 500, "already exists on node")
}

// IsNoTask reports that a task is not known: its log was pruned, or its node replaced.
func IsNoTask(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Status == 400 && strings.Contains(e.Params["upid"], "no such task")
}

// IsAgentAbsent reports a guest agent that does not answer (yet).
func IsAgentAbsent(err error) bool { return says(err, 500, "QEMU guest agent is not running") }

// IsAgentOff reports a VM that was started without a channel for its guest agent.
func IsAgentOff(err error) bool { return says(err, 500, "No QEMU guest agent configured") }

// IsRunning reports a call that needs a VM that is stopped.
func IsRunning(err error) bool { return says(err, 500, "is running - destroy failed") }

// IsNoNode reports a node's name that the server cannot resolve, or does not know.
func IsNoNode(err error) bool {
	return says(err, 500, "hostname lookup '") || says(err, 500, "no such cluster node")
}

// IsNoStorage reports a storage that does not exist, is switched off or does not take what
// was asked.
func IsNoStorage(err error) bool {
	var e *Error
	if !errors.As(err, &e) {
		return false
	}
	return e.Status == 400 && strings.Contains(e.Params["storage"], "storage") ||
		e.Status == 500 && strings.HasPrefix(e.Text, "storage '")
}

// IsPassedOn reports that the server could not pass the request on to the node that it is
// for.
func IsPassedOn(err error) bool {
	s := status(err)
	return s == statusNoConnection || s == statusBroken || s == statusOther
}

// IsNoVolume reports a volume that does not exist.
func IsNoVolume(err error) bool {
	return says(err, 500, "volume_size_info on '") || says(err, 500, "volume '") && says(err, 500, "does not exist")
}

// Locked returns the lock that text says a VM has: "clone", "backup", … "file" is the lock
// of a configuration file that another task holds.
func Locked(text string) (lock string, ok bool) {
	if _, rest, found := strings.Cut(text, "VM is locked ("); found {
		lock, _, _ = strings.Cut(rest, ")")
		return lock, true
	}
	if strings.Contains(text, "can't lock file '/var/lock/qemu-server/") && strings.Contains(text, "got timeout") {
		return "file", true
	}
	return "", false
}

// NoSpace reports whether text says that a storage is full.
func NoSpace(text string) bool {
	for _, part := range []string{
		"no space left on device", "not enough free space", "insufficient free space", "out of space", "disk quota exceeded",
		"out of data space",
	} {
		if strings.Contains(strings.ToLower(text), part) {
			return true
		}
	}
	return false
}
