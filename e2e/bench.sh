#!/usr/bin/env bash
# Measures what docs/benchmarks.md tells of, each figure beside what it is compared with, in
# one run. Quiet machines only; ten minutes. Needs what make test needs (root, libvirt, Squid).
#
#   e2e/bench.sh [count]     samples of each figure, default 3
#
# bin/bench.txt has the samples: benchstat before.txt bin/bench.txt compares two of them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
count=${1:-3}
PROXYFLEET_NATS_SERVER=$(e2e/tools.sh nats-server)
PROXYFLEET_NATS_CLI=$(e2e/tools.sh nats)
export PROXYFLEET_NATS_SERVER PROXYFLEET_NATS_CLI
benchstat=$(e2e/tools.sh benchstat)
mkdir -p bin
: >bin/bench.txt

# bench PACKAGE PATTERN BENCHTIME
bench() {
	go test -tags real -run '^$' -bench "$2" -benchtime "$3" -count "$count" -timeout 20m "$1" | tee -a bin/bench.txt
}
bench ./e2e IntentToRunning 500x
bench ./e2e Flood 1x
bench ./e2e 'Restart$' 10x
bench ./e2e 'Create$' 10x
bench ./e2e 'Memory$' 1x
bench ./internal/backends/local Throughput 2s
bench ./internal/bus States 3x
"$benchstat" -col /way,/proxy bin/bench.txt
