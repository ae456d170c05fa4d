package intents

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// repeated returns the path of the first name that stands twice in one object, or "".
// Readers differ about such documents (RFC 8259, 4): encoding/json keeps the last value in
// a map and merges both in a struct, so that what was checked would not be what is in force.
// data is known to be one JSON value.
func repeated(data []byte) string {
	type level struct {
		names map[string]bool // nil: a list
		path  string          // of the value that is read now
		outer string          // of the object or list
		index int             // of the element that is read now
		value bool            // in an object: a name was read, its value comes
	}
	var open []level
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	for {
		token, err := dec.Token()
		if err != nil {
			return ""
		}
		var in *level
		if len(open) > 0 {
			in = &open[len(open)-1]
		}
		if delim, ok := token.(json.Delim); ok && (delim == '}' || delim == ']') {
			open = open[:len(open)-1]
			continue
		}
		path := ""
		switch {
		case in == nil:
		case in.names == nil:
			path = fmt.Sprintf("%s[%d]", in.outer, in.index)
			in.index++
		case !in.value:
			name, _ := token.(string)
			in.path, in.value = name, true
			if in.outer != "" {
				in.path = in.outer + "." + name
			}
			if in.names[name] {
				return in.path
			}
			in.names[name] = true
			continue
		default:
			path, in.value = in.path, false
		}
		switch token {
		case json.Delim('{'):
			open = append(open, level{names: map[string]bool{}, outer: path})
		case json.Delim('['):
			open = append(open, level{outer: path})
		}
	}
}
