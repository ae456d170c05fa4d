// Package libvirttest runs a libvirtd of a test's own: real, with QEMU, a network and a
// storage pool, in mount, network and process namespaces, so that tests neither see nor
// disturb the machine's own and run beside each other.
//
// It needs root and the Debian packages that e2e/packages.sh lists under "libvirt". It is
// for tests only and imports nothing of this module but internal/backends and its images,
// so that the backend's own tests can use it as well as those of the whole fleet.
package libvirttest
