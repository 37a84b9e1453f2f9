# Execution of a scenario under any process 1. Sourced.

OUT=/cairn/out
LIB=/cairn/tests/lib

# Prints the kernel's messages about its own faults. Lockup warnings are excluded, because an emulated processor may
# stall on a busy machine.
kernel_complaints() {
    dmesg | grep -E 'BUG: |WARNING: CPU|Oops|general protection fault|refcount_t: |UBSAN: ' |
        grep -v 'soft lockup'
}

# Runs the scenario and prints its output. The exit code is the result.
run_scenario() {
    cd /tmp || return 1
    touch "$OUT/begun"
    timeout --kill-after=10 "$CAIRN_TIMEOUT_S" \
        bash "$LIB/run.sh" "/cairn/tests/scenarios/$CAIRN_SCENARIO.sh"
    local code=$?
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
