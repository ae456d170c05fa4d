package bus

import (
	"encoding/json"
	"fmt"
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

// Decode reads a document that a part of proxyfleet wrote. Fields that it does not know
// are left out, since fields are only ever added. Intents of people are read by
// [DecodeIntent].
func Decode[T any](data []byte) (T, error) {
	var doc T
	if err := json.Unmarshal(data, &doc); err != nil {
		return *new(T), fmt.Errorf("decode %T: %s", doc, describe(err))
	}
	return doc, nil
}
