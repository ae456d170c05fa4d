#!/usr/bin/env bash
# Measures the whole way from a published intent to a stored state, next to the raw chain of
# stored messages underneath it, and shows both with benchstat. Quiet machines only.
#
#   e2e/bench.sh [count]     samples of each benchmark, default 5
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
PROXYFLEET_NATS_SERVER=$(e2e/tools.sh nats-server)
PROXYFLEET_NATS_CLI=$(e2e/tools.sh nats)
export PROXYFLEET_NATS_SERVER PROXYFLEET_NATS_CLI
mkdir -p bin
go test -run '^$' -bench . -count "${1:-5}" -timeout 30m ./e2e | tee bin/bench.txt
"$(e2e/tools.sh benchstat)" bin/bench.txt
