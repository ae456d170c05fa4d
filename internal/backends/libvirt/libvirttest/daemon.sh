#!/bin/sh
# Runs a libvirtd of its own: in namespaces, with state directories that end with it. $1 is
# a directory that both sides see; the socket is $1/sock/libvirt-sock. Lines in $1/listen are
# configuration for a daemon that listens on the network as well. While $1/down is there, a
# daemon that ends is not started again. Everything ends with this script's first process.
set -eu
dir=$1
# The host's definitions, but none of its state.
cp -a /etc/libvirt "$dir/etc"
rm -rf "$dir"/etc/qemu/*.xml "$dir"/etc/qemu/autostart "$dir"/etc/storage "$dir"/etc/qemu/networks/autostart
mkdir -p "$dir/lib" "$dir/log" "$dir/cache" "$dir/sock" "$dir/run"
mount --bind "$dir/etc" /etc/libvirt
mount --bind "$dir/lib" /var/lib/libvirt
mount --bind "$dir/log" /var/log/libvirt
mount --bind "$dir/cache" /var/cache/libvirt
mount --bind "$dir/run" /run/libvirt
mkdir -p /var/lib/libvirt/images /var/lib/libvirt/dnsmasq /run/libvirt/network
printf 'unix_sock_dir = "%s"\nauth_unix_rw = "none"\nlog_filters = "4:util.netdev 4:util.ethtool"\nlog_outputs = "3:file:%s"\n' "$dir/sock" "$dir/libvirtd.log" >"$dir/libvirtd.conf"
listen=
if [ -e "$dir/listen" ]; then
	listen=--listen
	cat "$dir/listen" >>"$dir/libvirtd.conf"
fi
# Programs that a test has instead of the machine's.
[ ! -d "$dir/sbin" ] || mount -t overlay overlay -o "lowerdir=$dir/sbin:/usr/sbin" /usr/sbin
ip link set lo up
virtlogd -d -p "$dir/virtlogd.pid"
# A shell is this namespace's init: it reaps what a daemon that was killed leaves.
while :; do
	if [ -e "$dir/down" ]; then
		sleep 0.05
	else
		libvirtd --config "$dir/libvirtd.conf" $listen --pid-file "$dir/libvirtd.pid" || true
	fi
done
