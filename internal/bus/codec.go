package bus

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Encode marshals a document of this package. They hold nothing that could fail to
// marshal, so a failure is a bug and panics.
func Encode(doc any) []byte {
	b, err := json.Marshal(doc)
	if err != nil {
		panic("bus: encode " + err.Error())
	}
	return b
}

// Decode reads a document that a part of proxyfleet wrote, or that claims so. Fields that
// it does not know are left out, since fields are only ever added. People's intents are
// not for it: the coordinator reads them strictly. The error never quotes a string of the
// document, which may be a password.
func Decode[T any](data []byte) (T, error) {
	var doc T
	if err := json.Unmarshal(data, &doc); err != nil {
		return *new(T), fmt.Errorf("not a document of type %s: %w", kindName(doc), withoutValue(err))
	}
	return doc, nil
}

func kindName(doc any) string {
	_, name, _ := strings.Cut(fmt.Sprintf("%T", doc), ".")
	return strings.ToLower(name)
}

// withoutValue keeps the errors of encoding/json, which name types and offsets, and hides
// those of fields that decode themselves, which may quote what they read.
func withoutValue(err error) error {
	var syntax *json.SyntaxError
	var typ *json.UnmarshalTypeError
	if errors.As(err, &syntax) || errors.As(err, &typ) {
		return err
	}
	return errors.New("a field has a value of the wrong form")
}
