#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright the Keel authors
# Every public function says what it does, how it fails and since when it exists.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
source "$(dirname "$0")/files.sh"

awk -f tests/lint/api_comments.awk include/keel/*.h
