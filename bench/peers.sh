#!/bin/sh
# The peers that `make bench` measures against, in an environment of their own: bench/work/peers, from the
# pinned versions of bench/peers.txt. A second call installs nothing.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
env=$here/work/peers
if ! cmp -s "$here/peers.txt" "$env/installed.txt"; then
    rm -rf "$env"
    mkdir -p "$here/work"
    "$here/../.venv/bin/python" -m venv "$env"
    "$env/bin/python" -m pip --quiet --disable-pip-version-check install --requirement "$here/peers.txt"
    cp "$here/peers.txt" "$env/installed.txt"
fi
