#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright the Keel authors
# headers.sh c|c++ <include>: every installed header compiles by itself, and twice.
set -euo pipefail
language=$1 include=$2

case $language in
c) compiler=("${CC:-cc}" -std=c11) ;;
c++)
    cxx=$(command -v "${CXX:-c++}" || command -v g++ || command -v clang++) || {
        echo "SKIP no C++ compiler found"
        exit 77
    }
    compiler=("$cxx" -std=c++11)
    ;;
*) echo "headers.sh: language '$language' (want c or c++)" && exit 2 ;;
esac

count=0
for header in "$include"/keel/*.h; do
    name=keel/${header##*/}
    printf '#include "%s"\n#include "%s"\nint a_unit_is_not_empty;\n' "$name" "$name" |
        "${compiler[@]}" -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I"$include" \
            -x "$language" - || { echo "$name does not compile alone" && exit 1; }
    count=$((count + 1))
done
[ "$count" -gt 0 ] || { echo "no header in $include/keel" && exit 1; }
echo "$count headers as $language"
