// Package placement chooses the host of a proxy: it filters hosts by what the spec asks
// for and by what they have left, and takes of those that fit the one with the
// fewest members of the same pool, in its zone first, then the least loaded. Ties go to
// the first name, so equal questions have equal answers.
//
// Everything in it is a pure function over a handful of plain values; it imports
// internal/bus for the document types only. [Choose] looks at every host once and
// allocates nothing for a host that does not fit: reasons become text in [Explain].
package placement
