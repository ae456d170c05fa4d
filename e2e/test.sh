#!/usr/bin/env bash
# Every test: those that need only Go, and, under the tag real, those that need libvirtd,
# QEMU, a guest and Squid. Installs and starts what is missing on Debian and Ubuntu as
# root; elsewhere it says what is missing and fails. Nothing is skipped.
#
#   e2e/test.sh [arguments of go test; default: ./...]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/.."
(($#)) || set -- ./...

command -v go >/dev/null || { echo "test: there is no go on the PATH; go.mod says which version is needed" >&2; exit 1; }
[[ $(id -u) == 0 ]] || { echo "test: the tests of libvirt use namespaces and devices: run as root, or run 'make test-fast'" >&2; exit 1; }

e2e/packages.sh install
e2e/libvirt.sh up
PROXYFLEET_GUEST_IMAGE=$(e2e/guest/build.sh)
PROXYFLEET_NATS_CLI=$(e2e/tools.sh nats)
PROXYFLEET_NATS_SERVER=$(e2e/tools.sh nats-server)
export PROXYFLEET_GUEST_IMAGE PROXYFLEET_NATS_CLI PROXYFLEET_NATS_SERVER

go vet -tags real ./...
# Two packages at a time: an emulated guest takes a core of its own.
exec go test -race -tags real -timeout 25m -p 2 "$@"
