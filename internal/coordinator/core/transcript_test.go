package core

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"proxyfleet/internal/bus"
)

// TestTranscripts plays testdata/transcripts/*.txt: what happens, and the commands that follow.
// Run with -rewrite to write the answers anew, and read the difference.
//
//	host NAME            {changes to a plain libvirt host's document, kept for later}
//	start [TEXT]         everything stored was read; TEXT shows that some of it is missing
//	intent NAME          {the document}; spec is filled with an access rule if it is left out
//	pool NAME            {the document}; its template is filled likewise
//	state HOST PROXY UID PHASE   {more of the state}
//	beat HOST            {changes}
//	pulls HOST yes|no    the answer to ask-pulls
//	tick 5s              time passes
//	pass 5m HOST…        time passes, in which these hosts beat and nobody pulls for others
//	foreign SUBJECT      {a document that somebody else writes}
//	lose SUBJECT         a message is removed behind the leader's back
//	full TEXT            streams are full; without text: no longer
//	ask TYPE             {a person's request, of one of the types in asks}
//	renew INCARNATION    all streams are lost and made anew, and a leader begins
//	backup               the streams are copied
//	restore [STREAM]     they are, or one is, made of the last copy, and a leader begins
//	takeover             another coordinator reads everything and leads
//
// Uids are written u1, u2, … in the order in which they come up. "quiet" before the name
// of an input leaves out events; "brief" leaves out the inventory as well. "gist" shows
// assignments by what they want, events, and of the inventory what pools come to.
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata/transcripts", func(t *testing.T, path string) {
		s := &script{w: newWorld(), names: map[string]string{}}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			return s.play(t, d)
		})
	})
}

// asks are what a transcript may ask for, by the names of their types.
var asks = func() map[string]reflect.Type {
	out := map[string]reflect.Type{}
	for _, a := range []Ask{Cordon{}, Uncordon{}, Drain{}, Maintain{}, DeclareLost{}, Scale{}, Rotate{}, Pause{}, Resume{}, Pin{}, Unpin{}, RemoveHost{}, Stranded{}, Abandon{}, Resolve{}, Adopt{}, Explain{}, Recover{}} {
		out[reflect.TypeOf(a).Name()] = reflect.TypeOf(a)
	}
	return out
}()

type script struct {
	w     *world
	names map[string]string // uid → alias
	order []string          // uids
	// The last copy of the streams.
	stored map[string]bus.Msg
	seq    map[string]uint64
}

func (s *script) play(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	w := s.w
	cmd, args := d.Cmd, make([]string, len(d.CmdArgs))
	for i, a := range d.CmdArgs {
		args[i] = a.Key
	}
	level := ""
	if cmd == "quiet" || cmd == "brief" || cmd == "gist" {
		level, cmd, args = cmd, args[0], args[1:]
	}
	input := s.realUIDs(d.Input)
	for i := range args {
		args[i] = s.realUIDs(args[i])
	}
	into := func(doc any) {
		if input == "" {
			return
		}
		if err := json.Unmarshal([]byte(input), doc); err != nil {
			d.Fatalf(t, "%v", err)
		}
	}
	var out []Command
	switch cmd {
	case "host":
		h := w.host(args[0])
		into(&h)
		out = w.settle(w.publishHost(args[0], h))
	case "start":
		out = w.settle(CaughtUp{Lost: strings.Join(args, " ")})
	case "intent":
		out = w.settle(Message(w.store(w.cfg.Names.IntentProxy(args[0]), []byte(intentText(args[0], input)))))
	case "pool":
		out = w.settle(Message(w.store(w.cfg.Names.IntentPool(args[0]), []byte(poolText(args[0], input)))))
	case "state":
		st := bus.State{Phase: bus.Phase(args[3])}
		into(&st)
		out = w.settle(w.publishState(args[0], args[1], args[2], st))
	case "beat":
		h := w.host(args[0])
		b := bus.Beat{Type: bus.TypeBeat, HostID: h.HostID, Session: h.Session}
		into(&b)
		out = w.settle(Beat{args[0], b})
	case "pulls":
		out = w.settle(Pulls{args[0], args[1] == "yes"})
	case "tick":
		by, err := time.ParseDuration(args[0])
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		w.now = w.now.Add(by)
		out = w.settle(Tick{})
	case "pass":
		for _, name := range args[1:] {
			if w.host(name).Counter == 0 {
				d.Fatalf(t, "host %s was never published", name)
			}
		}
		by, err := time.ParseDuration(args[0])
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		out = w.pass(by, args[1:]...)
	case "foreign":
		out = w.settle(Message(w.store(args[0], []byte(input))))
	case "lose":
		delete(w.stored, args[0])
	case "full":
		out = w.settle(Usage{strings.Join(args, " ")})
	case "ask":
		ask := reflect.New(asks[args[0]])
		into(ask.Interface())
		out = w.settle(Request{ID: 1, Ask: ask.Elem().Interface().(Ask)})
	case "renew":
		w.cfg.Installation.Incarnation = args[0]
		w.stored, w.seq = map[string]bus.Msg{}, map[string]uint64{}
		out = w.takeover()
	case "backup":
		s.stored, s.seq = maps.Clone(w.stored), maps.Clone(w.seq)
	case "restore":
		of := func(stream string) bool { return len(args) == 0 || stream == args[0] }
		maps.DeleteFunc(w.stored, func(subject string, _ bus.Msg) bool { return of(w.stream(subject)) })
		for subject, msg := range s.stored {
			if stream := w.stream(subject); of(stream) {
				w.stored[subject], w.seq[stream] = msg, s.seq[stream]
			}
		}
		out = w.takeover()
	case "takeover":
		out = w.takeover()
	default:
		d.Fatalf(t, "unknown input %q", cmd)
	}
	var b strings.Builder
	for _, c := range out {
		s.print(&b, c, level)
	}
	if b.Len() == 0 {
		return "nothing\n"
	}
	return s.aliases(b.String())
}

// intentText fills in what a test does not care about.
func intentText(name, input string) string {
	if input == "" {
		input = "{}"
	}
	var doc map[string]any
	if json.Unmarshal([]byte(input), &doc) != nil {
		return input
	}
	if _, ok := doc["name"]; !ok {
		doc["name"] = name
	}
	spec, ok := doc["spec"].(map[string]any)
	if !ok && doc["spec"] == nil {
		spec = map[string]any{}
	}
	if spec != nil && doc["desired"] != "absent" && spec["open"] == nil {
		if _, ok := spec["allowFrom"]; !ok {
			spec["allowFrom"] = []string{"10.0.0.0/8"}
		}
		doc["spec"] = spec
	}
	if spec != nil {
		delete(spec, "open")
	}
	out, _ := json.Marshal(doc)
	return string(out)
}

// poolText fills in what a test does not care about.
func poolText(name, input string) string {
	doc := map[string]any{}
	if json.Unmarshal([]byte(input), &doc) != nil {
		return input
	}
	doc["name"] = name
	if template, ok := doc["template"].(map[string]any); doc["desired"] != "absent" && (ok || doc["template"] == nil) {
		if template == nil {
			template = map[string]any{}
		}
		if _, ok := template["allowFrom"]; !ok {
			template["allowFrom"] = []string{"10.0.0.0/8"}
		}
		doc["template"] = template
	}
	out, _ := json.Marshal(doc)
	return string(out)
}

// gist prints what a pool's transcript is about, and reports whether c is done with.
func (s *script) gist(b *strings.Builder, c Command) bool {
	switch c := c.(type) {
	case Commit:
		for _, w := range c.Writes {
			at, _ := s.w.cfg.Names.Parse(w.Subject)
			if a, err := bus.Decode[bus.Assignment](w.Data); err == nil && at.Kind == "assign" {
				fmt.Fprintf(b, "%s %s, generation %d\n", strings.TrimPrefix(w.Subject, "fleet."), a.Desired, a.Generation)
			}
		}
	case Put:
		if r, err := bus.Decode[bus.PoolRecord](c.Value); err == nil && c.Bucket == Pools {
			fmt.Fprintf(b, "pool %s: %d wanted, %d are, %d ready", r.Pool, r.Size, r.Members, r.Ready)
			for _, n := range []struct {
				what string
				n    int
			}{{"failed", r.Failed}, {"leaving", r.Leaving}, {"updating", r.Updating}, {"rotating", r.Rotating}} {
				if n.n > 0 {
					fmt.Fprintf(b, ", %d %s", n.n, n.what)
				}
			}
			if r.Waiting != "" {
				fmt.Fprintf(b, "; %s", r.Waiting)
			}
			fmt.Fprintln(b)
		}
	case Say:
		fmt.Fprintf(b, "event %s %s (%s): %s\n", strings.TrimPrefix(c.Subject, "fleet.event."), c.Doc.Reason, c.Doc.Cause, c.Doc.Message)
	case Retire, AskPulls:
	default:
		return false
	}
	return true
}

func (s *script) print(b *strings.Builder, c Command, level string) {
	if level == "gist" && s.gist(b, c) {
		return
	}
	switch c := c.(type) {
	case Commit:
		fmt.Fprintln(b, "commit")
		for _, w := range c.Writes {
			fmt.Fprintf(b, "  %s %s\n", strings.TrimPrefix(w.Subject, "fleet."), compact(w.Data))
		}
	case Retire:
		fmt.Fprintf(b, "retire %s @%d, state @%d\n", strings.TrimPrefix(c.Assign.Subject, "fleet."), c.Assign.Seq, c.State.Seq)
	case ForgetLedger:
		fmt.Fprintf(b, "forget %s @%d\n", strings.TrimPrefix(c.Entry.Subject, "fleet."), c.Entry.Seq)
	case Put:
		if level != "brief" {
			fmt.Fprintf(b, "put %s %s %s\n", c.Bucket, c.Key, compact(c.Value))
		}
	case Delete:
		fmt.Fprintf(b, "delete %s %s\n", c.Bucket, c.Key)
	case AdmitHost:
		fmt.Fprintf(b, "admit %s", c.Host)
		if c.As.HostID == "" {
			fmt.Fprintf(b, " nobody: %s", c.As.Word)
		}
		if c.As.Asked != "" {
			fmt.Fprintf(b, ", and %s is asked to say everything again", c.As.Asked)
		}
		fmt.Fprintln(b)
	case DismissHost:
		fmt.Fprintf(b, "dismiss %s\n", c.Host)
	case UnpinHost:
		fmt.Fprintf(b, "unpin %s\n", c.Host)
	case ResyncHost:
		fmt.Fprintf(b, "resync %s\n", c.Host)
	case AskPulls:
		fmt.Fprintf(b, "ask-pulls %s\n", c.Host)
	case Say:
		if level == "" {
			fmt.Fprintf(b, "event %s %s: %s\n", strings.TrimPrefix(c.Subject, "fleet.event."), c.Doc.Reason, c.Doc.Message)
		}
	case Reply:
		if c.Bad != nil {
			fmt.Fprintf(b, "refused %s %s\n", c.Bad.Code, c.Bad)
		} else if level != "brief" {
			fmt.Fprintf(b, "answer %s\n", compact(bus.Encode(c.Doc)))
		}
	case Alarm:
		fmt.Fprintf(b, "alarm %s: %s\n", c.Reason, c.Message)
	}
}

// compact leaves out what is the same in every document of a transcript.
func compact(data []byte) string {
	var doc map[string]any
	if json.Unmarshal(data, &doc) != nil {
		return string(data)
	}
	for _, k := range []string{"type", "installation", "incarnation", "offer", "labels", "backend", "shape", "kind", "name", "proxy", "defaulted"} {
		delete(doc, k)
	}
	if c, ok := doc["conditions"].([]any); ok {
		var words []string
		for _, c := range c {
			c := c.(map[string]any)
			if c["status"] == "True" && c["type"] != "Ready" || c["status"] == "False" && c["type"] == "Ready" {
				words = append(words, fmt.Sprint(c["type"], "=", c["status"], " ", c["reason"], " ", c["message"]))
			}
		}
		doc["conditions"] = words
	}
	if accepted, ok := doc["accepted"].(map[string]any); ok {
		plain(accepted["spec"])
		plain(accepted["template"])
		doc["accepted"] = accepted["spec"]
		switch {
		case accepted["desired"] != "running":
			doc["accepted"] = accepted["desired"]
		case accepted["template"] != nil:
			for _, k := range []string{"type", "name", "desired", "scaleDown"} {
				delete(accepted, k)
			}
			doc["accepted"] = accepted
		}
	}
	plain(doc["bound"])
	plain(doc["spec"])
	out, _ := json.Marshal(doc)
	return string(out)
}

// plain leaves out of a spec what intentText puts in.
func plain(spec any) {
	if m, ok := spec.(map[string]any); ok && fmt.Sprint(m["allowFrom"]) == "[10.0.0.0/8]" {
		delete(m, "allowFrom")
	}
}

var uidPattern = regexp.MustCompile(`\b0[0-9a-hjkmnp-tv-z]{25}\b`)

// aliases writes u1, u2, … for uids.
func (s *script) aliases(text string) string {
	return uidPattern.ReplaceAllStringFunc(text, func(uid string) string {
		if _, ok := s.names[uid]; !ok {
			s.order = append(s.order, uid)
			s.names[uid] = "u" + strconv.Itoa(len(s.order))
		}
		return s.names[uid]
	})
}

var aliasPattern = regexp.MustCompile(`\bu[0-9]+\b`)

func (s *script) realUIDs(text string) string {
	return aliasPattern.ReplaceAllStringFunc(text, func(alias string) string {
		n, _ := strconv.Atoi(alias[1:])
		if n < 1 || n > len(s.order) {
			return alias
		}
		return s.order[n-1]
	})
}
