#!/bin/bash
# `cargo xtask hardware --peer` measures over ssh, with SPDK too, and the peer is as before after any end.
# vm: programs=cairn-target,xtask spdk-client timeout=1500 by-name
#
# Both machines are this one: rules send its local traffic over the cable, and sshd runs in a network namespace, whose
# logins enter the initial one. The SPDK is that of `--spdk`, or else a stand-in: cairn-target with SPDK's methods. Without
# SPDK's rpc.py there is none.

HOST=198.18.99.1 TARGET=198.18.99.2

# The kernel removes these routes with the last address of an interface.
lead_over_cable() {
    ip route replace "$TARGET" dev near table 71
    ip route replace "$HOST" dev far table 72
}

join_two_machines() {
    local key rule preference=1
    modprobe -a rdma_rxe rdma_ucm
    lay_switched_cable
    for key in all.rp_filter=0 {near,far}.{rp_filter=0,accept_local=1,arp_ignore=1}; do
        sysctl -qw "net.ipv4.conf.$key"
    done
    ip link set near up
    ip link set far up
    rdma link add rxe_near type rxe netdev near
    rdma link add rxe_far type rxe netdev far
    wait_for 10 "both links" both_links_active
    lead_over_cable
    for rule in "iif lo to $TARGET lookup 71" "iif lo to $HOST lookup 72" "oif near to $TARGET lookup 71" \
        "oif far to $HOST lookup 72" "lookup local"; do
        # shellcheck disable=SC2086
        ip rule add pref "$preference" $rule
        preference=$((preference + 1))
    done
    ip rule del pref 0
}

# Starts sshd at 198.18.98.2, with a key for root.
start_sshd() {
    ip netns add peer
    ip link add ssh0 type veth peer name ssh0 netns peer
    ip addr add 198.18.98.1/30 dev ssh0
    ip link set ssh0 up
    ip -n peer addr add 198.18.98.2/30 dev ssh0
    ip -n peer link set ssh0 up
    mkdir -p /run/sshd /root/.ssh
    printf '#!/bin/sh\nexec nsenter --target 1 --net --mount sh -c "$SSH_ORIGINAL_COMMAND"\n' > /run/login
    chmod 755 /run/login
    ssh-keygen -q -t ed25519 -N '' -f /root/.ssh/id_ed25519
    printf 'Host peer\n HostName 198.18.98.2\n User root\n' > /root/.ssh/config
    ip netns exec peer /usr/sbin/sshd -D -e -o ForceCommand=/run/login -o UsePAM=no \
        -o AuthorizedKeysFile=/run/keys 2> "$OUT/sshd.log" &
    SSHD=$!
}

# Makes a build tree at /tmp/spdk.
provide_spdk() {
    mkdir -p /tmp/spdk/build/bin /tmp/spdk/scripts
    if [ -e /cairn/bin/spdk/nvmf_tgt ]; then
        printf '#!/bin/sh\nOPENSSL_CONF=/dev/null LD_LIBRARY_PATH=%s exec %s "$@"\n' \
            /cairn/bin/spdk /cairn/bin/spdk/nvmf_tgt > /tmp/spdk/build/bin/nvmf_tgt
    else
        cat > /tmp/spdk/build/bin/nvmf_tgt <<- 'END'
		#!/bin/sh
		printf '[target]\nprovider = "verbs"\n' > /tmp/spdk/target.toml
		exec /cairn/bin/cairn-target serve --config /tmp/spdk/target.toml --control "$2"
		END
    fi
    chmod 755 /tmp/spdk/build/bin/nvmf_tgt
    cp -r "$SPDK_CLIENT/spdk" /tmp/spdk/scripts/
    cp /tmp/spdk/scripts/spdk/spdk_rpc.py /tmp/spdk/scripts/rpc.py 2> /dev/null ||
        printf 'import runpy\nrunpy.run_module("spdk.spdk_rpc", run_name="__main__")\n' > /tmp/spdk/scripts/rpc.py
}

state() {
    ip rule show
    ip -4 addr show | grep -v ssh0
    ip -4 route show table all | grep -v -e 'table 7[12]' -e ssh0
    sysctl -a 2> /dev/null | grep -E '^net.ipv4.conf.(all|near|far)\.(rp_filter|accept_local|arp_ignore)'
    ls /tmp /sys/kernel/config/nvmet/* /sys/kernel/config/nullb 2> /dev/null | grep -v features
    pgrep -l '^cairn-target' || true
    pgrep -l '^nvmf_tgt' || true
}
restored() {
    state > "$OUT/after"
    cmp -s "$OUT/before" "$OUT/after" && no_controllers && flock -n /run/cairn-hardware.peer.lock true
}
assert_restored() {
    wait_for 90 "the restoration" restored || { diff "$OUT/before" "$OUT/after"; fail "the peer differs"; }
    say "ok: restored"
}

HARDWARE=(xtask hardware --peer peer --ports near,far --programs /cairn/bin --rounds 1 --reconnects 2
    --sizes 4k --depths 4)
NQN=nqn.2026-11.io.cairn:hardware

# refused NAME TEXT: The command fails with an error that has this text.
refused() {
    ! timeout 120 "${HARDWARE[@]}" --seconds 1 --out "$OUT/$1" < /dev/null > "$OUT/$1.log" 2>&1 || fail "it went on"
    assert_contains "the reason" "$2" "$(cat "$OUT/$1.log")"
    assert_restored
}

# interrupt NAME COMMAND...: Runs COMMAND under I/O of cairn-target; then the measurement must fail.
interrupt() {
    local name=$1 victim
    shift
    lead_over_cable
    "${HARDWARE[@]}" --targets cairn --seconds 20 --out "$OUT/$name" > "$OUT/$name.log" 2>&1 &
    victim=$!
    wait_for 120 "the connection" live_controllers 1
    ! restored || fail "nothing is to be reverted"
    "$@" "$victim"
    ! wait "$victim" || fail "it went on"
    cat "$OUT/$name.log"
    [ ! -e "$OUT/$name/report.json" ] || fail "it reports"
}

step "Two machines"
join_two_machines
start_sshd
KINDS=(cairn nvmet)
if [ -d "$SPDK_CLIENT" ]; then
    provide_spdk
    KINDS+=(spdk)
fi
modprobe -a nvmet-rdma null_blk
mountpoint -q /sys/kernel/config || mount -t configfs configfs /sys/kernel/config
state > "$OUT/before"

step "A peer with an unknown host key, without a key of this user, or without an answer is refused"
refused unknown "Host key verification failed"
ssh-keyscan -t ed25519 198.18.98.2 > /root/.ssh/known_hosts 2> /dev/null
refused no-key "Permission denied"
assert_contains "the remedy" "must work without a question" "$(cat "$OUT/no-key.log")"
cp /root/.ssh/id_ed25519.pub /run/keys
kill -STOP "$SSHD"
refused silent "cannot log in to peer"
kill -CONT "$SSHD"

mv "$(command -v ib_read_lat)" "$(command -v ib_send_lat)" /usr/src
step "The report has the rows of all targets"
"${HARDWARE[@]}" --seconds 1 --spdk /tmp/spdk --out "$OUT/report" > "$OUT/report.log" || { cat "$OUT/report.log"; fail "it failed"; }
cat "$OUT/report/report.md"
assert_restored
report=$(cat "$OUT/report/report.json")
for target in "${KINDS[@]}"; do
    for way in read write; do
        assert_json "$way of $target" "[.rows[] | select(.group == \"$way 4k depth 4\" and .name == \"$target\")
            | .metrics[] | select(.samples | length == 1 and .[0] > 0) | .name]
            | contains([\"IOPS\", \"p50\", \"CPU of the host's machine\", \"CPU of the target's machine\"])" "$report"
    done
done
assert_json "the reconnects" '[.notes[] | select(test("^2 connects"))] | length == '"${#KINDS[@]}" "$report"
if [ -d "$SPDK_CLIENT" ]; then
    assert_json "SPDK's note" '[.notes[] | select(test("^SPDK .*: nvmf_tgt -m"))] | length == 1' "$report"
    grep -q 'read 4k depth 4 spdk' "$OUT/report/report.svg"
    grep -qE '^\| spdk \| [0-9]' "$OUT/report/report.md"
fi
mv "$(command -v ib_write_bw)" /usr/src

cut_ssh() { ip -n peer link set ssh0 down; }
step "The peer reverts its changes when the ssh connection is silent, and the command fails"
interrupt lost cut_ssh
assert_contains "the reason" "ssh connection to peer ended" "$(cat "$OUT/lost.log")"
assert_restored
ip -n peer link set ssh0 up

kill_it() { kill -KILL "$1"; }
step "The same after SIGKILL of the command"
interrupt killed kill_it
assert_restored

# The shell on the peer holds the lock.
kill_shell() { fuser -k -KILL /run/cairn-hardware.peer.lock; }
step "Leftovers of a killed shell on the peer are reverted by the next run; without SPDK, the report says so"
interrupt leftover kill_shell
! restored || fail "no leftover"
lead_over_cable
"${HARDWARE[@]}" --seconds 1 --targets nvmet,spdk --spdk /tmp/absent --out "$OUT/next" > "$OUT/next.log" ||
    { cat "$OUT/next.log"; fail "it failed"; }
assert_contains "the reversal" "peer: reverted the changes of an earlier run" "$(cat "$OUT/next.log")"
assert_restored
assert_json "the absent SPDK" '[.notes[] | select(startswith("SPDK was not measured: peer lacks"))] | length == 1' \
    "$(cat "$OUT/next/report.json")"
