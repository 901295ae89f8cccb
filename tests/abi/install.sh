#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright the Keel authors
# install.sh <build> <prefix>: install a build into an empty prefix.
set -euo pipefail
build=$1 prefix=$2

rm -rf "$prefix"
"${CMAKE:-cmake}" --install "$build" --prefix "$prefix"
