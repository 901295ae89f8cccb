#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright the Keel authors
# consumer.sh cmake|pkg-config <prefix> <build> [--static]: build a program against an installed
# Keel, as a user does, and run it.
set -euo pipefail
way=$1 prefix=$2 build=$3 static=${4-}
source=$(cd "$(dirname "$0")/consumer" && pwd)

with_cmake() {
    "${CMAKE:-cmake}" -S "$source" -B "$build" -DCMAKE_PREFIX_PATH="$prefix" \
        -DCMAKE_C_COMPILER="${CC:-cc}"
    "${CMAKE:-cmake}" --build "$build"
}

with_pkg_config() {
    command -v pkg-config || { echo "SKIP no pkg-config found" && exit 77; }
    local pc flags
    pc=$(dirname "$(find "$prefix" -name keel.pc)")
    # shellcheck disable=SC2086 # --static or nothing
    flags=$(PKG_CONFIG_PATH=$pc pkg-config --cflags --libs $static keel)
    mkdir -p "$build"
    # shellcheck disable=SC2086 # words of a command line
    "${CC:-cc}" -std=c11 "$source/main.c" -o "$build/consumer" $flags
}

rm -rf "$build"
case $way in
cmake) with_cmake ;;
pkg-config) with_pkg_config ;;
*) echo "consumer.sh: way '$way' (want cmake or pkg-config)" && exit 2 ;;
esac
library=$(dirname "$(find "$prefix" -name 'libkeel.*' | head -n 1)")
LD_LIBRARY_PATH=$library "$build/consumer"
