#!/bin/bash
# Process 1 of the guest: prepares the system, runs one scenario (or a shell) and powers off, or starts systemd,
# which runs the scenario as a service.
#
# The file `settings` sets CAIRN_SCENARIO (empty for a shell), CAIRN_PROGRAMS and CAIRN_INIT. The shared folders are
# already mounted: /cairn/tests, /cairn/programs, /cairn/out.

export PATH=/cairn/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export HOME=/root LANG=C.UTF-8 TERM=${TERM:-linux}
# shellcheck source=guest.sh
. /cairn/tests/lib/guest.sh

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

    # Programs run from the guest's own disk, because page faults on the shared folder are slow. Programs of other
    # scenarios are not copied, because they might hide a program of the system.
    local program
    mkdir -p /cairn/bin
    for program in $CAIRN_PROGRAMS spdk; do
        cp -a "/cairn/programs/$program" /cairn/bin/ 2>/dev/null
    done
}

# Units in /run last until the next boot, so the image stays unchanged.
become_systemd() {
    mount -t tmpfs -o mode=755 run /run
    mkdir -p /run/systemd/system/multi-user.target.wants
    cp "$LIB"/systemd/cairn-vm*.target "$LIB"/systemd/cairn-vm*.service /run/systemd/system/
    ln -s ../cairn-vm-fabric.service /run/systemd/system/multi-user.target.wants/
    # Variables of `--set` are in the environment of process 1, which passes on only named variables.
    mkdir /run/systemd/system/cairn-vm.service.d
    sed -nE '1i [Service]
        s/^([A-Z_]+)=.*/PassEnvironment=\1/p' "$OUT/settings" > /run/systemd/system/cairn-vm.service.d/set.conf
    # A login prompt would occupy the console. The other units start work unrelated to scenarios, and some hold
    # apt's lock.
    local unit
    for unit in serial-getty@.service getty@.service getty-static.service ssh.service apt-daily.timer \
        apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer; do
        ln -s /dev/null "/run/systemd/system/$unit"
    done
    # Without a machine ID, systemd would perform a first boot, which asks questions.
    [ -s /etc/machine-id ] && ! grep -q uninitialized /etc/machine-id ||
        tr -d - < /proc/sys/kernel/random/uuid > /etc/machine-id
    exec /lib/systemd/systemd --unit=cairn-vm.target
}

# bash reads this compound command completely before it runs, because a scenario may make the shared folders
# unusable.
{
    [ "${CAIRN_INIT:-}" != systemd ] || become_systemd
    prepare_system
    if [ -n "$CAIRN_SCENARIO" ]; then
        run_scenario
        echo "$?" > "$OUT/exit-code"
    else
        stty sane
        echo "Scenario scripts: /cairn/tests. Helpers: . $LIB/scenario.sh. Files for the host: $OUT."
        console=/dev/$(awk '{ print $1; exit }' /proc/consoles)
        setsid -c bash -i < "$console" > "$console" 2>&1
    fi
    power_off
}
