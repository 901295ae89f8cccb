#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright the Keel authors
# No file knows a machine or a package host: paths are relative, packages come from where the user's
# own tools are set to look.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
source "$(dirname "$0")/files.sh"

# Brackets, so that this file does not match itself.
paths='(^|[^A-Za-z0-9_.])/([w]ork|[r]oot|[h]ome|[U]sers|[o]pt)/'
hosts='[p]ypi\.org|[p]ythonhosted\.|[c]rates\.io|[n]pmjs\.|[p]roxy\.golang|[d]ocker\.io|[g]hcr\.io'
hosts+='|[q]uay\.io|[d]eb\.debian\.org|[a]rtifactory|[n]exus'

if files '*' | xargs grep -nIE "$paths|$hosts"; then
    echo "a machine's path or a package host"
    exit 1
fi
