#!/usr/bin/env bash
# Measures the whole way from a published intent to a stored state, next to the raw chain of
# stored messages underneath it, and shows both side by side. docs/benchmarks.md says what
# the figures mean. Quiet machines only; two minutes.
#
#   e2e/bench.sh [count]     samples of 500 intents for each figure, default 6
#
# bin/bench.txt has the samples: benchstat before.txt bin/bench.txt compares two of them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
PROXYFLEET_NATS_SERVER=$(e2e/tools.sh nats-server)
PROXYFLEET_NATS_CLI=$(e2e/tools.sh nats)
export PROXYFLEET_NATS_SERVER PROXYFLEET_NATS_CLI
benchstat=$(e2e/tools.sh benchstat)
mkdir -p bin
go test -run '^$' -bench . -benchtime 500x -count "${1:-6}" -timeout 10m ./e2e | tee bin/bench.txt
"$benchstat" -col /way bin/bench.txt
