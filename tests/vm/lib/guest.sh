# Execution of a scenario under any process 1. Sourced.

OUT=/cairn/out
LIB=/cairn/tests/lib

# Prints the kernel's messages about its own faults. Lockup warnings are excluded, because an emulated processor may
# stall on a busy machine.
kernel_complaints() {
    dmesg | grep -E 'BUG: |WARNING: CPU|Oops|general protection fault|refcount_t: |UBSAN: ' |
        grep -v 'soft lockup'
}

# Runs the scenario and prints its output. The exit code is the result: 124 if the host ended the scenario by the file
# time-is-up, because a busy host knows better than the guest how long the guest ran.
run_scenario() {
    cd /tmp || return 1
    touch "$OUT/begun"
    while sleep 5; do
        [ ! -e "$OUT/time-is-up" ] || kill "$(cat /run/scenario.pid)"
    done &
    local watchdog=$! code=0
    bash -c 'echo $$ > /run/scenario.pid; exec timeout --kill-after=10 0 bash "$@"' \
        scenario "$LIB/run.sh" "/cairn/tests/scenarios/$CAIRN_SCENARIO.sh" || code=$?
    kill "$watchdog"
    [ ! -e "$OUT/time-is-up" ] || code=124
    if kernel_complaints; then
        echo "FAILED: the kernel complained (above)"
        code=1
    fi
    dmesg > "$OUT/dmesg.log"
    return "$code"
}

power_off() {
    # The guest is discarded, so only the shared folder needs an orderly shutdown.
    umount "$OUT" 2>/dev/null
    dmesg -n 1
    echo o > /proc/sysrq-trigger
    sleep 60
}
