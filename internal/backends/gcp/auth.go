package gcp

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"cloud.google.com/go/auth"
	"cloud.google.com/go/auth/credentials"
	"cloud.google.com/go/auth/credentials/impersonate"
)

const cloudPlatform = "https://www.googleapis.com/auth/cloud-platform"

// tokenMargin is how long a token must still be good for to be used.
const tokenMargin = time.Minute

// identity finds out who the agent is towards Google: as late as possible, so that an agent starts
// without credentials, and anew whenever that failed or a token was refused, so that a file that
// appears or is rotated needs no restart.
type identity struct {
	conf    Config
	base    http.RoundTripper
	log     *slog.Logger // what Google's libraries get: says nothing
	timeout time.Duration

	finding sync.Mutex // one looks at a time; before mu

	mu    sync.Mutex        // guards the fields that follow; never held while anything waits
	creds *auth.Credentials // nil: to be looked for
	last  *auth.Token
}

// credentialError says why there is no token.
type credentialError struct {
	cause error
	// silent: nobody answered, which says nothing about the credentials.
	silent bool
}

func (e *credentialError) Error() string { return "no access token: " + e.cause.Error() }
func (e *credentialError) Unwrap() error { return e.cause }

// token returns one that is good for a while. The libraries do not heed a context everywhere (a
// metadata server that does not answer), so it is fetched beside the call.
func (i *identity) token(ctx context.Context) (*auth.Token, error) {
	i.mu.Lock()
	last := i.last
	i.mu.Unlock()
	if last != nil && time.Until(last.Expiry) > tokenMargin {
		return last, nil
	}
	type outcome struct {
		token *auth.Token
		err   error
	}
	done := make(chan outcome, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), i.timeout)
		defer cancel()
		t, err := i.fetch(ctx)
		done <- outcome{t, err}
	}()
	select {
	case o := <-done:
		return o.token, o.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (i *identity) fetch(ctx context.Context) (*auth.Token, error) {
	creds, err := i.find()
	if err != nil {
		return nil, &credentialError{cause: err}
	}
	t, err := creds.Token(ctx)
	if err != nil {
		i.forget()
		return nil, &credentialError{cause: shortened(err), silent: unanswered(err)}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.last = t
	return t, nil
}

// find looks for the credentials, unless they were found before.
func (i *identity) find() (*auth.Credentials, error) {
	i.finding.Lock()
	defer i.finding.Unlock()
	i.mu.Lock()
	creds := i.creds
	i.mu.Unlock()
	if creds != nil {
		return creds, nil
	}
	plain := &http.Client{Transport: i.base, Timeout: i.timeout}
	creds, err := credentials.DetectDefault(&credentials.DetectOptions{
		Scopes: []string{cloudPlatform}, Client: plain, Logger: i.log, DisableAsyncRefresh: true,
		CredentialsFile: i.conf.CredentialsFile, //nolint:staticcheck // the operator's own file, of whatever kind she uses; nothing of it comes from outside
	})
	if err != nil {
		return nil, err
	}
	if i.conf.Impersonate != "" {
		creds, err = impersonate.NewCredentials(&impersonate.CredentialsOptions{
			TargetPrincipal: i.conf.Impersonate, Delegates: i.conf.Delegates, Scopes: []string{cloudPlatform}, Logger: i.log,
			Client: &http.Client{Transport: &bearer{base: i.base, token: creds.Token}, Timeout: i.timeout},
		})
		if err != nil {
			return nil, err
		}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.creds = creds
	return creds, nil
}

// forget makes the next call look for credentials again.
func (i *identity) forget() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.creds, i.last = nil, nil
}

// bearer adds a token to each request.
type bearer struct {
	base  http.RoundTripper
	token func(context.Context) (*auth.Token, error)
}

// RoundTrip implements [http.RoundTripper].
func (b *bearer) RoundTrip(req *http.Request) (*http.Response, error) {
	t, err := b.token(req.Context())
	if err != nil {
		return nil, err
	}
	req = req.Clone(req.Context())
	req.Header.Set("Authorization", "Bearer "+t.Value)
	return b.base.RoundTrip(req)
}

// unanswered reports that the token's server was not reached, or is in trouble itself.
func unanswered(err error) bool {
	var answer *auth.Error
	if errors.As(err, &answer) && answer.Response != nil {
		return answer.Temporary()
	}
	return isNetwork(err)
}

// shortened keeps the answer's status out of what may be pages of HTML.
func shortened(err error) error {
	var answer *auth.Error
	if errors.As(err, &answer) && answer.Response != nil && len(answer.Body) > 512 {
		return errors.New("the token's server answered " + answer.Response.Status)
	}
	return err
}
