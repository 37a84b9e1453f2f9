# First process of the namespaces in which a guest and programs of the build machine communicate:
#
# OUT=FOLDER bash lan.sh TAP COMPANION.sh QEMU ARGUMENT...
#
# The script creates the network, starts the companion, waits until it is ready, and runs QEMU. When QEMU ends, the
# script closes the companion's standard input, or kills the companion if the scenario failed. A failed companion fails
# the scenario. When this process ends, the kernel kills all other processes of the namespace.
#
# The companion sends QEMU monitor commands (such as system_wakeup) through $OUT/monitor.in.

set -Eeuo pipefail

LIB=$(dirname "$0")
export LIB OUT
tap=$1 companion=$2
shift 2

fail_scenario() {
    echo "FAILED: the build machine's half: $1"
    tail -n 20 "$OUT/beside.log" | sed 's/^/    /'
    echo 1 > "$OUT/exit-code"
    # This file prevents another boot, which would not help.
    touch "$OUT/begun"
}

ip link set lo up
ip tuntap add dev "$tap" mode tap
ip link set "$tap" mtu 4200 up

export LAN_TAP=$tap
rm -f "$OUT/beside-ready"
exec 3> >(exec bash "$LIB/run.sh" "$companion" > "$OUT/beside.log" 2>&1)
companion_pid=$!
until [ -e "$OUT/beside-ready" ]; do
    kill -0 "$companion_pid" 2> /dev/null || { fail_scenario "it did not come up"; exit; }
    sleep 0.1
done

rm -f "$OUT/monitor.in" "$OUT/monitor.out"
mkfifo "$OUT/monitor.in" "$OUT/monitor.out"
"$@" -chardev "pipe,id=monitor,path=$OUT/monitor" -mon chardev=monitor 3>&- || true

exec 3>&-
if [ -e "$OUT/exit-code" ] && [ "$(cat "$OUT/exit-code")" != 0 ]; then
    tail -n 20 "$OUT/beside.log" | sed 's/^/    /'
    exit
fi
wait "$companion_pid" || fail_scenario "it ended badly"
