#!/usr/bin/env bash
# Starts Ceph's S3 on this machine: one monitor, one OSD that keeps objects in memory, one radosgw. Root on Debian.
#   up.sh FOLDER   prints the endpoint; what it started is in FOLDER/pids
# Access key and secret are those of the tests (scripts/demonstration/seaweed.py).
set -euo pipefail
folder=$(mkdir -p "$1" && cd "$1" && pwd)
key=$2 secret=$3

command -v radosgw >/dev/null || {
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends radosgw ceph-mon ceph-osd ceph-common >/dev/null
} >&2

free() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
mon=$(free) rgw=$(free) fsid=$(cat /proc/sys/kernel/random/uuid)
cd "$folder"
mkdir -p mon osd run rgw
# cephx and msgr2: with `auth none` and msgr1 the OSD finds another fsid and stays down
cat >ceph.conf <<CONF
[global]
fsid = $fsid
mon host = v2:127.0.0.1:$mon
mon initial members = a
ms bind msgr1 = false
ms bind msgr2 = true
auth cluster required = cephx
auth service required = cephx
auth client required = cephx
keyring = $folder/keyring
run dir = $folder/run
admin socket = $folder/run/\$name.\$pid.asok
log file = $folder/\$name.log
pid file = $folder/run/\$name.pid
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 8
osd pool default pgp num = 8
osd pool default pg autoscale mode = off
mon allow pool size one = true
mon warn on pool no redundancy = false
osd crush chooseleaf type = 0
osd objectstore = memstore
memstore device bytes = 8589934592
public addr = 127.0.0.1
cluster addr = 127.0.0.1
[mon.a]
mon data = $folder/mon
[osd.0]
osd data = $folder/osd
[client.rgw.a]
rgw frontends = beast endpoint=127.0.0.1:$rgw
rgw data = $folder/rgw
CONF
export CEPH_CONF=$folder/ceph.conf
ceph-authtool --create-keyring keyring --gen-key -n mon. --cap mon 'allow *' >&2
ceph-authtool keyring --gen-key -n client.admin --cap mon 'allow *' --cap osd 'allow *' --cap mgr 'allow *' >&2
ceph-authtool keyring --gen-key -n client.rgw.a --cap mon 'allow rw' --cap osd 'allow rwx' >&2
ceph-authtool keyring --gen-key -n osd.0 --cap mon 'allow profile osd' --cap osd 'allow *' >&2
monmaptool --create --fsid "$fsid" --addv a "v2:127.0.0.1:$mon" monmap >&2
ceph-mon -i a -c ceph.conf --mkfs --monmap monmap --keyring keyring >&2

: >pids
start() {
    "$@" >>"$folder/$(basename "$1").out" 2>&1 </dev/null &
    echo "$! $1" >>pids
}
# until_done SECONDS COMMAND WHO
until_done() {
    for ((until = SECONDS + $1; SECONDS < until; )); do
        if eval "$2" >/dev/null 2>&1; then return; fi
        sleep 0.2
    done
    echo "$folder: $3 did not come up in $1 s" >&2
    return 1
}
start ceph-mon -i a -c ceph.conf -f
until_done 60 "ceph -c ceph.conf --connect-timeout 5 auth import -i keyring" "the monitor (mon.a.log)"
uuid=$(cat /proc/sys/kernel/random/uuid)
ceph -c ceph.conf osd new "$uuid" 0 >&2
# the same uuid: the monitor lets no other OSD boot under this number
ceph-osd -i 0 -c ceph.conf --mkfs --osd-uuid "$uuid" >&2
ceph -c ceph.conf osd crush add osd.0 1.0 root=default host=here >&2
start ceph-osd -i 0 -c ceph.conf -f
until_done 120 "ceph -c ceph.conf osd stat | grep -q '1 up'" "the OSD (osd.0.log)"
start radosgw -n client.rgw.a -c ceph.conf -f
until_done 240 "(exec 3<>/dev/tcp/127.0.0.1/$rgw)" "radosgw (client.rgw.a.log)"
radosgw-admin -n client.rgw.a -c ceph.conf user create --uid test --display-name test --access-key "$key" --secret-key "$secret" >&2
echo "http://127.0.0.1:$rgw"
