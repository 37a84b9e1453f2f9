# The build machine's half of soft-target-tap: a target without any RDMA device, at native speed.

use_soft_target
# Here is where it runs: no prefix takes it elsewhere.
TARGET_PREFIX=()

ip addr add "$FABRIC_ADDR/24" dev "$LAN_TAP"
truncate -s 512M "$OUT/disk.img"
start_target --export "$OUT/disk.img" --export mem:128M
touch "$OUT/beside-ready"

# Until the guest is off.
cat > /dev/null
stop_target
rm "$OUT/disk.img"
