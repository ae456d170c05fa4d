package gcp

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/googleapis/gax-go/v2/callctx"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// transport carries requests with a token, each for a limited time, and tells of each: method, path
// without the project, status and time. Neither headers nor bodies nor tokens are told.
type transport struct {
	who     *identity
	base    http.RoundTripper
	log     *slog.Logger
	timeout time.Duration
	calls   calls
}

// RoundTrip implements [http.RoundTripper].
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.calls.contextOf(req), t.timeout)
	req = req.Clone(ctx)
	req.Header.Del(callHeader)
	if strings.Contains(req.URL.Path, "/aggregated/") {
		askPartial(req)
	}
	resp, err := (&bearer{base: t.base, token: t.who.token}).RoundTrip(req)
	status := 0
	if err != nil {
		cancel()
	} else {
		resp.Body = &body{ReadCloser: resp.Body, done: cancel}
		status = resp.StatusCode
		if status == http.StatusUnauthorized {
			t.who.forget()
		}
	}
	path := shortPath(req.URL)
	t.log.DebugContext(ctx, "request", "method", req.Method, "path", path, "status", status, "took", time.Since(began).Round(time.Millisecond))
	trace.SpanFromContext(ctx).AddEvent(req.Method+" "+path, trace.WithAttributes(attribute.Int("status", status)))
	return resp, err
}

// body ends its request's time when it was read.
type body struct {
	io.ReadCloser
	done func()
}

func (b *body) Close() error {
	defer b.done()
	return b.ReadCloser.Close()
}

// callHeader never leaves this process.
const callHeader = "X-Proxyfleet-Call"

// calls know the contexts of lists. Google's clients make the requests of a list without its context
// (compute/apiv1 1.75.0), but with the headers that it carries: one of them says which it is.
type calls struct {
	mu   sync.Mutex // guards the fields that follow
	last int
	open map[string]context.Context
}

// carry makes ctx known to the transport until end is called.
func (c *calls) carry(ctx context.Context) (carried context.Context, end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	id := strconv.Itoa(c.last)
	if c.open == nil {
		c.open = map[string]context.Context{}
	}
	c.open[id] = ctx
	return callctx.SetHeaders(ctx, callHeader, id), func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.open, id)
	}
}

// contextOf is the context that a request belongs to.
func (c *calls) contextOf(req *http.Request) context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ctx, ok := c.open[req.Header.Get(callHeader)]; ok {
		return ctx
	}
	return req.Context()
}

// askPartial asks for what can be listed even though some zones do not answer. Google's documents
// recommend this parameter in words; the generated requests lack it (compute/apiv1 1.75.0).
func askPartial(req *http.Request) {
	query := req.URL.Query()
	query.Set("returnPartialSuccess", "true")
	req.URL.RawQuery = query.Encode()
}

// shortPath is a path without what is the same in all of them.
func shortPath(u *url.URL) string {
	_, rest, ok := strings.Cut(u.Path, "/compute/v1/projects/")
	if !ok {
		return u.Path
	}
	_, rest, _ = strings.Cut(rest, "/")
	return rest
}

// silence is a request without an answer, or with half of one. What it was meant to do may be
// done.
type silence struct {
	cause error
	slow  bool // it took too long
}

func (e *silence) Error() string {
	if e.slow {
		return "no answer in time: " + e.cause.Error()
	}
	return "no answer: " + e.cause.Error()
}

// heard makes of a client's error what the rest of the package judges by: the end of ctx,
// *credentialError, *refusal or *silence. The timeout of a single request is not the end of ctx
// and does not match it.
func heard(ctx context.Context, err error) error {
	var credential *credentialError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &credential):
		return credential
	}
	if r, ok := refused(err); ok {
		return r
	}
	slow := errors.Is(err, context.DeadlineExceeded)
	var call *url.Error
	if errors.As(err, &call) { // without the URL, which the message has
		err = call.Err
	}
	return &silence{cause: errors.New(err.Error()), slow: slow}
}

// isNetwork reports an error below HTTP.
func isNetwork(err error) bool {
	var call *url.Error
	var op *net.OpError
	return errors.As(err, &call) || errors.As(err, &op) || errors.Is(err, context.DeadlineExceeded)
}
