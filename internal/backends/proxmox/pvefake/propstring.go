package pvefake

import (
	"slices"
	"strings"
)

// parsePropertyString splits "virtio=AA,bridge=vmbr0" into its keys, with
// aliases resolved and the default key named. The error is Proxmox's text.
func parsePropertyString(s string, props map[string]*property) (map[string]string, string) {
	out := map[string]string{}
	for part := range strings.SplitSeq(s, ",") {
		if part == "" {
			continue
		}
		k, v, keyed := strings.Cut(part, "=")
		if !keyed {
			def := defaultKey(props)
			if def == "" {
				return nil, "value without key, but schema does not define a default key\n"
			}
			if _, dup := out[def]; dup {
				return nil, "duplicate key in comma-separated list property: " + def + "\n"
			}
			out[def] = part
			continue
		}
		if p := props[k]; p != nil && p.Alias != "" {
			if p.KeyAlias != "" {
				if _, dup := out[p.KeyAlias]; dup {
					return nil, "key alias '" + p.KeyAlias + "' is already set\n"
				}
				out[p.KeyAlias] = k
			}
			k = p.Alias
		}
		if _, dup := out[k]; dup {
			return nil, "duplicate key in comma-separated list property: " + k + "\n"
		}
		out[k] = v
	}
	return out, ""
}

func defaultKey(props map[string]*property) string {
	for k, p := range props {
		if p.DefaultKey {
			return k
		}
	}
	return ""
}

func checkPropertyString(path, s string, props map[string]*property) string {
	vals, err := parsePropertyString(s, props)
	if err != "" {
		return err
	}
	errs := checkObject(path, vals, props)
	if len(errs) == 0 {
		return ""
	}
	keys := make([]string, 0, len(errs))
	for k := range errs {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	var b strings.Builder
	b.WriteString("format error\n")
	for _, k := range keys {
		b.WriteString(k + ": " + errs[k] + "\n")
	}
	return b.String()
}

// printPropertyString is the inverse, in Proxmox's order: first as it stands,
// then the other keys sorted.
func printPropertyString(first string, vals map[string]string, skip ...string) string {
	keys := make([]string, 0, len(vals))
	for k := range vals {
		if !slices.Contains(skip, k) {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	parts := []string{first}
	for _, k := range keys {
		parts = append(parts, k+"="+vals[k])
	}
	return strings.Join(parts, ",")
}
