# Runs a command as the kubelet's runtime would: with a read-only root, a network and processes
# of its own, a user without privileges or a way to get any, and a volume each for
# configuration and run files. Its parent has unshared mount, net, pid, and moves the
# interface here.
#
#   container.sh DIR USER INTERFACE ADDRESS GATEWAY COMMAND…
set -eu
dir=$1 user=$2 interface=$3 address=$4 gateway=$5
shift 5
until ip link show "$interface" >/dev/null 2>&1; do sleep 0.05; done
ip link set lo up
ip link set "$interface" name eth0
ip addr add "$address/24" dev eth0
ip link set eth0 up
ip route add default via "$gateway"

root=$dir/root
mkdir "$root"
mount --make-rprivate /
mount -t tmpfs root "$root"
mkdir -p "$root/usr" "$root/dev" "$root/proc" "$root/tmp" "$root/run/squid" "$root/etc/proxyfleet" "$root/var/log"
for link in bin sbin lib lib64; do [ -e "/usr/$link" ] && ln -s "usr/$link" "$root/$link"; done
cp -a /etc/passwd /etc/group /etc/nsswitch.conf /etc/hosts /etc/ld.so.cache /etc/alternatives /etc/squid "$root/etc/"
rm -rf "$root/etc/squid/conf.d"
mount --bind /usr "$root/usr"
mount -o remount,bind,ro "$root/usr"
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
mount --bind "$dir/config" "$root/etc/proxyfleet"
mount -o remount,bind,ro "$root/etc/proxyfleet"
mount -t tmpfs -o "size=1m,uid=0,gid=$user,mode=2777" run "$root/run/squid"
mount -o remount,ro "$root"
exec chroot "$root" setpriv --reuid "$user" --regid "$user" --groups "$user" --inh-caps=-all --bounding-set=-all --no-new-privs -- "$@"
