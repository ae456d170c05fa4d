#!/usr/bin/env bash
# One proxy from intent to deletion, as a person would do it with the nats CLI, on a fleet of
# its own in a temporary directory: `coordinator dev` is NATS, coordinator and agent in one.
# Nothing of the proxy is left behind, however it ends; libvirt keeps the base image in its pool.
#
#   e2e/demo.sh local      the proxy is a process on this machine
#   e2e/demo.sh libvirt    the proxy is a virtual machine with Squid (root)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
backend=${1:-local}
proxy=demo
password='correct horse: "battery" staple'

bold='' cyan='' plain=''
[[ ! -t 1 ]] || { bold=$'\e[1m' cyan=$'\e[36m' plain=$'\e[0m'; }
title() { printf '\n%s\n' "$bold$*$plain"; }
say() { printf '%s\n' "$*"; }
die() {
	printf 'demo: %s\n' "$*" >&2
	if [[ -s $work/dev.log ]]; then
		printf 'demo: the end of the log of coordinator dev:\n' >&2
		tail -n 30 "$work/dev.log" >&2
	fi
	exit 1
}
# run shows a command as one would type it, then runs it.
run() {
	local word line='$'
	for word in "$@"; do
		[[ $word =~ ^[A-Za-z0-9_./:=%@-]+$ ]] || word="'${word//\'/\'\\\'\'}'"
		line+=" $word"
	done
	printf '%s\n' "$cyan$line$plain" >&2
	"$@"
}

command -v curl >/dev/null || { echo "demo: curl is missing; apt-get install curl" >&2; exit 1; }

work=$(mktemp -d /tmp/proxyfleet-demo.XXXXXX)
chmod 0711 "$work" # QEMU's user may pass
children=()
# shellcheck disable=SC2317 # called by the trap
cleanup() {
	local status=$? child
	trap - EXIT INT TERM
	# A proxy outlives its agent, so a demonstration that was cut off still deletes its own.
	if [[ -n ${published:-} && $status != 0 ]]; then
		nats pub -J "fleet.intent.proxy.$proxy" "{\"name\":\"$proxy\",\"desired\":\"absent\"}" >/dev/null 2>&1 &&
			await 30 gone || echo "demo: proxy $proxy may be left over; its files were in $work" >&2
	fi
	for child in "${children[@]}"; do
		kill "$child" 2>/dev/null || true
	done
	wait 2>/dev/null || true
	rm -rf "$work"
	exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

# await SECONDS COMMAND… repeats a command until it succeeds.
await() {
	local until=$((SECONDS + $1))
	shift
	until "$@"; do
		((SECONDS < until)) || return 1
		sleep 0.3
	done
}

NATS=${PROXYFLEET_NATS_CLI:-$(e2e/tools.sh nats)}
nats() { "$NATS" "$@"; }
export XDG_CONFIG_HOME=$work/config # no NATS context of this machine's user
record() { nats kv get fleet_proxies "$proxy" --raw 2>/dev/null || true; }
phase_is() { [[ $(record) == *"\"phase\":\"$1\""* ]]; }
gone() { [[ -z $(record) ]]; }
busy() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

port=4222
while busy $port; do
	say "Port $port is in use; taking the next one."
	port=$((port + 1))
done
export NATS_URL=nats://127.0.0.1:$port

case $backend in
local)
	listen=127.0.0.1:0 wait=30 egress=''
	cat >"$work/agent.yaml" <<-END
		host: {name: here}
		stateDir: $work/agent
		backend:
		  type: local
		  addresses: [127.0.0.1]
		  ports: 20000-29999
		  allowLoopback: true # the origin of this demonstration listens there
	END
	;;
libvirt)
	listen=0.0.0.0:0 wait=600 egress=', "egress": {"private": true}'
	e2e/libvirt.sh up
	image=$(e2e/guest/build.sh)
	cat >"$work/agent.yaml" <<-END
		host: {name: here}
		stateDir: $work/agent
		backend: {type: libvirt, storagePool: proxyfleet-test}
		images:
		  debian: {file: $image}
		machineTypes:
		  small: {vcpus: 1, memoryMiB: 768}
		defaults: {image: debian, machineType: small, diskGiB: 4}
		limits: {overcommit: {vcpus: 8}}
	END
	;;
*)
	say "usage: demo.sh local|libvirt" >&2
	exit 1
	;;
esac

go build -o "$work/origin" ./e2e/origin
"$work/origin" -listen $listen >"$work/origin.url" &
children+=($!)

title "1. A fleet: NATS, a coordinator and an agent, in one process"
say "\$ bin/coordinator dev --store $work/store --port $port --backend $backend --agent-config $work/agent.yaml"
bin/coordinator dev --store "$work/store" --port $port --backend "$backend" --agent-config "$work/agent.yaml" >"$work/dev.log" 2>&1 &
dev=$!
children+=("$dev")
host_there() {
	kill -0 "$dev" 2>/dev/null || die "coordinator dev ended"
	nats kv get fleet_hosts here --raw 2>/dev/null | grep -q '"offer"'
}
await 30 host_there || die "no host within 30 s"
run nats kv ls fleet_hosts

title "2. The intent: what the proxy should be"
intent=$(cat <<-END
	{ "name": "$proxy", "desired": "running",
	  "spec": { "auth": { "username": "crawler", "password": "${password//\"/\\\"}" }$egress } }
END
)
run nats pub -J "fleet.intent.proxy.$proxy" "$intent"
published=yes
started=$SECONDS

title "3. The inventory: what it is"
running_or_failed() { phase_is Running || phase_is Failed; }
await $wait running_or_failed || die "not running after $wait s: $(record)"
phase_is Running || die "failed: $(record)"
run nats kv get fleet_proxies "$proxy" --raw
say ""
say "Running after $((SECONDS - started)) s."
if [[ $backend == libvirt ]]; then
	run virsh -c qemu:///system list
fi

title "4. A request through the proxy"
address=$(record | sed -E 's/.*"addresses":\[\{"address":"([^"]+)","family":"ipv4","port":([0-9]+).*/\1:\2/')
url=$(cat "$work/origin.url")
if [[ $backend == libvirt ]]; then
	url=$(sed -E "s|//[^/]*:([0-9]+)/|//$(ip -4 -o addr show virbr0 | awk '{ sub("/.*", "", $4); print $4 }'):\1/|" <<<"$url")
fi
say "Without credentials:"
code=$(run curl -s -o /dev/null -w '%{http_code}' -x "http://$address" "$url")
[[ $code == 407 ]] || die "the proxy answered $code without credentials, not 407"
say "407, Proxy Authentication Required"
say "With them:"
run curl -sS --fail -x "http://$address" --proxy-user "crawler:$password" "$url"

title "5. The end: desired absent"
run nats pub -J "fleet.intent.proxy.$proxy" "{\"name\":\"$proxy\",\"desired\":\"absent\"}"
await 90 gone || die "still there: $(record)"
say "\$ nats kv get fleet_proxies $proxy"
nats kv get fleet_proxies "$proxy" 2>&1 || true
! curl -s -o /dev/null -m 3 -x "http://$address" "$url" || die "something still answers on $address"
say "Nothing answers on $address any more."
if [[ $backend == libvirt ]]; then
	run virsh -c qemu:///system list --all
	run virsh -c qemu:///system vol-list proxyfleet-test
fi

title "What happened, as events"
run nats sub --stream FLEET_EVENTS --all --wait 1s --raw 'fleet.event.>' 2>/dev/null || true
title "Done in $SECONDS s."
