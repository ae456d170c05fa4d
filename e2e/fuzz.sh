#!/usr/bin/env bash
# Runs every fuzz target of the module, one after another, each for $1 (default 10s).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
time=${1:-10s}
module=$(go list -m)

found=0
while IFS=: read -r file _ line; do
	target=$(sed -E 's/^func (Fuzz[A-Za-z0-9_]*).*/\1/' <<<"$line")
	package=$module/$(dirname "$file")
	echo "fuzz: $package $target"
	go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$package"
	found=$((found + 1))
done < <(grep -rnE --include='*_test.go' '^func Fuzz[A-Z]' internal cmd e2e)
echo "fuzz: $found targets"
