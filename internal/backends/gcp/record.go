package gcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/renameio/v2"
	"github.com/google/uuid"

	"proxyfleet/internal/backends"
)

// record is what must not be forgotten of a uid. It is there from before its first insert until
// it was deleted.
type record struct {
	Proxy     string    `json:"proxy"`
	UID       string    `json:"uid"`
	CreatedAt time.Time `json:"createdAt"`
	// Attempt numbers the inserts. Each has a requestId of its own: one that was used before would be
	// answered with the operation of that time. The numbers are milliseconds since 1970, or one more
	// than the last, so that none comes again after a record was lost or removed.
	Attempt int64 `json:"attempt"`
	// Zones are those in which something was ever asked for.
	Zones []string `json:"zones"`
	// Open is the attempt whose end is not known, nil without one.
	Open *attempt `json:"open,omitempty"`
	// Spot says that a spot instance was made; one that is not there any more was taken away.
	Spot bool `json:"spot,omitempty"`
	// Preempted says that it was taken away, and is not to be made again.
	Preempted bool `json:"preempted,omitempty"`
}

// attempt is one insert, the latest.
type attempt struct {
	Zone      string    `json:"zone"`
	SentAt    time.Time `json:"sentAt"`
	Operation string    `json:"operation,omitempty"` // empty: the answer is not known, or it was never sent
}

// requestSpace makes the UUIDs of proxyfleet's requests its own.
var requestSpace = uuid.MustParse("6f1c9a52-3f0e-5c1b-9a0e-2d4e7b8c1a63")

// requestID is the requestId of an insert: the same for the same attempt, by whoever it is sent.
func requestID(uid, zone string, attempt int64) string {
	return uuid.NewSHA1(requestSpace, []byte(uid+"\x00"+zone+"\x00"+strconv.FormatInt(attempt, 10))).String()
}

// begin opens the next attempt, in zone.
func (r *record) begin(zone string, now time.Time) {
	r.Attempt = max(r.Attempt+1, now.UnixMilli())
	r.Open = &attempt{Zone: zone, SentAt: now.UTC().Truncate(time.Millisecond)}
	if !slices.Contains(r.Zones, zone) {
		r.Zones = append(r.Zones, zone)
	}
}

// records is a directory with one file for each. The calls for one uid come one after another.
type records struct{ dir string }

func (r *records) path(uid string) string { return filepath.Join(r.dir, uid+".json") }

// get returns a uid's record, nil without one. A damaged one is an error: what it said of an
// insert under way must not be guessed.
func (r *records) get(uid string) (*record, error) {
	raw, err := os.ReadFile(r.path(uid))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var rec record
	if err == nil {
		err = json.Unmarshal(raw, &rec)
	}
	if err == nil && rec.UID != uid {
		err = fmt.Errorf("it is of uid %q", rec.UID)
	}
	if err != nil {
		return nil, backends.Wrap(backends.ErrHostFault, "read record", err, "the record %s cannot be read; if it is damaged, remove it once no operation on the instance runs", r.path(uid))
	}
	return &rec, nil
}

// put writes a record, announced as a side effect.
func (r *records) put(ctx context.Context, label string, rec *record) error {
	if err := backends.Step(ctx, label); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	raw, err := json.Marshal(rec)
	if err == nil {
		err = os.MkdirAll(r.dir, 0o700)
	}
	if err == nil {
		err = renameio.WriteFile(r.path(rec.UID), raw, 0o600)
	}
	return backends.Wrap(backends.ErrHostFault, "write record", err, "the record of proxy %s cannot be written to %s", rec.Proxy, r.dir)
}

// remove forgets a uid, announced as a side effect if there is something to forget.
func (r *records) remove(ctx context.Context, uid string) error {
	if _, err := os.Lstat(r.path(uid)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := backends.Step(ctx, "record.remove"); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	err := os.Remove(r.path(uid))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return backends.Wrap(backends.ErrHostFault, "remove record", err, "the record %s cannot be removed", r.path(uid))
}

// all returns every record.
func (r *records) all() ([]*record, error) {
	names, err := os.ReadDir(r.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, backends.Wrap(backends.ErrHostFault, "list records", err, "the records in %s cannot be listed", r.dir)
	}
	var out []*record
	for _, n := range names {
		uid, isRecord := strings.CutSuffix(n.Name(), ".json")
		if !isRecord {
			continue
		}
		rec, err := r.get(uid)
		if err == nil && rec != nil { // a damaged one stands in the way of its own uid only
			out = append(out, rec)
		}
	}
	return out, nil
}
