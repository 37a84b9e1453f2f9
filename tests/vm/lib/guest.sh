# A scenario from its begin to its verdict, whatever process 1 is. Sourced.

OUT=/cairn/out
LIB=/cairn/tests/lib

# Lines by which the kernel says that it is broken itself. Lockup warnings are not among them:
# on a busy host an emulated processor can stand still for that long.
kernel_complaints() {
    dmesg | grep -E 'BUG: |WARNING: CPU|Oops|general protection fault|refcount_t: |UBSAN: ' |
        grep -v 'soft lockup'
}

# run_scenario: prints as it goes; its exit code is the verdict.
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
    # Nothing in here is worth an orderly shutdown. The folders on the host are the exception.
    umount "$OUT" 2>/dev/null
    dmesg -n 1
    echo o > /proc/sysrq-trigger
    sleep 60
}
