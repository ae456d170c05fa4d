package backendtest

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"time"

	"proxyfleet/internal/backends"
)

// Heard collects everything that a backend says, from several goroutines.
type Heard struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (h *Heard) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.buf.Write(p)
}

func (h *Heard) say(format string, args ...any) { _, _ = fmt.Fprintf(h, format+"\n", args...) }

func (h *Heard) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.buf.String()
}

func (h *Heard) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(h, &slog.HandlerOptions{Level: slog.LevelDebug - 8}))
}

// checkSecrets fails when the password was said, in any of the ways it is likely written.
func (e *env) checkSecrets() {
	e.Helper()
	said := e.heard.String()
	first, last, _ := strings.Cut(e.password, `"`)
	_, last, _ = strings.Cut(last, "<")
	for _, form := range []string{
		e.password, first, last, url.QueryEscape(e.password),
		base64.StdEncoding.EncodeToString([]byte(e.password))[:16],
		base64.StdEncoding.EncodeToString([]byte("suite:" + e.password))[:16],
	} {
		for line := range strings.Lines(said) {
			if strings.Contains(line, form) {
				e.Errorf("a secret was said: %s", strings.ReplaceAll(line, form, "«secret»"))
				return
			}
		}
	}
}

// witness is a backend whose every answer is heard and timed.
type witness struct {
	backends.Backend
	e    *env
	once sync.Once
}

func (e *env) within(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d)
}

// close is what the end of an agent does.
func (w *witness) close() {
	w.once.Do(func() {
		if err := w.Backend.Close(); err != nil {
			w.e.Errorf("close: %v", err)
		}
	})
}

func (w *witness) ensure(req backends.Request) (backends.Instance, error) {
	w.e.Helper()
	return w.ensureIn(context.Background(), req)
}

func (w *witness) ensureIn(ctx context.Context, req backends.Request) (backends.Instance, error) {
	w.e.Helper()
	ctx, cancel := context.WithTimeout(ctx, w.e.h.Patience)
	defer cancel()
	i, err := w.Ensure(ctx, req, func(p backends.Progress) {
		w.e.heard.say("progress %q %d", p.Step, p.Percent)
		if p.Step == "" || p.Percent < 0 || p.Percent > 100 {
			w.e.Errorf("progress without a step or with an odd percentage: %+v", p)
		}
	})
	w.e.heard.say("ensure: %+v, %v", i, err)
	return i, err
}

// mustEnsure makes an instance and checks the answer.
func (w *witness) mustEnsure(req backends.Request) backends.Instance {
	w.e.Helper()
	i, err := w.ensure(req)
	if err != nil {
		w.e.Fatalf("ensure: %v", err)
	}
	w.e.expectAs(i, req)
	return i
}

func (w *witness) get(ref backends.Ref) (backends.Instance, error) {
	w.e.Helper()
	ctx, cancel := w.e.within(w.e.h.Patience)
	defer cancel()
	i, err := w.Get(ctx, ref)
	w.e.heard.say("get: %+v, %v", i, err)
	return i, err
}

func (w *witness) delete(ref backends.Ref) error {
	w.e.Helper()
	return w.deleteIn(context.Background(), ref)
}

func (w *witness) deleteIn(ctx context.Context, ref backends.Ref) error {
	ctx, cancel := context.WithTimeout(ctx, w.e.h.Patience)
	defer cancel()
	err := w.Delete(ctx, ref)
	w.e.heard.say("delete: %v", err)
	return err
}

func (w *witness) mustDelete(ref backends.Ref) {
	w.e.Helper()
	if err := w.delete(ref); err != nil {
		w.e.Fatalf("delete: %v", err)
	}
}

func (w *witness) list() backends.Listing {
	w.e.Helper()
	ctx, cancel := w.e.within(w.e.h.Patience)
	defer cancel()
	l, err := w.List(ctx)
	w.e.heard.say("list: %+v, %v", l, err)
	if err != nil {
		w.e.Fatalf("list: %v", err)
	}
	return l
}

// listed is what a listing says of ref.
func (w *witness) listed(ref backends.Ref) (instances []backends.Instance, leftovers []backends.Leftover) {
	w.e.Helper()
	l := w.list()
	for _, u := range l.Unread {
		w.e.Errorf("unread: %s: %v", u.What, u.Err)
	}
	for _, i := range l.Instances {
		if i.Mark.UID == ref.UID {
			instances = append(instances, i)
		}
	}
	for _, o := range l.Leftovers {
		if o.Mark.UID == ref.UID {
			leftovers = append(leftovers, o)
		}
	}
	return instances, leftovers
}
