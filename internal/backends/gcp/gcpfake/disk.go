package gcpfake

import (
	"fmt"
	"strconv"
	"strings"
)

// plannedDisk is a disk that an instance's insertion makes, from an image by its key.
type plannedDisk struct {
	res   *resource
	image string
}

// planDisks looks up what a machine's disks come from and prepares the new ones.
func (c *call) planDisks(instance string, doc object) ([]plannedDisk, error) {
	var made []plannedDisk
	boot := false
	for i, d := range each(doc, "disks") {
		path := fmt.Sprintf("resource.disks[%d]", i)
		boot = boot || d["boot"] == true
		params := sub(d, "initializeParams")
		if (params == nil) == (text(d, "source") == "") {
			return nil, invalid(path+".source", text(d, "source"), "Exactly one of source and initializeParams must be set.")
		}
		d["kind"], d["index"], d["type"] = "compute#attachedDisk", i, "PERSISTENT"
		if text(d, "mode") == "" {
			d["mode"] = "READ_WRITE"
		}
		if text(d, "deviceName") == "" {
			d["deviceName"] = fmt.Sprintf("persistent-disk-%d", i)
		}
		d["autoDelete"], d["boot"] = d["autoDelete"] == true, d["boot"] == true
		if params == nil {
			if err := c.attach(path, d); err != nil {
				return nil, err
			}
			continue
		}
		name := text(params, "diskName")
		if name == "" {
			name = instance
			if i > 0 {
				name = fmt.Sprintf("%s-%d", instance, i)
			}
		}
		disk, err := c.planDisk(path+".initializeParams", name, params)
		if err != nil {
			return nil, err
		}
		delete(d, "initializeParams")
		d["source"], d["diskSizeGb"] = selfBase+disk.res.key, disk.res.doc["sizeGb"]
		made = append(made, disk)
	}
	if !boot {
		return nil, invalid("resource.disks", "", "At least one boot disk must be specified.")
	}
	return made, nil
}

func (c *call) attach(path string, d object) error {
	key := c.resolve(text(d, "source"))
	r := c.s.resources[key]
	if r == nil || r.collection != "disks" {
		return notFound(key)
	}
	if users := list(r.doc, "users"); len(users) > 0 {
		return inUse("disk", key, strings.TrimPrefix(fmt.Sprint(users[0]), selfBase))
	}
	if err := c.need("compute.disks.use", key); err != nil {
		return err
	}
	d["source"], d["diskSizeGb"] = selfBase+key, r.doc["sizeGb"]
	return nil
}

// planDisk prepares a disk from an image without putting it into the state.
func (c *call) planDisk(path, name string, params object) (plannedDisk, error) {
	none := plannedDisk{}
	key := c.key("disks", name)
	if c.s.resources[key] != nil {
		return none, alreadyExists(key)
	}
	if err := c.need("compute.disks.create", key); err != nil {
		return none, err
	}
	image, err := c.image(path+".sourceImage", text(params, "sourceImage"))
	if err != nil {
		return none, err
	}
	kind := text(params, "diskType")
	if kind == "" {
		kind = c.scope + "/diskTypes/pd-standard"
	}
	if r := c.s.resources[c.resolve(kind)]; r == nil || scopeOf(r.key) != c.scope {
		return none, invalid(path+".diskType", kind, "The referenced diskType resource cannot be found.")
	}
	size := text(params, "diskSizeGb")
	if size == "" {
		size = text(image.doc, "diskSizeGb")
	}
	got, _ := strconv.Atoi(size)
	if least := text(image.doc, "diskSizeGb"); got < atoi(least) {
		return none, invalid(path+".diskSizeGb", size, fmt.Sprintf("Requested disk size cannot be smaller than the image size (%s GB)", least))
	}
	labels := sub(params, "labels")
	if err := checkLabels(path+".labels", labels); err != nil {
		return none, err
	}
	if len(labels) > 0 {
		if err := c.need("compute.disks.setLabels", key); err != nil {
			return none, err
		}
	}
	doc := object{"status": "CREATING", "sizeGb": size, "type": selfBase + c.resolve(kind), "sourceImage": selfBase + image.key,
		"sourceImageId": image.doc["id"], "labelFingerprint": fingerprint(labels), "physicalBlockSizeBytes": "4096"}
	if labels != nil {
		doc["labels"] = labels
	}
	r := c.s.add(key, "disk", doc)
	delete(c.s.resources, key)
	return plannedDisk{res: r, image: image.key}, nil
}

// image finds an image by its own link or by its family's.
func (c *call) image(path, link string) (*resource, error) {
	if link == "" {
		return nil, missing(path)
	}
	key := c.resolve(link)
	if root, family, ok := strings.Cut(key, "/images/family/"); ok {
		if r := c.s.newest(strings.Split(root, "/")[1], family); r != nil {
			return r, nil
		}
	}
	r := c.s.resources[key]
	if r == nil || r.collection != "images" || text(r.doc, "deprecated", "state") == "DELETED" || text(r.doc, "deprecated", "state") == "OBSOLETE" {
		return nil, invalid(path, link, "The referenced image resource cannot be found.")
	}
	if r.project() == c.project {
		if err := c.need("compute.images.useReadOnly", r.key); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// newest is the image that a family stands for: the youngest that is not deprecated.
func (s *Server) newest(project, family string) *resource {
	var found *resource
	for _, r := range s.in(project, "global", "images") {
		if text(r.doc, "family") == family && sub(r.doc, "deprecated") == nil && (found == nil || text(r.doc, "id") > text(found.doc, "id")) {
			found = r
		}
	}
	return found
}

func getFromFamily(c *call) (object, error) {
	r := c.s.newest(c.project, c.vars["family"])
	if r == nil {
		return nil, notFound("projects/" + c.project + "/global/images/family/" + c.vars["family"])
	}
	return r.doc, nil
}

func insertDisk(c *call) (object, error) {
	name := text(c.body, "name")
	key := c.key("disks", name)
	if c.s.resources[key] != nil {
		return nil, alreadyExists(key)
	}
	params := object{"sourceImage": c.body["sourceImage"], "diskType": c.body["type"], "diskSizeGb": c.body["sizeGb"], "labels": c.body["labels"]}
	if link := c.query.Get("sourceImage"); link != "" {
		params["sourceImage"] = link
	}
	if params["sourceImage"] == nil {
		return nil, c.notModelled("a disk without an image")
	}
	disk, err := c.planDisk("resource", name, params)
	if err != nil {
		return nil, err
	}
	for _, field := range []string{"description", "guestOsFeatures"} {
		if v := c.body[field]; v != nil {
			disk.res.doc[field] = v
		}
	}
	c.s.resources[key] = disk.res
	disk.res.pending = true
	return c.begin("insert", disk.res, func() *OperationError {
		if err := c.s.overQuota(c.project, c.region(), map[string]float64{diskMetric(disk.res.doc): float64(diskSize(disk.res.doc))}); err != nil {
			return err
		}
		disk.res.pending, disk.res.doc["status"] = false, "READY"
		return nil
	}, func() { delete(c.s.resources, key) })
}

func deleteDisk(c *call) (object, error) {
	r, err := c.find("disks", c.vars["disk"])
	if err != nil {
		return nil, err
	}
	if users := list(r.doc, "users"); len(users) > 0 {
		return nil, inUse("disk", r.key, strings.TrimPrefix(fmt.Sprint(users[0]), selfBase))
	}
	r.doc["status"] = "DELETING"
	return c.begin("delete", r, func() *OperationError { return c.s.remove(r) }, func() { r.doc["status"] = "READY" })
}

func resizeDisk(c *call) (object, error) {
	r, err := c.find("disks", c.vars["disk"])
	if err != nil {
		return nil, err
	}
	size := text(c.body, "sizeGb")
	if atoi(size) <= diskSize(r.doc) {
		return nil, invalid("sizeGb", size, fmt.Sprintf("New disk size '%s' must be larger than existing size '%d'.", size, diskSize(r.doc)))
	}
	return c.begin("resize", r, func() *OperationError {
		more := map[string]float64{diskMetric(r.doc): float64(atoi(size) - diskSize(r.doc))}
		if err := c.s.overQuota(c.project, c.region(), more); err != nil {
			return err
		}
		r.doc["sizeGb"] = size
		return nil
	}, nil)
}

func setDiskLabels(c *call) (object, error) { return c.setLabels("disks", c.vars["resource"]) }

func diskSize(disk object) int { return atoi(text(disk, "sizeGb")) }

// atoi reads a number that the schema has checked.
func atoi(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}
