package nocloud

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"mime/multipart"
	"net/textproto"
)

// boundary separates the parts of vendor-data. It is fixed, so that the same input gives
// the same seed; it cannot occur in a part, since parts are in base64 and this has colons.
const boundary = "proxyfleet:part:boundary"

// Part is one document inside vendor-data.
type Part struct {
	// Name is what cloud-init calls the part in its logs; a file name.
	Name string
	// ContentType is a MIME type of cloud-init's, such as "text/x-shellscript". Empty is
	// "text/plain", for which cloud-init goes by the document's first line. A part that is a
	// MIME document itself is not taken apart.
	ContentType string
	Data        []byte
	// Entity says that Data is a MIME document, with headers of its own, that is to be taken
	// apart: it is nested as it is, and Name and ContentType do not count.
	Entity bool
}

// VendorData joins parts into one MIME multi-part document, in their order. Empty parts are
// left out; without any it returns nil.
func VendorData(parts ...Part) ([]byte, error) {
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	if err := w.SetBoundary(boundary); err != nil {
		return nil, err
	}
	n := 0
	for _, p := range parts {
		if len(p.Data) == 0 {
			continue
		}
		n++
		if p.Entity {
			if err := nest(w, p.Data); err != nil {
				return nil, err
			}
			continue
		}
		kind := p.ContentType
		if kind == "" {
			kind = "text/plain"
		}
		part, err := w.CreatePart(textproto.MIMEHeader{
			"Content-Type":              {kind},
			"Content-Disposition":       {`attachment; filename="` + p.Name + `"`},
			"Content-Transfer-Encoding": {"base64"},
			"MIME-Version":              {"1.0"},
		})
		if err != nil {
			return nil, err
		}
		if _, err := part.Write(wrapped(p.Data)); err != nil {
			return nil, err
		}
	}
	if n == 0 {
		return nil, nil
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	head := "Content-Type: multipart/mixed; boundary=\"" + boundary + "\"\nMIME-Version: 1.0\n\n"
	return append([]byte(head), body.Bytes()...), nil
}

// nest writes a MIME document as a part, its body byte for byte.
func nest(w *multipart.Writer, document []byte) error {
	r := bufio.NewReader(bytes.NewReader(document))
	header, err := textproto.NewReader(r).ReadMIMEHeader()
	if err != nil {
		return fmt.Errorf("nocloud: read the headers of a MIME document: %w", err)
	}
	part, err := w.CreatePart(header)
	if err != nil {
		return err
	}
	_, err = io.Copy(part, r)
	return err
}

// wrapped is base64 in lines of 76 characters (RFC 2045, section 6.8).
func wrapped(data []byte) []byte {
	const width = 76
	text := base64.StdEncoding.EncodeToString(data)
	var b bytes.Buffer
	for len(text) > width {
		b.WriteString(text[:width] + "\r\n")
		text = text[width:]
	}
	b.WriteString(text + "\r\n")
	return b.Bytes()
}
