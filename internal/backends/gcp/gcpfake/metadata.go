package gcpfake

import (
	"encoding/json"
	"net/http"
	"time"
)

// Metadata is a machine's metadata server, as much of it as tells of network interfaces.
// https://cloud.google.com/compute/docs/metadata/querying-metadata
func (s *Server) Metadata(zone, name string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /computeMetadata/v1/instance/network-interfaces/", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if r.Header.Get("Metadata-Flavor") != "Google" {
			http.Error(w, "Missing Metadata-Flavor:Google header.", http.StatusForbidden)
			return
		}
		if q.Get("recursive") != "true" {
			http.Error(w, "gcpfake: only recursive answers are modelled", http.StatusNotImplemented)
			return
		}
		told, changed := s.interfaces(zone, name)
		if q.Get("wait_for_change") == "true" {
			timeout := time.After(time.Duration(atoi(q.Get("timeout_sec"))) * time.Second)
			for before, waiting := told, true; waiting && told == before; {
				select {
				case <-changed:
				case <-timeout:
					waiting = false
				case <-r.Context().Done():
					return
				case <-s.ctx.Done():
					return
				}
				told, changed = s.interfaces(zone, name)
			}
		}
		w.Header().Set("Metadata-Flavor", "Google")
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(told))
	})
	return mux
}

// interfaces is what a machine is told of its network interfaces, and what is closed at the next
// change of anything.
func (s *Server) interfaces(zone, name string) (told string, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	nics := []object{}
	if r := s.instance(zone, name); r != nil {
		for _, nic := range each(r.doc, "networkInterfaces") {
			o := object{"accessConfigs": []object{}, "dnsServers": []string{"169.254.169.254"}, "forwardedIps": []string{}, "forwardedIpv6s": []string{},
				"gateway": "10.128.0.1", "ip": text(nic, "networkIP"), "ipAliases": aliases(nic), "mac": "42:01:0a:80:00:02", "mtu": 1460,
				"network": "projects/" + projectNumber + "/networks/" + lastPart(text(nic, "network")), "subnetmask": "255.255.240.0", "targetInstanceIps": []string{}}
			for _, a := range each(nic, "accessConfigs") {
				o["accessConfigs"] = []object{{"externalIp": text(a, "natIP"), "type": text(a, "type")}}
			}
			for _, a := range each(nic, "ipv6AccessConfigs") {
				o["ipv6s"] = []string{text(a, "externalIpv6")}
			}
			nics = append(nics, o)
		}
	}
	b, err := json.Marshal(nics)
	if err != nil {
		s.t.Errorf("gcpfake: %v", err)
	}
	return string(b), s.changed
}

func aliases(nic object) []string {
	out := []string{}
	for _, a := range each(nic, "aliasIpRanges") {
		out = append(out, text(a, "ipCidrRange"))
	}
	return out
}
