package intents

import "bytes"

// Decode reads the document of a request into *into, as strictly as an intent is read. A
// request without a body is an empty document.
func Decode(data []byte, into any) *Invalid {
	if len(bytes.TrimSpace(data)) == 0 {
		return nil
	}
	return decode(data, into)
}
