package gcpfake

import (
	"fmt"
	"strings"
)

// Preempt takes a Spot machine back, as Google does at any time: it is stopped or deleted, as its
// instanceTerminationAction says, and an operation compute.instances.preempted tells of it.
// https://cloud.google.com/compute/docs/instances/spot#preemption-process
func (s *Server) Preempt(zone, name string) {
	s.locked(func() {
		r := s.instance(zone, name)
		if r == nil {
			return
		}
		if !isSpot(r.doc) || r.pending {
			s.t.Errorf("gcpfake: %s is no Spot machine that runs", r.key)
			return
		}
		op := s.newOperation("compute.instances.preempted", r.project(), scopeOf(r.key), r)
		op.res.doc["user"], op.res.doc["statusMessage"] = "system", "Instance was preempted."
		op.effect = func() *OperationError { return nil }
		s.end(op)
		if text(r.doc, "scheduling", "instanceTerminationAction") == "DELETE" {
			s.removeInstance(r)
			return
		}
		s.stopped(r)
	})
}

// Terminate stops a machine from inside: its guest shut down.
func (s *Server) Terminate(zone, name string) {
	s.locked(func() {
		if r := s.instance(zone, name); r != nil {
			s.stopped(r)
		}
	})
}

// RemoveInstance makes a machine vanish with its autoDelete disks, as somebody else's delete does.
func (s *Server) RemoveInstance(zone, name string) {
	s.locked(func() {
		if r := s.instance(zone, name); r != nil {
			s.removeInstance(r)
		}
	})
}

// SetStatus puts a machine into a state: "REPAIRING", "SUSPENDED".
func (s *Server) SetStatus(zone, name, status string) {
	s.locked(func() {
		if r := s.instance(zone, name); r != nil {
			r.doc["status"] = status
		}
	})
}

// instance is a machine of the first project that a test names.
func (s *Server) instance(zone, name string) *resource {
	key := "projects/" + s.options.Project + "/zones/" + zone + "/instances/" + name
	r := s.resources[key]
	if r == nil {
		s.t.Errorf("gcpfake: no instance %s", key)
	}
	return r
}

// WriteSerial appends to what a machine wrote to its first serial port.
func (s *Server) WriteSerial(zone, name, text string) {
	s.locked(func() {
		if r := s.instance(zone, name); r != nil {
			s.serial[r.key] += text
		}
	})
}

// maxSerial is how much of a port is kept and answered at once.
// https://cloud.google.com/compute/docs/troubleshooting/viewing-serial-port-output
const maxSerial = 1 << 20

func getSerialPort(c *call) (object, error) {
	r, err := c.find("instances", c.vars["instance"])
	if err != nil {
		return nil, err
	}
	all := c.s.serial[r.key]
	if port := c.query.Get("port"); port != "" && port != "1" {
		all = ""
	}
	start := atoi(c.query.Get("start"))
	if start < 0 {
		start = max(0, len(all)+start)
	}
	start = min(max(start, len(all)-maxSerial), len(all))
	return object{"kind": "compute#serialPortOutput", "contents": strings.ToValidUTF8(all[start:], "?"), "start": fmt.Sprint(start),
		"next": fmt.Sprint(len(all)), "selfLink": selfBase + r.key + "/serialPort"}, nil
}
