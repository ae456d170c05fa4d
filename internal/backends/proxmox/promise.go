package proxmox

import (
	"sync"
	"time"
)

// promise is room that a VM will take but the cluster's listing does not count yet.
type promise struct {
	uid     string
	node    string
	storage string
	cpus    int
	memory  int64
	disk    int64
	until   time.Time // zero: while it is being made
}

// promiseLag is how long the listing takes to count a VM that was made: pvestatd's
// interval, doubled.
const promiseLag = 20 * time.Second

// promises keep two creates from being given the same room.
type promises struct {
	mu   sync.Mutex // guards made; held over a choice
	made map[string]promise
}

// choose runs pick with the promises of others, and keeps what it promises for uid.
func (p *promises) choose(uid string, now time.Time, pick func(others []promise) (promise, error)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var others []promise
	for u, x := range p.made {
		if !x.until.IsZero() && now.After(x.until) {
			delete(p.made, u)
		} else if u != uid {
			others = append(others, x)
		}
	}
	x, err := pick(others)
	if err != nil {
		return err
	}
	if p.made == nil {
		p.made = map[string]promise{}
	}
	x.uid = uid
	p.made[uid] = x
	return nil
}

// settle ends the promise of uid: soon where its VM was made, now where it was not.
func (p *promises) settle(uid string, made bool, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	x, ok := p.made[uid]
	if !ok {
		return
	}
	if !made {
		delete(p.made, uid)
		return
	}
	x.until = now.Add(promiseLag)
	p.made[uid] = x
}
