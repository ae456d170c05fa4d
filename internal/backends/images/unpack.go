package images

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"

	"github.com/klauspost/compress/zstd"
	"github.com/therootcompany/xz"

	"proxyfleet/internal/backends"
)

// maxWindow bounds the memory that unpacking takes, whatever an image's header asks for:
// twice what "xz -9" and "zstd -19" need.
const maxWindow = 128 << 20

// Formats of compression, by how they begin. Neither a qcow2 image nor a disk that boots
// begins so. Sources: RFC 1952 (gzip), RFC 8878 (zstd), the .xz file format 1.2.1.
var compressions = []struct {
	name, magic string
	open        func(io.Reader) (io.Reader, func(), error)
}{
	{"gzip", "\x1f\x8b\x08", func(r io.Reader) (io.Reader, func(), error) {
		z, err := gzip.NewReader(r)
		return z, func() {}, err
	}},
	{"xz", "\xfd7zXZ\x00", func(r io.Reader) (io.Reader, func(), error) {
		z, err := xz.NewReader(r, maxWindow)
		return z, func() {}, err
	}},
	{"zstd", "\x28\xb5\x2f\xfd", func(r io.Reader) (io.Reader, func(), error) {
		z, err := zstd.NewReader(r, zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true), zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, nil, err
		}
		return z, z.Close, nil
	}},
}

// unpack returns the image that stands in part: part itself, or, where that is compressed, a
// file beside it with its content. The caller closes and removes a file that is not part.
func (c *Cache) unpack(ctx context.Context, part *os.File, s Source, report Report) (*os.File, error) {
	in := io.NewSectionReader(part, 0, 1<<62)
	head := make([]byte, 8)
	n, err := io.ReadFull(in, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return nil, fileError(err, s)
	}
	for _, x := range compressions {
		if bytes.HasPrefix(head[:n], []byte(x.magic)) {
			return c.expand(ctx, part, x.name, x.open, s, report)
		}
	}
	return part, nil
}

func (c *Cache) expand(ctx context.Context, part *os.File, name string, open func(io.Reader) (io.Reader, func(), error), s Source, report Report) (*os.File, error) {
	if err := backends.Step(ctx, "image.unpack"); err != nil {
		return nil, err
	}
	info, err := part.Stat()
	if err != nil {
		return nil, fileError(err, s)
	}
	out, err := os.OpenFile(part.Name()+".unpacked", os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fileError(err, s)
	}
	report("unpacking image", 0)
	in := &counting{Reader: io.NewSectionReader(part, 0, info.Size()), size: info.Size(), report: report}
	r, end, err := open(bufio.NewReaderSize(in, 256<<10))
	if err == nil {
		err = c.sparse(ctx, out, r, s)
		end()
	}
	if err == nil {
		return out, nil
	}
	remove(out)
	var classed *backends.Error
	switch {
	case ctx.Err() != nil:
		return nil, stopped(ctx.Err(), s)
	case errors.As(err, &classed):
		return nil, err
	case isFileError(err):
		return nil, fileError(err, s)
	}
	return nil, backends.Wrap(backends.ErrPermanent, op, err, "%s cannot be unpacked (%s); nothing of it is kept", s, name)
}

// sparse copies r to an empty file, leaving holes where there are only zeros.
func (c *Cache) sparse(ctx context.Context, out *os.File, r io.Reader, s Source) error {
	const block = 64 << 10
	buf, zeros := make([]byte, block), make([]byte, block)
	var size int64
	for {
		n, err := io.ReadFull(r, buf)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !bytes.Equal(buf[:n], zeros[:n]) {
			if _, err := out.WriteAt(buf[:n], size); err != nil {
				return err
			}
		}
		if size += int64(n); size > c.opts.MaxBytes {
			return tooLarge(c.opts.MaxBytes, s)
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF) && n > 0 && ended(r):
			return out.Truncate(size)
		case err != nil:
			return err
		}
		if err := c.room(out, 0, s); err != nil {
			return err
		}
	}
}

// ended reports whether r has ended well, for io.ReadFull gives a short last block and one
// that broke off the same error.
func ended(r io.Reader) bool {
	n, err := r.Read(make([]byte, 1))
	return n == 0 && errors.Is(err, io.EOF)
}

// counting reports how much of a file was read.
type counting struct {
	io.Reader
	read, size int64
	report     Report
}

func (r *counting) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.read += int64(n)
	r.report("unpacking image", int(r.read*100/max(r.size, 1)))
	return n, err
}

// remove closes and removes a file.
func remove(f *os.File) {
	_ = f.Close()
	_ = os.Remove(f.Name())
}
