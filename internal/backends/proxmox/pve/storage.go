package pve

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"mime/multipart"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// uploadTimeout is for a seed, which is a few hundred KiB.
const uploadTimeout = 2 * time.Minute

// Volume is a file or disk on a storage.
type Volume struct {
	ID      string // "local:iso/x.iso"
	Size    int64  // bytes
	Created time.Time
}

// Volumes lists what a storage has of one kind ("iso", "images"), as a node sees it; vmid,
// where not 0, limits disks to those of one VM.
func (c *Client) Volumes(ctx context.Context, node, storage, content string, vmid int) ([]Volume, error) {
	q := url.Values{"content": {content}}
	if vmid != 0 {
		q.Set("vmid", strconv.Itoa(vmid))
	}
	var items []struct {
		VolID text
		Size  number
		CTime number
	}
	if err := c.do(ctx, call{method: http.MethodGet, path: storagePath(node, storage, "content"), query: q}, &items); err != nil {
		return nil, err
	}
	var out []Volume
	for _, i := range items {
		v := Volume{ID: string(i.VolID), Size: int64(i.Size)}
		if i.CTime > 0 {
			v.Created = time.Unix(int64(i.CTime), 0).UTC()
		}
		out = append(out, v)
	}
	return out, nil
}

// Volume reads one volume's size; IsNoVolume reports that there is none.
func (c *Client) Volume(ctx context.Context, node, storage, volume string) (Volume, error) {
	var v struct{ Size number }
	err := c.do(ctx, call{method: http.MethodGet, path: storagePath(node, storage, "content", volume)}, &v)
	return Volume{ID: volume, Size: int64(v.Size)}, err
}

// RemoveVolume starts removing a volume. PVE removes an ISO image that a VM has in its
// drive without a word: who asks must look first. A volume that is not there is no error.
// The task may be over already, and then has no UPID.
func (c *Client) RemoveVolume(ctx context.Context, node, storage, volume string) (UPID, error) {
	return c.task(ctx, call{method: http.MethodDelete, path: storagePath(node, storage, "content", volume)})
}

// Upload starts storing an ISO image under a name of letters, digits, ".", "-" and "_"
// that ends in ".iso"; a volume of that name is overwritten. The server checks the content
// against its SHA-256.
//
// pveproxy takes neither chunked bodies nor a quoted boundary, and wants the fields before
// the file. A large upload that it refuses is cut off without an answer.
func (c *Client) Upload(ctx context.Context, node, storage, name string, image []byte) (UPID, error) {
	sum := sha256.Sum256(image)
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for _, field := range [][2]string{{"content", "iso"}, {"checksum-algorithm", "sha256"}, {"checksum", hex.EncodeToString(sum[:])}} {
		if err := w.WriteField(field[0], field[1]); err != nil {
			return "", err
		}
	}
	part, err := w.CreateFormFile("filename", name)
	if err != nil {
		return "", err
	}
	if _, err := part.Write(image); err != nil {
		return "", err
	}
	if err := w.Close(); err != nil {
		return "", err
	}
	return c.task(ctx, call{method: http.MethodPost, path: storagePath(node, storage, "upload"), body: b.Bytes(),
		contentType: "multipart/form-data; boundary=" + w.Boundary(), timeout: uploadTimeout})
}

// StorageStatus is a storage as one node sees it now.
type StorageStatus struct {
	Active, Enabled, Shared bool
	Content                 []string
	Size, Free              int64 // bytes
}

// StorageStatus reads it.
func (c *Client) StorageStatus(ctx context.Context, node, storage string) (StorageStatus, error) {
	var s struct {
		Active, Enabled, Shared flag
		Content                 text
		Total, Avail            number
	}
	err := c.do(ctx, call{method: http.MethodGet, path: storagePath(node, storage, "status")}, &s)
	return StorageStatus{Active: bool(s.Active), Enabled: bool(s.Enabled), Shared: bool(s.Shared),
		Content: strings.Split(string(s.Content), ","), Size: int64(s.Total), Free: int64(s.Avail)}, err
}

func storagePath(node, storage string, rest ...string) string {
	return path(append([]string{"nodes", node, "storage", storage}, rest...)...)
}
