#!/usr/bin/env bash
# Builds a pinned tool into the cache, once per version, and prints its path.
#
#   e2e/tools.sh nats | nats-server | benchstat | golangci-lint | kube-apiserver | etcd | kwok
#
# Versions stand in tools/go.mod, tools/lint/go.mod and tools/kube/*/go.mod. Nothing is put on a PATH.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

ldflags=
case ${1:-} in
nats) module=tools package=github.com/nats-io/natscli/nats ;;
nats-server) module=tools package=github.com/nats-io/nats-server/v2 ;;
benchstat) module=tools package=golang.org/x/perf/cmd/benchstat ;;
golangci-lint) module=tools/lint package=github.com/golangci/golangci-lint/v2/cmd/golangci-lint ;;
kube-apiserver)
	module=tools/kube/apiserver package=k8s.io/kubernetes/cmd/kube-apiserver
	# Releases are stamped with their version, which a build from the module does not know.
	ldflags="-X k8s.io/component-base/version.gitVersion=$(sed -n 's|^\tk8s.io/kubernetes \(v[^ ]*\).*|\1|p' "$here/$module/go.mod")"
	;;
etcd) module=tools/kube/etcd package=go.etcd.io/etcd/server/v3 ;;
kwok) module=tools/kube/kwok package=sigs.k8s.io/kwok/cmd/kwok ;;
*) echo "tools: there is no tool '${1:-}'" >&2; exit 1 ;;
esac

cd "$here/$module"
key=$( (cat go.mod go.sum; go version; [[ -z $ldflags ]] || echo "$ldflags") | sha256sum)
bin=${XDG_CACHE_HOME:-$HOME/.cache}/proxyfleet/tools/${key:0:16}
if [[ ! -x $bin/$1 ]]; then
	mkdir -p "$bin"
	exec {lock}>"$bin/.lock"
	flock "$lock" # a second caller waits, then finds it
	if [[ ! -x $bin/$1 ]]; then
		echo "tools: building $1 (once; a few minutes on two cores)" >&2
		# No work space and no flags of the caller: the tool is what its module says.
		GOWORK=off GOFLAGS='' go build -ldflags "$ldflags" -o "$bin/$1.new" "$package"
		mv "$bin/$1.new" "$bin/$1"
	fi
fi
echo "$bin/$1"
