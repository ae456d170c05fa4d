package gcp

import (
	"context"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"cloud.google.com/go/compute/apiv1/computepb"
	"google.golang.org/protobuf/proto"

	"proxyfleet/internal/backends"
)

// Each proxy has firewall rules of its own, which find it by a network tag of its own: nothing is
// shared, so nothing has to be computed over all proxies, no client of one proxy reaches another,
// and a rule goes with its proxy. The price is the quota FIREWALLS, which the offer follows.

// suffixV6 is after the name of the rule for IPv6 networks: one rule has networks of one kind.
const suffixV6 = "-v6"

// firewallNames are those of the rules that a name may have.
func firewallNames(name string) []string { return []string{name, name + suffixV6} }

// networkProject is the network's, which may be shared; rules and subnetworks belong to it.
func (b *Backend) networkProject() string {
	if parts := strings.Split(b.conf.Network, "/"); len(parts) > 1 {
		return parts[1]
	}
	return b.conf.Project
}

// networkPath is the network of instances and rules.
func (b *Backend) networkPath() string {
	if strings.Contains(b.conf.Network, "/") {
		return b.conf.Network
	}
	return "projects/" + b.conf.Project + "/global/networks/" + b.conf.Network
}

// rules are those of a job: none without client networks, since without them nobody is let in, and
// none for IPv6 where the proxy has no such address.
func (b *Backend) rules(j *job) []*computepb.Firewall {
	if !*b.conf.Firewall.Manage {
		return nil
	}
	var v4, v6 []string
	for _, n := range j.Access.AllowFrom {
		if n.Addr().Is4() {
			v4 = append(v4, n.String())
		} else {
			v6 = append(v6, n.String())
		}
	}
	var out []*computepb.Firewall
	if len(v4) > 0 {
		out = append(out, b.rule(j, j.name(), v4))
	}
	if len(v6) > 0 && b.conf.IPv6 {
		out = append(out, b.rule(j, j.name()+suffixV6, v6))
	}
	return out
}

func (b *Backend) rule(j *job, name string, networks []string) *computepb.Firewall {
	slices.Sort(networks)
	return &computepb.Firewall{
		Name: &name, Network: proto.String(b.networkPath()), Direction: proto.String("INGRESS"),
		Priority: proto.Int32(int32(*b.conf.Firewall.Priority)), SourceRanges: slices.Compact(networks), TargetTags: []string{j.name()},
		Allowed: []*computepb.Allowed{{IPProtocol: proto.String("tcp"), Ports: []string{strconv.Itoa(j.port)}}},
	}
}

// openFirewall makes the rules of a job as they should be.
func (b *Backend) openFirewall(ctx context.Context, j *job, m backends.Mark, there []*computepb.Firewall) error {
	for _, want := range b.rules(j) {
		i := slices.IndexFunc(there, func(f *computepb.Firewall) bool { return f.GetName() == want.GetName() })
		if i >= 0 && sameRule(there[i], want) {
			continue
		}
		want.Description = proto.String(describe(m))
		j.step("opening the firewall")
		var op *computepb.Operation
		var err error
		if i < 0 {
			op, err = b.insertRule(ctx, want)
		} else {
			op, err = b.patchRule(ctx, want)
		}
		if err == nil {
			err = b.follow(ctx, b.networkProject(), op, "", nil)
		}
		if err != nil {
			return classify("open firewall", err, "proxy %s: firewall rule %s cannot be made", j.Proxy, want.GetName())
		}
	}
	return nil
}

func (b *Backend) insertRule(ctx context.Context, f *computepb.Firewall) (*computepb.Operation, error) {
	if err := backends.Step(ctx, "firewall.insert"); err != nil {
		return nil, err
	}
	op, err := b.api.firewalls.Insert(ctx, &computepb.InsertFirewallRequest{Project: b.networkProject(), FirewallResource: f})
	return started(ctx, op, err)
}

func (b *Backend) patchRule(ctx context.Context, f *computepb.Firewall) (*computepb.Operation, error) {
	if err := backends.Step(ctx, "firewall.patch"); err != nil {
		return nil, err
	}
	op, err := b.api.firewalls.Patch(ctx, &computepb.PatchFirewallRequest{Project: b.networkProject(), Firewall: f.GetName(), FirewallResource: f})
	return started(ctx, op, err)
}

// sameRule compares what a rule lets in, and through what.
func sameRule(is, want *computepb.Firewall) bool {
	return samePrefixes(is.GetSourceRanges(), want.GetSourceRanges()) && slices.Equal(is.GetTargetTags(), want.GetTargetTags()) &&
		len(is.GetAllowed()) == 1 && strings.EqualFold(is.GetAllowed()[0].GetIPProtocol(), "tcp") &&
		slices.Equal(is.GetAllowed()[0].GetPorts(), want.GetAllowed()[0].GetPorts()) && !is.GetDisabled() &&
		is.GetPriority() == want.GetPriority() && len(is.GetSourceTags())+len(is.GetSourceServiceAccounts()) == 0
}

func samePrefixes(is, want []string) bool {
	parse := func(texts []string) (out []netip.Prefix) {
		for _, t := range texts {
			p, err := netip.ParsePrefix(t)
			if err != nil {
				return nil
			}
			out = append(out, p)
		}
		slices.SortFunc(out, netip.Prefix.Compare)
		return out
	}
	return slices.Equal(parse(is), parse(want))
}

// closeFirewall removes a rule.
func (b *Backend) closeFirewall(ctx context.Context, f *computepb.Firewall) error {
	if err := backends.Step(ctx, "firewall.delete"); err != nil {
		return err
	}
	op, err := b.api.firewalls.Delete(ctx, &computepb.DeleteFirewallRequest{Project: b.networkProject(), Firewall: f.GetName()})
	return b.removed(ctx, b.networkProject(), "delete firewall rule", "firewall rule "+f.GetName(), op, err)
}
