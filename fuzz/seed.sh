#!/bin/sh
# Fills fuzz/corpus with the test inputs of the repository, cut to 64 kB each: all of them for explain, those of its kind for
# each other target. Run it from anywhere.
set -eu
cd "$(dirname "$0")/.."

limit=65536

# seed TARGET FILES: the names of files, a line each, on standard input
seed() {
    mkdir -p "fuzz/corpus/$1"
    count=0
    while IFS= read -r file; do
        head -c "$limit" "$file" > "fuzz/corpus/$1/seed-$(printf '%s' "$file" | tr '/ ' '__')"
        count=$((count + 1))
    done
    if [ "$count" -eq 0 ]; then
        echo "seed.sh: no inputs for $1" >&2
        exit 1
    fi
    echo "$count seeds in fuzz/corpus/$1"
}

inputs() {
    for folder in tests/data crates/*/tests/data; do
        [ ! -d "$folder" ] || find "$folder" -type f
    done | LC_ALL=C sort
}

inputs | seed explain
inputs | grep '\.xml$' | seed topology
find examples/clusters -name '*.toml' | LC_ALL=C sort | seed cluster
mkdir -p fuzz/corpus/handle
printf 'node[1-3,07],other[1-2]-ib' > fuzz/corpus/handle/seed-list
