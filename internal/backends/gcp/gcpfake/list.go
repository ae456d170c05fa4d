package gcpfake

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
)

// get answers a resource of the collection that the method's id names.
func get(collection, variable string) handler {
	return func(c *call) (object, error) {
		r, err := c.find(collection, c.vars[variable])
		if err != nil {
			return nil, err
		}
		return r.doc, nil
	}
}

// listAll answers a page of a collection in the call's scope.
func listAll(collection, kind string) handler {
	return func(c *call) (object, error) {
		scope := c.scope
		if collection == "zones" || collection == "regions" {
			scope = "" // each is a scope of its own
		}
		found := c.s.in(c.project, scope, collection)
		for i, r := range found {
			if collection == "regions" {
				found[i] = c.withQuotas(r)
			}
		}
		all, err := c.matching(collection, found)
		if err != nil {
			return nil, err
		}
		page, next, err := c.page(all)
		if err != nil {
			return nil, err
		}
		out := object{"kind": "compute#" + kind + "List", "id": "projects/" + c.project + "/" + c.scope + "/" + collection,
			"selfLink": selfBase + "projects/" + c.project + "/" + c.scope + "/" + collection}
		if len(page) > 0 {
			out["items"] = docs(page)
		}
		if next != "" {
			out["nextPageToken"] = next
		}
		return out, nil
	}
}

// aggregated answers a page of a collection over all scopes. A zone or region that does not
// answer fails the call, or with returnPartialSuccess is left out with a warning.
func aggregated(collection, kind string, scopes ...string) handler {
	return func(c *call) (object, error) {
		items, silent := object{}, []any{}
		var all []*resource
		for _, place := range c.places(scopes) {
			if c.s.silent[place] {
				silent = append(silent, "projects/"+c.project+"/"+place)
				items[place] = object{"warning": warning("UNREACHABLE", "The location is currently unreachable.", place)}
				continue
			}
			all = append(all, c.s.in(c.project, place, collection)...)
			items[place] = object{"warning": warning("NO_RESULTS_ON_PAGE", fmt.Sprintf("There are no results for scope '%s' on this page.", place), place)}
		}
		if len(silent) > 0 && c.query.Get("returnPartialSuccess") != "true" {
			return nil, BackendError()
		}
		all, err := c.matching(collection, all)
		if err != nil {
			return nil, err
		}
		page, next, err := c.page(all)
		if err != nil {
			return nil, err
		}
		for _, r := range page {
			place := scopeOf(r.key)
			items[place] = object{collection: append(list(items[place].(object), collection), any(r.doc))}
		}
		out := object{"kind": "compute#" + kind + "AggregatedList", "id": "projects/" + c.project + "/aggregated/" + collection,
			"selfLink": selfBase + "projects/" + c.project + "/aggregated/" + collection, "items": items}
		if len(silent) > 0 {
			out["unreachables"] = silent
		}
		if next != "" {
			out["nextPageToken"] = next
		}
		return out, nil
	}
}

// places are the zones, regions and global scope of the call's project.
func (c *call) places(kinds []string) []string {
	var out []string
	for _, kind := range kinds {
		if kind == "global" {
			out = append(out, kind)
			continue
		}
		for _, key := range sortedKeys(c.s.resources) {
			if r := c.s.resources[key]; r.collection == kind && strings.HasPrefix(key, "projects/"+c.project+"/") {
				out = append(out, kind+"/"+r.name)
			}
		}
	}
	return out
}

func warning(code, message, scope string) object {
	return object{"code": code, "message": message, "data": []any{object{"key": "scope", "value": scope}}}
}

func docs(all []*resource) []any {
	out := make([]any, len(all))
	for i, r := range all {
		out[i] = r.doc
	}
	return out
}

// matching applies the call's filter.
func (c *call) matching(collection string, all []*resource) ([]*resource, error) {
	matches, err := parseFilter(c.query.Get("filter"), c.comparable(collection))
	if err != nil {
		return nil, err
	}
	if order := c.query.Get("orderBy"); order != "" && order != "name" {
		return nil, invalid("orderBy", order, "Invalid order by.")
	}
	out := all[:0:0]
	for _, r := range all {
		if matches(r.doc) {
			out = append(out, r)
		}
	}
	return out, nil
}

// page cuts one page out and says where the next one begins. A token names the last entry of the
// page before, so that what is made or removed meanwhile disturbs nothing.
func (c *call) page(all []*resource) (page []*resource, next string, err error) {
	size := c.s.options.PageSize
	if text := c.query.Get("maxResults"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || n > 500 {
			return nil, "", invalid("maxResults", text, "Invalid value. Values must be within the range: [0, 500]")
		}
		if n > 0 {
			size = min(size, n)
		}
	}
	if token := c.query.Get("pageToken"); token != "" {
		after, err := base64.RawURLEncoding.DecodeString(token)
		last, ok := strings.CutPrefix(string(after), c.query.Get("filter")+"\n")
		if err != nil || !ok {
			return nil, "", invalid("pageToken", token, "Invalid page token.")
		}
		for len(all) > 0 && scopeOf(all[0].key)+"/"+all[0].name <= last {
			all = all[1:]
		}
	}
	if len(all) <= size {
		return all, "", nil
	}
	last := all[size-1]
	return all[:size], base64.RawURLEncoding.EncodeToString([]byte(c.query.Get("filter") + "\n" + scopeOf(last.key) + "/" + last.name)), nil
}
