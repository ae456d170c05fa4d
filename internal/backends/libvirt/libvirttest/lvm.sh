#!/bin/sh
# LVM as far as libvirt's pools of type "logical" call it, for machines whose kernel has no
# device mapper: a volume is a loop device on a sparse file. It is called by the names of
# LVM's own programs; LVMDIR and LVMGROUP are set in the copy that a test makes of it.
set -eu
extent=4194304
size=42949672960
taken() { cat "$LVMDIR"/*.size 2>/dev/null | awk '{ n += $1 } END { print n + 0 }'; }
case ${0##*/} in
pvs) echo "  /dev/simulated $LVMGROUP" ;;
vgs) echo "  $size:$((size - $(taken)))" ;;
vgchange | vgscan) mkdir -p "/dev/$LVMGROUP" ;;
lvchange) ;;
lvs)
	for f in "$LVMDIR"/*.size; do
		[ -e "$f" ] || continue
		name=${f##*/}
		name=${name%.size}
		n=$(cat "$f")
		echo "  $name##uuid-$name#/dev/simulated(0)#linear#1#$n#$extent#$n#-wi-a-----"
	done
	;;
lvcreate)
	while [ $# -gt 0 ]; do
		case $1 in
		--name) name=$2; shift ;;
		-L) n=$(($(echo "$2" | tr -d K) * 1024)); shift ;;
		esac
		shift
	done
	n=$(((n + extent - 1) / extent * extent))
	[ "$n" -le $((size - $(taken))) ] || {
		echo "  Volume group \"$LVMGROUP\" has insufficient free space" >&2
		exit 5
	}
	[ ! -e "$LVMDIR/$name.size" ] || exit 5
	truncate -s "$n" "$LVMDIR/$name.data"
	mkdir -p "/dev/$LVMGROUP"
	ln -sfn "$(losetup --find --show "$LVMDIR/$name.data")" "/dev/$LVMGROUP/$name"
	echo "$n" >"$LVMDIR/$name.size"
	;;
lvremove)
	for volume; do :; done # the last of the arguments: a path
	name=${volume##*/}
	losetup -d "$(readlink "/dev/$LVMGROUP/$name")"
	rm -f "/dev/$LVMGROUP/$name" "$LVMDIR/$name.data" "$LVMDIR/$name.size"
	;;
*) exit 1 ;;
esac
