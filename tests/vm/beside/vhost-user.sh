# Part of the scenario vhost-user that runs on the build machine: a target, and cairn-initiator, which serves QEMU.

SOCKET=$OUT/disk.sock
FABRIC_ADDR=127.0.0.1
TARGET_PROVIDER=soft

attach() {
    : > "$OUT/attach.stdout"
    cairn-initiator attach -a "$FABRIC_ADDR" -n "$NQN" -N 1 --provider soft -k 2 --reconnect-delay 1 \
        --as vhost-user --socket "$SOCKET" > "$OUT/attach.stdout" 2>> "$OUT/attach.log" &
    ATTACHED=$!
    wait_for 60 "the socket" grep -q '^/' "$OUT/attach.stdout"
}

do_kill() {
    kill -KILL "$ATTACHED"
    wait "$ATTACHED" 2> /dev/null || true
    attach
}

do_replace() {
    kill -TERM "$ATTACHED"
    wait "$ATTACHED" || fail "attach ended with code $?: $(tail -n 3 "$OUT/attach.log")"
    attach
}

do_kill_target() {
    kill_target
    start_target --export "$OUT/disk.img"
}

# The guest writes an action into `do-N`, and waits for `done-N`.
serve_actions() {
    local n=1
    while true; do
        if [ -s "$OUT/do-$n" ]; then
            "do_$(cat "$OUT/do-$n")"
            touch "$OUT/done-$n"
            n=$((n + 1))
        fi
        # Ends when the guest is off, which ends standard input.
        read -r -t 0.2 || [ $? -gt 128 ] || return 0
    done
}

truncate -s 256M "$OUT/disk.img"
start_target --export "$OUT/disk.img"
attach
touch "$OUT/beside-ready"
serve_actions
kill -TERM "$ATTACHED"
wait "$ATTACHED" || fail "attach ended with code $?: $(tail -n 3 "$OUT/attach.log")"
stop_target
rm "$OUT/disk.img"
