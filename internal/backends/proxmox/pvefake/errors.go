package pvefake

import (
	"fmt"
	"strings"
)

// apiError is an answer other than 200. Proxmox puts the text in the reason
// phrase and, for most, into the body too.
type apiError struct {
	status int
	text   string            // reason phrase, without a newline
	params map[string]string // the errors map of a 400
	empty  bool              // no body: 401, 595, a refused upload
	plain  bool              // the HTTP layer's own errors are plain text
	cut    bool              // no answer at all: the connection is closed
}

func (e *apiError) Error() string { return e.text }

// die is what a Perl die becomes: 500 with the text.
func die(format string, args ...any) error {
	return &apiError{status: 500, text: fmt.Sprintf(format, args...)}
}

// paramErr is the 400 of a parameter that fails its check.
func paramErr(name, text string) error { return paramErrs(map[string]string{name: text}) }

func paramErrs(m map[string]string) error {
	return &apiError{status: 400, text: "Parameter verification failed.", params: m}
}

// forbidden is the 403 of a missing privilege; detail may be empty.
func forbidden(detail string) error {
	text := "Permission check failed"
	if detail != "" {
		text += " (" + detail + ")"
	}
	return &apiError{status: 403, text: text}
}

func httpErr(status int, text string) error {
	return &apiError{status: status, text: text, plain: true}
}

func noConfig(node string, vmid int) error {
	return die("Configuration file 'nodes/%s/qemu-server/%d.conf' does not exist", node, vmid)
}

func lockTimeout(vmid int) error {
	return die("can't lock file '/var/lock/qemu-server/lock-%d.conf' - got timeout", vmid)
}

// oneLine makes a text fit for a reason phrase.
func oneLine(s string) string {
	return strings.Join(strings.Fields(strings.ReplaceAll(s, "\n", " ")), " ")
}
