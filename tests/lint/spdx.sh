#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright the Keel authors
# Every source file names its licence in the first lines.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
source "$(dirname "$0")/files.sh"

wrong=0 count=0
while read -r file; do
    count=$((count + 1))
    head -n 4 "$file" | grep -q 'SPDX-License-Identifier: Apache-2.0' && continue
    echo "$file: no SPDX line"
    wrong=1
done < <(files '*.c' '*.h' '*.cpp' '*.cu' '*.cuh' '*.def' '*.sh' '*.awk' '*.py' '*/run')
[ "$count" -gt 0 ] || { echo "no source file found" && exit 1; }
echo "$count files"
exit "$wrong"
