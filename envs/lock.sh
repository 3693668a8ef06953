#!/bin/sh
# Pins and hashes requirements.in for every platform and Python that byterefs runs on. Pins that still
# fit stay; `sh envs/lock.sh --upgrade` takes the newest.
set -eu

cd "$(dirname -- "$0")"
uv=../build/uv/bin
[ -x $uv/uv ] || {
    ../.venv/bin/python -m venv --clear ../build/uv
    $uv/python -m pip install --quiet --disable-pip-version-check uv==0.13.9
}
$uv/uv pip compile --quiet --universal --python-version 3.12 --python ../.venv/bin/python \
    --generate-hashes --no-header "$@" requirements.in -o requirements.txt
if grep -n -e '://' -e "$HOME" -e '^-' requirements.txt; then
    echo "byterefs: envs/requirements.txt names a host or a machine path: see the lines above" >&2
    exit 1
fi
echo "byterefs: envs/requirements.txt pins $(grep -c '^[A-Za-z0-9].*==' requirements.txt) packages"
