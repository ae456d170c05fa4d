package gcpfake

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// object is a JSON object: a resource, or a part of one. Numbers are json.Number.
type object = map[string]any

// checkPath holds the values in a path against the method's parameters.
func (m *method) checkPath(vars map[string]string) error {
	for _, name := range sortedKeys(vars) {
		p := m.Parameters[name]
		// The other APIs' patterns are of a whole resource name, not of one segment.
		if p == nil || p.Pattern == "" || strings.Contains(p.Pattern, "/") {
			continue
		}
		if !p.pattern().MatchString(vars[name]) {
			return invalid(name, vars[name], "Must be a match of regex '"+p.Pattern+"'")
		}
	}
	return nil
}

// systemParameters are understood by every method. Others of them (access_token, callback, …)
// are no way to call an API in a test, and refused.
var systemParameters = []string{"alt", "$alt", "prettyPrint", "fields", "key", "quotaUser"}

// checkQuery holds the query against the method's parameters.
func (m *method) checkQuery(q url.Values) error {
	for _, name := range sortedKeys(q) {
		p := m.Parameters[name]
		if slices.Contains(systemParameters, name) {
			continue
		}
		// The documents recommend it in words for these methods, and since 2026 list it nowhere.
		if name == "returnPartialSuccess" && strings.HasSuffix(m.ID, ".aggregatedList") {
			continue
		}
		if p == nil || p.Location != "query" {
			return unknownQuery(name)
		}
		if len(q[name]) > 1 && !p.Repeated {
			return invalid(name, strings.Join(q[name], ","), "Parameter is not repeatable.")
		}
		for _, value := range q[name] {
			if _, err := p.scalar(name, value); err != nil {
				return err
			}
		}
	}
	for _, name := range sortedKeys(m.Parameters) {
		if p := m.Parameters[name]; p.Required && p.Location == "query" && q.Get(name) == "" {
			return missing(name)
		}
	}
	return nil
}

func unknownQuery(name string) error {
	text := fmt.Sprintf("Invalid JSON payload received. Unknown name %q: Cannot bind query parameter. Field '%s' could not be found in request message.", name, name)
	return &Error{Code: 400, Reason: "invalid", Status: "INVALID_ARGUMENT", Message: text, Details: []any{object{
		"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": []any{object{"description": text}}}}}
}

// decode reads a request's body and holds it against the method's schema. What a client may
// not set (read-only fields) is accepted and left out, as the service does.
func (m *method) decode(body []byte) (object, error) {
	if m.Request == nil {
		if len(bytes.TrimSpace(body)) > 0 {
			return nil, &Error{Code: 400, Reason: "badRequest", Status: "INVALID_ARGUMENT",
				Message: "Invalid JSON payload received. Request body must be empty."}
		}
		return nil, nil
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return nil, missing("resource")
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	var raw any
	if err := dec.Decode(&raw); err != nil {
		return nil, parseError(err.Error())
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, parseError("Expected end of string.")
	}
	c := checker{service: m.service, method: m.ID}
	value, err := c.value("resource", m.Request, raw)
	if err != nil {
		return nil, err
	}
	out, ok := value.(object)
	if !ok {
		return nil, parseError("Expected an object.")
	}
	return out, nil
}

func parseError(why string) error {
	return &Error{Code: 400, Reason: "parseError", Status: "INVALID_ARGUMENT", Message: "Invalid JSON payload received. " + why}
}

// checker walks a value beside its schema. As a check of our own answers it lets read-only
// fields through and asks for no required ones.
type checker struct {
	service *service
	method  string
	answer  bool
}

func (c checker) value(path string, s *schema, v any) (any, error) {
	if s.Ref != "" {
		s = c.service.Schemas[s.Ref]
	}
	if v == nil {
		return nil, nil
	}
	switch s.Type {
	case "object":
		o, ok := v.(object)
		if !ok {
			return nil, wrongType(path, v)
		}
		return c.object(path, s, o)
	case "array":
		list, ok := v.([]any)
		if !ok {
			return nil, wrongType(path, v)
		}
		out := make([]any, 0, len(list))
		for i, item := range list {
			got, err := c.value(fmt.Sprintf("%s[%d]", path, i), s.Items, item)
			if err != nil {
				return nil, err
			}
			out = append(out, got)
		}
		return out, nil
	case "any":
		return v, nil
	}
	return s.scalar(path, v)
}

func (c checker) object(path string, s *schema, o object) (any, error) {
	out := object{}
	for _, name := range sortedKeys(o) {
		p := s.Properties[name]
		if p == nil {
			p = s.Additional
		}
		if p == nil {
			parent := strings.TrimPrefix(strings.TrimPrefix(path, "resource"), ".")
			return nil, unknownField(name, parent)
		}
		if p.ReadOnly && !c.answer {
			continue
		}
		got, err := c.value(path+"."+name, p, o[name])
		if err != nil {
			return nil, err
		}
		if got != nil {
			out[name] = got
		}
	}
	if c.answer {
		return out, nil
	}
	for _, name := range sortedKeys(s.Properties) {
		if slices.Contains(s.Properties[name].Annotations["required"], c.method) {
			if v, ok := out[name]; !ok || v == "" && name == "name" {
				return nil, missing(path + "." + name)
			}
		}
	}
	return out, nil
}

func wrongType(path string, v any) error {
	text, _ := json.Marshal(v)
	return &Error{Code: 400, Reason: "invalid", Status: "INVALID_ARGUMENT",
		Message: fmt.Sprintf("Invalid value at '%s', %s", path, text)}
}

// scalar checks one value and returns it as the service writes it: 64-bit numbers as
// strings, others as numbers.
func (s *schema) scalar(path string, v any) (any, error) {
	text, isString := v.(string)
	number, isNumber := v.(json.Number)
	if isNumber {
		text = number.String()
	}
	switch s.Type {
	case "boolean":
		if b, ok := v.(bool); ok {
			return b, nil
		}
		if text == "true" || text == "false" {
			return text == "true", nil
		}
		return nil, wrongType(path, v)
	case "integer", "number":
		if !isString && !isNumber || !s.isNumber(text) {
			return nil, wrongType(path, v)
		}
		if err := s.inRange(path, text); err != nil {
			return nil, err
		}
		return json.Number(text), nil
	case "string":
		if isNumber && (s.Format == "int64" || s.Format == "uint64") {
			isString = true
		}
		if !isString {
			return nil, wrongType(path, v)
		}
		return text, s.isText(path, text)
	}
	return nil, fmt.Errorf("gcpfake: %s has the type %q, which is not known", path, s.Type)
}

func (s *schema) isNumber(text string) bool {
	var err error
	switch s.Format {
	case "int32":
		_, err = strconv.ParseInt(text, 10, 32)
	case "uint32":
		_, err = strconv.ParseUint(text, 10, 32)
	default:
		_, err = strconv.ParseFloat(text, 64)
	}
	return err == nil
}

func (s *schema) inRange(path, text string) error {
	n, _ := strconv.ParseFloat(text, 64)
	low, errLow := strconv.ParseFloat(s.Minimum, 64)
	high, errHigh := strconv.ParseFloat(s.Maximum, 64)
	if errLow == nil && n < low || errHigh == nil && n > high {
		return invalid(path, text, fmt.Sprintf("Value must be between %s and %s.", orNone(s.Minimum), orNone(s.Maximum)))
	}
	return nil
}

func orNone(limit string) string {
	if limit == "" {
		return "no limit"
	}
	return limit
}

func (s *schema) isText(path, text string) error {
	if s.Enum != nil && !slices.Contains(s.Enum, text) {
		return &Error{Code: 400, Reason: "invalid", Status: "INVALID_ARGUMENT",
			Message: fmt.Sprintf("Invalid value at '%s' (TYPE_ENUM), %q", path, text)}
	}
	if s.Pattern != "" && !s.pattern().MatchString(text) {
		return invalid(path, text, "Must be a match of regex '"+s.Pattern+"'")
	}
	var err error
	switch s.Format {
	case "byte":
		if _, err = base64.StdEncoding.DecodeString(text); err != nil {
			_, err = base64.URLEncoding.DecodeString(text)
		}
	case "int64":
		_, err = strconv.ParseInt(text, 10, 64)
	case "uint64":
		_, err = strconv.ParseUint(text, 10, 64)
	case "google-datetime":
		_, err = time.Parse(time.RFC3339, text)
	case "google-duration":
		_, err = time.ParseDuration(text)
	}
	if err != nil {
		return wrongType(path, text)
	}
	return nil
}
