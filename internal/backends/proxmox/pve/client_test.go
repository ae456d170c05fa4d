//go:build pve || proxmox_real

package pve_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"proxyfleet/internal/backends/proxmox/pve"
	"proxyfleet/internal/backends/proxmox/pvefake"
)

type rig struct {
	c      *pvefake.Cluster
	conf   pve.Config
	secret string
	log    *bytes.Buffer
}

func newRig(t *testing.T) *rig {
	c := pvefake.New(t, pvefake.Options{})
	dir := t.TempDir()
	r := &rig{c: c, secret: c.AddToken("a@pve", "tk", pvefake.MinimalPrivileges(c.Version())...), log: &bytes.Buffer{}}
	r.conf = pve.Config{URLs: c.URLs(), TokenFile: filepath.Join(dir, "token"), CA: filepath.Join(dir, "ca.pem"), Timeout: 2 * time.Second,
		Log: slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	put(t, r.conf.TokenFile, "a@pve!tk="+r.secret)
	put(t, r.conf.CA, string(c.CAPEM()))
	return r
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) open(t *testing.T) *pve.Client {
	t.Helper()
	c, err := pve.New(r.conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestTheTokenIsNeverSaid(t *testing.T) {
	r := newRig(t)
	c := r.open(t)
	var all strings.Builder
	say := func(err error) {
		if err != nil {
			fmt.Fprintf(&all, "%v %+v %#v\n", err, err, err)
		}
	}
	_, err := c.Version(t.Context())
	say(err)
	_, err = c.Config(t.Context(), "pve1", 999, false)
	say(err)
	put(t, r.conf.TokenFile, "PVEAPIToken=a@pve!tk="+r.secret+"\n") // with the header's own prefix
	if _, err := c.Version(t.Context()); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"a@pve!tk=" + r.secret + "\nX-Evil: 1", "a@pve!tk= " + r.secret, r.secret, "a@pve=" + r.secret} {
		put(t, r.conf.TokenFile, bad)
		_, err := c.Version(t.Context())
		var credential *pve.Credential
		if !errors.As(err, &credential) {
			t.Errorf("got %v, want the token file's fault", err)
		}
		say(err)
	}
	put(t, r.conf.TokenFile, "a@pve!tk="+strings.Repeat("0", 8)+r.secret)
	_, err = c.Version(t.Context())
	say(err)
	r.c.AddressDown("pve1", true)
	r.c.AddressDown("pve2", true)
	_, err = c.Version(t.Context())
	say(err)
	if text := all.String() + r.log.String(); strings.Contains(text, r.secret) {
		t.Error("the token's secret was said")
	} else if !strings.Contains(text, "999.conf") || !strings.Contains(text, "proxmox api call") {
		t.Errorf("too little was said: %s", text)
	}
}

func TestAConnectionThatAnOlderCALetInIsNotUsed(t *testing.T) {
	r := newRig(t)
	c := r.open(t)
	if _, err := c.Version(t.Context()); err != nil {
		t.Fatal(err)
	}
	other := pvefake.New(t, pvefake.Options{})
	put(t, r.conf.CA, string(other.CAPEM()))
	var silent *pve.NoAnswer
	if _, err := c.Version(t.Context()); !errors.As(err, &silent) || silent.Trouble != pve.Untrusted {
		t.Errorf("got %v, want a server that is not trusted any more", err)
	}
	put(t, r.conf.CA, string(r.c.CAPEM()))
	if _, err := c.Version(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestTheEndpointThatAnsweredLastIsAskedFirst(t *testing.T) {
	r := newRig(t)
	c := r.open(t)
	asked := func() string {
		t.Helper()
		r.c.ForgetRequests()
		if _, err := c.Version(t.Context()); err != nil {
			t.Error(err)
		}
		var nodes []string
		for _, q := range r.c.Requests() {
			nodes = append(nodes, q.Node)
		}
		return strings.Join(nodes, " ")
	}
	if got := asked(); got != "pve1" {
		t.Errorf("got %s", got)
	}
	r.c.AddressDown("pve1", true)
	if got := asked(); got != "pve2" {
		t.Errorf("got %s", got)
	}
	r.c.AddressDown("pve1", false)
	if got := asked(); got != "pve2" {
		t.Errorf("got %s, want it to stay", got)
	}
	r.c.AddressDown("pve2", true)
	if got := asked(); got != "pve1" {
		t.Errorf("got %s", got)
	}
}

// TestWhatMayHaveBeenDoneIsNotSentAgain cuts a request that changes something after it was
// written: another endpoint would do it twice.
func TestWhatMayHaveBeenDoneIsNotSentAgain(t *testing.T) {
	r := newRig(t)
	r.c.AddVM(pvefake.VMSpec{ID: 100, Name: "x"})
	c := r.open(t)
	r.c.OnRequest(func(q pvefake.Request) pvefake.Action {
		if q.Method == http.MethodPost {
			return pvefake.Action{Cut: pvefake.CutAfter}
		}
		return pvefake.Action{}
	})
	_, err := c.Start(t.Context(), "pve1", 100)
	var silent *pve.NoAnswer
	if !errors.As(err, &silent) || !silent.Sent || silent.Trouble != pve.Cut {
		t.Errorf("got %#v", err)
	}
	if n := r.c.Count(http.MethodPost, ""); n != 1 {
		t.Errorf("it was sent %d times", n)
	}
	r.c.OnRequest(nil)
	r.c.AddressDown("pve1", true) // never arrives: the next one is asked
	if _, err := c.Stop(t.Context(), "pve1", 100); err != nil {
		t.Error(err)
	}
}

func TestFollowingATaskEndsWithItsContext(t *testing.T) {
	r := newRig(t)
	r.c.AddVM(pvefake.VMSpec{ID: 100, Name: "x"})
	c := r.open(t)
	r.c.InjectTask(pvefake.TaskFault{Type: "qmstart", Hang: make(chan struct{})})
	id, err := c.Start(t.Context(), "pve1", 100)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	if _, err := c.Follow(ctx, id); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "qmstart") || time.Since(began) > time.Second {
		t.Errorf("got %v after %v", err, time.Since(began))
	}
	tasks, err := c.RunningTasks(t.Context(), "qmstart")
	if err != nil || len(tasks) != 1 || tasks[0] != id || id.Node() != "pve1" || id.User() != "a@pve!tk" {
		t.Errorf("got %v, %v", tasks, err)
	}
	if err := c.StopTask(t.Context(), id); err != nil {
		t.Error(err)
	}
	var failed *pve.TaskError
	if _, err := c.Follow(t.Context(), id); !errors.As(err, &failed) {
		t.Errorf("got %v, want a task that failed", err)
	}
	if _, err := c.Follow(t.Context(), "UPID:pve1:00000001:00000001:00000001:qmstart:100:a@pve!tk:"); !pve.IsNoTask(err) {
		t.Errorf("got %v, want that nobody knows it", err)
	}
	if _, err := c.Follow(t.Context(), "garbage"); err == nil || pve.IsNoTask(err) {
		t.Errorf("garbage: got %v", err)
	}
}

func TestABlipDoesNotEndFollowingATask(t *testing.T) {
	r := newRig(t)
	r.conf.TaskPoll = 5 * time.Millisecond
	r.c.AddVM(pvefake.VMSpec{ID: 100, Name: "x"})
	c := r.open(t)
	r.c.SetTaskDuration("qmstart", 30*time.Second)
	id, err := c.Start(t.Context(), "pve1", 100)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	r.c.OnRequest(func(pvefake.Request) pvefake.Action {
		if n++; n%3 != 0 && n < 9 {
			return pvefake.Action{Reply: &pvefake.Reply{Status: 595, Text: "Connection refused"}}
		}
		return pvefake.Action{}
	})
	if o, err := c.Follow(t.Context(), id); err != nil || o.Failed() {
		t.Errorf("got %+v, %v", o, err)
	}
}

func TestBadConfigurationIsRefused(t *testing.T) {
	for name, c := range map[string]pve.Config{
		"no URL":               {},
		"plain HTTP":           {URLs: []string{"http://a:8006"}},
		"a path":               {URLs: []string{"https://a:8006/api2"}},
		"credentials":          {URLs: []string{"https://u:secretive@a:8006"}},
		"CA and fingerprint":   {URLs: []string{"https://a"}, CA: "/x", Fingerprint: "/y"},
		"a short fingerprint":  {URLs: []string{"https://a"}, Fingerprint: "AA:BB"},
		"a fingerprint in oct": {URLs: []string{"https://a"}, Fingerprint: strings.Repeat("ZZ:", 31) + "ZZ"},
	} {
		if _, err := pve.New(c); err == nil {
			t.Errorf("%s was accepted", name)
		} else if strings.Contains(err.Error(), "secretive") {
			t.Errorf("%s: %v says the credentials", name, err)
		}
	}
	if _, err := pve.New(pve.Config{URLs: []string{"https://a", "https://[2001:db8::1]:8006/"}, Fingerprint: strings.Repeat("AA:", 31) + "AA"}); err != nil {
		t.Error(err)
	}
}

func TestNothingIsLeftRunning(t *testing.T) {
	r := newRig(t)
	before := goleak.IgnoreCurrent()
	c, err := pve.New(r.conf)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Resources(t.Context()); err != nil {
		t.Error(err)
	}
	c.Close()
	r.c.Close()
	goleak.VerifyNone(t, before)
}
