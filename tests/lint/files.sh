# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Copyright the Keel authors
# Sourced by the lints: moves to the root and lists the project's own files.
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 2

# files [<pattern>...]: what git tracks or would track; without git all but build folders.
files() {
    if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
        git ls-files --cached --others --exclude-standard -- "$@" | while read -r file; do
            [ ! -f "$file" ] || echo "$file"
        done
    else
        find . -path ./build -prune -o -type f -print | sed 's|^\./||' | while read -r file; do
            for pattern in "${@:-*}"; do
                # shellcheck disable=SC2053 # a pattern, as git's
                if [[ $file == $pattern ]]; then echo "$file" && break; fi
            done
        done
    fi
}
