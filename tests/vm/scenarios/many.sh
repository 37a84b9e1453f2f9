#!/bin/bash
# Eight concurrent hosts, then a hundred connects: memory and queue pairs return to their former level.
# vm: programs=cairn-target timeout=480 mem=3G

HOSTS=8
CYCLES=100
# Memory in KiB that the allocator may keep after a hundred connections; one leaked admin queue would be more.
RSS_TOLERANCE_KIB=2048

disconnect_all() {
    nvme_disconnect
    wait_for 60 "the controllers to go" no_controllers
}

queue_pairs_are() { [ "$(count_queue_pairs)" -eq "$1" ]; }

step "A target nobody uses"
setup_rxe
start_target --export "$(make_backing_file disk 64M)" --export mem:32M
idle_qps=$(count_queue_pairs)
say "$idle_qps queue pairs, $(target_rss_kib) KiB resident"
mark_kernel_log

step "$HOSTS hosts at once"
connect_hosts "$HOSTS"
cntlids=$(controllers | while read -r ctrl; do cat "/sys/class/nvme/$ctrl/cntlid"; done | sort -u | wc -l)
assert_eq "different controller ids" "$HOSTS" "$cntlids"
say "$(count_queue_pairs) queue pairs, $(target_rss_kib) KiB resident"
wait_for 20 "namespace 1" namespace_device 1
use_all_paths
verified_fio many "$(namespace_device 1)" --rw=randrw --bs=4k --iodepth=32 --size=16m
disconnect_all
wait_for 60 "$idle_qps queue pairs" queue_pairs_are "$idle_qps"
say "ok: queue pairs are back at $idle_qps"
settled_rss=$(target_rss_kib)

assert_no_nvme_warnings
mark_kernel_log
SCANS_ARE_CUT=1

step "Connect and disconnect $CYCLES times"
for cycle in $(seq "$CYCLES"); do
    connect_host $((cycle % HOSTS + 1)) > /dev/null
    wait_for 20 "a live controller" live_controllers 1
    delete_controllers
    [ $((cycle % 25)) -ne 0 ] || say "$cycle: $(count_queue_pairs) queue pairs, $(target_rss_kib) KiB"
done
wait_for 60 "$idle_qps queue pairs" queue_pairs_are "$idle_qps"
say "ok: queue pairs are back at $idle_qps"
assert_le "growth of resident memory, KiB" $(($(target_rss_kib) - settled_rss)) "$RSS_TOLERANCE_KIB"

step "Eight at once still works"
connect_hosts "$HOSTS"
disconnect_all
assert_no_nvme_warnings
assert_target_alive
stop_target
