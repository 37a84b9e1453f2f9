# Part of the scenario ceph-guide that runs on the build machine. It sets up a Ceph cluster, and a target that exports
# an image, with the guide's commands.

GUIDE=$LIB/../../../docs/guide-ceph.md
GUIDE_ADDR=192.0.2.1
# Folder of the daemons' sockets, whose paths must be short.
CLUSTER=$(mktemp -d)
TARGET_PROVIDER=soft
TARGET_PREFIX=()

# Prints the guide's section "From a cluster to a disk".
section() { awk '/^## / { on = /From a cluster to a disk/ } on' "$GUIDE"; }

# Prints the commands in the section's code blocks without a language.
commands() { section | awk '/^```/ { on = !block && $0 == "```"; block = !block; next } on'; }

cluster_did() { grep -qx "$1" "$CLUSTER.out"; }

keep_logs() {
    cp "$CLUSTER"/*.out "$OUT/"
    rm -rf "$CLUSTER" "$CLUSTER.out"
}

# order LINE: Sends LINE to the cluster program and waits for its confirmation.
order() {
    : > "$CLUSTER.out"
    echo "$1" >&5
    wait_for 60 "the cluster to $1" cluster_did "$1"
}

step "A cluster"
: > "$CLUSTER.out"
exec 5> >(exec cairn-ceph-cluster "$CLUSTER" >> "$CLUSTER.out")
wait_for 120 "the cluster" cluster_did ready

step "The guide's commands for the cluster, with its keys in a folder of its own"
export CEPH_CONF=$CLUSTER/ceph.conf
commands | grep -E '^(ceph|rbd) ' | sed "s#/etc/ceph#$CLUSTER#g" > "$OUT/cluster-commands.sh"
assert_eq "commands for the cluster" 4 "$(wc -l < "$OUT/cluster-commands.sh")"
show bash -e "$OUT/cluster-commands.sh"

step "The guide's configuration, by RoCE in user space"
ip addr add "$GUIDE_ADDR/24" dev "$LAN_TAP"
ceph="conf = \"$CEPH_CONF\", keyring = \"$CLUSTER/ceph.client.cairn.keyring\""
{
    printf '[target]\nprovider = "soft"\n\n'
    section | awk '/^```toml/ { on = 1; next } /^```/ { on = 0 } on' |
        sed "s#ceph = { id = \"cairn\" }#ceph = { id = \"cairn\", $ceph }#"
} > "$OUT/target.toml"
start_target_from "$OUT/target.toml"

# The remaining commands are for the host.
commands | grep -vE '^(ceph|rbd|scp|apt-get|cairn-target) ' > "$OUT/host-commands.sh"
section | grep -oE 'allowed_hosts = \["[^"]*"' | cut -d '"' -f 2 > "$OUT/hostnqn"
touch "$OUT/beside-ready"

wait_for 300 "the host to write" test -e "$OUT/host-writes"
step "The OSD is killed, and started again"
order kill-osd
touch "$OUT/osd-is-dead"
sleep 3
order start-osd
touch "$OUT/osd-is-back"

# Waits until the guest is off, which ends standard input.
cat > /dev/null
stop_target
exec 5>&-
