#!/bin/sh
# Adds the test inputs of the repository, cut to 64 kB each, to a folder of corpora: all of them for explain, those of its kind
# for targets that read files. What others start from is committed: fuzz/corpus.
#
#   seed.sh FOLDER      below the root of the repository
set -eu
cd "$(dirname "$0")/.."
corpora=$1

limit=65536

# seed TARGET FILES: the names of files, a line each, on standard input
seed() {
    mkdir -p "$corpora/$1"
    count=0
    while IFS= read -r file; do
        head -c "$limit" "$file" > "$corpora/$1/seed-$(printf '%s' "$file" | tr '/ ' '__')"
        count=$((count + 1))
    done
    if [ "$count" -eq 0 ]; then
        echo "seed.sh: no inputs for $1" >&2
        exit 1
    fi
    echo "$count seeds for $1"
}

inputs() {
    for folder in tests/data crates/*/*/tests/data; do
        [ ! -d "$folder" ] || find "$folder" -type f
    done | LC_ALL=C sort
}

inputs | seed explain
inputs | grep '\.xml$' | seed topology
find examples/clusters -name '*.toml' | LC_ALL=C sort | seed cluster
find crates/run/tune/src/space docs/walks/files examples rules -name '*.toml' | LC_ALL=C sort | seed files
