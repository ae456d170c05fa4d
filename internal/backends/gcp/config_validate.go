package gcp

import (
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"proxyfleet/internal/backends"
)

// Forms of names, as the API has them; a project may have its organisation's domain before it.
var (
	projectForm = regexp.MustCompile(`^([a-z0-9.-]{1,100}:)?[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`)
	nameForm    = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`)
	placeForm   = regexp.MustCompile(`^[a-z]+(-[a-z0-9]+){1,3}$`)
	networkForm = regexp.MustCompile(`^projects/[^/]+/global/networks/[a-z][-a-z0-9]*$`)
	subnetForm  = regexp.MustCompile(`^projects/[^/]+/regions/[^/]+/subnetworks/[a-z][-a-z0-9]*$`)
	imageForm   = regexp.MustCompile(`^projects/[^/]+/global/images/(family/)?[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`)
	emailForm   = regexp.MustCompile(`^[^@\s]+@[^@\s]+$`)
	labelForm   = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,62}$`)
)

// validate reports the first setting that cannot be used, by its path in the file.
func (c Config) validate() error {
	refuse := fmt.Errorf
	switch {
	case !projectForm.MatchString(c.Project):
		return refuse("project: %q is no project's id; it must be given", c.Project)
	case len(c.Zones) == 0:
		return refuse("zones: there must be a zone or a region at least")
	case c.CredentialsFile != "" && !filepath.IsAbs(c.CredentialsFile):
		return refuse("credentialsFile: %q is not an absolute path", c.CredentialsFile)
	case !nameForm.MatchString(c.Network) && !networkForm.MatchString(c.Network):
		return refuse("network: %q is neither a name nor projects/<project>/global/networks/<name>", c.Network)
	case c.Subnetwork != "" && !nameForm.MatchString(c.Subnetwork) && !subnetForm.MatchString(c.Subnetwork):
		return refuse("subnetwork: %q is neither a name nor projects/<project>/regions/<region>/subnetworks/<name>", c.Subnetwork)
	case c.Address != external && c.Address != internal:
		return refuse("address: %q is neither external nor internal", c.Address)
	case c.Preemption != preemptRecreate && c.Preemption != preemptDelete:
		return refuse("preemption: %q is neither recreate nor delete", c.Preemption)
	case !nameForm.MatchString(c.DiskType):
		return refuse("diskType: %q is no disk type", c.DiskType)
	case c.ServiceAccount.Email != "" && !emailForm.MatchString(c.ServiceAccount.Email):
		return refuse("serviceAccount.email: %q is no e-mail address", c.ServiceAccount.Email)
	case *c.Firewall.Priority < 0 || *c.Firewall.Priority > 65535:
		return refuse("firewall.priority: %d is not between 0 and 65535", *c.Firewall.Priority)
	case c.RequestTimeout < time.Second:
		return refuse("requestTimeout: %v is less than 1s", c.RequestTimeout)
	}
	for _, z := range c.Zones {
		if !placeForm.MatchString(z) {
			return refuse("zones: %q is neither a zone nor a region", z)
		}
	}
	for _, who := range slices.Concat([]string{c.Impersonate}, c.Delegates) {
		if who != "" && !emailForm.MatchString(who) {
			return refuse("impersonate: %q is no e-mail address", who)
		}
	}
	for _, t := range c.Tags {
		if !nameForm.MatchString(t) {
			return refuse("tags: %q is no network tag", t)
		}
	}
	for k := range c.Labels {
		if !labelForm.MatchString(k) || isOurs(k) {
			return refuse("labels: %q is no label's key, or begins as our own do", k)
		}
	}
	for field, e := range map[string]string{"compute": c.Endpoints.Compute, "resourceManager": c.Endpoints.ResourceManager} {
		u, err := url.Parse(e)
		if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
			return refuse("endpoints.%s: %q is no URL", field, e)
		}
	}
	return nil
}

// validateHost reports what the shared part of the configuration has that GCE cannot use.
func validateHost(h backends.HostConfig) error {
	for _, key := range slices.Sorted(maps.Keys(h.Images)) {
		if f := h.Images[key].Family; f != "" && !nameForm.MatchString(f) && !imageForm.MatchString(f) {
			return fmt.Errorf("images.%s.family: %q is neither a family's name nor projects/<project>/global/images/[family/]<name>", key, f)
		}
		if h.VendorData != "" && withoutCloudInit(h.Images[key]) {
			return fmt.Errorf("vendorData: image %s says cloudInit: false, so its machines would never see it; "+
				"leave out one of the two, or give that image an agent of its own", key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(h.MachineTypes)) {
		if n := h.MachineTypes[key].Name; !nameForm.MatchString(n) {
			return fmt.Errorf("machineTypes.%s.name: %q is no machine type of Compute Engine; it must be given", key, n)
		}
	}
	return nil
}

// withoutCloudInit reports an image whose machines are set up by a startup script.
func withoutCloudInit(i backends.Image) bool { return i.CloudInit != nil && !*i.CloudInit }
