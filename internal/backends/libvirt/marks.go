package libvirt

import (
	"sync"

	golibvirt "github.com/digitalocean/go-libvirt"
)

// marks keeps the marks of domains by UUID, for there is no call that reads them all. It
// keeps them only while a watcher is connected, which hears of every change to a domain's
// metadata or definition and has it forgotten; otherwise each is read anew.
type marks struct {
	mu      sync.Mutex // guards the fields that follow
	watched int        // watchers that are connected
	known   map[golibvirt.UUID]knownMark
}

type knownMark struct {
	domainMark
	marked bool
}

func newMarks() marks { return marks{known: map[golibvirt.UUID]knownMark{}} }

// mark reads a domain's mark, from memory where that is sure; ours is false for domains of
// nobody's and of others.
func (b *Backend) mark(s *session, dom golibvirt.Domain) (m domainMark, ours bool, err error) {
	if k, ok := b.marks.get(dom.UUID); ok {
		return k.domainMark, k.marked && k.Owned(b.owner), nil
	}
	m, marked, err := readMark(s, dom)
	if err != nil {
		return domainMark{}, false, err
	}
	b.marks.put(dom.UUID, knownMark{m, marked})
	return m, marked && m.Owned(b.owner), nil
}

func (k *marks) get(id golibvirt.UUID) (knownMark, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	m, ok := k.known[id]
	return m, ok
}

func (k *marks) put(id golibvirt.UUID, m knownMark) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.watched > 0 {
		k.known[id] = m
	}
}

func (k *marks) forget(id golibvirt.UUID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.known, id)
}

// watch counts a watcher that is connected. What was known before may be stale.
func (k *marks) watch(by int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.watched += by
	clear(k.known)
}
