#!/bin/bash
# Process 1 of the guest: prepares the system, runs one scenario (or a shell), powers off.
#
# From the kernel's command line: CAIRN_SCENARIO (empty for a shell), CAIRN_TIMEOUT_S.
# The host's folders are mounted already: /cairn/tests, /cairn/programs, /cairn/out.

export PATH=/cairn/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export HOME=/root LANG=C.UTF-8 TERM=${TERM:-linux}
OUT=/cairn/out
LIB=/cairn/tests/lib

prepare_system() {
    mount -t tmpfs -o mode=755 run /run
    mount -t tmpfs tmp /tmp
    mkdir -p /dev/pts /dev/shm /run/lock
    mount -t devpts devpts /dev/pts
    mount -t tmpfs shm /dev/shm
    mount -t debugfs debugfs /sys/kernel/debug
    ln -s /proc/self/fd /dev/fd
    ln -s /proc/self/fd/0 /dev/stdin
    ln -s /proc/self/fd/1 /dev/stdout
    ln -s /proc/self/fd/2 /dev/stderr
    hostname cairn-vm
    ip link set lo up
    ulimit -l unlimited

    # Programs run from the guest's own disk: a page fault must not wait for the host's folder.
    mkdir -p /cairn/bin
    cp -a /cairn/programs/. /cairn/bin/ 2>/dev/null
}

# Lines by which the kernel says that it is broken itself. Lockup warnings are not among them:
# on a busy host an emulated processor can stand still for that long.
kernel_complaints() {
    dmesg | grep -E 'BUG: |WARNING: CPU|Oops|general protection fault|refcount_t: |UBSAN: ' |
        grep -v 'soft lockup'
}

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
    echo "$code" > "$OUT/exit-code"
}

power_off() {
    # Nothing in here is worth an orderly shutdown. The folders on the host are the exception.
    umount "$OUT" 2>/dev/null
    dmesg -n 1
    echo o > /proc/sysrq-trigger
    sleep 60
}

# One command to bash, which reads it whole: a scenario may leave the host's folders unusable.
{
    prepare_system
    if [ -n "$CAIRN_SCENARIO" ]; then
        run_scenario
    else
        stty sane
        echo "Scenario scripts: /cairn/tests. Helpers: . $LIB/scenario.sh. Files for the host: $OUT."
        setsid -c bash -i < /dev/ttyS0 > /dev/ttyS0 2>&1
    fi
    power_off
}
