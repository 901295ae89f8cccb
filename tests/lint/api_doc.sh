#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright the Keel authors
# docs/api.md says what the headers say.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
source "$(dirname "$0")/files.sh"

bash docs/api.sh --check
