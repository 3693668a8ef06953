#!/usr/bin/env bash
# Stops what `up.sh FOLDER` started and nothing else. SIGKILL: on SIGTERM an OSD in memory writes all of it to the disk.
set -euo pipefail
[[ -f $1/pids ]] || exit 0
while read -r pid name; do
    # a number of an earlier boot may be another process by now
    [[ $(cat "/proc/$pid/comm" 2>/dev/null) == "$name" ]] && kill -KILL "$pid" || :
done <"$1/pids"
