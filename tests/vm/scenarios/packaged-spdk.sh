#!/bin/bash
# The .deb under systemd: apt installs it, SPDK's client builds the export, a reboot and an upgrade keep it, a purge leaves nothing.
# vm: systemd packages programs=cairn-target,cairn-initiator disk=256M nvme=512 timeout=900 by-name

EXPORT_STEP="The unit starts with nothing, and SPDK's client builds a subsystem with a file, a disk, a host and a listener"

# Each adds a namespace and removes it again.
a_hundred_clients() {
    local client clients=() nsid
    for client in $(seq 100); do
        (
            nsid=$(cairn-target namespace add "$NQN" null:1MiB) &&
                cairn-target namespace remove "$NQN" "$nsid"
        ) > "$OUT/client-$client.log" 2>&1 &
        clients+=($!)
    done
    for client in "${clients[@]}"; do
        wait "$client" || fail "a client: $(cat "$OUT"/client-*.log)"
    done
    say "ok: a hundred clients were answered"
}

# What SPDK's administrators type, and the requests that this makes.
build_export() {
    local listen host path nsid=1
    host=$(cat /etc/nvme/hostnqn)
    listen=$(jq -n --arg at "$FABRIC_ADDR" --arg port "$PORT" \
        '{trtype: "rdma", traddr: $at, adrfam: "ipv4", trsvcid: $port}')
    spdk_rpc nvmf_create_transport '{"trtype": "RDMA", "no_srq": false, "c2h_success": true, "zcopy": false}' -t RDMA
    spdk_rpc nvmf_create_subsystem "$(jq -n --arg nqn "$NQN" '{nqn: $nqn, serial_number: "CAIRN1",
        max_namespaces: 32, allow_any_host: false, ana_reporting: false, passthrough: false, enable_nssr: false}')" \
        "$NQN" -s CAIRN1 -m 32
    for path in "$@"; do
        spdk_rpc bdev_aio_create "$(jq -n --arg path "$path" --arg name "Disk$nsid" '{filename: $path, name: $name,
            block_size: 512, readonly: false, fallocate: false, nowait: false}')" "$path" "Disk$nsid" 512
        spdk_rpc nvmf_subsystem_add_ns "$(jq -n --arg nqn "$NQN" --arg name "Disk$nsid" \
            '{nqn: $nqn, namespace: {bdev_name: $name, no_auto_visible: false}}')" "$NQN" "Disk$nsid"
        nsid=$((nsid + 1))
    done
    spdk_rpc nvmf_subsystem_add_host "$(jq -n --arg nqn "$NQN" --arg host "$host" '{nqn: $nqn, host: $host}')" \
        "$NQN" "$host"
    spdk_rpc nvmf_subsystem_add_listener "$(jq -n --arg nqn "$NQN" --argjson at "$listen" \
        '{nqn: $nqn, secure_channel: false, listen_address: $at}')" \
        "$NQN" -t rdma -f ipv4 -a "$FABRIC_ADDR" -s "$PORT"
}

serve_disks() {
    printf '[target]\nprovider = "%s"\n\n[control]\nsocket = "%s"\n' "$TARGET_PROVIDER" "$CONTROL_SOCKET" > "$CONFIG"
    chown cairn: "$CONFIG"
    systemctl enable --now "$UNIT"
    build_export "$@"
    cat "$CONFIG"
}

steer_beside_io() {
    step "A hundred clients at once add and remove namespaces, and the host's I/O goes on"
    a_hundred_clients
    assert_verified_io_runs
    assert_no_nvme_warnings
    sha256sum --check --quiet /tmp/config-sum
    assert_eq "namespaces" 2 "$(cairn-target namespace list -o json | jq length)"
}

mkdir -p /etc/nvme
[ -s /etc/nvme/hostnqn ] || nvme gen-hostnqn > /etc/nvme/hostnqn
CONNECT_OPTIONS=(--hostnqn="$(cat /etc/nvme/hostnqn)")
run_suite packaged
