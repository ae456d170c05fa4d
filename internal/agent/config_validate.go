package agent

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"proxyfleet/internal/backends"
)

var (
	label  = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	key    = regexp.MustCompile(`^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$`)
	digest = regexp.MustCompile(`^(sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})$`)
)

// problems collects everything that is wrong, so that a person mends it in one go.
type problems []error

func (p *problems) add(field, format string, args ...any) {
	*p = append(*p, fmt.Errorf("%s: %s", field, fmt.Sprintf(format, args...)))
}

// validate checks names, bounds and references between fields.
func (c *Config) validate() error {
	var p problems
	if !label.MatchString(c.Host.Name) {
		p.add("host.name", "%q is not a DNS label (a-z, 0-9 and -, at most 63 characters, no dots)", c.Host.Name)
	}
	if c.Host.Zone != "" && !key.MatchString(c.Host.Zone) {
		p.add("host.zone", "%q has characters other than a-z, 0-9, '.', '_' and '-'", c.Host.Zone)
	}
	for _, k := range slices.Sorted(maps.Keys(c.Host.Labels)) {
		if k == "" || strings.ContainsAny(k, " \t\n") {
			p.add("host.labels", "%q is not a label key", k)
		}
	}
	if !label.MatchString(c.Root) {
		p.add("root", "%q is not a DNS label", c.Root)
	}
	if !filepath.IsAbs(c.StateDir) {
		p.add("stateDir", "%q is not an absolute path", c.StateDir)
	}
	if _, err := c.opener(); err != nil {
		p = append(p, err)
	}
	c.validateShapes(&p)
	c.validateTimes(&p)
	return errors.Join(p...)
}

func (c *Config) validateShapes(p *problems) {
	for _, k := range slices.Sorted(maps.Keys(c.Images)) {
		validateImage(p, k, c.Images[k])
	}
	for _, k := range slices.Sorted(maps.Keys(c.MachineTypes)) {
		field, m := "machineTypes."+k, c.MachineTypes[k]
		if !key.MatchString(k) {
			p.add(field, "%q is not a key of a-z, 0-9, '.', '_' and '-'", k)
		}
		if m.Name == "" && (m.VCPUs < 1 || m.MemoryMiB < 1) {
			p.add(field, "needs vcpus and memoryMiB of at least 1, or the backend's own name")
		}
	}
	if d := c.Defaults.Image; d != "" && !has(c.Images, d) {
		p.add("defaults.image", "%q is not one of images", d)
	}
	for i, k := range c.PrePull {
		if !has(c.Images, k) {
			p.add(fmt.Sprintf("prePull[%d]", i), "%q is not one of images", k)
		}
	}
	if d := c.Defaults.MachineType; d != "" && !has(c.MachineTypes, d) {
		p.add("defaults.machineType", "%q is not one of machineTypes", d)
	}
	if c.Defaults.DiskGiB < 0 {
		p.add("defaults.diskGiB", "%d is negative", c.Defaults.DiskGiB)
	}
	l := c.Limits
	for field, n := range map[string]float64{
		"limits.overcommit.vcpus": l.Overcommit.VCPUs, "limits.overcommit.memory": l.Overcommit.Memory, "limits.overcommit.disk": l.Overcommit.Disk,
		"limits.reserve.memoryMiB": float64(l.Reserve.MemoryMiB), "limits.reserve.diskGiB": float64(l.Reserve.DiskGiB),
		"limits.slots": float64(l.Slots), "limits.imageCacheGiB": float64(l.ImageCacheGiB),
	} {
		if n < 0 {
			p.add(field, "%v is negative", n)
		}
	}
}

func validateImage(p *problems, k string, i backends.Image) {
	field := "images." + k
	if !key.MatchString(k) {
		p.add(field, "%q is not a key of a-z, 0-9, '.', '_' and '-'", k)
	}
	sources := 0
	for _, s := range []string{i.URL, i.File, i.Template, i.Family, i.Container} {
		if s != "" {
			sources++
		}
	}
	if sources != 1 {
		p.add(field, "needs exactly one of url, file, template, family and container, has %d", sources)
	}
	if i.URL != "" && !strings.HasPrefix(i.URL, "https://") && !strings.HasPrefix(i.URL, "http://") {
		p.add(field+".url", "%q is not an http or https URL", i.URL)
	}
	if i.File != "" && !filepath.IsAbs(i.File) {
		p.add(field+".file", "%q is not an absolute path", i.File)
	}
	if i.Digest != "" && !digest.MatchString(i.Digest) {
		p.add(field+".digest", "want sha256:<64 hex digits> or sha512:<128 hex digits>")
	}
	if !slices.Contains([]string{"", "qcow2", "raw"}, i.Format) {
		p.add(field+".format", "%q is neither qcow2 nor raw", i.Format)
	}
	if !slices.Contains([]string{"", "uefi", "bios"}, i.Firmware) {
		p.add(field+".firmware", "%q is neither uefi nor bios", i.Firmware)
	}
}

func (c *Config) validateTimes(p *problems) {
	least := func(field string, d, min time.Duration) {
		if d < min {
			p.add(field, "%v is less than %v", d, min)
		}
	}
	i := c.Intervals
	least("intervals.beat", i.Beat, 100*time.Millisecond)
	least("intervals.check", i.Check, time.Second)
	least("intervals.list", i.List, time.Second)
	least("intervals.grace", i.Grace, 0)
	least("intervals.retryMin", i.RetryMin, time.Millisecond)
	least("intervals.retryMax", i.RetryMax, i.RetryMin)
	least("probe.interval", c.Probe.Interval, time.Second)
	least("probe.timeout", c.Probe.Timeout, 10*time.Millisecond)
	for field, n := range map[string]int{
		"concurrency.ensure": c.Concurrency.Ensure, "concurrency.delete": c.Concurrency.Delete,
		"concurrency.read": c.Concurrency.Read, "probe.failures": c.Probe.Failures,
	} {
		if n < 1 {
			p.add(field, "%d is less than 1", n)
		}
	}
	if c.HTTP.Address != "" {
		if _, _, err := net.SplitHostPort(c.HTTP.Address); err != nil {
			p.add("http.address", "%q is not host:port", c.HTTP.Address)
		}
	}
	if !slices.Contains([]string{"debug", "info", "warn", "error"}, c.Log.Level) {
		p.add("log.level", "%q is not one of debug, info, warn, error", c.Log.Level)
	}
	if !slices.Contains([]string{"text", "json"}, c.Log.Format) {
		p.add("log.format", "%q is neither text nor json", c.Log.Format)
	}
}

func has[V any](m map[string]V, k string) bool {
	_, ok := m[k]
	return ok
}
