#!/bin/sh
# Fills fuzz/corpus/explain with the test inputs of the repository, cut to 64 kB each. Run it from anywhere.
set -eu
cd "$(dirname "$0")/.."

limit=65536
corpus=fuzz/corpus/explain
mkdir -p "$corpus"

count=0
for folder in tests/data crates/*/tests/data; do
    [ -d "$folder" ] || continue
    list=$(find "$folder" -type f | LC_ALL=C sort)
    # Names are split at line ends only.
    old_ifs=$IFS
    IFS='
'
    for file in $list; do
        head -c "$limit" "$file" > "$corpus/seed-$(printf '%s' "$file" | tr '/ ' '__')"
        count=$((count + 1))
    done
    IFS=$old_ifs
done

if [ "$count" -eq 0 ]; then
    echo "seed.sh: no inputs in tests/data or crates/*/tests/data" >&2
    exit 1
fi
echo "$count seeds in $corpus"
