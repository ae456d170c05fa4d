#!/usr/bin/env bash
# Builds the Debian guest image that the real-libvirt tests and `make demo-kvm` boot, and
# prints its path. The image is a qcow2 with an EFI system partition (a unified kernel
# image, so no boot loader and no menu) and an ext4 root, with cloud-init (NoCloud only),
# the QEMU guest agent and Squid (installed, not enabled). It is made without loop
# devices, so it can be built inside a container that may chroot and mount.
#
#   e2e/guest/build.sh            build if needed, print the path
#   e2e/guest/build.sh --path     print the path only, whether or not it exists
#
# The image is cached under a hash of this script and files/; remove it to build it anew
# (for newer Debian packages, say). Mirrors and suite are taken from this
# machine's own apt; on a machine that is not Debian set GUEST_MIRROR and GUEST_SUITE.
#
# Needs root, and the packages that e2e/packages.sh lists under "guest".
set -euo pipefail
export LC_ALL=C DEBIAN_FRONTEND=noninteractive
umask 022

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/proxyfleet/guest
# shellcheck source=/dev/null
suite=${GUEST_SUITE:-$(. /etc/os-release && echo "${VERSION_CODENAME:-}")}
mirror=${GUEST_MIRROR:-}

# Both are fixed so that the kernel finds the root by itself, whatever bus it hangs on.
root_partuuid=6f1d0c3e-8c0b-4d0e-9a55-70726f787966
root_fsuuid=0b9f7a52-6a0c-4f6e-8d3b-666c65657400

say() { printf 'guest: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

image_path() {
	local hash
	hash=$(cd "$here" && find build.sh files -type f -print0 | sort -z | xargs -0 sha256sum)
	hash=$( (echo "$hash"; echo "$suite"; uname -m) | sha256sum)
	echo "$cache/${hash:0:16}.qcow2"
}

# The machine's own Debian sources, as one-line apt entries.
apt_sources() {
	if [[ -n $mirror ]]; then
		echo "deb $mirror $suite main"
		return
	fi
	# shellcheck disable=SC2016 # the $(…) are apt's own
	apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
		awk -v s="$suite" '$1 ~ /^https?:/ && $2 ~ "^" s "($|-updates$|-security$)" && $3 == "main" {
			print "deb", $1, $2, $3 }' | sort -u
}

check_machine() {
	[[ $(id -u) == 0 ]] || die "must run as root: debootstrap makes device nodes and files of other owners"
	[[ $(uname -m) == x86_64 ]] || die "only amd64 guests are built"
	local tool missing=()
	for tool in debootstrap mke2fs mkfs.vfat mcopy sfdisk objcopy objdump qemu-img unshare; do
		command -v "$tool" >/dev/null || missing+=("$tool")
	done
	((${#missing[@]} == 0)) || die "missing: ${missing[*]}; 'e2e/packages.sh install guest' installs them"
	[[ -n $(apt_sources) ]] ||
		die "apt on this machine has no Debian '$suite' sources; set GUEST_MIRROR and GUEST_SUITE"
}

# The kernel of cloud images, and nothing that a proxy does not need.
packages=(
	linux-image-cloud-amd64 initramfs-tools zstd systemd systemd-sysv systemd-resolved
	systemd-boot-efi udev dbus libnss-resolve iproute2 ca-certificates
	cloud-init cloud-guest-utils fdisk e2fsprogs
	qemu-guest-agent squid
)

# bootstrap fills the root. It runs in mount and pid namespaces of its own, so that
# nothing stays mounted or running, however it ends.
bootstrap() {
	local root=$1 first proxy=''
	eval "$(apt-config shell proxy Acquire::http::Proxy)" # debootstrap does not read apt's settings
	[[ -z $proxy || $proxy == DIRECT ]] || export http_proxy=$proxy
	first=$(apt_sources | awk -v s="$suite" '$3 == s { print $2; exit }')
	debootstrap --variant=minbase --include=ca-certificates "$suite" "$root" "$first"

	# Before the packages, because dpkg and initramfs-tools read from here.
	cp -rT "$here/files" "$root"
	apt_sources >"$root/etc/apt/sources.list"
	apt-config dump | grep -E '^Acquire::(Check-|https?::|Retries)' >"$root/etc/apt/apt.conf.d/99build" || true
	printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d" # start nothing in the chroot
	chmod +x "$root/usr/sbin/policy-rc.d"
	cp /etc/resolv.conf "$root/etc/resolv.conf"
	mount -t proc proc "$root/proc"

	chroot "$root" apt-get -qq update
	chroot "$root" apt-get -qq install --yes --no-install-recommends "${packages[@]}"

	configure "$root"
	umount "$root/proc"
	rm -rf "$root"/usr/sbin/policy-rc.d "$root"/etc/apt/apt.conf.d/99build \
		"$root"/var/lib/apt/lists/* "$root"/var/cache/apt/* "$root"/var/log/*.log \
		"$root"/var/lib/cloud "$root"/usr/share/{doc,man,locale}/*
	# Empty, not missing: each boot of a fresh overlay is a first boot with an id of its own.
	: >"$root/etc/machine-id"
	rm -f "$root/var/lib/dbus/machine-id" "$root/etc/hostname" "$root/etc/resolv.conf"
	ln -s /run/systemd/resolve/stub-resolv.conf "$root/etc/resolv.conf"
}

# configure leaves only the units that a proxy's boot needs: under TCG each one costs.
configure() {
	local root=$1
	echo "UUID=$root_fsuuid / ext4 defaults,noatime 0 1" >"$root/etc/fstab"
	chroot "$root" systemctl -q enable systemd-networkd systemd-resolved
	chroot "$root" systemctl -q disable squid
	chroot "$root" systemctl -q mask \
		apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer fstrim.timer \
		e2scrub_all.timer e2scrub_reap.service systemd-timesyncd.service \
		systemd-pstore.service systemd-binfmt.service getty@tty1.service \
		logrotate.timer cloud-init-hotplugd.socket
	# A way in when a test hangs: log in on the serial console as root, without a password.
	chroot "$root" passwd -q -d root
}

# unified_kernel joins stub, kernel, initrd and command line into one EFI program. The
# addresses follow each other, since neither kernel nor initrd has a fixed size.
unified_kernel() {
	local root=$1 out=$2
	local stub=$root/usr/lib/systemd/boot/efi/linuxx64.efi.stub kernel initrd
	kernel=$(echo "$root"/boot/vmlinuz-*)
	initrd=$(echo "$root"/boot/initrd.img-*)
	# Quiet is off: the serial log is the only witness of a boot that failed.
	printf '%s' "root=PARTUUID=$root_partuuid rw console=ttyS0,115200 systemd.show_status=1 \
mitigations=off audit=0 fsck.mode=skip random.trust_cpu=on panic=10" >"$out.cmdline"

	local args=() section file address size at
	read -r address size < <(objdump -h "$stub" | awk '$2 ~ /^\./ { a = $4; s = $3 } END { print a, s }')
	at=$((16#$address + 16#$size)) # behind the stub's last section
	while read -r section file; do
		at=$(((at + 0xffff) & ~0xffff))
		args+=(--add-section "$section=$file" --change-section-vma "$section=$(printf '0x%x' "$at")")
		at=$((at + $(stat -Lc %s "$file")))
	done <<-END
		.osrel $root/usr/lib/os-release
		.cmdline $out.cmdline
		.initrd $initrd
		.linux $kernel
	END
	objcopy "${args[@]}" "$stub" "$out"
	rm "$out.cmdline"
}

# assemble writes the partitions into one file: 1 MiB, ESP, root. The root comes last so
# that cloud-init can grow it.
assemble() {
	local root=$1 work=$2 esp_mib root_mib
	unified_kernel "$root" "$work/linux.efi"
	rm -rf "${root:?}"/boot/*
	esp_mib=$(($(stat -c %s "$work/linux.efi") / 1048576 + 8))
	truncate -s "${esp_mib}M" "$work/esp"
	mkfs.vfat -F 16 -n ESP "$work/esp"
	mmd -i "$work/esp" ::/EFI ::/EFI/BOOT
	mcopy -i "$work/esp" "$work/linux.efi" ::/EFI/BOOT/BOOTX64.EFI

	root_mib=$(($(du -sm "$root" | cut -f1) * 5 / 4 + 256))
	truncate -s "${root_mib}M" "$work/root.ext4"
	mke2fs -q -t ext4 -U "$root_fsuuid" -L root -O ^metadata_csum_seed -m 1 -d "$root" "$work/root.ext4"

	truncate -s "$((1 + esp_mib + root_mib + 1))M" "$work/disk"
	sfdisk -q "$work/disk" <<-END
		label: gpt
		start=1MiB, size=${esp_mib}MiB, type=U, name=esp
		size=${root_mib}MiB, type=L, uuid=$root_partuuid, name=root
	END
	dd if="$work/esp" of="$work/disk" bs=1M seek=1 conv=notrunc,sparse status=none
	dd if="$work/root.ext4" of="$work/disk" bs=1M seek=$((1 + esp_mib)) conv=notrunc,sparse status=none
	qemu-img convert -c -O qcow2 "$work/disk" "$work/image.qcow2"
}

build() {
	local image=$1 work
	work=$(mktemp -d "$cache/build.XXXXXX")
	# shellcheck disable=SC2064 # the directory of now
	trap "rm -rf --one-file-system '$work'" EXIT
	make_image "$work" >"$cache/build.log" 2>&1 || {
		tail -n 30 "$cache/build.log" >&2
		die "the build failed; the whole log is $cache/build.log"
	}
	mv "$work/image.qcow2" "$image"
}

# make_image is a process of its own, so that any failing command ends it: set -e is off
# within a list that ends in ||.
make_image() {
	unshare --mount --pid --fork "${BASH_SOURCE[0]}" --bootstrap "$1/root" &&
		"${BASH_SOURCE[0]}" --assemble "$1/root" "$1"
}

main() {
	case ${1:-} in
	--path) image_path; return ;;
	# make_image calls these in processes of their own.
	--bootstrap) bootstrap "$2"; return ;;
	--assemble) assemble "$2" "$3"; return ;;
	'') ;;
	*) die "unknown argument: $1" ;;
	esac
	local image lock
	image=$(image_path)
	if [[ ! -e $image ]]; then
		check_machine
		mkdir -p "$cache"
		exec {lock}>"$cache/lock"
		flock "$lock" # a second caller waits, then finds the image
		if [[ ! -e $image ]]; then
			say "building $image (about 4 minutes)"
			SECONDS=0
			build "$image"
			say "built in ${SECONDS}s, $(($(stat -c %s "$image") / 1048576)) MiB"
		fi
	fi
	echo "$image"
}

main "$@"
