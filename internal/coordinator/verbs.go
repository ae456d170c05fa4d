package coordinator

import (
	"context"

	"github.com/nats-io/nats.go/micro"

	"proxyfleet/internal/coordinator/core"
	"proxyfleet/internal/coordinator/intents"
)

// serve answers a request: with a document, nil where it has answered itself, or with what
// is wrong.
type serve func(context.Context, micro.Request) (any, *intents.Invalid)

// verb is one endpoint. What people read of it stands in its metadata: request is a
// document that is understood, response says what comes back.
type verb struct {
	name, about       string
	request, response string
	serve             serve
}

const (
	hostBecause  = `{"host": "kvm-1", "reason": "new disk"}`
	strandedUID  = `{"host": "kvm-1", "uid": "01jd8…", "reason": "wiped by hand"}`
	aListing     = `{"items": [records in the order of names], "next": "what to give as after for more"}`
	aHostRecord  = "the host's record, hostrecord.v1"
	aPoolRecord  = "the pool's record, poolrecord.v1"
	aProxyRecord = "the proxy's record, record.v1"
)

// verbs are all endpoints. Those that take a core.Ask read its fields strictly.
func (a *api) verbs() []verb {
	return append(append([]verb{
		{"apply", "Stores an intent for a proxy or a pool and answers once it is accepted, or with what is wrong with it.",
			`{"name": "crawl-1", "spec": {"allowFrom": ["10.0.0.0/8"]}}`, `{"proxy" or "pool", "seq": of the intent, "record"}`, a.apply},
		{"delete", "Asks for the absence of a proxy or a pool.", `{"pool": "crawl"}`, `{"proxy" or "pool", "seq": of the intent, "record"}`, a.remove},
		{"get", "Shows a record of the inventory. A bare name is a proxy's.", `{"proxy": "crawl-1"}`, "record.v1, poolrecord.v1 or hostrecord.v1", a.get},
		{"describe", "Shows a record, the intent in force without its secrets, and the events in order.",
			`{"proxy": "crawl-1"}`, `{"record", "accepted", "bound", "retired", "events": oldest first}`, a.describe},
		{"list", "Lists proxies, all or those that match every field that is given. Zone and labels are those of the host: proxies and pools have no labels of their own.",
			`{"pool": "crawl", "host": "kvm-1", "zone": "eu-1", "phase": "Running", "labels": {"rack": "a"}, "accepted": true, "after": "crawl-7", "limit": 100}`, aListing, a.list},
		{"pools", "Lists pools.", `{"after": "crawl", "limit": 100}`, aListing, a.page(core.Pools)},
		{"hosts", "Lists hosts.", `{"after": "kvm-1", "limit": 100}`, aListing, a.page(core.Hosts)},
		{"watch", "Sends what matches now, and then each change until the seconds are over: many replies, the last one empty. With the error NotLeading in its headers, another coordinator leads since: watch again.",
			`{"phase": "Running", "seconds": 60}`, `{"proxy", "record": null when it has gone}, …`, a.watch},
	}, a.poolVerbs()...), a.hostVerbs()...)
}

func (a *api) poolVerbs() []verb {
	return []verb{
		{"scale", "Sets the size of a pool that has min and max.", `{"pool": "crawl", "size": 20}`, aPoolRecord, asks[core.Scale](a)},
		{"rotate", "Replaces one member, or all of a pool that are not pinned, one after another.", `{"pool": "crawl"}`, "the pool's or the member's record", asks[core.Rotate](a)},
		{"pause", "Stops a pool from adding, replacing and removing members.", `{"pool": "crawl"}`, aPoolRecord, asks[core.Pause](a)},
		{"resume", "Ends a pause.", `{"pool": "crawl"}`, aPoolRecord, asks[core.Resume](a)},
		{"pin", "Keeps a member from rotation.", `{"proxy": "crawl-7"}`, aProxyRecord, asks[core.Pin](a)},
		{"unpin", "Takes a pin back.", `{"proxy": "crawl-7"}`, aProxyRecord, asks[core.Unpin](a)},
	}
}

func (a *api) hostVerbs() []verb {
	return []verb{
		{"cordon", "Places nothing new on a host; what runs there stays.", hostBecause, aHostRecord, asks[core.Cordon](a)},
		{"uncordon", "Takes back a cordon, a drain, a maintenance or a removal.", `{"host": "kvm-1"}`, aHostRecord, asks[core.Uncordon](a)},
		{"drain", "Places everything of a host elsewhere.", hostBecause, aHostRecord, asks[core.Drain](a)},
		{"maintain", "Announces that a host will be away, so that nobody takes it for lost.",
			`{"host": "kvm-1", "until": "2027-01-01T06:00:00Z", "reason": "kernel"}`, aHostRecord, asks[core.Maintain](a)},
		{"lost", "Says that a silent host is lost: its proxies are placed elsewhere now.", hostBecause, aHostRecord, asks[core.DeclareLost](a)},
		{"remove-host", "Takes a host out of the fleet.", `{"host": "kvm-1", "force": false, "reason": "sold"}`, `{"host", "hostId", "removed"}`, asks[core.RemoveHost](a)},
		{"explain", "Says for each host why a proxy would be placed there or not; changes nothing. A spec stands for one that is not there yet.",
			`{"spec": {"machineType": "small", "placement": {"zone": "eu-1"}}}`, `{"host": that would be taken, "waiting", "bound", "hosts": [{"host", "fits", "reason", "load"}]}`, asks[core.Explain](a)},
		{"stranded", "Lists what is left somewhere and nobody can or may remove by itself.", `{"host": "kvm-1"}`, `{"items": [{"host", "proxy", "uid", "kind", "reason"}]}`, asks[core.Stranded](a)},
		{"abandon", "Gives up what is stranded: it is left as it is, and not listed any more.", strandedUID, "what was stranded", asks[core.Abandon](a)},
		{"resolve", "Removes what is stranded and the ledger does not know.", strandedUID, "what was stranded", asks[core.Resolve](a)},
		{"adopt", "Takes what is stranded as what an intent asks for.", `{"host": "kvm-1", "uid": "01jd8…"}`, "what was stranded", asks[core.Adopt](a)},
		{"recover", "Ends a freeze: these streams, as they are, are the right ones.", `{"reason": "restored from last night's backup"}`, `{"recovery", "frozen", "adopted", "left"}`, asks[core.Recover](a)},
	}
}

// asks serves a request that the model decides about, or only looks at.
func asks[T core.Ask](a *api) serve {
	return func(ctx context.Context, r micro.Request) (any, *intents.Invalid) {
		var doc T
		if bad := intents.Decode(r.Data(), &doc); bad != nil {
			return nil, bad
		}
		return a.ask(ctx, doc)
	}
}
