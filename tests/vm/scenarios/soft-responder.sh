#!/bin/bash
# rping and perftest over the kernel's rxe work with RoCE in user space.
# vm: examples=responder,rping timeout=600

# start_at_soft_end EXAMPLE [ARGUMENT...]: Starts a server at the cable's end without RDMA device.
start_at_soft_end() {
    ip netns exec "$SOFT_NETNS" "$@" "$FABRIC_ADDR" > "$OUT/$1.log" 2>&1 &
    SERVER=$!
    wait_for 10 "$1 to listen" grep -q '^listening on' "$OUT/$1.log"
}

# end_at_soft_end EXAMPLE MTU: Ends the server, and keeps its log.
end_at_soft_end() {
    kill "$SERVER"
    wait "$SERVER" 2> /dev/null || true
    mv "$OUT/$1.log" "$OUT/$1-$2.log"
}

told() { grep -qE "$2" "$OUT/$1.log"; }

cable_bytes() { cat "/sys/class/net/cable0/statistics/$1_bytes"; }

# only_its_exit CODE: Succeeds if rping failed only while exiting: its thread for CM events may use their channel after
# the main thread has freed it (fixed in rdma-core commit f3ae6534a, July 2025). All other errors print another line.
only_its_exit() {
    [ "$1" -ne 124 ] && ! grep -qvE '^(client DISCONNECT EVENT\.\.\.|rdma_get_cm_event: .*)$' "$OUT/rping-client.log"
}

# pings COUNT BYTES: Runs rdma-core's client with the example's server. The client compares the echo with its data (-V).
pings() {
    local code tries=0
    until timeout 60 /usr/bin/rping -c -a "$FABRIC_ADDR" -C "$1" -S "$2" -V > "$OUT/rping-client.log" 2>&1; do
        code=$? tries=$((tries + 1))
        [ "$tries" -lt 5 ] && only_its_exit "$code" ||
            fail "rping of $2 bytes: exit code $code: $(tail -n 5 "$OUT/rping-client.log")"
        say "rping failed when it exited (code $code): once more"
    done
    wait_for 10 "the count of the example" told rping ": $1 pings, $(($1 * $2)) bytes"
    say "ok: rping, $1 times $2 bytes, there and back"
}

# pings_of_example COUNT BYTES: Runs the example's client, which also compares the echo, with rdma-core's server.
pings_of_example() {
    local server
    /usr/bin/rping -s -a "$HOST_ADDR" -S "$2" > "$OUT/rping-server.log" 2>&1 &
    server=$!
    wait_for 10 "rping to listen" rping_listens
    in_soft_netns timeout 60 rping client "$HOST_ADDR" "$1" "$2" ||
        fail "the example's client: exit code $?; rping: $(tail -n 5 "$OUT/rping-server.log")"
    wait "$server" || true
}

rping_listens() { rdma resource show cm_id | grep -qi listen; }

# bandwidth TEST DIRECTION COUNT BYTES: Runs a perftest client, and checks that the data crossed the cable.
bandwidth() {
    local test=$1 direction=$2 count=$3 bytes=$4 before after
    before=$(cable_bytes "$direction")
    timeout 100 "$test" -R -F -n "$count" -s "$bytes" "$FABRIC_ADDR" > "$OUT/$test.log" 2>&1 ||
        fail "$test: $(tail -n 20 "$OUT/$test.log")"
    after=$(cable_bytes "$direction")
    grep -qE "^ *$bytes +$count " "$OUT/$test.log" || fail "no result: $(cat "$OUT/$test.log")"
    assert_ge "$test of $bytes bytes: bytes on the cable" $((after - before)) $((count * bytes))
}

# Runs all programs in both directions, with messages of one and many packets.
all_tools() {
    start_at_soft_end rping server
    pings 20 64
    pings 20 4097
    pings 10 65535
    end_at_soft_end rping "$1"
    pings_of_example 20 64
    pings_of_example 10 65535
    start_at_soft_end responder
    bandwidth ib_send_bw tx 200 65536
    wait_for 10 "the responder's count" told responder "perftest, 200 messages received, 13107200 bytes"
    bandwidth ib_write_bw tx 200 65536
    bandwidth ib_write_bw tx 500 100
    bandwidth ib_read_bw rx 200 65536
    bandwidth ib_read_bw rx 500 100
    end_at_soft_end responder "$1"
}

step "MTU $FABRIC_MTU"
setup_rxe_and_cable
all_tools "$FABRIC_MTU"

step "MTU 1500"
set_cable_mtu 1500
all_tools 1500
