// Package e2e holds the tests that run proxyfleet as people run it: the built programs as
// processes of their own, a real nats-server, the real nats CLI, and, under the build tag
// real, a real libvirtd with QEMU and Squid.
//
// It imports internal/bus for the documents, internal/backends for the name that an instance
// has, and libvirttest for a libvirtd of a test's own: what it looks at is what an operator
// can look at. Tests find the tools through environment variables that e2e/test.sh sets
// (PROXYFLEET_NATS_CLI, PROXYFLEET_NATS_SERVER, PROXYFLEET_GUEST_IMAGE) and fail, never skip,
// where one is missing. The one with the tag guest boots a guest on this machine's own
// libvirtd, as e2e/libvirt.sh makes it.
package e2e
