# Part of the scenario suspended-guest that runs on the build machine: the host, and target B, which exports the image
# of the guest's disk.

use_soft_target
TARGET_PREFIX=()
OWN_ADDR=192.168.77.4
SEED=4711
IMAGE=$OUT/disk.raw

# initiator COMMAND [OPTION...]: Runs cairn-initiator with the path to target B; `--path` adds target A.
initiator() {
    local command=$1
    shift
    cairn-initiator "$command" --provider soft -a "$FABRIC_ADDR" -w "$OWN_ADDR" -n "$NQN" -k 8 "$@"
}

ended_well() { assert_contains "the job $1" ", 0 bad" "$(grep verified "$OUT/bench-$1.txt")"; }

# copy_disk FILE: Copies all blocks, bypassing the page cache.
copy_disk() { dd if="$IMAGE" of="$1" bs=1M iflag=direct status=none; }

step "Target B"
ip addr add "$FABRIC_ADDR/24" dev "$LAN_TAP"
ip addr add "$OWN_ADDR/24" dev "$LAN_TAP"
write_path_config "$OUT/two.toml" "$FABRIC_ADDR" 2 101-200 optimized "$IMAGE" \
    'uuid="00000000-0000-4000-8000-00000000fa17"'
TARGET_LOG=$OUT/target-two.log
TARGET_STDOUT=$OUT/target-two.stdout
start_target_from "$OUT/two.toml"
touch "$OUT/beside-ready"

step "Verified I/O by both targets, of which one falls asleep"
wait_for 120 "target A" test -e "$OUT/one-is-ready"
initiator bench --path "$HOST_ADDR" --destroy-data --rw=randrw --bs=4k --iodepth=64 --size=12m \
    --time_based --runtime=20 --verify=crc32c --eta=never \
    > "$OUT/bench-load.txt" 2> "$OUT/bench-load.log"
ended_well load

step "By target B the host rewrites the whole disk"
initiator bench --destroy-data --rw=write --bs=64k --iodepth=8 --size=16m --randseed="$SEED" \
    --verify=crc32c --eta=never > "$OUT/bench-rewrite.txt" 2> "$OUT/bench-rewrite.log"
ended_well rewrite
initiator flush
copy_disk "$OUT/before.img"
touch "$OUT/rewritten"
echo system_wakeup > "$OUT/monitor.in"

step "Target A has gone on: all blocks are as written by target B"
wait_for 240 "target A to go on" test -e "$OUT/one-has-gone-on"
copy_disk "$OUT/after.img"
differ=$(cmp -l "$OUT/before.img" "$OUT/after.img" | awk '{ print int(($1 - 1) / 4096) }' | uniq | wc -l)
rm "$OUT/before.img" "$OUT/after.img"
assert_eq "blocks that differ" 0 "$differ"
initiator verify --bs 64k --randseed "$SEED"
touch "$OUT/all-is-right"

cat > /dev/null
stop_target
