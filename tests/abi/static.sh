#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright the Keel authors
# static.sh <source> <build>: a static library, whose users link what it needs; installed deeper than
# in lib/, as Debian does.
set -euo pipefail
source=$1 build=$2
here=$(cd "$(dirname "$0")" && pwd)
triplet=$("${CC:-cc}" -print-multiarch 2>/dev/null || true)

"${CMAKE:-cmake}" -S "$source" -B "$build/keel" -DBUILD_SHARED_LIBS=OFF -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_INSTALL_LIBDIR=lib${triplet:+/$triplet} -DKEEL_TESTS=OFF -DKEEL_BENCH=OFF \
    -DCMAKE_C_COMPILER="${CC:-cc}"
"${CMAKE:-cmake}" --build "$build/keel" --parallel 2
bash "$here/install.sh" "$build/keel" "$build/prefix"
if find "$build/prefix" -name 'libkeel.so*' | grep .; then
    echo "a shared library was installed" && exit 1
fi
bash "$here/consumer.sh" cmake "$build/prefix" "$build/consumer_cmake"
bash "$here/consumer.sh" pkg-config "$build/prefix" "$build/consumer_pc" --static
