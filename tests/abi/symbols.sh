#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright the Keel authors
# symbols.sh <library> <list>: the library exports exactly the symbols of the list.
#
# The list names each symbol and the version that introduced it.  A line that is gone or changed is a
# break of the ABI; a new symbol gets a new line.
set -euo pipefail
library=$1 list=$2

exported=$(nm -D --defined-only "$library" | awk '{ print $NF }' | sed 's/@.*//' | LC_ALL=C sort)
listed=$(awk '!/^#/ && NF { print $1 }' "$list")

if foreign=$(grep -v '^keel_' <<<"$exported"); then
    echo "exported without the prefix keel_:" && echo "$foreign" && exit 1
fi
if malformed=$(awk '!/^#/ && NF && !(NF == 2 && $2 ~ /^[0-9]+\.[0-9]+$/)' "$list" | grep .); then
    echo "want a symbol and a version:" && echo "$malformed" && exit 1
fi
diff -u --label "$list" --label "$library" <(echo "$listed") <(echo "$exported") || {
    echo "the exported symbols are not those of $list"
    exit 1
}
echo "$(wc -l <<<"$exported") symbols"
