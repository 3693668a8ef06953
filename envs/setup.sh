#!/bin/sh
# Makes .venv with the pinned, hashed packages of envs/requirements.txt. A second call does nothing.
#
#   sh envs/setup.sh            make or mend the environment
#   sh envs/setup.sh python     print the Python that it would use, and do nothing
#
# PYTHON=/path/to/python names the one to take; VENV=/folder puts the environment elsewhere.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
requirements=$root/envs/requirements.txt
venv=${VENV:-$root/.venv}
stamp=$venv/byterefs.stamp
log=$venv/byterefs-install.log

# Best first. Every pinned package has a wheel for 3.13 and 3.12; immutables 0.21 has none for 3.14
# (pip then wants a C compiler), and gdal-wheel 3.13.3, h5py 3.16.0 and numcodecs 0.17.1 none for 3.15.
fit="3.13 3.12 3.14"

say() { printf 'byterefs: %s\n' "$*"; }
refuse() { say "$*" >&2; exit 1; }

# Every file that could be a Python, one a line. A version manager's shim may stand before the real one.
candidates() {
    [ -z "${PYTHON:-}" ] || { command -v "$PYTHON" || :; return; }
    printf '%s' "$PATH" | tr ':' '\n' | while IFS= read -r folder || [ -n "$folder" ]; do
        for name in python3.14 python3.13 python3.12 python3; do
            [ ! -x "$folder/$name" ] || printf '%s\n' "$folder/$name"
        done
    done
    for path in "${PYENV_ROOT:-${HOME:-/nonexistent}/.pyenv}"/versions/*/bin/python; do
        [ ! -x "$path" ] || printf '%s\n' "$path"
    done
}

# "3.13 0 ok /path": version, patch, ok or what is missing, executable. Nothing where it does not run.
probe='
import sys
try:
    import ctypes, ensurepip, sqlite3, ssl, venv, zlib
    lacks = "ok" if sys.implementation.name == "cpython" else "cpython"
except ImportError as error:
    lacks = error.name or "module"
print("%d.%d" % sys.version_info[:2], sys.version_info[2], lacks, sys.executable)
'
probed() {
    candidates | while IFS= read -r candidate; do
        "$candidate" -c "$probe" </dev/null 2>/dev/null || :
    done | sort -u
}

found=''
best_python() {
    found=$(probed)
    for version in $fit; do
        path=$(printf '%s\n' "$found" | grep "^$version [0-9]* ok " | sort -k2,2nr | head -n 1 | cut -d' ' -f4-)
        [ -z "$path" ] || { printf '%s\n' "$path"; return; }
    done
    lame=$(printf '%s\n' "$found" | grep -E '^3\.1[234] ' | head -n 1)
    if [ -n "$lame" ]; then
        lacks=$(printf '%s' "$lame" | cut -d' ' -f3)
        refuse "Python $(printf '%s' "$lame" | cut -d' ' -f1) at $(printf '%s' "$lame" | cut -d' ' -f4-)" \
            "cannot make a virtual environment (no module $lacks): install what its distribution leaves out" \
            "(Debian and Ubuntu: apt-get install python3-venv) and run the same command again."
    fi
    seen=$(printf '%s\n' "$found" | cut -d' ' -f1 | sort -u | tr '\n' ' ')
    refuse "needs Python 3.12, 3.13 or 3.14, and of those none runs here (found: ${seen:-none}):" \
        "install Python 3.13 (apt-get install python3, pyenv install 3.13, or conda) or name one with" \
        "PYTHON=/path/to/python3, and run the same command again."
}

# The stamp: where and with which Python (an environment cannot be moved), and of which packages.
place() { "$venv/bin/python" -I -c 'import sys; print(sys.version.split()[0], sys.prefix)' 2>/dev/null; }
pins() {
    "$venv/bin/python" -I -c 'import hashlib, sys; print(hashlib.sha256(open(sys.argv[1], "rb").read()).hexdigest())' \
        "$requirements"
}
stands() { [ -f "$stamp" ] && [ "$(place)" = "$(sed -n 1p "$stamp")" ]; }
current() { stands && [ "$(pins)" = "$(sed -n 2p "$stamp")" ]; }

install() {
    # Without a stamp nothing is known of what lies there: an installation that was interrupted
    # leaves packages that pip takes for whole.
    if ! stands; then
        python=$(best_python)
        rm -f "$stamp"
        "$python" -m venv --clear "$venv"
    fi
    rm -f "$stamp"
    say "using Python $(place | cut -d' ' -f1)"
    say "installing $(grep -c '^[A-Za-z0-9].*==' "$requirements" || :) pinned packages (once, a minute or two)"
    "$venv/bin/python" -m pip install --disable-pip-version-check --no-input --no-compile \
        --require-hashes -r "$requirements" >"$log" 2>&1 || {
        tail -n 15 "$log" >&2
        refuse "the packages could not be installed (all of pip's words: $log);" \
            "see to the network or the proxy and run the same command again."
    }
    # Where PYTHONDONTWRITEBYTECODE is set, every start of Snakemake would compile again: 4.4 s, not 1.4 s.
    "$venv/bin/python" -m compileall -q -j 0 "$venv"/lib >>"$log" 2>&1 || say "some bytecode is missing: see $log"
    { place && pins; } >"$stamp.part"
    mv "$stamp.part" "$stamp"
    say "ready"
}

case ${1:-} in
    python) best_python ;;
    '') current || install ;;
    *) refuse "usage: sh envs/setup.sh [python]" ;;
esac
