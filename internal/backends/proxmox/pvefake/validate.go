package pvefake

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// jsonNull, jsonHash and jsonArray are the values of a JSON body that have no
// textual form. A parameter is never one of them by accident: a NUL cannot be
// typed into a form either.
const (
	jsonNull  = "\x00null"
	jsonHash  = "\x00HASH"
	jsonArray = "\x00ARRAY"
)

// validate holds params against the method's schema, as PVE::JSONSchema does:
// unknown, missing, type, format, pattern, lengths, range, enum, requires. It
// normalises booleans to 0 and 1 and returns a 400 that names every parameter
// at fault.
func (m *method) validate(params map[string]string) error {
	errs := checkObject("", params, m.Parameters.Properties)
	if len(errs) > 0 {
		return paramErrs(errs)
	}
	return nil
}

func checkObject(path string, values map[string]string, props map[string]*property) map[string]string {
	errs := map[string]string{}
	sub := func(name string) string {
		if path == "" {
			return name
		}
		return path + "." + name
	}
	for name, p := range props {
		if p.Alias != "" {
			continue
		}
		v, ok := values[name]
		if !ok || v == jsonNull {
			if !p.Optional {
				errs[sub(name)] = "property is missing and it is not optional"
			}
			continue
		}
		norm, err := checkValue(sub(name), v, p)
		if err != "" {
			errs[sub(name)] = err
			continue
		}
		values[name] = norm
	}
	for name := range values {
		p := props[name]
		if p == nil || p.Alias != "" {
			errs[sub(name)] = "property is not defined in schema and the schema does not allow additional properties"
			continue
		}
		if p.Requires != "" {
			if _, ok := values[p.Requires]; !ok {
				errs[sub(p.Requires)] = "missing property - '" + sub(name) + "' requires this property"
			}
		}
	}
	return errs
}

// checkValue returns the normalised value or what is wrong with it. The order
// of the checks decides which text a value with two faults gets.
func checkValue(path, v string, p *property) (string, string) {
	if kind, ok := strings.CutPrefix(v, "\x00"); ok {
		return "", fmt.Sprintf("type check ('%s') failed - got %s", p.Type, kind)
	}
	v, ok := checkType(v, p.Type)
	if !ok {
		return "", fmt.Sprintf("type check ('%s') failed - got '%s'", p.Type, v)
	}
	if p.Sub != nil {
		if err := checkPropertyString(path, v, p.Sub); err != "" {
			return "", "invalid format - " + err
		}
	}
	if p.Format != "" {
		if err := checkFormat(p.Format, v); err != "" {
			return "", "invalid format - " + err + "\n"
		}
	}
	if p.Pattern != "" && !perlPattern(p.Pattern).MatchString(v) {
		return "", "value does not match the regex pattern"
	}
	// Perl counts characters of the decoded text.
	if n := len([]rune(v)); p.MaxLength != nil && n > *p.MaxLength {
		return "", fmt.Sprintf("value may only be %d characters long", *p.MaxLength)
	} else if p.MinLength != nil && n < *p.MinLength {
		return "", fmt.Sprintf("value must be at least %d characters long", *p.MinLength)
	}
	if f, err := strconv.ParseFloat(v, 64); err == nil && (p.Type == "integer" || p.Type == "number") {
		if p.Maximum != nil && f > float64(*p.Maximum) {
			return "", fmt.Sprintf("value must have a maximum value of %v", trimFloat(*p.Maximum))
		}
		if p.Minimum != nil && f < float64(*p.Minimum) {
			return "", fmt.Sprintf("value must have a minimum value of %v", trimFloat(*p.Minimum))
		}
	}
	if len(p.Enum) > 0 && !slices.Contains(p.Enum, v) {
		return "", fmt.Sprintf("value '%s' does not have a value in the enumeration '%s'", v, strings.Join(p.Enum, ", "))
	}
	return v, ""
}

func trimFloat(n number) string { return strconv.FormatFloat(float64(n), 'f', -1, 64) }

var integerRE = regexp.MustCompile(`^[+-]?\d+$`)

func checkType(v, typ string) (string, bool) {
	switch typ {
	case "boolean":
		switch strings.ToLower(v) {
		case "1", "on", "yes", "true":
			return "1", true
		case "0", "off", "no", "false":
			return "0", true
		}
		return v, false
	case "integer":
		return v, integerRE.MatchString(v)
	case "number":
		f, err := strconv.ParseFloat(v, 64)
		return v, err == nil && !math.IsNaN(f) && !math.IsInf(f, 0)
	}
	return v, true
}

var patterns sync.Map // string → *regexp.Regexp

// perlPattern compiles a schema pattern, anchored as PVE::JSONSchema anchors
// it. (?^:…) is how Perl prints a compiled pattern; {,n} is Perl for {0,n}.
func perlPattern(p string) *regexp.Regexp {
	if re, ok := patterns.Load(p); ok {
		return re.(*regexp.Regexp)
	}
	s := strings.ReplaceAll(strings.ReplaceAll(p, "(?^:", "(?:"), "{,", "{0,")
	re := regexp.MustCompile(`^(?:` + s + `)\n?$`)
	patterns.Store(p, re)
	return re
}
