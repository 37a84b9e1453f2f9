#!/bin/bash
# The target is killed during verified I/O: the host reconnects, and no data is lost.
# vm: main aarch64 programs=cairn-target disk=512M timeout=300

disk_flushes() { awk '{ print $16 }' /sys/block/vdb/stat; }

serve() { start_target --export "$file" --export /dev/vdb; }

# write_acknowledged DEVICE: Writes blocks one at a time, and records each number after the block's flush. The last
# recorded number may be incomplete.
write_acknowledged() {
    local block=0
    : > acknowledged
    while [ ! -e stop-writing ]; do
        { printf 'block %08d' "$block"; head -c 4082 pattern; } |
            dd of="$1" bs=4096 seek="$block" count=1 iflag=fullblock oflag=direct conv=fsync,notrunc \
                status=none || return 1
        echo "$block" >> acknowledged
        block=$((block + 1))
    done
}

step "A file and a disk, one host that reconnects every 2 s"
setup_rxe
file=$(make_backing_file disk 128M)
serve
mark_kernel_log
nvme_connect --reconnect-delay=2 --ctrl-loss-tmo=120
for nsid in 1 2; do
    wait_for 20 "namespace $nsid" namespace_device "$nsid"
done
ctrl=$(controllers)
uuid=$(nvme ns-descs "$(namespace_device 1)" -o json | jq -c .)

step "SIGKILL in the middle of verified writes"
verified_fio restart "$(namespace_device 1)" --rw=randwrite --bs=16k --iodepth=16 --size=48m \
    --rate_iops=250 &
fio=$!
sleep 4
kill_target
say "the target is dead; fio waits"
wait_for 30 "the host to notice" controller_is "$ctrl" connecting
kill -0 "$fio"
sleep 3
serve
wait_for 60 "the host to reconnect" controller_is "$ctrl" live
wait "$fio"
assert_ge "the host has reconnected" "$(count_in_kernel_news 'Successfully reconnected')" 1
assert_eq "the namespace is who it was" "$uuid" \
    "$(nvme ns-descs "$(namespace_device 1)" -o json | jq -c .)"

step "SIGKILL in the middle of flushed writes: what was acknowledged is on the disk"
head -c 4082 /dev/urandom > pattern
flushes=$(disk_flushes)
write_acknowledged "$(namespace_device 2)" &
writer=$!
sleep 4
# The list is read before the target is killed. When a path fails, Linux's multipath (nvme_failover_req) completes an
# outstanding flush successfully.
written=$(wc -l < acknowledged)
kill_target
flushes=$(($(disk_flushes) - flushes))
assert_ge "acknowledged blocks" "$written" 1
assert_ge "flushes that have reached the disk" "$flushes" "$written"
# Reads the disk itself, bypassing the page cache.
for block in $(seq 0 $((written - 1))); do
    cmp -s <(printf 'block %08d' "$block"; cat pattern) \
        <(dd if=/dev/vdb bs=4096 skip="$block" count=1 iflag=direct status=none) ||
        fail "block $block was acknowledged and is not on the disk"
done
say "ok: all $written acknowledged blocks are on the disk"

step "The writer goes on when the target is back"
serve
wait_for 60 "the host to reconnect" controller_is "$ctrl" live
more_than_before() { [ "$(wc -l < acknowledged)" -gt $((written + 1)) ]; }
wait_for 30 "more acknowledged blocks" more_than_before
touch stop-writing
wait "$writer"
say "ok: $(wc -l < acknowledged) blocks in the end"

nvme_disconnect
stop_target
