#!/bin/sh
# Written by proxyfleet. Writes the addresses that Squid refuses as destinations because they
# are this machine's own: those of its network cards, and those that Compute Engine translates
# or routes to it, which no card has. Without them nothing is written, and Squid does not start.
# With the argument "follow" it goes on, and has Squid read them anew whenever they change: an
# address that is not reserved is another one after a suspension.
set -u
list=/etc/squid/own-addresses
url='http://169.254.169.254/computeMetadata/v1/instance/network-interfaces/?recursive=true'

# fetch asks the metadata server for everything about the network cards, in JSON.
fetch() { # seconds, rest of the URL
	if command -v curl >/dev/null; then
		curl -sSf -m "$1" --noproxy '*' -H 'Metadata-Flavor: Google' "$url$2"
	else
		wget -nv -t 1 -T "$1" --no-proxy -O - --header 'Metadata-Flavor: Google' "$url$2"
	fi
}

# Texts that are an address or a network as a whole; a card's hardware address is neither.
v4='[0-9]+(\.[0-9]+){3}'
v6='[0-9a-fA-F:]*::[0-9a-fA-F:]*|([0-9a-fA-F]+:){7}[0-9a-fA-F]+'
address="\"($v4|$v6)(/[0-9]+)?\""

# write makes the list anew, or fails and leaves it as it was.
write() { # seconds, rest of the URL
	new=$(fetch "$1" "$2" | grep -oE "$address" | tr -d '"')
	[ -n "$new" ] || return 1
	new=$({ echo "$new"; hostname -I | tr -s ' ' '\n'; } | sort -u | grep .)
	[ "$new" != "$(cat "$list" 2>/dev/null)" ] || return 0
	echo "$new" >"$list.$$" && chmod 0644 "$list.$$" && mv -f "$list.$$" "$list" || return 1
	changed=yes
}

changed=
if [ "${1-}" = follow ]; then
	while :; do
		if write 90 '&wait_for_change=true&timeout_sec=60'; then
			[ -z "$changed" ] || { systemctl try-reload-or-restart squid && changed=; }
		else
			sleep 5
		fi
	done
fi
for _ in 1 2 3 4 5; do
	write 10 '' && exit 0
	sleep 2
done
echo "proxyfleet: the metadata server does not tell this machine's addresses" >&2
exit 1
