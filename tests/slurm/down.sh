#!/bin/sh
# Ends the cluster that `up.sh FOLDER` started: its jobs, then the processes that its pid files name and
# no other. Removes its configuration, and leaves the logs in FOLDER.
set -eu

folder=$(CDPATH='' cd -- "$1" && pwd)
conf=/etc/slurm/slurm.conf
ours() { [ -e "$conf" ] && cmp -s "$conf" "$folder/slurm.conf"; }

# a number in a file of an earlier boot may be another process by now
is() { [ "$(cat "/proc/$1/comm" 2>/dev/null)" = "$2" ]; }

if ours; then
    timeout 20 scancel --user=root 2>/dev/null || :
    for _ in $(seq 100); do # a job that is being ended needs its slurmd
        [ -n "$(timeout 5 squeue --noheader 2>/dev/null)" ] || break
        sleep 0.1
    done
fi
for name in slurmd slurmctld munged; do
    pid=$(cat "$folder/$name.pid" 2>/dev/null) && is "$pid" "$name" || continue
    kill "$pid" || continue
    for _ in $(seq 100); do
        is "$pid" "$name" || break
        sleep 0.1
    done
    ! is "$pid" "$name" || kill -9 "$pid"
done
! ours || rm "$conf"
