package sim

import (
	"errors"
	"sync"
	"time"

	"proxyfleet/internal/backends"
)

// The kinds of objects: an instance, and the secondary resource that it needs.
const (
	kindInstance = "instance"
	kindDisk     = "disk"
)

var kinds = [...]string{kindInstance, kindDisk}

// key names an object; two objects of one kind and name cannot exist.
type key struct{ Kind, Name string }

// object is one thing on a simulated host. A foreign one has no mark.
type object struct {
	Mark       backends.Mark   `json:"mark"`
	Generation uint64          `json:"generation,omitempty"`
	Fixed      string          `json:"fixed,omitempty"` // digest of what cannot change in place
	Status     backends.Status `json:"status,omitempty"`
	Port       int             `json:"port,omitempty"`
	Started    time.Time       `json:"started,omitzero"`
	Script     script          `json:"script,omitzero"`
}

// errUnreadable says that an object is there and cannot be read.
var errUnreadable = errors.New("object is unreadable")

// store keeps objects. Each method is atomic; get and list give copies.
type store interface {
	get(k key) (o object, found bool, err error)
	put(k key, o object) error
	remove(k key) error
	// list gives every object of a kind by name; unread has those that could not be read.
	list(kind string) (objects map[string]object, unread map[string]error, err error)
	count(kind string) (int, error)
}

// World is a simulated host: what is on it, and who watches. It outlives the backends
// opened on it, as a machine outlives its agent. Its methods let a test be the somebody
// else who does things to a host.
type World struct {
	store   store
	feed    backends.Feed
	trouble trouble
	// alloc makes "is there room" and "take it" one step.
	alloc sync.Mutex
}

// NewWorld makes an empty host that lives in memory.
func NewWorld() *World { return &World{store: newMemory()} }

// OpenWorld opens the host kept in a directory, which is made if it is missing. Several
// processes may open it one after another; sync makes every write reach the disk.
func OpenWorld(dir string, sync bool) (*World, error) {
	s, err := openDirectory(dir, sync)
	if err != nil {
		return nil, err
	}
	return &World{store: s}, nil
}

// Crash makes the instance of uid end by itself.
func (w *World) Crash(uid string) error {
	k := key{kindInstance, backends.InstanceName(uid)}
	o, found, err := w.store.get(k)
	if err != nil || !found {
		return errors.Join(err, backends.ErrNotFound)
	}
	o.Status = backends.StatusCrashed
	if err := w.store.put(k, o); err != nil {
		return err
	}
	w.feed.Send(backends.Event{UID: uid, Reason: "Crashed"})
	return nil
}

// Vanish removes everything of uid behind the agent's back.
func (w *World) Vanish(uid string) error {
	var errs error
	for _, kind := range kinds {
		errs = errors.Join(errs, w.store.remove(key{kind, backends.InstanceName(uid)}))
	}
	w.feed.Send(backends.Event{UID: uid, Reason: "Vanished"})
	return errs
}

// Plant puts an instance under the name of uid that carries mark, as somebody else might; a
// zero mark is a thing that nobody marked.
func (w *World) Plant(uid string, mark backends.Mark) error {
	return w.store.put(key{kindInstance, backends.InstanceName(uid)}, object{Mark: mark, Status: backends.StatusRunning})
}

// Objects lists what exists under the name of uid, as "kind name", whoever it belongs to.
func (w *World) Objects(uid string) ([]string, error) {
	var out []string
	for _, kind := range kinds {
		k := key{kind, backends.InstanceName(uid)}
		_, found, err := w.store.get(k)
		if err != nil && !errors.Is(err, errUnreadable) {
			return nil, err
		}
		if found {
			out = append(out, k.Kind+" "+k.Name)
		}
	}
	return out, nil
}
