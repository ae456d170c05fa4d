package nocloud

import (
	"encoding/base64"
	"fmt"
	"strings"
)

// Bootstrap is what proxyfleet does in a guest: put files in place, see that Squid and the
// guest agent are there, and start both.
type Bootstrap struct {
	Files []File
	// InstallGuestAgent installs and starts qemu-guest-agent where it is missing.
	InstallGuestAgent bool
}

// File is one file of a guest.
type File struct {
	Path string // absolute, of letters, digits and "/._-"
	Data []byte
	// Squid makes the file readable by Squid's group and by no other user; without it
	// everybody may read it.
	Squid bool
}

// Script is a POSIX shell script that may run any number of times. cloud-init runs it once
// per instance, as root, late in the first boot. Files go in before packages, so that a
// package's first start already has them; both apt-get and dnf keep a configuration file
// that is there. The files are embedded in base64, so no byte of a password meets the shell.
func (b Bootstrap) Script() []byte {
	var s strings.Builder
	s.WriteString(scriptHead)
	var squids []string
	for _, f := range b.Files {
		mode := "0644"
		if f.Squid {
			mode = "0640"
			squids = append(squids, f.Path)
		}
		put(&s, f.Path, mode, f.Data)
	}
	s.WriteString("have squid || install_package squid\n")
	if b.InstallGuestAgent {
		s.WriteString("have qemu-ga || install_package qemu-guest-agent\n")
	}
	if len(squids) > 0 {
		fmt.Fprintf(&s, scriptOwn, strings.Join(squids, " "))
	}
	s.WriteString(scriptStart)
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
	dir=$(dirname "$1")
	[ -d "$dir" ] || { mkdir -p "$dir"; chmod 0755 "$dir"; }
	base64 -d >"$1.new"
	chmod "$2" "$1.new"
	mv -f "$1.new" "$1"
}

`

// scriptOwn gives files to the group that Squid runs as: "proxy" on Debian and its kin,
// "squid" on Fedora and its kin. It exists only once the package is there.
const scriptOwn = `for group in proxy squid; do
	if getent group "$group" >/dev/null; then
		for f in %s; do
			chown "root:$group" "$f"
		done
		break
	fi
done
`

// scriptStart starts Squid before it enables it, which may take a while on slow guests. It
// also puts Squid's helpers where Debian has them: Fedora's kin keep them in
// /usr/lib64, and a configuration names one path.
const scriptStart = `[ -e /usr/lib/squid ] || [ ! -d /usr/lib64/squid ] || ln -s /usr/lib64/squid /usr/lib/squid
systemctl daemon-reload
systemctl restart squid
systemctl enable -q squid
`

func put(s *strings.Builder, path, mode string, data []byte) {
	fmt.Fprintf(s, "put_file %s %s <<'END'\n", path, mode)
	text := base64.StdEncoding.EncodeToString(data)
	for len(text) > 76 {
		s.WriteString(text[:76] + "\n")
		text = text[76:]
	}
	s.WriteString(text + "\nEND\n\n")
}
