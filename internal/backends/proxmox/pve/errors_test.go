package pve

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// answers are as Proxmox VE 9.2 gave them.
func TestWhatPVESaysIsUnderstood(t *testing.T) {
	kinds := map[string]func(error) bool{
		"no VM": IsNoVM, "taken": IsTaken, "no task": IsNoTask, "agent absent": IsAgentAbsent, "agent off": IsAgentOff,
		"running": IsRunning, "no node": IsNoNode, "no storage": IsNoStorage, "passed on": IsPassedOn, "no volume": IsNoVolume,
	}
	for _, c := range []struct {
		status       int
		reason, body string
		want         string // the one kind that it is
		says         string
	}{
		{500, "Configuration file 'nodes/pve1/qemu-server/999.conf' does not exist", `{"data":null,"message":"Configuration file 'nodes/pve1/qemu-server/999.conf' does not exist\n"}`, "no VM", "999.conf"},
		{500, "unable to find configuration file for VM 999 on node 'pve1'", `{"data":null}`, "no VM", "VM 999"},
		{500, "unable to create VM 201: config file already exists", `{"data":null,"message":"unable to create VM 201: config file already exists\n"}`, "taken", "201"},
		{500, "unable to create VM 100 - VM 100 already exists on node 'pve1'", `{"data":null}`, "taken", "100"},
		{400, "Parameter verification failed.", `{"errors":{"upid":"no such task"},"data":null}`, "no task", "upid: no such task"},
		{500, "QEMU guest agent is not running", `{"data":null,"message":"QEMU guest agent is not running\n"}`, "agent absent", ""},
		{500, "No QEMU guest agent configured", `{"data":null}`, "agent off", ""},
		{500, "VM 201 is not running", `{"data":null}`, "", ""},
		{500, "VM 201 is running - destroy failed", `{"message":"VM 201 is running - destroy failed\n","data":null}`, "running", ""},
		{500, "VM 201 not running", `{"data":null}`, "", ""},
		{500, "hostname lookup 'pve2' failed - failed to get address info for: pve2: Name or service not known", `{"data":null}`, "no node", ""},
		{500, "no such cluster node 'pve9'", `{"data":null}`, "no node", ""},
		{500, "storage 'nope' does not exist", `{"data":null}`, "no storage", ""},
		{500, "storage 'disabled1' is disabled", `{"data":null}`, "no storage", ""},
		{400, "Parameter verification failed.", `{"data":null,"errors":{"storage":"No such storage."}}`, "no storage", "storage: No such storage."},
		{400, "Parameter verification failed.", `{"data":null,"errors":{"storage":"storage 'isoonly' does not support vm images"}}`, "no storage", ""},
		{500, "volume_size_info on 'local:iso/none.iso' failed - no format", `{"data":null}`, "no volume", ""},
		{595, "Connection refused", "", "passed on", "Connection refused"},
		{596, "Connection timed out", "", "passed on", ""},
		{599, "Too many redirections", "", "passed on", ""},
		{401, "Authentication failed!", "", "", "401 Authentication failed!"},
		{403, "Permission check failed (/vms/201, VM.Audit)", `{"message":"Permission check failed (/vms/201, VM.Audit)\n","data":null}`, "", "VM.Audit"},
		{400, "Parameter verification failed.", `{"data":null,"errors":{"net0":"invalid format","name":"bad"}}`, "", "name: bad; net0: invalid format"},
		{501, "Not Implemented", "chunked transfer encoding not supported", "", "chunked"},
		{502, "Bad Gateway", "<html>nginx</html>", "", "502 Bad Gateway"},
	} {
		t.Run(fmt.Sprintf("%d %s", c.status, c.reason), func(t *testing.T) {
			raw := fmt.Sprintf("HTTP/1.1 %d %s\r\nContent-Length: %d\r\n\r\n%s", c.status, c.reason, len(c.body), c.body)
			r, err := http.ReadResponse(bufio.NewReader(strings.NewReader(raw)), nil)
			if err != nil {
				t.Fatal(err)
			}
			err = fmt.Errorf("wrapped: %w", answerError("GET", "/x", r))
			for kind, is := range kinds {
				if got := is(err); got != (kind == c.want) {
					t.Errorf("%s: got %v (%v)", kind, got, err)
				}
			}
			if !strings.Contains(err.Error(), c.says) {
				t.Errorf("%q does not say %q", err, c.says)
			}
		})
	}
	if IsNoVM(errors.New("Configuration file 'nodes/a' does not exist")) {
		t.Error("a text alone, without a status of the server's, is believed")
	}
}

func TestLocksAndFullStoragesAreKnownByTheirTexts(t *testing.T) {
	for text, want := range map[string]string{
		"VM is locked (backup)": "backup", "VM is locked (snapshot-delete)": "snapshot-delete",
		"can't lock file '/var/lock/qemu-server/lock-201.conf' - got timeout": "file", "VM quit/powerdown failed - got timeout": "",
	} {
		if got, ok := Locked(text); got != want || ok != (want != "") {
			t.Errorf("%q: got %q", text, got)
		}
	}
	for text, want := range map[string]bool{
		"cp: error writing '/srv/x': No space left on device":                true,
		"clone failed: copy failed: exit code 1":                             false,
		"  Insufficient free space: 25 extents needed, but only 2 available": true,
	} {
		if got := NoSpace(text); got != want {
			t.Errorf("%q: got %v", text, got)
		}
	}
}
