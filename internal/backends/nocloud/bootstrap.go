package nocloud

import (
	"encoding/base64"
	"fmt"
	"strings"
)

// Bootstrap is what proxyfleet does in a guest: put Squid's files in place, see that Squid
// and the guest agent are there, and start both.
type Bootstrap struct {
	SquidConf []byte // /etc/squid/squid.conf
	Passwords []byte // /etc/squid/passwd; empty: none
	// InstallGuestAgent installs and starts qemu-guest-agent where it is missing.
	InstallGuestAgent bool
}

// Paths of Squid's files in a guest, and the group that may read them.
const (
	SquidConfPath = "/etc/squid/squid.conf"
	PasswordsPath = "/etc/squid/passwd"
)

// Script is a POSIX shell script that may run any number of times. cloud-init runs it once
// per instance, as root, late in the first boot. Files go in before packages, so that a
// package's first start already has them; both apt-get and dnf keep a configuration file
// that is there. The files are embedded in base64, so no byte of a password meets the shell.
func (b Bootstrap) Script() []byte {
	var s strings.Builder
	s.WriteString(scriptHead)
	put(&s, SquidConfPath, b.SquidConf)
	if len(b.Passwords) > 0 {
		put(&s, PasswordsPath, b.Passwords)
	}
	s.WriteString("have squid || install_package squid\n")
	if b.InstallGuestAgent {
		s.WriteString("have qemu-ga || install_package qemu-guest-agent\n")
	}
	s.WriteString(scriptOwn)
	if b.InstallGuestAgent {
		// Its unit is bound to the channel's device and has no [Install] section on some
		// distributions, so enabling may fail.
		s.WriteString("systemctl enable qemu-guest-agent || true\nsystemctl start --no-block qemu-guest-agent || true\n")
	}
	return []byte(s.String())
}

const scriptHead = `#!/bin/sh
# Written by proxyfleet. Runs once per instance; running it again changes nothing.
set -eu
umask 077
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH

have() { command -v "$1" >/dev/null 2>&1; }

# install_package tries for about five minutes: on a first boot the network or the package
# manager's lock may not be free yet.
install_package() {
	n=0
	until install_once "$1"; do
		n=$((n + 1))
		if [ "$n" -ge 10 ]; then
			echo "proxyfleet: cannot install $1" >&2
			return 1
		fi
		sleep 30
	done
}

install_once() {
	if have apt-get; then
		apt-get update -q &&
			DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends \
				-o Dpkg::Options::=--force-confold -o DPkg::Lock::Timeout=120 "$1"
	elif have dnf; then
		dnf -q -y install "$1"
	else
		echo "proxyfleet: neither apt-get nor dnf is here to install $1" >&2
		return 1
	fi
}

# put_file writes standard input, in base64, to a file as a whole or not at all.
put_file() {
	mkdir -p "$(dirname "$1")"
	chmod 0755 "$(dirname "$1")"
	base64 -d >"$1.new"
	chmod 0640 "$1.new"
	mv -f "$1.new" "$1"
}

`

// scriptOwn gives the files to the group that Squid runs as: "proxy" on Debian and its
// kin, "squid" on Fedora and its kin. It exists only once the package is there.
const scriptOwn = `for group in proxy squid; do
	if getent group "$group" >/dev/null; then
		for f in ` + SquidConfPath + ` ` + PasswordsPath + `; do
			[ ! -e "$f" ] || chown "root:$group" "$f"
		done
		break
	fi
done
systemctl enable squid
systemctl restart squid
`

func put(s *strings.Builder, path string, data []byte) {
	fmt.Fprintf(s, "put_file %s <<'END'\n", path)
	text := base64.StdEncoding.EncodeToString(data)
	for len(text) > 76 {
		s.WriteString(text[:76] + "\n")
		text = text[76:]
	}
	s.WriteString(text + "\nEND\n\n")
}
