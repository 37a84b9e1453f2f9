# Build machine's half of the scenario soft-target-tap: a target without RDMA device, not emulated.

use_soft_target
# The target runs in this namespace.
TARGET_PREFIX=()

ip addr add "$FABRIC_ADDR/24" dev "$LAN_TAP"
truncate -s 512M "$OUT/disk.img"
start_target --export "$OUT/disk.img" --export mem:128M
touch "$OUT/beside-ready"

# Standard input ends when the guest is off.
cat > /dev/null
stop_target
rm "$OUT/disk.img"
