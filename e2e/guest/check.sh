#!/usr/bin/env bash
# Boots the guest image once with plain QEMU (no libvirt, no KVM needed) and a NoCloud
# seed that configures Squid, and waits for an answer of that Squid. It tells whether a
# failing libvirt test is the image's fault. Prints how long the boot took.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
limit=${GUEST_CHECK_SECONDS:-240}

image=$("$here/build.sh")
work=$(mktemp -d)
qemu=
# shellcheck disable=SC2317 # called by the trap
cleanup() {
	[[ -z $qemu ]] || { kill "$qemu" && wait "$qemu"; } 2>/dev/null || true
	[[ -z ${GUEST_CHECK_LOG:-} ]] || cp "$work/serial.log" "$GUEST_CHECK_LOG"
	rm -rf "$work"
}
trap cleanup EXIT

cat >"$work/meta-data" <<-END
	instance-id: check
	local-hostname: check
END
cat >"$work/user-data" <<-'END'
	#cloud-config
	write_files:
	  - path: /etc/squid/squid.conf
	    content: |
	      http_port 3128
	      acl all_but_manager src all
	      http_access deny all
	runcmd:
	  - [systemctl, enable, --now, squid]
	  - [sh, -c, "systemd-analyze critical-chain --no-pager >/dev/ttyS0; lsblk >/dev/ttyS0"]
END
xorriso -as genisoimage -quiet -o "$work/seed.iso" -V cidata -J -r "$work/meta-data" "$work/user-data" 2>/dev/null
qemu-img create -q -f qcow2 -b "$image" -F qcow2 "$work/disk.qcow2" 4G
cp /usr/share/OVMF/OVMF_VARS_4M.fd "$work/vars.fd"

# QEMU takes KVM where it works, and any free port for the way to Squid.
qemu-system-x86_64 -machine q35 -accel kvm -accel tcg,thread=multi -cpu max -smp 2 -m 768 -display none -no-reboot \
	-drive if=pflash,format=raw,readonly=on,file=/usr/share/OVMF/OVMF_CODE_4M.fd \
	-drive if=pflash,format=raw,file="$work/vars.fd" \
	-drive if=none,id=disk,file="$work/disk.qcow2",discard=unmap -device virtio-blk-pci,drive=disk \
	-drive if=none,id=seed,file="$work/seed.iso",format=raw,readonly=on -device virtio-blk-pci,drive=seed \
	-netdev user,id=net,hostfwd=tcp:127.0.0.1:0-:3128 -device virtio-net-pci,netdev=net,romfile= \
	-device virtio-rng-pci -serial file:"$work/serial.log" -monitor none 2>"$work/qemu.log" &
qemu=$!

SECONDS=0
port=
while [[ -z $port ]]; do
	kill -0 "$qemu" 2>/dev/null || { cat "$work/qemu.log" >&2; exit 1; }
	port=$(ss -Htlnp | awk -v pid="pid=$qemu," 'index($0, pid) { sub(/.*:/, "", $4); print $4; exit }')
	sleep 0.2
done
while ((SECONDS < limit)); do
	# Squid is closed: its own 403 is the sign of life.
	answer=$(curl -s -o "$work/answer" -w '%{http_code}' -m 5 -x "http://127.0.0.1:$port" http://192.0.2.1/ || true)
	if [[ $answer == 403 ]]; then
		echo "guest: Squid answers ${SECONDS}s after power-on"
		[[ -z ${GUEST_CHECK_LOG:-} ]] || sleep 10 # for the log to tell the rest
		exit 0
	fi
	kill -0 "$qemu" 2>/dev/null || break
	sleep 1
done
tail -n 60 "$work/serial.log" >&2
echo "guest: no answer of Squid within ${limit}s; the end of the serial log is above" >&2
exit 1
