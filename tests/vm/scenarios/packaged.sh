#!/bin/bash
# The .deb under systemd: apt installs it, a reboot and an upgrade keep export and hosts, a purge leaves nothing.
# vm: systemd packages programs=cairn-target,cairn-initiator disk=256M nvme=512 timeout=700

EXPORT_STEP="The unit serves a file and a disk"
CONNECT_OPTIONS=()

serve_disks() {
    write_config "$CONFIG" "1 $1" "2 $2"
    systemctl enable --now "$UNIT"
}

# I/O under way is enough.
steer_beside_io() { sleep 2; }

run_suite packaged
