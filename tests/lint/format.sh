#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright the Keel authors
# C sources look as .clang-format says.  Version 14 only: others break lines elsewhere.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
source "$(dirname "$0")/files.sh"

for name in clang-format-14 clang-format; do
    if "$name" --version 2>/dev/null | grep -q 'version 14\.'; then
        files 'bench/*.[ch]' 'collectives/*.[ch]' 'docs/*.c' 'formats/*.[ch]' 'runtime/*.[ch]' \
            'tests/*.[ch]' | xargs "$name" --dry-run --Werror
        exit
    fi
done
echo "SKIP clang-format 14 not found"
exit 77
