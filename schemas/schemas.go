// Package schemas holds a JSON Schema (draft 2020-12) of every document that proxyfleet
// puts on NATS, one file for each type: "io.proxyfleet.intent.v1" stands in
// intent.v1.json. Editors use intent.v1.json to complete and check what people write.
//
// The files are generated from the Go types of internal/bus and their comments, by
//
//	go test ./schemas -update
//
// and a test holds them, the types and the documents under examples together. Only an
// intent is closed: every other reader leaves out what it does not know.
//
// It imports nothing but the standard library.
package schemas

import "embed"

// Files are the schemas, by file name.
//
//go:embed *.json
var Files embed.FS
