#!/usr/bin/env bash
# Every test: those that need only Go, and, under the tag real, those that need libvirtd,
# QEMU, a guest and Squid. Installs what is missing on Debian and Ubuntu as root;
# elsewhere it says what is missing and fails. Nothing is skipped. Tests start a libvirtd of
# their own in namespaces; the one that boots a guest needs the machine's own, uses a pool of
# its own there, and leaves nothing.
#
#   e2e/test.sh                          everything
#   e2e/test.sh [arguments of go test]   these alone, with all tags
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/.."

command -v go >/dev/null || { echo "test: there is no go on the PATH; go.mod says which version is needed" >&2; exit 1; }
[[ $(id -u) == 0 ]] || { echo "test: the tests of libvirt use namespaces and devices: run as root, or run 'make test-fast'" >&2; exit 1; }

# The fake Proxmox cluster refuses what the API's schema refuses, which is Proxmox's own.
export PROXYFLEET_PVE_SCHEMA=${PROXYFLEET_PVE_SCHEMA:-$PWD/../shared/pve}
[[ -f $PROXYFLEET_PVE_SCHEMA/api-schema-9.1.json ]] || {
	echo "test: the Proxmox VE API schema is not in $PROXYFLEET_PVE_SCHEMA; docs/proxmox.md says where to get it, then set PROXYFLEET_PVE_SCHEMA" >&2
	exit 1
}

e2e/packages.sh install
guest=$(mktemp)
trap 'rm -f "$guest"' EXIT
e2e/guest/build.sh >"$guest" & # mostly waits for the network, so tools are built beside it
PROXYFLEET_NATS_CLI=$(e2e/tools.sh nats)
PROXYFLEET_NATS_SERVER=$(e2e/tools.sh nats-server)
PROXYFLEET_KUBE_APISERVER=$(e2e/tools.sh kube-apiserver)
PROXYFLEET_ETCD=$(e2e/tools.sh etcd)
PROXYFLEET_KWOK=$(e2e/tools.sh kwok)
wait $! || { echo "test: the guest image could not be built" >&2; exit 1; }
PROXYFLEET_GUEST_IMAGE=$(cat "$guest")
export PROXYFLEET_GUEST_IMAGE PROXYFLEET_NATS_CLI PROXYFLEET_NATS_SERVER PROXYFLEET_KUBE_APISERVER PROXYFLEET_ETCD PROXYFLEET_KWOK

# real: needs programs of this machine; guest: boots a guest, minutes without KVM; pve: needs
# the API schema.
go vet -tags real,guest,pve ./...
if (($#)); then
	e2e/libvirt.sh up
	go test -race -count 1 -tags real,guest,pve -timeout 40m "$@"
	exit
fi
go test -race -count 1 -tags real,pve -timeout 40m ./...
# A guest needs both processors of a small machine for itself, so it comes last.
e2e/libvirt.sh up
go test -count 1 -tags real,guest,pve -timeout 15m -run TestAVirtualMachineFromIntentToDeletion ./e2e
