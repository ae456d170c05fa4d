#!/usr/bin/env bash
# The Debian and Ubuntu packages that tests and demos need, by what needs them.
#
#   e2e/packages.sh list [group…]      print them
#   e2e/packages.sh install [group…]   install what is missing (root, apt-get); on any
#                                      other machine say what is missing, and fail
#
# Groups: guest (to build the guest image), libvirt (a KVM host), tests (the rest).
# Without a group: all of them.
set -euo pipefail

declare -A packages=(
	[guest]="debootstrap mtools dosfstools fdisk e2fsprogs binutils qemu-utils util-linux"
	[libvirt]="libvirt-daemon-system libvirt-clients libvirt-daemon-driver-qemu qemu-system-x86
		qemu-utils ovmf dnsmasq-base iproute2 iptables nftables"
	[tests]="squid xorriso openssl curl gzip xz-utils zstd util-linux iproute2 procps gcc libc6-dev openssh-server"
)

policy=/usr/sbin/policy-rc.d

die() { echo "packages: $*" >&2; exit 1; }

names() {
	local group
	for group in "$@"; do
		[[ -n ${packages[$group]:-} ]] || die "there is no group '$group'; groups are: ${!packages[*]}"
		# shellcheck disable=SC2086 # a list of words
		printf '%s\n' ${packages[$group]}
	done | sort -u
}

missing() {
	local name
	names "$@" | while read -r name; do
		[[ $(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null) == installed ]] || echo "$name"
	done
}

install() {
	command -v apt-get >/dev/null ||
		die "this machine has no apt-get; install what these Debian packages hold: $(names "$@" | xargs)"
	local need=()
	mapfile -t need < <(missing "$@")
	((${#need[@]})) || return 0
	[[ $(id -u) == 0 ]] || die "missing: ${need[*]}; run as root, or: apt-get install --no-install-recommends ${need[*]}"

	echo "packages: installing ${need[*]}" >&2
	export DEBIAN_FRONTEND=noninteractive
	# A service that a package would start on its own (Squid) is no part of the tests.
	if [[ ! -e $policy ]]; then
		printf '#!/bin/sh\nexit 101\n' >$policy
		chmod +x $policy
		trap 'rm -f $policy' EXIT
	fi
	local log
	log=$(mktemp)
	if ! { apt-get -q update && apt-get -q install --yes --no-install-recommends "${need[@]}"; } >"$log" 2>&1; then
		tail -n 30 "$log" >&2
		die "apt-get failed; the whole log is $log"
	fi
	rm -f "$log"
}

command=${1:-}
shift || true
(($#)) || set -- "${!packages[@]}"
case $command in
list) names "$@" ;;
install) install "$@" ;;
*) die "usage: packages.sh list|install [group…]" ;;
esac
