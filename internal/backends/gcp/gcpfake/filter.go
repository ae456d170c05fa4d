package gcpfake

import (
	"regexp"
	"strings"
)

// A filter is what a client asks to see: comparisons of a field with = or != (AIP-160) or with
// eq or ne (a regular expression for the whole field), labels.key:* for "is set", joined by AND
// (also by standing beside each other in parentheses) or by OR. Everything else that Google may
// understand (ranges, wildcards, NOT) is refused, so that no test passes on a filter that only
// seems to work.

var filterWord = regexp.MustCompile(`\s*(?:([()])|(!=|=|:)|"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s()=!:"']+))`)

type filterToken struct {
	kind string // "(", ")", "op", "text", "word"
	text string
}

// parseFilter compiles a filter; an empty one lets everything through. comparable says which
// fields the listed things can be asked for: the service refuses others, also lists and objects.
func parseFilter(filter string, comparable func(path []string) bool) (func(object) bool, error) {
	if strings.TrimSpace(filter) == "" {
		return func(object) bool { return true }, nil
	}
	bad := invalid("filter", filter, "Invalid list filter expression.")
	tokens, ok := filterTokens(filter)
	if !ok {
		return nil, bad
	}
	p := &filterParser{tokens: tokens, comparable: comparable}
	match := p.sequence()
	if match == nil || len(p.tokens) > 0 {
		return nil, bad
	}
	return match, nil
}

func filterTokens(filter string) (out []filterToken, ok bool) {
	rest := strings.TrimRight(filter, " \t\n")
	for rest != "" {
		m := filterWord.FindStringSubmatchIndex(rest)
		if m == nil || m[0] != 0 {
			return nil, false
		}
		part := func(i int) string { return rest[m[2*i]:m[2*i+1]] }
		switch {
		case m[2] >= 0:
			out = append(out, filterToken{part(1), part(1)})
		case m[4] >= 0:
			out = append(out, filterToken{"op", part(2)})
		case m[6] >= 0:
			out = append(out, filterToken{"text", part(3)})
		case m[8] >= 0:
			out = append(out, filterToken{"text", part(4)})
		default:
			out = append(out, filterToken{"word", part(5)})
		}
		rest = rest[m[1]:]
	}
	return out, true
}

type filterParser struct {
	tokens     []filterToken
	comparable func(path []string) bool
}

func (p *filterParser) peek() filterToken {
	if len(p.tokens) == 0 {
		return filterToken{}
	}
	return p.tokens[0]
}

func (p *filterParser) next() filterToken {
	t := p.peek()
	if len(p.tokens) > 0 {
		p.tokens = p.tokens[1:]
	}
	return t
}

// sequence is one factor, or several that are joined in one way; nil where it cannot be read.
func (p *filterParser) sequence() func(object) bool {
	all := []func(object) bool{p.factor()}
	joint := ""
	for len(p.tokens) > 0 && p.peek().kind != ")" {
		word := "AND"
		if t := p.peek(); t.kind == "word" && (t.text == "AND" || t.text == "OR") {
			word = p.next().text
		} else if t.kind != "(" {
			return nil // side by side is for parentheses only
		}
		if joint != "" && joint != word {
			return nil
		}
		joint = word
		all = append(all, p.factor())
	}
	for _, f := range all {
		if f == nil {
			return nil
		}
	}
	return func(o object) bool {
		for _, f := range all {
			if f(o) == (joint == "OR") {
				return joint == "OR"
			}
		}
		return joint != "OR"
	}
}

func (p *filterParser) factor() func(object) bool {
	if p.peek().kind == "(" {
		p.next()
		inner := p.sequence()
		if p.next().kind != ")" {
			return nil
		}
		return inner
	}
	return p.comparison()
}

var fieldName = regexp.MustCompile(`^[a-z][a-zA-Z0-9]*(\.[a-zA-Z0-9_-]+)*$`)

func (p *filterParser) comparison() func(object) bool {
	field, op, value := p.next(), p.next(), p.next()
	if field.kind != "word" || !fieldName.MatchString(field.text) || value.kind != "word" && value.kind != "text" {
		return nil
	}
	path := strings.Split(field.text, ".")
	if !p.comparable(path) {
		return nil
	}
	literal := value.text
	switch {
	case op.kind == "op" && op.text == ":" && literal == "*" && value.kind == "word":
		return func(o object) bool { return text(o, path...) != "" || isSet(o, path) }
	case op.kind == "op" && op.text == ":":
		return nil
	case op.kind == "op" && strings.Contains(literal, "*"):
		return nil
	case op.kind == "op":
		return func(o object) bool { return (text(o, path...) == literal) == (op.text == "=") }
	case op.kind == "word" && (op.text == "eq" || op.text == "ne"):
		re, err := regexp.Compile("^(?:" + literal + ")$")
		if err != nil {
			return nil
		}
		return func(o object) bool { return re.MatchString(text(o, path...)) == (op.text == "eq") }
	}
	return nil
}

func isSet(o object, path []string) bool {
	for _, p := range path[:len(path)-1] {
		o = sub(o, p)
	}
	_, ok := o[path[len(path)-1]]
	return ok
}

// comparable reports whether a list's things have a single value at a path.
func (c *call) comparable(collection string) func(path []string) bool {
	return func(path []string) bool {
		answer := c.m.service.Schemas[c.m.Response.Ref].Properties["items"]
		if strings.HasSuffix(c.m.ID, "aggregatedList") {
			answer = c.m.service.Schemas[answer.Additional.Ref].Properties[collection]
		}
		s := answer.Items
		for _, name := range path {
			if s.Ref != "" {
				s = c.m.service.Schemas[s.Ref]
			}
			next := s.Properties[name]
			if next == nil {
				next = s.Additional
			}
			if next == nil {
				return false
			}
			s = next
		}
		return s.Ref == "" && s.Type != "object" && s.Type != "array"
	}
}
