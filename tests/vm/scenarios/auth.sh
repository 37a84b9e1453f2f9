#!/bin/bash
# DH-HMAC-CHAP: the kernel's host with cairn-target, and cairn-initiator with the kernel's target.
# vm: programs=cairn-target,cairn-initiator timeout=600

CONFIG=/tmp/cairn.toml
HOSTNQN=nqn.2026-11.io.cairn:vm-host

# key NAME: Creates a key file, and stores its text in KEY_NAME.
key() {
    cairn-target key generate --file "/tmp/$1.key"
    printf -v "KEY_$1" '%s' "$(cat "/tmp/$1.key")"
}

# keyed_config HASH GROUP: Writes a configuration of namespace 1 for a host with keys "host" and "ctrl".
keyed_config() {
    write_config "$CONFIG" "1 $disk"
    {
        printf '\n[[subsystem.host]]\nnqn = "%s"\n' "$HOSTNQN"
        printf 'dhchap_key = "/tmp/host.key"\ndhchap_ctrl_key = "/tmp/ctrl.key"\n'
    } >> "$CONFIG"
    sed -i "s/^allow_any_host = true$/allowed_hosts = [\"$HOSTNQN\"]\ndhchap_hashes = [\"$1\"]\ndhchap_groups = [\"$2\"]/" "$CONFIG"
}

# connect_as OPTION...: Connects with one I/O queue, which authenticates in a second exchange.
connect_as() {
    nvme_connect --hostnqn="$HOSTNQN" --nr-io-queues=1 "$@"
    wait_for 20 "namespace 1" namespace_device 1
}

# refuses OPTION...: Checks that connecting fails and leaves no controller.
refuses() {
    if nvme_connect --hostnqn="$HOSTNQN" --nr-io-queues=1 "$@" 2> /tmp/refused; then
        fail "connected with: $*"
    fi
    wait_for 20 "the controller to go" no_controllers
}

# reauthenticate SECRET: Makes the kernel's host authenticate its live controller with SECRET.
reauthenticate() { printf '%s' "$1" > "$(echo /sys/class/nvme/nvme*/dhchap_secret)"; }

# reauthenticated COUNT: Succeeds if COUNT queues, including the admin queue, have authenticated again.
reauthenticated() { [ "$(count_in_target_log 'authenticated again')" -eq "$1" ]; }

read_a_block() { dd if="$(namespace_device 1)" of=/dev/null bs=4k count=4 iflag=direct status=none; }

step "A target that requires authentication"
setup_rxe
disk=$(make_backing_file disk 64M)
key host
key ctrl
key other
keyed_config sha256 null
start_target_from "$CONFIG"

step "Every hash with every group, both directions"
for hash in sha256 sha384 sha512; do
    for group in null ffdhe2048 ffdhe3072 ffdhe4096 ffdhe6144 ffdhe8192; do
        keyed_config "$hash" "$group"
        reload_target
        since=$(date +%s%N)
        connect_as --dhchap-secret="$KEY_host" --dhchap-ctrl-secret="$KEY_ctrl"
        taken=$((($(date +%s%N) - since) / 1000000))
        read_a_block
        nvme_disconnect
        wait_for 20 "the controller to go" no_controllers
        say "ok: $hash with $group; connected in $taken ms"
    done
done
keyed_config sha256 ffdhe2048
reload_target
connect_as --dhchap-secret="$KEY_host"
read_a_block
nvme_disconnect
wait_for 20 "the controller to go" no_controllers

step "Another key, the other direction's key, and none"
refuses --dhchap-secret="$KEY_other"
refuses --dhchap-secret="$KEY_ctrl" --dhchap-ctrl-secret="$KEY_host"
refuses --dhchap-secret="$KEY_host" --dhchap-ctrl-secret="$KEY_other"
refuses
assert_target_alive

step "The key changes under verified I/O"
connect_as --dhchap-secret="$KEY_host" --dhchap-ctrl-secret="$KEY_ctrl"
start_verified_io "$(namespace_device 1)" --rate_iops=200,200
reauthenticate "$KEY_host"
wait_for 20 "both queues to authenticate again" reauthenticated 2
mv /tmp/other.key /tmp/host.key
reload_target
sleep 2
assert_verified_io_runs
reauthenticate "$KEY_other"
wait_for 20 "both queues to authenticate with the new key" reauthenticated 4
assert_verified_io_runs
end_verified_io

step "A host that authenticates again with another key loses its connection"
refused=$(count_in_target_log 'authentication failed')
reauthenticate "$KEY_host"
is_refused() { [ "$(count_in_target_log 'authentication failed')" -gt "$refused" ]; }
wait_for 20 "the target to refuse it" is_refused
is_lost() { ! grep -q live /sys/class/nvme/nvme*/state 2> /dev/null; }
wait_for 20 "the host to lose its connection" is_lost
nvme_disconnect
wait_for 20 "the controller to go" no_controllers
refuses --dhchap-secret="$KEY_host"
connect_as --dhchap-secret="$KEY_other"
read_a_block
nvme_disconnect
wait_for 20 "the controller to go" no_controllers
stop_target

step "Our host, and the kernel's target"
start_nvmet "$FABRIC_ADDR"
mkdir "$NVMET/hosts/$HOSTNQN"
printf '%s' "$KEY_other" > "$NVMET/hosts/$HOSTNQN/dhchap_key"
printf '%s' "$KEY_ctrl" > "$NVMET/hosts/$HOSTNQN/dhchap_ctrl_key"
echo 0 > "$NVMET/subsystems/$NQN/attr_allow_any_host"
ln -s "$NVMET/hosts/$HOSTNQN" "$NVMET/subsystems/$NQN/allowed_hosts/$HOSTNQN"
ours() {
    cairn-initiator connect-check --provider verbs -a "$FABRIC_ADDR" -n "$NQN" --hostnqn "$HOSTNQN" \
        --nr-io-queues 1 "$@"
}
for choice in sha256/null sha384/ffdhe2048 sha512/ffdhe8192; do
    echo "hmac(${choice%/*})" > "$NVMET/hosts/$HOSTNQN/dhchap_hash"
    echo "${choice#*/}" > "$NVMET/hosts/$HOSTNQN/dhchap_dhgroup"
    ours --dhchap-secret "$KEY_other" --dhchap-ctrl-secret "$KEY_ctrl"
    say "ok: $choice, both directions"
done
for secrets in "$KEY_host" "$KEY_other --dhchap-ctrl-secret $KEY_host"; do
    # $secrets consists of an option's value and a further option.
    # shellcheck disable=SC2086
    if ours --dhchap-secret $secrets > /tmp/refused 2>&1; then
        fail "our host accepted a wrong key"
    fi
    show cat /tmp/refused
done
