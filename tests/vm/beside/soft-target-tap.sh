# Part of the scenario soft-target-tap that runs on the build machine: a target without RDMA device.

use_soft_target
# The target runs in this namespace.
TARGET_PREFIX=()

ip addr add "$FABRIC_ADDR/24" dev "$LAN_TAP"
truncate -s 512M "$OUT/disk.img"
start_target --export "$OUT/disk.img" --export mem:128M
touch "$OUT/beside-ready"

# Waits until the guest is off, which ends standard input.
cat > /dev/null
stop_target
rm "$OUT/disk.img"
