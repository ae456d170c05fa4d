package libvirt

import (
	"context"
	"strings"

	golibvirt "github.com/digitalocean/go-libvirt"

	"proxyfleet/internal/backends"
)

// List implements [backends.Backend]. Domains, states and leases are read in one call each;
// marks in one for each domain, or none while a watcher keeps them fresh. Addresses are
// those of leases, and unread where there is none: the guest agent is asked by Get.
func (b *Backend) List(ctx context.Context) (backends.Listing, error) {
	s, err := b.open(ctx)
	if err != nil {
		return backends.Listing{}, err
	}
	defer s.close()
	domains, err := read(s, "list domains", func(l *golibvirt.Libvirt) ([]golibvirt.Domain, error) {
		all, _, err := l.ConnectListAllDomains(1, golibvirt.ConnectListDomainsActive|golibvirt.ConnectListDomainsInactive)
		return all, err
	})
	if err != nil {
		return backends.Listing{}, err
	}
	states, err := allStates(s)
	if err != nil {
		return backends.Listing{}, err
	}
	var list backends.Listing
	pool, err := b.inventory(s)
	poolRead := err == nil
	if err != nil {
		list.Unread = append(list.Unread, backends.Unread{What: "pool/" + b.cfg.StoragePool, Err: err})
	}
	leases, _ := b.leases(s)
	names, running := map[string]bool{}, map[string]bool{}
	for _, dom := range domains {
		if !strings.HasPrefix(dom.Name, "pf-") {
			continue
		}
		names[dom.Name] = true
		m, ours, err := b.mark(s, dom)
		switch {
		case err != nil && ctx.Err() != nil:
			return backends.Listing{}, err
		case err != nil:
			list.Unread = append(list.Unread, backends.Unread{What: "domain/" + dom.Name, Err: err})
		case ours && dom.Name == backends.InstanceName(m.UID):
			st := states[dom.UUID]
			_, disk := pool.disk(dom.Name)
			i := describe(seen{there: true, dom: dom, domainMark: m}, st.state, st.reason, poolRead && !disk)
			if found := leases[macAddress(m.UID)]; i.Status == backends.StatusRunning && len(found) > 0 {
				i.Addresses, i.AddressUnread = found, false
				b.guests.saw(m.Mark, found, false, b.now())
			}
			running[m.UID] = i.Status == backends.StatusRunning
			list.Instances = append(list.Instances, i)
		}
	}
	b.guests.only(running)
	list.Unread = append(list.Unread, pool.unread...)
	list.Leftovers = b.leftovers(pool, names)
	return list, ctx.Err()
}

// inventory reads the pool.
func (b *Backend) inventory(s *session) (inventory, error) {
	p, err := b.pool(s)
	if err != nil {
		return inventory{}, err
	}
	return p.inventory(s)
}

// leftovers are the pieces of ours whose domain is not there.
func (b *Backend) leftovers(pool inventory, domains map[string]bool) (left []backends.Leftover) {
	for _, m := range pool.markers {
		n := backends.InstanceName(m.UID)
		if domains[n] || !m.mark().Owned(b.owner) {
			continue
		}
		for _, x := range pool.pieces[n] {
			left = append(left, backends.Leftover{Mark: m.mark(), Kind: x.kind, Name: x.name})
		}
	}
	return left
}

type domainStateNow struct {
	state  golibvirt.DomainState
	reason int32
}

// allStates reads every domain's state in one call.
func allStates(s *session) (map[golibvirt.UUID]domainStateNow, error) {
	records, err := read(s, "domain stats", func(l *golibvirt.Libvirt) ([]golibvirt.DomainStatsRecord, error) {
		return l.ConnectGetAllDomainStats(nil, uint32(golibvirt.DomainStatsState), uint32(golibvirt.ConnectGetAllDomainsStatsNowait))
	})
	if err != nil {
		return nil, err
	}
	states := make(map[golibvirt.UUID]domainStateNow, len(records))
	for _, r := range records {
		states[r.Dom.UUID] = domainStateNow{golibvirt.DomainState(number(r.Params, "state.state")), int32(number(r.Params, "state.reason"))}
	}
	return states, nil
}
