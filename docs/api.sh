#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright the Keel authors
# Write docs/api.md from the public headers, in the order of keel.h; with --check compare only.
set -euo pipefail
cd "$(dirname "$0")/.."

pages() {
    cat <<'END'
# The interface

Made by `docs/api.sh` from `include/keel/`: the headers are the reference, this is the same text in
one place. `#include "keel/keel.h"` brings all of it but `keel/blas.h`, which belongs to the component
`keel_blas`, and `keel/ext.h`, the unstable tier for those who write a device or a transport.
END
    local header
    for header in $(sed -n 's/^#include "\(keel\/.*\)"/\1/p' include/keel/keel.h) keel/blas.h keel/ext.h; do
        awk -f docs/api.awk "include/$header"
    done
}

case ${1-} in
'') pages >docs/api.md ;;
--check)
    diff -u docs/api.md <(pages) || {
        echo "docs/api.md is stale: run docs/api.sh"
        exit 1
    }
    ;;
*) echo "usage: docs/api.sh [--check]" && exit 2 ;;
esac
