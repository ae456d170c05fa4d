package pve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// maxAnswer bounds a response; 10,000 VMs in /cluster/resources are about 4 MB.
const maxAnswer = 64 << 20

// Config says how to reach a cluster.
type Config struct {
	URLs      []string // https://host:8006, at least one
	TokenFile string
	// At most one of both; neither is the system's CAs.
	CA          string // path of a PEM file
	Fingerprint string // see ParseFingerprints, or the absolute path of a file with them
	// Timeout is how long one endpoint may take to answer. Default 30 s: a file that another
	// task has locked makes PVE wait for 10 s, a wrong token for 3 s.
	Timeout time.Duration
	// TaskPoll is the first pause between two looks at a task; later ones are longer.
	// Default 200 ms.
	TaskPoll time.Duration
	Log      *slog.Logger
}

// Client speaks to one cluster. Its methods may be called concurrently.
type Client struct {
	http      *http.Client
	endpoints *endpoints
	tokenFile *file
	caFile    *file
	pinFile   *file
	pins      [][32]byte
	trusted   atomic.Int64 // changes of the trust files that idle connections are of
	timeout   time.Duration
	taskPoll  time.Duration
	log       *slog.Logger
}

// New makes a client. It reads no file and makes no request.
func New(conf Config) (*Client, error) {
	c := &Client{endpoints: &endpoints{}, tokenFile: &file{path: conf.TokenFile}, timeout: conf.Timeout, taskPoll: conf.TaskPoll, log: conf.Log}
	if c.timeout == 0 {
		c.timeout = 30 * time.Second
	}
	if c.taskPoll == 0 {
		c.taskPoll = 200 * time.Millisecond
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	for _, text := range conf.URLs {
		u, err := url.Parse(text)
		if err == nil && u.User != nil {
			return nil, fmt.Errorf("%q has credentials; the token file has them", u.Redacted())
		}
		if err != nil || u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
			return nil, fmt.Errorf("%q is not https://host:port", text)
		}
		if u.Port() == "" {
			u.Host += ":8006"
		}
		c.endpoints.urls = append(c.endpoints.urls, "https://"+u.Host)
	}
	if len(c.endpoints.urls) == 0 {
		return nil, errors.New("there is no URL")
	}
	switch {
	case conf.CA != "" && conf.Fingerprint != "":
		return nil, errors.New("a CA and a fingerprint exclude each other")
	case conf.CA != "":
		c.caFile = &file{path: conf.CA}
	case isPath(conf.Fingerprint):
		c.pinFile = &file{path: conf.Fingerprint}
	case conf.Fingerprint != "":
		pins, err := ParseFingerprints(conf.Fingerprint)
		if err != nil {
			return nil, err
		}
		c.pins = pins
	}
	c.http = &http.Client{
		Transport: &http.Transport{
			DialTLSContext:      c.dialTLS, // HTTP/1.1 only, as pveproxy speaks
			MaxIdleConnsPerHost: 8,
			// pveproxy drops idle connections after some seconds; what changes something must
			// not be written to one that is about to be dropped.
			IdleConnTimeout: 4 * time.Second,
			MaxConnsPerHost: 16,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c, nil
}

// Close ends idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// call is one request.
type call struct {
	method string
	path   string // escaped, below /api2/json
	query  url.Values
	form   url.Values
	// body is sent instead of form.
	body        []byte
	contentType string
	timeout     time.Duration // default: the client's
}

// path joins escaped segments.
func path(segments ...string) string {
	var b strings.Builder
	for _, s := range segments {
		b.WriteString("/" + url.PathEscape(s))
	}
	return b.String()
}

// do carries out a call and decodes the data of its answer into out, which may be nil.
func (c *Client) do(ctx context.Context, k call, out any) (err error) {
	ctx, span := otel.Tracer("proxyfleet/proxmox").Start(ctx, "PVE "+k.method, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(attribute.String("http.request.method", k.method), attribute.String("url.path", k.path)))
	began := time.Now()
	defer func() {
		if err != nil {
			span.RecordError(err)
			span.SetStatus(codes.Error, "")
		}
		span.End()
		c.log.DebugContext(ctx, "proxmox api call", "method", k.method, "path", k.path, "took", time.Since(began).Round(time.Millisecond),
			"status", status(err), "err", err)
	}()
	_, header, err := c.token()
	if err != nil {
		return err
	}
	c.trustChanged()
	var failures []failure
	for _, i := range c.endpoints.order() {
		sent, err := c.try(ctx, c.endpoints.urls[i], header.Reveal(), k, out)
		if ctx.Err() != nil && err != nil {
			return fmt.Errorf("%s %s: %w", k.method, k.path, context.Cause(ctx))
		}
		var answer *Error
		if err == nil || errors.As(err, &answer) && !c.elsewhere(k, answer) {
			c.endpoints.answered(i)
			return err
		}
		failures = append(failures, failure{fmt.Errorf("%s: %w", c.endpoints.urls[i], err), sent})
		if answer == nil && sent && k.method != http.MethodGet {
			break // it may have been carried out
		}
	}
	return c.noAnswer(k, failures)
}

// elsewhere reports whether another endpoint may do better than this answer.
func (c *Client) elsewhere(k call, e *Error) bool {
	switch e.Status {
	case statusNoConnection:
		return true
	case statusBroken, statusOther, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return k.method == http.MethodGet
	}
	return false
}

// failure is what one endpoint said, and whether the request may have reached it.
type failure struct {
	err  error
	sent bool
}

// noAnswer sums up what the endpoints said. An answer of any of them tells more than a
// connection that failed.
func (c *Client) noAnswer(k call, failures []failure) error {
	e := &NoAnswer{Method: k.method, Path: k.path}
	var all []error
	for i, f := range failures {
		var answer *Error
		var credential *Credential
		if errors.As(f.err, &answer) || errors.As(f.err, &credential) {
			return f.err
		}
		if t := trouble(f.err); i == 0 || t == Untrusted {
			e.Trouble = t
		}
		e.Sent = e.Sent || f.sent
		all = append(all, f.err)
	}
	e.Cause = errors.Join(all...)
	return e
}

// try sends k to one endpoint. sent is false when the request cannot have arrived.
func (c *Client) try(ctx context.Context, base, header string, k call, out any) (sent bool, err error) {
	timeout := k.timeout
	if timeout == 0 {
		timeout = c.timeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var wrote atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { wrote.Store(true) }})

	target := base + "/api2/json" + k.path
	if len(k.query) > 0 {
		target += "?" + k.query.Encode()
	}
	body, kind := k.body, k.contentType
	if body == nil && k.form != nil {
		body, kind = []byte(k.form.Encode()), "application/x-www-form-urlencoded"
	}
	req, err := http.NewRequestWithContext(ctx, k.method, target, bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	req.Header.Set("Authorization", header)
	resp, err := c.http.Do(req)
	if err != nil {
		return wrote.Load(), plain(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return true, answerError(k.method, k.path, resp)
	}
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return true, fmt.Errorf("the answer was cut off: %w", err)
	}
	return true, decode(raw, out)
}

// decode takes the data out of an answer. A body that is no JSON is a connection that some
// proxy answers for.
func decode(raw []byte, out any) error {
	var envelope struct {
		Data json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(raw, &envelope); err != nil {
		return fmt.Errorf("the answer is no JSON: %w", err)
	}
	if out == nil || len(envelope.Data) == 0 || string(envelope.Data) == "null" {
		return nil
	}
	if err := json.Unmarshal(envelope.Data, out); err != nil {
		return fmt.Errorf("the answer has another form than expected: %w", err)
	}
	return nil
}

// plain drops the URL that net/http puts before an error: the endpoint is named anyway.
func plain(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
