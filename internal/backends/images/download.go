package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"proxyfleet/internal/backends"
)

// validator is what a partial download is resumed with.
type validator struct {
	URL  string `json:"url"` // without secrets: for people
	ETag string `json:"etag"`
}

// bring fills part with the bytes of s and returns their digest, which is want unless that
// is empty.
func (c *Cache) bring(ctx context.Context, part *os.File, s Source, want string, report Report) (string, error) {
	size, resumed, err := c.transfer(ctx, part, s, want, report)
	if err != nil {
		return "", c.settle(ctx, err, part, s)
	}
	digest, err := digestOf(part, size, want)
	switch {
	case err != nil:
		return "", fileError(err, s)
	case want == "" || want == digest:
		return digest, nil
	}
	discard(part)
	switch {
	case resumed:
		return "", backends.Errorf(backends.ErrTransient, op,
			"%s does not have its digest after a resumed download; it is fetched anew", s)
	case s.Digest == "":
		return "", backends.Errorf(backends.ErrPermanent, op,
			"%s changed since it was first used: its digest was %s and is %s; nothing of the new one is kept. Configure the new digest, or another key, to use it", s, want, digest)
	}
	return "", backends.Errorf(backends.ErrPermanent, op,
		"%s has the digest %s, but %s is configured; nothing of it is kept. Correct the digest if the image was replaced on purpose", s, digest, s.Digest)
}

// transfer gets the bytes, from where an earlier try ended if that is safe.
func (c *Cache) transfer(ctx context.Context, part *os.File, s Source, want string, report Report) (size int64, resumed bool, err error) {
	if s.File != "" {
		size, err = c.copyFile(ctx, part, s, report)
		return size, false, err
	}
	report("downloading image", 0)
	have, v := resumable(part, want)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stall := time.AfterFunc(c.opts.Stall, func() {
		cancel(fmt.Errorf("no byte came for %s", c.opts.Stall))
	})
	defer stall.Stop()

	resp, err := c.get(ctx, s, have, v)
	if err != nil && ctx.Err() != nil {
		return 0, false, context.Cause(ctx)
	}
	if err != nil {
		return 0, false, err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusRequestedRangeNotSatisfiable && have > 0:
		if resp.Header.Get("Content-Range") == fmt.Sprintf("bytes */%d", have) {
			return have, true, nil // it was whole already
		}
		discard(part)
		return 0, false, backends.Errorf(backends.ErrTransient, op, "%s changed during its download; it is fetched anew", s)
	case resp.StatusCode == http.StatusPartialContent && have > 0 &&
		strings.HasPrefix(resp.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", have)):
	case resp.StatusCode == http.StatusOK:
		have = 0
	default:
		return 0, false, statusError(resp.StatusCode, s)
	}
	if resp.ContentLength < 0 && want == "" && resp.ProtoMajor < 2 && len(resp.TransferEncoding) == 0 {
		return 0, false, backends.Errorf(backends.ErrPermanent, op,
			"the server of %s tells neither the length nor the end of the image, so a cut-off download cannot be told from a whole one; configure a digest", s)
	}
	if err := part.Truncate(have); err != nil {
		return 0, false, err
	}
	if err := writeJSON(part.Name()+".json", validator{URL: s.String(), ETag: strongETag(resp)}); err != nil {
		return 0, false, err
	}
	body := stalling{resp.Body, stall, c.opts.Stall}
	size, err = c.write(ctx, part, body, have, resp.ContentLength, s, report)
	return size, have > 0, err
}

// get asks for the image, from byte have on if that is more than 0.
func (c *Cache) get(ctx context.Context, s Source, have int64, v validator) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
	if err != nil {
		return nil, backends.Errorf(backends.ErrPermanent, op, "%s is no usable URL", s)
	}
	// The digest is of the bytes as they are stored, so the transport must not unpack any.
	req.Header.Set("Accept-Encoding", "identity")
	if have > 0 {
		req.Header.Set("Range", "bytes="+strconv.FormatInt(have, 10)+"-")
		if v.ETag != "" {
			req.Header.Set("If-Range", v.ETag)
		}
	}
	return c.opts.HTTP.Do(req)
}

// resumable tells how much of an earlier try can be built on: all of it when either the
// server can say whether the image changed, or a digest will.
func resumable(part *os.File, want string) (int64, validator) {
	var v validator
	info, err := part.Stat()
	if err != nil || readJSON(part.Name()+".json", &v) != nil || v.ETag == "" && want == "" {
		return 0, validator{}
	}
	return info.Size(), v
}

// strongETag is the response's entity tag unless it is weak: only a strong one promises the
// same bytes (RFC 9110, section 8.8.1).
func strongETag(resp *http.Response) string {
	if tag := resp.Header.Get("ETag"); strings.HasPrefix(tag, `"`) {
		return tag
	}
	return ""
}

// copyFile copies a local file. A copy is kept because the original may change under the
// guests that build on it.
func (c *Cache) copyFile(ctx context.Context, part *os.File, s Source, report Report) (int64, error) {
	f, err := os.Open(s.File)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, backends.Errorf(backends.ErrPermanent, op, "%s is not there", s)
	}
	if errors.Is(err, fs.ErrPermission) {
		return 0, backends.Wrap(backends.ErrHostFault, op, err, "%s cannot be read", s)
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if !info.Mode().IsRegular() {
		return 0, backends.Errorf(backends.ErrPermanent, op, "%s is not a regular file", s)
	}
	if err := part.Truncate(0); err != nil {
		return 0, err
	}
	return c.write(ctx, part, f, 0, info.Size(), s, report)
}

// write appends r to part, which holds have bytes already. length is what r has left, -1
// where that is not known. It returns the size of the whole.
func (c *Cache) write(ctx context.Context, part *os.File, r io.Reader, have, length int64, s Source, report Report) (int64, error) {
	if have+max(length, 0) > c.opts.MaxBytes {
		return 0, tooLarge(c.opts.MaxBytes, s)
	}
	if err := c.room(part, max(length, 0), s); err != nil {
		return 0, err
	}
	if _, err := part.Seek(have, io.SeekStart); err != nil {
		return 0, err
	}
	buf := make([]byte, 256<<10)
	size := have
	for {
		n, err := r.Read(buf)
		if _, werr := part.Write(buf[:n]); werr != nil {
			return 0, werr
		}
		size += int64(n)
		if size > c.opts.MaxBytes {
			return 0, tooLarge(c.opts.MaxBytes, s)
		}
		if length > 0 {
			report("downloading image", int(size*100/(have+length)))
		}
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		if errors.Is(err, io.EOF) {
			if length >= 0 && size != have+length {
				return 0, io.ErrUnexpectedEOF
			}
			return size, nil
		}
		if err != nil {
			return 0, err
		}
	}
}

// room refuses a download that cannot fit, before it fills the disk.
func (c *Cache) room(part *os.File, need int64, s Source) error {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(part.Fd()), &fs); err != nil {
		return err
	}
	if free := int64(fs.Bavail)*fs.Bsize - c.opts.ReserveBytes; need > free {
		return backends.Errorf(backends.ErrNoCapacity, op, "%s needs %d MiB more, %d MiB are free for it", s, need>>20, max(free, 0)>>20)
	}
	return nil
}

// settle gives the failure of a transfer its class and decides what is kept.
func (c *Cache) settle(ctx context.Context, err error, part *os.File, s Source) error {
	var classed *backends.Error
	var fromURL *url.Error
	switch {
	case errors.As(err, &classed):
	case ctx.Err() != nil:
		return stopped(ctx.Err(), s)
	case errors.As(err, &fromURL):
		// Its text has the whole URL, with whatever secret stands in it.
		return backends.Wrap(backends.ErrTransient, op, fromURL.Err, "downloading %s; what is downloaded is kept", s)
	case isFileError(err):
		err = fileError(err, s)
	default:
		return backends.Wrap(backends.ErrTransient, op, err, "the download of %s broke off; what is downloaded is kept", s)
	}
	if errors.Is(err, backends.ErrNoCapacity) || errors.Is(err, backends.ErrPermanent) {
		discard(part)
	}
	return err
}

func isFileError(err error) bool {
	var path *fs.PathError
	var number syscall.Errno
	return errors.As(err, &path) || errors.As(err, &number)
}

func tooLarge(limit int64, s Source) error {
	return backends.Errorf(backends.ErrPermanent, op, "%s is larger than the %d MiB that are allowed for an image", s, limit>>20)
}

// statusError classes an answer that is no image.
func statusError(code int, s Source) error {
	class := backends.ErrTransient
	if code >= 400 && code < 500 && code != http.StatusTooManyRequests && code != http.StatusRequestTimeout {
		class = backends.ErrPermanent
	}
	return backends.Errorf(class, op, "the server of %s answered %d %s", s, code, http.StatusText(code))
}

// stalling puts off a timer with every byte that comes.
type stalling struct {
	io.Reader
	timer *time.Timer
	after time.Duration
}

func (r stalling) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if n > 0 {
		r.timer.Reset(r.after)
	}
	return n, err
}
