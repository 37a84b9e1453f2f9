#!/bin/bash
# Runs the scenario as a systemd service, once in each boot. BOOT is 1, 2, ...
exec > /dev/ttyS0 2>&1
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export HOME=/root LANG=C.UTF-8 BOOT
# shellcheck source=../guest.sh
. /cairn/tests/lib/guest.sh

end_by() {
    echo "$1" > "$OUT/exit-code"
    power_off
}

if [ -z "$CAIRN_SCENARIO" ]; then
    echo "A shell under systemd. Helpers: . $LIB/scenario.sh. Files for the host: $OUT."
    stty sane < /dev/ttyS0
    setsid -c bash -i < /dev/ttyS0
    power_off
fi
BOOT=$(($(cat "$OUT/boots" 2>/dev/null || echo 0) + 1))
echo "$BOOT" > "$OUT/boots"
if [ "$BOOT" -gt 1 ] && [ ! -e "$OUT/reboot" ]; then
    echo "FAILED: the machine started again by itself"
    end_by 1
fi
rm -f "$OUT/reboot"
run_scenario
code=$?
mv "$OUT/dmesg.log" "$OUT/dmesg.boot$BOOT.log"
journalctl --no-pager --boot > "$OUT/journal.boot$BOOT.log"
[ "$code" -eq 0 ] && [ -e "$OUT/reboot" ] || end_by "$code"
echo "--- The machine starts again"
sync
systemctl reboot
