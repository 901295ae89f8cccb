# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Copyright the Keel authors
# Sourced by tests/run, bench/run and .ci/run: the tools they need, and one build of a preset.
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
jobs=$(nproc 2>/dev/null || echo 2)

# What is asked of the machine, and the Debian package that brings it.
has() {
    case $1 in
    compiler) command -v "${CC:-cc}" ;;
    cmake) command -v cmake && command -v ctest ;;
    build-tool) command -v ninja || command -v make ;;
    pkg-config) command -v pkg-config ;;
    cmocka) pkg-config --exists cmocka ;;
    esac >/dev/null 2>&1
}
package_of() {
    case $1 in
    compiler) echo "gcc libc6-dev" ;;
    cmake) echo cmake ;;
    build-tool) echo ninja-build ;;
    pkg-config) echo pkg-config ;;
    cmocka) echo libcmocka-dev ;;
    esac
}

missing_of() {
    local tool
    for tool in "$@"; do has "$tool" || package_of "$tool"; done | xargs
}

# need <tool>...: install what is missing where that is allowed, else say what is missing.
need() {
    local missing
    missing=$(missing_of "$@")
    [ -n "$missing" ] || return 0
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "installing $missing"
        # shellcheck disable=SC2086 # a list of packages
        { apt-get update -q && DEBIAN_FRONTEND=noninteractive \
            apt-get install -y -q --no-install-recommends $missing; } </dev/null || true
    fi
    missing=$(missing_of "$@")
    [ -n "$missing" ] || return 0
    echo "missing packages: $missing" >&2
    exit 3
}

# build <preset> [<cmake argument>...]: configure and build into build/<preset>.  The presets name
# Ninja; where there is none, make serves.
build() {
    local preset=$1 generator=Ninja fresh=() cache
    shift
    command -v ninja >/dev/null || generator='Unix Makefiles'
    cache=build/$preset/CMakeCache.txt
    if [ -f "$cache" ] && ! grep -q "^CMAKE_GENERATOR:INTERNAL=$generator$" "$cache"; then
        fresh=(--fresh)
    fi
    cmake --preset "$preset" -G "$generator" "${fresh[@]}" "$@"
    cmake --build "build/$preset" --parallel "$jobs"
}
