#!/bin/bash
# The .deb under systemd: apt installs it, SPDK's client builds an export, reboot and upgrade keep the export, purge
# removes everything.
# vm: systemd packages spdk-client programs=cairn-target,cairn-initiator disk=256M nvme=512 timeout=900
#
# CLIENTS is the number of clients that concurrently add and remove namespaces, by default 20.

CLIENTS=${CLIENTS:-20}
CONFIG=/etc/cairn/target.toml
UNIT=cairn-target.service
UUID_OF_DRIVE=33333333-3333-4333-8333-333333333333

mkdir -p /etc/nvme
[ -s /etc/nvme/hostnqn ] || nvme gen-hostnqn > /etc/nvme/hostnqn
HOST_NQN=$(cat /etc/nvme/hostnqn)

list_files() {
    find / -xdev \( -path /var/lib/dpkg -o -path /var/lib/apt -o -path /var/cache -o -path /var/log \
        -o -path /var/lib/systemd -o -path /srv -o -path /cairn -o -path '/tmp/*' -o -path '/var/tmp/*' \
        -o -path '/etc/*-' -o -name .pwd.lock -o -path /etc/machine-id \) -prune -o -print | sort
}

install_package() {
    DEBIAN_FRONTEND=noninteractive DPKG_FORCE=unsafe-io apt-get install -y --no-install-recommends "$OUT/$1"/cairn_*.deb \
        > "$OUT/apt-$1.log" 2>&1 || { tail "$OUT/apt-$1.log"; fail "apt-get install"; }
}

main_pid() { systemctl show -P MainPID "$UNIT"; }

assert_unit() { assert_eq "the unit $1" "$3" "$(systemctl "$2" "$UNIT")"; }

connect_host() {
    wait_for 120 "the target to answer" nvme_discover
    nvme_connect --hostnqn="$HOST_NQN" --reconnect-delay=2
    wait_for 60 "namespace 1" namespace_device 1
    wait_for 60 "namespace 2" namespace_device 2
}

# Prints the drive's device, /dev/ng0n1. No host may be connected, because its device would match too.
drive_name() { compgen -G '/dev/ng*n1'; }

checksum_of() { dd if="$(namespace_device "$1")" bs=1M count=8 iflag=direct status=none | sha256sum; }

# Builds the export with commands of rpc.py, or the requests that they send.
build_export() {
    local listen path nsid=1
    listen=$(jq -n --arg at "$FABRIC_ADDR" --arg port "$PORT" \
        '{trtype: "rdma", traddr: $at, adrfam: "ipv4", trsvcid: $port}')
    spdk_rpc nvmf_create_transport '{"trtype": "RDMA", "no_srq": false, "c2h_success": true, "zcopy": false}' -t RDMA
    spdk_rpc nvmf_create_subsystem "$(jq -n --arg nqn "$NQN" '{nqn: $nqn, serial_number: "CAIRN1",
        max_namespaces: 128, allow_any_host: false, ana_reporting: false, passthrough: false, enable_nssr: false}')" \
        "$NQN" -s CAIRN1 -m 128
    for path in "$@"; do
        spdk_rpc bdev_aio_create "$(jq -n --arg path "$path" --arg name "Disk$nsid" '{filename: $path, name: $name,
            block_size: 512, readonly: false, fallocate: false, nowait: false}')" "$path" "Disk$nsid" 512
        spdk_rpc nvmf_subsystem_add_ns "$(jq -n --arg nqn "$NQN" --arg name "Disk$nsid" \
            '{nqn: $nqn, namespace: {bdev_name: $name, no_auto_visible: false}}')" "$NQN" "Disk$nsid"
        nsid=$((nsid + 1))
    done
    spdk_rpc nvmf_subsystem_add_host "$(jq -n --arg nqn "$NQN" --arg host "$HOST_NQN" '{nqn: $nqn, host: $host}')" \
        "$NQN" "$HOST_NQN"
    spdk_rpc nvmf_subsystem_add_listener "$(jq -n --arg nqn "$NQN" --argjson at "$listen" \
        '{nqn: $nqn, secure_channel: false, listen_address: $at}')" \
        "$NQN" -t rdma -f ipv4 -a "$FABRIC_ADDR" -s "$PORT"
    spdk_rpc_run
}

first_boot() {
    step "apt installs the package"
    list_files > "$OUT/files-before"
    cp /etc/passwd /etc/group "$OUT/"
    install_package first
    assert_eq "the user's groups" cairn "$(id -Gn cairn)"

    step "The unit starts with nothing, and SPDK's client builds a subsystem with a file, a disk, a host and a listener"
    mkdir -p /srv/disks
    truncate -s 64M /srv/disks/one.img
    chown -R cairn: /srv/disks
    printf '[target]\nprovider = "%s"\n\n[control]\nsocket = "%s"\n' "$TARGET_PROVIDER" "$CONTROL_SOCKET" > "$CONFIG"
    chown cairn: "$CONFIG"
    systemctl enable --now "$UNIT"
    say "the client is $(spdk_client)"
    build_export /srv/disks/one.img /dev/vdb
    cat "$CONFIG"
    assert_unit "is" is-active active
    assert_unit "starts at boot" is-enabled enabled
    # The threshold is in tenths.
    systemd-analyze security --threshold=20 --no-pager "$UNIT" | tail -1
    assert_eq "the target's user" cairn "$(ps -o user= -p "$(main_pid)")"

    step "A host writes to both"
    connect_host
    for nsid in 1 2; do
        dd if=/dev/urandom of="$(namespace_device "$nsid")" bs=1M count=8 oflag=direct conv=fsync \
            status=none
        checksum_of "$nsid" > "$OUT/sum$nsid"
    done
    systemctl show -P StatusText "$UNIT"
    nvme_disconnect
    reboot_guest
}

come_and_go() {
    local client clients=() nsid
    for client in $(seq "$CLIENTS"); do
        (
            nsid=$(cairn-target namespace add "$NQN" null:1MiB) && echo "$nsid" > "$OUT/nsid-$client" &&
                cairn-target namespace remove "$NQN" "$nsid"
        ) > "$OUT/client-$client.log" 2>&1 &
        clients+=($!)
    done
    for client in "${clients[@]}"; do
        wait "$client" || fail "a client: $(cat "$OUT"/client-*.log)"
    done
    FLEETING_NSIDS=$(sort -nu "$OUT"/nsid-* | paste -sd '|')
    say "ok: $CLIENTS clients were answered; their NSIDs were $FLEETING_NSIDS"
}

second_boot() {
    step "After a reboot the export is back with its data"
    assert_unit "is" is-active active
    connect_host
    for nsid in 1 2; do
        assert_eq "namespace $nsid" "$(cat "$OUT/sum$nsid")" "$(checksum_of "$nsid")"
    done

    sha256sum "$CONFIG" > /tmp/config-sum
    mark_kernel_log
    start_verified_io "$(namespace_device 1)" --rate_iops=100,100

    step "$CLIENTS clients at once add and remove namespaces, and the host's I/O goes on"
    come_and_go
    assert_verified_io_runs
    assert_no_nvme_warnings
    sha256sum --check --quiet /tmp/config-sum
    assert_eq "namespaces" 2 "$(cairn-target namespace list -o json | jq length)"

    step "An upgrade keeps the configuration, and the host loses no I/O"
    pid=$(main_pid)
    mark_kernel_log
    install_package second
    assert_contains "the version" +second "$(dpkg-query -f '${Version}' -W cairn)"
    assert_unit "is" is-active active
    [ "$(main_pid)" != "$pid" ] || fail "the target is still the old one"
    wait_for 120 "the host to reconnect" live_controllers 1
    assert_ge "the host has reconnected" "$(count_in_kernel_news 'Successfully reconnected')" 1
    assert_verified_io_runs
    end_verified_io
    sha256sum --check --quiet /tmp/config-sum
    say "ok: the configuration is as it was"
    assert_eq "namespace 2" "$(cat "$OUT/sum2")" "$(checksum_of 2)"
    nvme_disconnect
    a_drive

    step "A purge leaves nothing"
    DEBIAN_FRONTEND=noninteractive apt-get purge -y cairn > "$OUT/apt-purge.log" 2>&1
    list_files > "$OUT/files-after"
    assert_ge "files of the machine" "$(wc -l < "$OUT/files-after")" 1000
    assert_empty "files that are left" comm -13 "$OUT/files-before" "$OUT/files-after"
    assert_empty "files that are gone" comm -23 "$OUT/files-before" "$OUT/files-after"
    cmp /etc/passwd "$OUT/passwd"
    cmp /etc/group "$OUT/group"
    [ ! -e /run/cairn ] || fail "/run/cairn is left"
    assert_eq "the unit" not-found "$(systemctl show -P LoadState "$UNIT")"
    assert_empty "units that failed" systemctl list-units --failed --no-legend --plain '*cairn*'
}

a_drive() {
    local drop_ins=/etc/systemd/system/$UNIT.d rule=/etc/udev/rules.d/90-cairn.rules drive

    step "A drive past the block layer: the log names what it requires, and with that it is served"
    modprobe nvme
    wait_for 20 "the drive" drive_name
    drive=$(drive_name)
    write_config "$CONFIG" "1 /srv/disks/one.img" "3 $drive uuid=\"$UUID_OF_DRIVE\""
    systemctl restart "$UNIT"
    assert_contains "what is missing" nvme-drives.conf "$(cairn-target status 2>&1; journalctl -b -u "$UNIT" | tail -n 20)"
    mkdir -p "$drop_ins"
    cp /usr/share/doc/cairn/nvme-drives.conf "$drop_ins"
    systemctl daemon-reload
    systemctl restart "$UNIT"
    journalctl -b -u "$UNIT" | grep "$drive" | tail -n 1
    echo 'SUBSYSTEM=="nvme-generic", GROUP="disk", MODE="0660"' > "$rule"
    udevadm control --reload
    udevadm trigger --settle --subsystem-match=nvme-generic
    systemctl restart "$UNIT"
    assert_eq "the target's user" cairn "$(ps -o user= -p "$(main_pid)")"
    wait_for 120 "the target to answer" nvme_discover
    nvme_connect
    wait_for 60 "namespace 3" namespace_device 3
    head -c 65536 /dev/urandom > "$OUT/drive-pattern"
    dd if="$OUT/drive-pattern" of="$(namespace_device 3)" bs=65536 oflag=direct conv=fsync status=none
    cmp -n 65536 "$OUT/drive-pattern" "${drive/ng/nvme}"
    say "ok: what the host wrote is on the drive"
    nvme_disconnect
    rm -r "$drop_ins" "$rule"
    systemctl daemon-reload
}

case $BOOT in
1) first_boot ;;
2) second_boot ;;
esac
