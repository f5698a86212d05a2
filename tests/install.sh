#!/usr/bin/env bash
# Installs what the build and the tests need, where that can be done here, and says what is missing where it cannot.
#
#   tests/install.sh build     what the build needs: a C compiler. Ends with 1 when there is none.
#   tests/install.sh all       that, and what the client programs of tests/clients and the console need: Python, a JDK, Maven, Go, Node.js,
#                              Chromium.
#                              Each that cannot be had is named; its cases will be skipped (with CI=true they will fail).
#   tests/install.sh python    Python alone, for the demo.
#   tests/install.sh report    names what was skipped since the last `all`. Ends with 1 when something was and CI=true.
#
# What is there already is left alone. Packages are installed by apt-get, and only as root or where sudo asks nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
skipped=build/skipped
updated=

# as_root COMMAND...: fails where this user may not.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
        sudo -n "$@"
    else
        return 1
    fi
}

# packages NAME...: installs Debian packages, or fails.
packages() {
    command -v apt-get >/dev/null || return 1
    if [ -z "$updated" ]; then
        as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq update >/dev/null 2>&1 || return 1
        updated=yes
    fi
    echo "install.sh: installing $*" >&2
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "$@" >/dev/null 2>&1
}

# have WHAT: whether it is there, in a version that does.
have() {
    case $1 in
    cc) command -v cc >/dev/null && command -v make >/dev/null ;;
    python) python3 -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ;;
    jdk) [ "$(javac -version 2>&1 | sed -n 's/^javac \([0-9]*\).*/\1/p')" -ge 17 ] 2>/dev/null ;;
    maven) command -v mvn >/dev/null ;;
    # From 1.21 on, it fetches the version that go.mod asks for by itself.
    go) [ "$(go env GOVERSION 2>/dev/null | sed -n 's/^go1\.\([0-9]*\).*/\1/p')" -ge 21 ] 2>/dev/null ;;
    # It is there to fetch; the programs run with the Node.js that tests/clients/node/package-lock.json names.
    node) [ "$(node --version 2>/dev/null | sed -n 's/^v\([0-9]*\).*/\1/p')" -ge 18 ] 2>/dev/null && command -v npm >/dev/null ;;
    browser) command -v chromium >/dev/null ;;
    esac
}

# want WHAT PACKAGE...: makes sure of it, or fails.
want() {
    local what=$1
    shift
    have "$what" || { packages "$@" && have "$what"; }
}

# client WHAT HINT PACKAGE...: the same for a client program, which can be skipped.
client() {
    local what=$1 hint=$2
    shift 2
    want "$what" "$@" || echo "install.sh: missing, and not to be installed here: $hint" >&2
}

build() {
    want cc gcc g++ libc6-dev make || {
        echo "install.sh: a C compiler and make are needed (Debian: build-essential)" >&2
        exit 1
    }
}

case ${1:-} in
build)
    build
    ;;
all)
    rm -f "$skipped"
    build
    client python "Python 3.11 or later with venv" python3 python3-venv
    client jdk "a JDK, 17 or later" openjdk-17-jdk-headless
    client maven "Maven" maven
    client go "Go 1.21 or later" golang-go
    client node "Node.js 18 or later with npm" nodejs npm
    client browser "Chromium" chromium
    ;;
python)
    client python "Python 3.11 or later with venv" python3 python3-venv
    have python
    ;;
report)
    [ -s "$skipped" ] || exit 0
    sort -u "$skipped"
    [ "${CI:-}" != true ]
    ;;
*)
    sed -n '2,12s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
