package fleettest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/bus/bustest"
)

// Stage is where a storm takes place: a bootstrapped cluster with hosts, and coordinators
// that the test started.
type Stage struct {
	T       testing.TB
	Cluster *bustest.Cluster
	NC      *nats.Conn // of people
	JS      jetstream.JetStream
	Hosts   []*Host
	Intents int // proxies with an intent of their own
	Pools   int
	Size    int // of each pool
	Drained int // hosts
	// Freeze makes the coordinator that leads unable to do anything and returns what lets it
	// go on.
	Freeze func() (thaw func())
	// Patience is how long each part may take.
	Patience time.Duration
}

var names bus.Names

// Storm creates, rotates and drains a fleet while a server is killed, the network parts and
// the leader freezes, and holds in the end: each proxy has one instance, the one that its
// record names; and once all are unwanted, nothing is left of any.
func (s *Stage) Storm() {
	s.T.Helper()
	s.step("create, while the server that leads the decisions is killed", func() {
		s.publish()
		victim := s.Cluster.Leader(s.JS, names.Assignments())
		s.Cluster.Kill(victim)
		time.Sleep(time.Second)
		s.Cluster.Start(victim)
		s.settled()
	})
	s.step("rotate, while the server that leads the decisions is parted from the others", func() {
		was := s.members()
		for n := range s.Pools {
			s.ask("rotate", fmt.Sprintf(`{"pool":%q}`, pool(n)))
		}
		lonely := s.Cluster.Leader(s.JS, names.Assignments())
		s.Cluster.Part(lonely)
		time.Sleep(4 * time.Second)
		s.Cluster.Join(lonely)
		s.eventually("every member is another one", func() error {
			for name := range s.members() {
				if was[name] {
					return fmt.Errorf("%s is still there", name)
				}
			}
			return nil
		})
		s.settled()
	})
	s.step("drain, while the leader is frozen past its lease", func() {
		for _, h := range s.Hosts[:s.Drained] {
			s.ask("drain", fmt.Sprintf(`{"host":%q}`, h.name))
		}
		was := s.term()
		thaw := s.Freeze()
		time.Sleep(4 * time.Second)
		if s.term() == was {
			s.T.Errorf("nobody has taken over from a leader that was frozen in term %s", was)
		}
		thaw()
		s.eventually("nothing on the drained hosts", func() error {
			for _, h := range s.Hosts[:s.Drained] {
				if live := h.Live(); len(live) > 0 {
					return fmt.Errorf("host %s still has %d", h.name, len(live))
				}
			}
			return nil
		})
		s.settled()
	})
	s.step("remove everything", func() {
		for n := range s.Intents {
			s.put(names.IntentProxy(single(n)), bus.Intent{Name: single(n), Desired: bus.DesiredAbsent})
		}
		for n := range s.Pools {
			s.put(names.IntentPool(pool(n)), bus.PoolIntent{Name: pool(n), Desired: bus.DesiredAbsent})
		}
		s.nothingLeft()
	})
}

func (s *Stage) step(what string, do func()) {
	s.T.Helper()
	began := time.Now()
	do()
	s.T.Logf("%s: %v", what, time.Since(began).Round(100*time.Millisecond))
}

func single(n int) string { return fmt.Sprintf("one-%d", n) }
func pool(n int) string   { return fmt.Sprintf("pool-%d", n) }

// publish asks for everything.
func (s *Stage) publish() {
	s.T.Helper()
	spec := bus.Spec{AllowFrom: []string{"10.0.0.0/8"}}
	surge := max(1, s.Size/4)
	for n := range s.Pools {
		s.put(names.IntentPool(pool(n)), bus.PoolIntent{Name: pool(n), Size: &s.Size, Template: spec, Update: bus.Update{Surge: &surge}})
	}
	for n := range s.Intents {
		s.put(names.IntentProxy(single(n)), bus.Intent{Name: single(n), Spec: spec})
	}
}

// put stores a document, as often as it takes.
func (s *Stage) put(subject string, doc any) {
	s.T.Helper()
	s.eventually("a document is stored on "+subject, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_, err := s.JS.Publish(ctx, subject, bus.Encode(doc))
		return err
	})
}

// ask repeats a request until it is carried out: what it asks for does not add up.
func (s *Stage) ask(verb, body string) {
	s.T.Helper()
	s.eventually(verb+" "+body, func() error {
		m, err := s.NC.Request(names.API()+"."+verb, []byte(body), 2*time.Second)
		if err == nil && m.Header.Get(micro.ErrorCodeHeader) != "" {
			err = errors.New(m.Header.Get(micro.ErrorHeader))
		}
		return err
	})
}

func (s *Stage) term() string { return s.leader()["term"] }

// LeaderPID is the process that leads.
func (s *Stage) LeaderPID() int {
	s.T.Helper()
	pid, err := strconv.Atoi(s.leader()["pid"])
	if err != nil {
		s.T.Fatal(err)
	}
	return pid
}

// leader is what the leader's service says of itself.
func (s *Stage) leader() (meta map[string]string) {
	s.T.Helper()
	s.eventually("a leader answers", func() error {
		m, err := s.NC.Request("$SRV.INFO.fleet-api", nil, 2*time.Second)
		if err != nil {
			return err
		}
		var info micro.Info
		err = json.Unmarshal(m.Data, &info)
		meta = info.Metadata
		return err
	})
	return meta
}

func (s *Stage) eventually(what string, probe func() error) {
	s.T.Helper()
	deadline := time.Now().Add(s.Patience)
	for {
		err := probe()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			s.T.Fatalf("%s: not within %v: %v", what, s.Patience, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// records reads the inventory.
func (s *Stage) records() (map[string]bus.Record, error) {
	records := map[string]bus.Record{}
	for after := ""; ; {
		m, err := s.NC.Request(names.API()+".list", fmt.Appendf(nil, `{"after":%q}`, after), 2*time.Second)
		if err != nil {
			return nil, err
		}
		if word := m.Header.Get(micro.ErrorHeader); word != "" {
			return nil, errors.New(word)
		}
		var page struct {
			Items []bus.Record
			Next  string
		}
		if err := json.Unmarshal(m.Data, &page); err != nil {
			return nil, err
		}
		for _, r := range page.Items {
			records[r.Proxy] = r
		}
		if after = page.Next; after == "" {
			return records, nil
		}
	}
}

// members are the names of all pools' members.
func (s *Stage) members() map[string]bool {
	s.T.Helper()
	members := map[string]bool{}
	s.eventually("the inventory", func() error {
		records, err := s.records()
		clear(members)
		for name, r := range records {
			if r.Pool != "" {
				members[name] = true
			}
		}
		return err
	})
	return members
}

// instances are all instances of all hosts: uids by proxy.
func (s *Stage) instances() map[string][]string {
	all := map[string][]string{}
	for _, h := range s.Hosts {
		for name, uids := range h.Live() {
			all[name] = append(all[name], uids...)
		}
	}
	return all
}

// settled waits until all that is asked for runs, once each, and nothing else does.
func (s *Stage) settled() {
	s.T.Helper()
	s.eventually("the fleet is as it was asked for", func() error {
		records, err := s.records()
		if err != nil {
			return err
		}
		if got, want := len(records), s.Intents+s.Pools*s.Size; got != want {
			return fmt.Errorf("%d records, want %d", got, want)
		}
		instances := s.instances()
		for name, r := range records {
			if r.Phase != bus.PhaseRunning || !r.Accepted {
				return fmt.Errorf("%s is %s: %+v", name, r.Phase, r)
			}
			if uids := instances[name]; len(uids) != 1 || uids[0] != r.UID {
				return fmt.Errorf("%s has the instances %v, and its record says %s on %s", name, uids, r.UID, r.Host)
			}
		}
		if len(instances) != len(records) {
			return fmt.Errorf("%d names have instances, %d have records", len(instances), len(records))
		}
		return nil
	})
}

// nothingLeft waits until there is no instance, no record, and nothing in force in a stream.
func (s *Stage) nothingLeft() {
	s.T.Helper()
	s.eventually("nothing is left", func() error {
		records, err := s.records()
		if err != nil {
			return err
		}
		if left := s.instances(); len(left)+len(records) > 0 {
			return fmt.Errorf("%d instances, %d records", len(left), len(records))
		}
		return nil
	})
	bustest.Ended(s.T, s.JS, names.Assignments(), names.AllAssign())
	bustest.Ended(s.T, s.JS, names.States(), names.StateProxy("*", "*", "*"))
}
