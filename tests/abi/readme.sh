#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright the Keel authors
# readme.sh <source folder> <installed prefix> <work folder>: the program that README.md prints is
# docs/examples/01_hello_step.c to the letter, has at most 40 lines, compiles as printed against the
# installed package, and prints what README.md says.
set -euo pipefail
source=$1 prefix=$2 work=$3
mkdir -p "$work"

# block <n> <language>: the n-th fenced block of that language.
block() {
    awk -v want="$1" -v fence="\`\`\`$2" '
        $0 == fence && !inside { inside = 1; if (++n == want) { take = 1 } ; next }
        /^```/ { inside = !inside && $0 != "```"; take = 0; next }
        take' "$source/README.md"
}

block 1 c >"$work/readme.c"
diff -u "$source/docs/examples/01_hello_step.c" "$work/readme.c"
lines=$(wc -l <"$work/readme.c")
if [ "$lines" -lt 1 ] || [ "$lines" -gt 40 ]; then echo "$lines lines (want 1..40)" && exit 1; fi

libdir=$(find "$prefix" -name 'keel.pc' -printf '%h\n' -quit)
flags=$(PKG_CONFIG_PATH=$libdir pkg-config --static --cflags --libs keel)
# shellcheck disable=SC2086 # flags are words
"${CC:-cc}" -std=c11 -Wall -Wextra -Wpedantic -Werror "$work/readme.c" $flags -o "$work/readme"
LD_LIBRARY_PATH=$(dirname "$libdir") "$work/readme" >"$work/said"
grep '^step [0-9]* *scale' "$source/README.md" | diff -u - "$work/said"
