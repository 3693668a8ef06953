#!/bin/sh
# A Slurm cluster of this one machine, on loopback, for tests: munged, slurmctld and slurmd by hand, as
# root, without systemd, cgroups or accounting; a job that is seen to use more memory than it asked for
# is killed. Installs Debian's packages where they are missing.
#
#   sh tests/slurm/up.sh FOLDER     keys, states, logs and pid files go there; down.sh FOLDER ends it
#
# The configuration must be at its default place, since Snakemake's plugin drops SLURM_CONF on the way
# to a job. A configuration there that is not this script's is left alone, and the exit code is 1; it
# is 75 where another cluster of this script is up. SLURM_TEST_PORT is the first of two ports.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
mkdir -p "$1"
folder=$(CDPATH='' cd -- "$1" && pwd)
conf=/etc/slurm/slurm.conf
mark='# of byterefs tests/slurm/up.sh:'
owner=$PPID
port=${SLURM_TEST_PORT:-26817}
host=$(hostname -s)

refuse() { printf 'slurm-test: %s\n' "$2" >&2; exit "$1"; }

[ "$(id -u)" -eq 0 ] || refuse 1 "needs root, to install packages and to write $conf"

# one at a time; the daemons must not inherit the lock
exec 9>/run/byterefs-slurm.lock
flock 9

if [ -e "$conf" ]; then
    left=$(sed -n "1s|^$mark ||p" "$conf")
    [ -n "$left" ] || refuse 1 "$conf is another cluster's; this test would replace it"
    if kill -0 "${left%% *}" 2>/dev/null; then
        refuse 75 "the cluster of process ${left%% *} is up"
    fi
    sh "$here/down.sh" "${left#* }" 9>&-
fi

missing() {
    for program in slurmctld slurmd sbatch munged mungekey; do
        command -v "$program" >/dev/null || return 0
    done
    return 1
}
if missing; then
    command -v apt-get >/dev/null || refuse 1 "slurm-wlm and munge are missing, and so is apt-get"
    {
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends slurm-wlm munge
    } >"$folder/apt.log" 2>&1 9>&- || refuse 1 "slurm-wlm and munge cannot be installed: $(tail -n 1 "$folder/apt.log")"
fi

mkdir -p "$folder/state" "$folder/spool" "$folder/munge" /etc/slurm
chmod 711 "$folder/munge"
# Debian's own key belongs to the user munge, and munged as root refuses it
(umask 077 && mungekey --create --force --keyfile "$folder/munge/key")
cat >"$folder/slurm.conf" <<EOF
$mark $owner $folder
ClusterName=byterefs
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmdPort=$((port + 1))
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge/socket,cred_expire=10
CredType=cred/munge
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=sched_min_interval=0,batch_sched_delay=0
SlurmdParameters=config_overrides
ReturnToService=2
MinJobAge=3600
KillWait=5
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) RealMemory=$(awk '/MemTotal/ {print int($2 / 1024 * 0.9)}' /proc/meminfo) State=UNKNOWN
PartitionName=main Nodes=$host Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
EOF
cp "$folder/slurm.conf" "$conf"

fail() {
    tail -n 5 "$folder"/*.log >&2
    sh "$here/down.sh" "$folder" 9>&-
    refuse 1 "the cluster does not come up: see above"
}
{
    munged --force --key-file="$folder/munge/key" --socket="$folder/munge/socket" \
        --pid-file="$folder/munged.pid" --log-file="$folder/munged.log" --seed-file="$folder/munge/seed" &&
        slurmctld -f "$conf" && slurmd -f "$conf" -N "$host"
} 9>&- || fail
for _ in $(seq 200); do
    [ "$(sinfo --noheader --format=%T 2>/dev/null)" != idle ] || exit 0
    sleep 0.1
done
fail
