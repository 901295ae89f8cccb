#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright the Keel authors
# needed.sh <library>: the core needs libc, libm and threads, and nothing else.
set -euo pipefail
library=$1

needed=$(readelf -d "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
if foreign=$(grep -vE '^(libc|libm|libpthread|ld-linux.*|ld64)\.so\.[0-9]+$' <<<"$needed"); then
    echo "$library needs:" && echo "$foreign" && exit 1
fi
soname=$(readelf -d "$library" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')
[[ $soname =~ ^libkeel\.so\.[0-9]+\.[0-9]+$ ]] || { echo "SONAME '$soname'" && exit 1; }
echo "$soname needs ${needed//$'\n'/ }"
