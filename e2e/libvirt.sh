#!/usr/bin/env bash
# Makes this machine a KVM host for tests and demos, or a host of emulated guests where
# there is no KVM: libvirtd runs, the network "default" and the storage pool
# "proxyfleet-test" are active. Run again it changes nothing.
#
#   e2e/libvirt.sh up      install, start, define
#   e2e/libvirt.sh down    remove the pool "proxyfleet-test" and what is in it
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
pool=proxyfleet-test
# Below /var/lib/libvirt, where QEMU's user may look.
target=/var/lib/libvirt/$pool

say() { echo "libvirt: $*" >&2; }
virsh() { command virsh -q -c qemu:///system "$@"; }
answers() { timeout 10 virsh -q -c qemu:///system version >/dev/null 2>&1; }

start_daemons() {
	! answers || return 0
	if [[ -d /run/systemd/system ]]; then
		systemctl start virtlogd.socket libvirtd.socket libvirtd.service
	else
		# Without an init system a daemon that died leaves its socket and pid file behind. One in
		# another namespace is somebody else's.
		mkdir -p /run/libvirt
		pgrep --ns $$ --nslist pid -x virtlogd >/dev/null || virtlogd -d
		pgrep --ns $$ --nslist pid -x libvirtd >/dev/null || libvirtd -d
	fi
	for _ in {1..50}; do
		! answers || return 0
		sleep 0.2
	done
	say "libvirtd was started and does not answer on qemu:///system; see 'journalctl -u libvirtd' or run 'libvirtd' in a terminal"
	return 1
}

network_up() {
	virsh net-info default >/dev/null 2>&1 ||
		virsh net-define /usr/share/libvirt/networks/default.xml
	[[ $(virsh net-info default | awk '/^Active:/ { print $2 }') == yes ]] || virsh net-start default
}

pool_up() {
	install -d -m 0711 "$target"
	virsh pool-info $pool >/dev/null 2>&1 || virsh pool-define-as $pool dir --target "$target"
	[[ $(virsh pool-info $pool | awk '/^State:/ { print $2 }') == running ]] || virsh pool-start $pool
}

case ${1:-} in
up)
	"$here/packages.sh" install libvirt
	[[ $(id -u) == 0 ]] || answers || { say "run as root, or as a member of the group libvirt"; exit 1; }
	start_daemons
	network_up
	pool_up
	say "$(virsh version --daemon | tail -n 1); network default and pool $pool are active"
	;;
down)
	! virsh pool-info $pool >/dev/null 2>&1 || { virsh pool-destroy $pool || true; virsh pool-undefine $pool; }
	rm -rf "${target:?}"
	;;
*)
	say "usage: libvirt.sh up|down"
	exit 1
	;;
esac
