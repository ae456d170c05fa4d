package gcpfake

import (
	"fmt"
	"strings"
)

// insertInstance accepts a machine. What the request alone can tell is judged now; room, quota
// and what became of the image meanwhile when the operation ends.
func insertInstance(c *call) (object, error) {
	for _, p := range []string{"sourceInstanceTemplate", "sourceMachineImage"} {
		if c.query.Get(p) != "" {
			return nil, c.notModelled(p)
		}
	}
	name := text(c.body, "name")
	key := c.key("instances", name)
	if c.s.resources[key] != nil {
		return nil, alreadyExists(key)
	}
	doc := clone(c.body)
	if err := c.checkMachine(doc); err != nil {
		return nil, err
	}
	made, err := c.planDisks(name, doc)
	if err != nil {
		return nil, err
	}
	if err := c.planNetwork(doc); err != nil {
		return nil, err
	}
	if err := c.planScheduling(doc); err != nil {
		return nil, err
	}
	if err := c.planExtras(doc); err != nil {
		return nil, err
	}
	doc["status"] = "PROVISIONING"
	doc["cpuPlatform"] = "Unknown CPU Platform"
	r := c.s.add(key, "instance", doc)
	r.pending = true
	for _, d := range made {
		d.res.pending = true
		c.s.resources[d.res.key] = d.res
		d.res.doc["users"] = []any{text(doc, "selfLink")}
	}
	for _, d := range each(doc, "disks") {
		if disk := c.s.resources[c.resolve(text(d, "source"))]; disk != nil {
			disk.doc["users"] = []any{text(doc, "selfLink")}
		}
	}
	undo := func() {
		delete(c.s.resources, key)
		for _, d := range made {
			delete(c.s.resources, d.res.key)
		}
		c.s.detach(r)
	}
	return c.begin("insert", r, func() *OperationError { return c.finishInsert(r, made) }, undo)
}

func (c *call) finishInsert(r *resource, made []plannedDisk) *OperationError {
	if err := c.s.soldOut(c.project, c.zone(), lastPart(text(r.doc, "machineType"))); err != nil {
		return err
	}
	for _, a := range each(r.doc, "serviceAccounts") {
		if !c.s.may("iam.serviceAccounts.actAs") {
			return accountDenied(text(a, "email"), c.s.account())
		}
	}
	more := map[string]float64{"INSTANCES": 1}
	for _, d := range made {
		if c.s.resources[d.image] == nil {
			return ImageGone(d.image)
		}
		more[diskMetric(d.res.doc)] += float64(diskSize(d.res.doc))
	}
	c.s.addRunning(more, r.doc, c.region())
	if err := c.s.overQuota(c.project, c.region(), more); err != nil {
		return err
	}
	if err := c.s.wire(c.project, c.region(), r); err != nil {
		return err
	}
	r.pending = false
	for _, d := range made {
		d.res.pending = false
		d.res.doc["status"] = "READY"
	}
	c.s.running(r)
	return nil
}

// checkMachine looks up the machine type.
func (c *call) checkMachine(doc object) error {
	link := text(doc, "machineType")
	if link == "" {
		return missing("resource.machineType")
	}
	key := c.resolve(link)
	if c.s.resources[key] == nil || !strings.Contains(key, "/machineTypes/") {
		return invalid("resource.machineType", link, "The referenced resource does not exist.")
	}
	if !strings.HasPrefix(key, "projects/"+c.project+"/"+c.scope+"/") {
		return invalid("resource.machineType", link, fmt.Sprintf("Zone specified in machine type is not '%s'.", c.zone()))
	}
	doc["machineType"] = selfBase + key
	return nil
}

// planScheduling fills in the scheduling, and refuses what does not go together.
// https://cloud.google.com/compute/docs/instances/create-use-spot
func (c *call) planScheduling(doc object) error {
	s := sub(doc, "scheduling")
	if s == nil {
		s = object{}
		doc["scheduling"] = s
	}
	spot := text(s, "provisioningModel") == "SPOT" || s["preemptible"] == true
	if text(s, "provisioningModel") == "" {
		s["provisioningModel"] = map[bool]string{true: "SPOT", false: "STANDARD"}[spot]
	}
	if action := text(s, "instanceTerminationAction"); action != "" && !spot {
		return invalid("resource.scheduling.instanceTerminationAction", action, "You can specify instance termination action only for Spot VMs or VMs with a limited run time.")
	}
	if spot && s["automaticRestart"] == true {
		return invalid("resource.scheduling.automaticRestart", true, "Automatic restart cannot be set for preemptible instances.")
	}
	if spot && text(s, "onHostMaintenance") == "MIGRATE" {
		return invalid("resource.scheduling.onHostMaintenance", "MIGRATE", "Scheduling must have onHostMaintenance=TERMINATE for preemptible instances.")
	}
	s["preemptible"] = spot
	if spot {
		s["automaticRestart"], s["onHostMaintenance"] = false, "TERMINATE"
		if text(s, "instanceTerminationAction") == "" {
			s["instanceTerminationAction"] = "STOP"
		}
		return nil
	}
	if _, ok := s["automaticRestart"]; !ok {
		s["automaticRestart"] = true
	}
	if text(s, "onHostMaintenance") == "" {
		s["onHostMaintenance"] = "MIGRATE"
	}
	return nil
}

func isSpot(instance object) bool {
	return text(instance, "scheduling", "provisioningModel") == "SPOT"
}

// planExtras checks labels, metadata, tags and the service account.
func (c *call) planExtras(doc object) error {
	if err := checkLabels("resource.labels", sub(doc, "labels")); err != nil {
		return err
	}
	if err := checkMetadata(sub(doc, "metadata")); err != nil {
		return err
	}
	if err := checkTags(sub(doc, "tags")); err != nil {
		return err
	}
	if n := len(list(doc, "serviceAccounts")); n > 1 {
		return invalid("resource.serviceAccounts", n, "At most one service account is allowed.")
	}
	uses := map[string]bool{
		"compute.instances.setMetadata":       len(each(sub(doc, "metadata"), "items")) > 0,
		"compute.instances.setLabels":         len(sub(doc, "labels")) > 0,
		"compute.instances.setTags":           len(list(sub(doc, "tags"), "items")) > 0,
		"compute.instances.setServiceAccount": len(list(doc, "serviceAccounts")) > 0,
	}
	for _, permission := range sortedKeys(uses) {
		if uses[permission] {
			if err := c.need(permission, c.key("instances", text(doc, "name"))); err != nil {
				return err
			}
		}
	}
	setFingerprints(doc)
	doc["deletionProtection"] = doc["deletionProtection"] == true
	return nil
}

func setFingerprints(doc object) {
	for _, part := range []string{"metadata", "tags"} {
		if sub(doc, part) == nil {
			doc[part] = object{}
		}
	}
	sub(doc, "metadata")["kind"] = "compute#metadata"
	sub(doc, "metadata")["fingerprint"] = fingerprint(doc["metadata"].(object)["items"])
	sub(doc, "tags")["fingerprint"] = fingerprint(doc["tags"].(object)["items"])
	doc["labelFingerprint"] = fingerprint(doc["labels"])
}
