#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright the Keel authors
# Shell scripts are free of the mistakes that shellcheck knows.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
source "$(dirname "$0")/files.sh"

command -v shellcheck >/dev/null || { echo "SKIP shellcheck not found" && exit 77; }
files '*.sh' '*/run' | xargs shellcheck -x
