#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright the Keel authors
# Dependencies point one way: bench and tests, runtime, collectives and formats, include.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
source "$(dirname "$0")/files.sh"

# A row per folder: what may be included from it, as paths in the tree.  internal.h is how a failure
# gets its sentence and nothing else.  The tables are installed beside the headers.
tables='include/keel/(formats|ecosystems|config)\.def'
numbers='include/keel/(export|status|formats|ext)\.h'
rows=(
    "include     include/keel/[a-z_]+\.h|$tables"
    "formats     $numbers|$tables|formats/[^/]+|runtime/internal\.h"
    "collectives $numbers|include/keel/comm\.h|collectives/[^/]+|runtime/internal\.h"
    "runtime     include/keel/[a-z_]+\.h|$tables|formats/[^/]+|collectives/[^/]+|runtime/.+"
    "bench       include/keel/[a-df-z][a-z_]*\.h|include/keel/export\.h|$tables|bench/.+"
)

# Where an include line of a file points.
resolve() {
    local from=$1 name=$2 folder
    case $name in
    keel/*) echo "include/$name" && return ;;
    esac
    for folder in "$(dirname "$from")" runtime formats collectives; do
        if [ -f "$folder/$name" ]; then echo "$folder/$name" && return; fi
    done
    echo "?/$name"
}

wrong=0 count=0
for row in "${rows[@]}"; do
    read -r folder allowed <<<"$row"
    while IFS=: read -r file line text; do
        [[ $text =~ [\<\"]([^\>\"]*) ]]
        target=$(resolve "$file" "${BASH_REMATCH[1]}")
        count=$((count + 1))
        [[ $target =~ ^($allowed)$ ]] && continue
        echo "$file:$line: $folder does not see $target"
        wrong=1
    done < <(files "$folder/*.c" "$folder/*.h" "$folder/*.cu" "$folder/*.cuh" |
        xargs -r grep -HnE '^ *# *include *("|<keel/)' || true)
done
[ "$count" -gt 0 ] || { echo "no include line found" && exit 1; }
echo "$count include lines"
exit "$wrong"
