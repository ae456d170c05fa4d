package pve

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
)

// PVE is written in Perl: one value is a number in one answer and a string in the next.

// flag is 1, "1", true; anything else is not set.
type flag bool

func (f *flag) UnmarshalJSON(raw []byte) error {
	s := string(bytes.Trim(raw, `"`))
	*f = s == "1" || s == "true"
	return nil
}

// number is a whole number, quoted or not, with or without a fraction; null is 0.
type number int64

func (n *number) UnmarshalJSON(raw []byte) error {
	s := string(bytes.Trim(raw, `"`))
	if s == "" || s == "null" {
		*n = 0
		return nil
	}
	if i, err := strconv.ParseInt(s, 10, 64); err == nil {
		*n = number(i)
		return nil
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return fmt.Errorf("%q is no number", s)
	}
	*n = number(f)
	return nil
}

// text is a string, or a number as it was written.
type text string

func (t *text) UnmarshalJSON(raw []byte) error {
	if len(raw) > 0 && raw[0] == '"' {
		return json.Unmarshal(raw, (*string)(t))
	}
	if string(raw) == "null" {
		return nil
	}
	*t = text(raw)
	return nil
}
