package libvirt

import (
	"errors"
	"strings"

	golibvirt "github.com/digitalocean/go-libvirt"

	"proxyfleet/internal/backends"
)

// isAnswer reports whether the daemon itself gave err, so that the connection is fine.
func isAnswer(err error) bool {
	var e golibvirt.Error
	return errors.As(err, &e) || errors.Is(err, golibvirt.ErrUnsupported)
}

// hasCode reports whether the daemon gave err with this code.
func hasCode(err error, code golibvirt.ErrorNumber) bool {
	var e golibvirt.Error
	return errors.As(err, &e) && golibvirt.ErrorNumber(e.Code) == code
}

// classify gives an answer of the daemon its class, by code. Codes are those of
// include/libvirt/virterror.h.
func classify(op string, err error) error {
	var e golibvirt.Error
	if !errors.As(err, &e) {
		return backends.Wrap(backends.ErrHostFault, op, err, "this libvirt is too old for it")
	}
	switch golibvirt.ErrorNumber(e.Code) {
	case golibvirt.ErrNoDomain:
		return backends.Wrap(backends.ErrNotFound, op, err, "libvirt does not know the domain")
	case golibvirt.ErrNoStoragePool:
		return backends.Wrap(backends.ErrHostFault, op, err, "libvirt does not know the storage pool; define it or correct storagePool")
	case golibvirt.ErrNoNetwork:
		return backends.Wrap(backends.ErrHostFault, op, err, "libvirt does not know the network; define it or correct network.libvirtNetwork")
	case golibvirt.ErrAuthFailed, golibvirt.ErrAuthCancelled, golibvirt.ErrAuthUnavailable,
		golibvirt.ErrAccessDenied, golibvirt.ErrOperationDenied:
		return backends.Wrap(backends.ErrHostFault, op, err, "libvirt does not let the agent do this")
	case golibvirt.ErrXMLError, golibvirt.ErrXMLDetail, golibvirt.ErrXMLInvalidSchema,
		golibvirt.ErrConfigUnsupported, golibvirt.ErrConfSyntax, golibvirt.ErrInvalidArg:
		return backends.Wrap(backends.ErrPermanent, op, err, "this host's libvirt cannot make such a guest")
	case golibvirt.ErrNoSupport, golibvirt.ErrOperationUnsupported:
		return backends.Wrap(backends.ErrHostFault, op, err, "this host's libvirt cannot do it")
	case golibvirt.ErrOperationTimeout:
		return backends.Wrap(backends.ErrTransient, op, err, "something else is being done with the guest, and libvirt waited for its end in vain")
	case golibvirt.ErrInternalError, golibvirt.ErrSystemError:
		// What the system, QEMU or LVM refused has no code of its own; its text is all that there
		// is.
		if strings.Contains(e.Message, "Cannot allocate memory") {
			return backends.Wrap(backends.ErrNoCapacity, op, err, "the host has no memory left for the guest")
		}
		for _, full := range []string{"No space left on device", "Disk quota exceeded", "insufficient free space"} {
			if strings.Contains(e.Message, full) {
				return backends.Wrap(backends.ErrNoCapacity, op, err, "the host's disk or pool is full")
			}
		}
	}
	return backends.Wrap(backends.ErrTransient, op, err, "libvirt could not do it now")
}

// inside is for a step of Ensure: what vanishes while it works is no verdict on the
// instance, so not found is tried again.
func inside(err error) error {
	if backends.Class(err) != backends.ErrNotFound {
		return err
	}
	return backends.Wrap(backends.ErrTransient, "ensure", err, "something vanished while it was being made")
}
