// Package intents reads and checks the documents that people publish. The coordinator's
// core and its API use the same functions, so a document is judged alike on both ways.
//
// It imports internal/bus for the document types and the standard library. Everything in
// it is a pure function; nothing blocks.
package intents
