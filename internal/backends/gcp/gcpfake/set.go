package gcpfake

import (
	"fmt"
	"regexp"
)

var (
	labelKey   = regexp.MustCompile(`^[\p{Ll}\p{Lo}][\p{Ll}\p{Lo}\p{N}_-]{0,62}$`)
	labelValue = regexp.MustCompile(`^[\p{Ll}\p{Lo}\p{N}_-]{0,63}$`)
	tag        = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`)
)

// checkLabels holds labels against Google's requirements.
// https://cloud.google.com/compute/docs/labeling-resources#requirements
func checkLabels(path string, labels object) error {
	if len(labels) > 64 {
		return invalid(path, "", "The number of labels exceeds the limit of 64.")
	}
	for _, k := range sortedKeys(labels) {
		if !labelKey.MatchString(k) {
			return invalid(path, "", fmt.Sprintf("Label key '%s' violates format constraints. The key must start with a lowercase character, can only contain lowercase letters, numeric characters, underscores and dashes. The key can be at most 63 characters long. International characters are allowed.", k))
		}
		if v := text(labels, k); !labelValue.MatchString(v) {
			return invalid(path, "", fmt.Sprintf("Label value '%s' violates format constraints. The value can only contain lowercase letters, numeric characters, underscores and dashes. The value can be at most 63 characters long. International characters are allowed.", v))
		}
	}
	return nil
}

// The limits of custom metadata, in bytes.
// https://cloud.google.com/compute/docs/metadata/setting-custom-metadata#limitations
const (
	maxMetadataValue = 256 << 10
	maxMetadata      = 512 << 10
)

func checkMetadata(m object) error {
	total := 0
	seen := map[string]bool{}
	for i, item := range each(m, "items") {
		key, value := text(item, "key"), text(item, "value")
		if key == "" {
			return missing(fmt.Sprintf("resource.metadata.items[%d].key", i))
		}
		if seen[key] {
			return invalid("resource.metadata.items", key, fmt.Sprintf("Duplicate metadata key: %s", key))
		}
		seen[key] = true
		if len(value) > maxMetadataValue {
			return &Error{Code: 413, Reason: "uploadTooLarge", Message: fmt.Sprintf("Value for field 'resource.metadata.items[%d].value' is too large: maximum size %d character(s); actual size %d.", i, maxMetadataValue, len(value))}
		}
		total += len(key) + len(value)
	}
	if total > maxMetadata {
		return &Error{Code: 413, Reason: "uploadTooLarge", Message: fmt.Sprintf("Value for field 'resource.metadata' is too large: maximum size %d character(s); actual size %d.", maxMetadata, total)}
	}
	return nil
}

func checkTags(tags object) error {
	items := list(tags, "items")
	if len(items) > 64 {
		return invalid("resource.tags", "", "The number of tags exceeds the limit of 64.")
	}
	for i, t := range items {
		if s, ok := t.(string); !ok || !tag.MatchString(s) {
			return invalid(fmt.Sprintf("resource.tags.items[%d]", i), t, "Must be a match of regex '(?:[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?)'")
		}
	}
	return nil
}

func setInstanceLabels(c *call) (object, error) { return c.setLabels("instances", c.vars["instance"]) }

// setLabels replaces all labels of a resource, provided that they are as the client knows them.
func (c *call) setLabels(collection, name string) (object, error) {
	r, err := c.find(collection, name)
	if err != nil {
		return nil, err
	}
	labels := sub(c.body, "labels")
	if err := checkLabels("labels", labels); err != nil {
		return nil, err
	}
	const stale = "Labels fingerprint either invalid or resource labels have changed"
	return c.guarded("setLabels", r, text(c.body, "labelFingerprint"), stale, func() string { return text(r.doc, "labelFingerprint") }, func() {
		r.doc["labels"], r.doc["labelFingerprint"] = labels, fingerprint(labels)
		if labels == nil {
			delete(r.doc, "labels")
		}
	})
}

func setMetadata(c *call) (object, error) {
	r, err := c.find("instances", c.vars["instance"])
	if err != nil {
		return nil, err
	}
	if err := checkMetadata(c.body); err != nil {
		return nil, err
	}
	m := clone(c.body)
	const stale = "Supplied fingerprint does not match current metadata fingerprint."
	return c.guarded("setMetadata", r, text(m, "fingerprint"), stale, func() string { return text(r.doc, "metadata", "fingerprint") }, func() {
		r.doc["metadata"] = m
		setFingerprints(r.doc)
	})
}

func setTags(c *call) (object, error) {
	r, err := c.find("instances", c.vars["instance"])
	if err != nil {
		return nil, err
	}
	if err := checkTags(c.body); err != nil {
		return nil, err
	}
	m := clone(c.body)
	const stale = "Supplied fingerprint does not match current tags fingerprint."
	return c.guarded("setTags", r, text(m, "fingerprint"), stale, func() string { return text(r.doc, "tags", "fingerprint") }, func() {
		r.doc["tags"] = m
		setFingerprints(r.doc)
	})
}

// guarded makes a change whose client must know the present state: asked when the request comes,
// and again when it is carried out, because another one may have been faster.
func (c *call) guarded(kind string, r *resource, known, stale string, current func() string, apply func()) (object, error) {
	if known != current() {
		return nil, conditionNotMet(stale)
	}
	return c.begin(kind, r, func() *OperationError {
		if c.s.resources[r.key] != r {
			return gone(r.key)
		}
		if known != current() {
			return &OperationError{Code: "CONDITION_NOT_MET", HTTP: 412, HTTPText: "PRECONDITION FAILED", Message: stale}
		}
		apply()
		return nil
	}, nil)
}
