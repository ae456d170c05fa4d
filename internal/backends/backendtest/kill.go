package backendtest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/secret"
)

// killVariable tells a child what to do before it kills itself; JSON of killOrder.
const killVariable = "BACKENDTEST_KILL"

// killOrder is one call that ends with SIGKILL at a step.
type killOrder struct {
	Host     string
	Owner    backends.Owner
	Delete   bool // else Ensure
	Request  backends.Request
	Password string // apart, so that it does not depend on how a request is written
	Step     step
}

// Main runs a package's tests, or, where the suite has started the binary again, the call
// that ends with a SIGKILL. Give it to TestMain.
func Main(m *testing.M, h Harness) {
	if order := os.Getenv(killVariable); order != "" {
		err := h.withDefaults().obey(order)
		fmt.Fprintf(os.Stderr, "the step did not come: %v\n", err)
		os.Exit(3)
	}
	os.Exit(m.Run())
}

// obey runs the call. It returns only when the step was not reached.
func (h Harness) obey(text string) error {
	var o killOrder
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	o.Request.Access.Password = secret.String(o.Password)
	hear := &Heard{}
	b, err := h.Open(o.Host, o.Owner, hear.logger())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), h.Patience)
	defer cancel()
	ctx = backends.WithSteps(ctx, o.Step.at(func() error {
		_, _ = os.Stdout.WriteString(hear.String()) // for the parent's check on secrets
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}))
	if o.Delete {
		return b.Delete(ctx, o.Request.Ref)
	}
	_, err = b.Ensure(ctx, o.Request, func(p backends.Progress) { hear.say("progress %q", p.Step) })
	return err
}

// kill makes the call of o in a process of its own that dies at the step.
func (e *env) kill(o op, req backends.Request, s step) {
	e.Helper()
	order, err := json.Marshal(killOrder{Host: e.host, Owner: e.owner, Delete: o.deletes, Request: req, Password: req.Access.Password.Reveal(), Step: s})
	if err != nil {
		e.Fatal(err)
	}
	ctx, cancel := e.within(2 * e.h.Patience)
	defer cancel()
	self, err := os.Executable()
	if err != nil {
		e.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, self, "-test.run=^$")
	cmd.Env = append(os.Environ(), killVariable+"="+string(order))
	// Files, not pipes: what the backend leaves running may hold them open.
	out, err := os.CreateTemp(e.TempDir(), "killed")
	if err != nil {
		e.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	err = cmd.Run()
	said, _ := os.ReadFile(out.Name())
	e.heard.say("%s", said)
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() || status.Signal() != syscall.SIGKILL {
		e.Fatalf("%s was to be killed at %s, but: %v\n%s", o.doing, s, err, said)
	}
}
