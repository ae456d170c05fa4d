package local

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"proxyfleet/internal/backends"
)

// Defaults of Config.
const (
	DefaultPorts      = "20000-29999"
	DefaultMaxProxies = 200
)

// Config is the part of agent.yaml for this backend.
type Config struct {
	// State is the directory for the files of all proxies; absolute. Made if it is missing.
	State string `yaml:"state"`
	// Addresses to listen on; each proxy gets one, the least used. One that is not loopback
	// is its source address as well, unless Egress has others. Default: 127.0.0.1.
	Addresses []string `yaml:"addresses"`
	// Egress are the source addresses of the proxies that listen on an address: at most one
	// of IPv4 and one of IPv6. Destinations of a family that has none are not reached.
	Egress map[string][]string `yaml:"egress"`
	// Ports are given to proxies that ask for port 0: "first-last". Default: DefaultPorts.
	Ports string `yaml:"ports"`
	// MaxProxies on this host. Default: DefaultMaxProxies.
	MaxProxies int `yaml:"maxProxies"`
	// AllowLoopback lets clients reach this host's loopback addresses through every proxy,
	// and whatever listens there. For demonstrations and tests only.
	AllowLoopback bool `yaml:"allowLoopback"`
	// Limits of each proxy's process.
	Limits Limits `yaml:"limits"`
}

// Options come from the agent.
type Options struct {
	Owner backends.Owner
	Log   *slog.Logger // nil: discard
	// Exec begins the command that runs [RunChild] with the arguments that follow it:
	// {os.Executable(), "local-proxy"}. The child gets no environment but PATH.
	Exec []string
}

// settings are a checked Config.
type settings struct {
	dir         string
	addresses   []netip.Addr
	sources     map[netip.Addr][]netip.Addr // by the address that is listened on
	limits      Limits
	first, last int
	most        int
	loopback    bool
}

func (c Config) settings() (settings, error) {
	s := settings{dir: c.State, most: c.MaxProxies, loopback: c.AllowLoopback}
	if !strings.HasPrefix(c.State, "/") {
		return s, fmt.Errorf("backend.state: %q is not an absolute path", c.State)
	}
	if s.most == 0 {
		s.most = DefaultMaxProxies
	}
	if s.most < 0 {
		return s, fmt.Errorf("backend.maxProxies: %d is negative", c.MaxProxies)
	}
	texts := c.Addresses
	if len(texts) == 0 {
		texts = []string{"127.0.0.1"}
	}
	for i, text := range texts {
		a, err := interfaceAddress(text)
		if err != nil {
			return s, fmt.Errorf("backend.addresses[%d]: %w", i, err)
		}
		s.addresses = append(s.addresses, a)
	}
	var err error
	if s.sources, err = c.sources(s.addresses); err != nil {
		return s, err
	}
	if s.limits, err = c.Limits.withDefaults(); err != nil {
		return s, err
	}
	ports := c.Ports
	if ports == "" {
		ports = DefaultPorts
	}
	first, last, _ := strings.Cut(ports, "-")
	var err1, err2 error
	s.first, err1 = strconv.Atoi(first)
	s.last, err2 = strconv.Atoi(last)
	if err1 != nil || err2 != nil || s.first < 1 || s.last > 65535 || s.first > s.last {
		return s, fmt.Errorf("backend.ports: %q is not a range like %s", ports, DefaultPorts)
	}
	return s, nil
}

func interfaceAddress(text string) (netip.Addr, error) {
	a, err := netip.ParseAddr(text)
	if err != nil || a.IsUnspecified() || a.IsMulticast() || a.Zone() != "" || a.Is4In6() {
		return a, fmt.Errorf("%q is not the address of one interface", text)
	}
	return a, nil
}

// sources are the source addresses by the address that is listened on. A loopback address
// that has none leaves the choice to the system.
func (c Config) sources(addresses []netip.Addr) (map[netip.Addr][]netip.Addr, error) {
	out := map[netip.Addr][]netip.Addr{}
	for _, a := range addresses {
		if !a.IsLoopback() {
			out[a] = []netip.Addr{a}
		}
	}
	for at, texts := range c.Egress {
		listen, err := netip.ParseAddr(at)
		if err != nil || !slices.Contains(addresses, listen) {
			return nil, fmt.Errorf("backend.egress: %q is not one of backend.addresses", at)
		}
		out[listen] = nil
		for i, text := range texts {
			a, err := interfaceAddress(text)
			if err != nil {
				return nil, fmt.Errorf("backend.egress[%s][%d]: %w", at, i, err)
			}
			if _, twice := sourceFor(out[listen], a); twice {
				return nil, fmt.Errorf("backend.egress[%s]: more than one address of a family", at)
			}
			out[listen] = append(out[listen], a)
		}
		if len(out[listen]) == 0 {
			return nil, fmt.Errorf("backend.egress[%s]: has no address", at)
		}
	}
	return out, nil
}

func (s settings) slots() int { return min(s.most, len(s.addresses)*(s.last-s.first+1)) }
