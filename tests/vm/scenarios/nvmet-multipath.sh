#!/bin/bash
# Cairn's host with two paths to the kernel's target: ANA changes and lost paths cause no I/O error.
# vm: programs=cairn-multipath-load timeout=240

OTHER_ADDR=192.168.77.4
NVMET=/sys/kernel/config/nvmet
SAID=$OUT/load.txt

add_port() {
    mkdir "$NVMET/ports/$1"
    echo rdma > "$NVMET/ports/$1/addr_trtype"
    echo ipv4 > "$NVMET/ports/$1/addr_adrfam"
    echo "$2" > "$NVMET/ports/$1/addr_traddr"
    echo "$PORT" > "$NVMET/ports/$1/addr_trsvcid"
    open_port "$1"
}

open_port() { ln -s "$NVMET/subsystems/$NQN" "$NVMET/ports/$1/subsystems/"; }
# close_port NUMBER: Removes the subsystem from the port, which ends the port's connections.
close_port() { rm "$NVMET/ports/$1/subsystems/$NQN"; }

set_ana() { echo "$2" > "$NVMET/ports/$1/ana_groups/1/ana_state"; }

path_does() { grep "^$1 " "$SAID" | tail -n 1 | grep -qE "$2"; }

load_runs() { kill -0 "$LOAD" 2>/dev/null || fail "the I/O has failed: $(tail -n 5 "$OUT/load.err")"; }

# io_by ADDRESS NOT_BY: Succeeds if I/O uses only the path to ADDRESS.
io_by() { load_runs; path_does "$1" ': [1-9]' && path_does "$2" ': 0 '; }
io_by_both() { load_runs; path_does "$HOST_ADDR" ': [1-9]' && path_does "$OTHER_ADDR" ': [1-9]'; }

step "The kernel's target: one disk, two ports"
setup_rxe_and_cable
ip addr add "$OTHER_ADDR/24" dev cable0
modprobe nvmet-rdma
modprobe null_blk nr_devices=1 gb=1 memory_backed=1 bs=4096
mount -t configfs configfs /sys/kernel/config
mkdir "$NVMET/subsystems/$NQN" "$NVMET/subsystems/$NQN/namespaces/1"
echo 1 > "$NVMET/subsystems/$NQN/attr_allow_any_host"
echo /dev/nullb0 > "$NVMET/subsystems/$NQN/namespaces/1/device_path"
echo 1 > "$NVMET/subsystems/$NQN/namespaces/1/enable"
add_port 1 "$HOST_ADDR"
add_port 2 "$OTHER_ADDR"

step "Our host uses both"
in_soft_netns ping -c 1 -W 5 "$HOST_ADDR" > /dev/null
in_soft_netns ping -c 1 -W 5 "$OTHER_ADDR" > /dev/null
ip netns exec "$SOFT_NETNS" cairn-multipath-load --nqn "$NQN" --until /tmp/enough \
    "$HOST_ADDR:$PORT" "$OTHER_ADDR:$PORT" > "$SAID" 2> "$OUT/load.err" &
LOAD=$!
wait_for 40 "I/O by both paths" io_by_both

step "ANA states move it"
set_ana 1 non-optimized
wait_for 20 "I/O by the optimized path" io_by "$OTHER_ADDR" "$HOST_ADDR"
set_ana 2 inaccessible
wait_for 20 "I/O by the other path" io_by "$HOST_ADDR" "$OTHER_ADDR"
set_ana 1 inaccessible
wait_for 20 "I/O to wait" path_does "$HOST_ADDR" 'Inaccessible.*: 0 '
set_ana 2 change
set_ana 2 optimized
wait_for 20 "I/O by the path that is back" io_by "$OTHER_ADDR" "$HOST_ADDR"
set_ana 1 optimized
wait_for 20 "I/O by both paths" io_by_both

step "A path is lost and comes back, then the other"
close_port 1
wait_for 30 "the loss of one" path_does "$HOST_ADDR" Reconnecting
wait_for 30 "I/O by the other" io_by "$OTHER_ADDR" "$HOST_ADDR"
open_port 1
wait_for 40 "I/O by both paths" io_by_both
close_port 2
wait_for 30 "I/O by the one" io_by "$HOST_ADDR" "$OTHER_ADDR"
open_port 2
wait_for 40 "I/O by both paths" io_by_both

step "Every block is what was written last"
touch /tmp/enough
wait "$LOAD" || fail "the I/O has failed: $(tail -n 5 "$OUT/load.err")"
assert_contains "the end" "right to the last block" "$(tail -n 1 "$SAID")"
