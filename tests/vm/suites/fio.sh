# fio verifies written data, with small and large blocks, low and high depth, one job and four.
# Sourced by scenarios: run_suite fio
#
# The run time suffices to fill each queue several times; more data would find no further faults.

step "A file with 512-byte blocks, and memory"
setup_fabric
file=$(make_backing_file disk 256M)
write_config /tmp/cairn.toml "1 $file block_size=512" "2 mem:64M"
start_target_from /tmp/cairn.toml
mark_kernel_log
connect_and_wait 1 2
disk=$(namespace_device 1)
memory=$(namespace_device 2)

step "4 KiB at random"
verified_fio file-4k-qd1 "$disk" --rw=randrw --bs=4k --iodepth=1 --size=1m
verified_fio file-4k-qd128 "$disk" --rw=randrw --bs=4k --iodepth=128 --size=6m
verified_fio mem-4k-qd1 "$memory" --rw=randrw --bs=4k --iodepth=1 --size=1m
verified_fio mem-4k-qd128 "$memory" --rw=randrw --bs=4k --iodepth=128 --size=6m

step "In sequence, 128 KiB and 1 MiB"
verified_fio file-128k "$disk" --rw=write --bs=128k --iodepth=8 --size=16m
verified_fio file-1m "$disk" --rw=write --bs=1m --iodepth=4 --size=16m
verified_fio mem-1m "$memory" --rw=write --bs=1m --iodepth=4 --size=16m

step "All sizes from 512 bytes to 1 MiB"
verified_fio file-mixed "$disk" --rw=randrw --bsrange=512-1m --bs_unaligned=0 --iodepth=16 --size=16m
verified_fio file-split "$disk" --rw=randwrite --iodepth=32 --size=8m \
    --bssplit=512/30:4k/30:12k/20:64k/15:256k/4:1m/1

step "Four jobs, each on its own quarter"
verified_fio file-4jobs "$disk" --rw=randrw --bs=16k --iodepth=16 --size=4m \
    --numjobs=4 --offset_increment=64m

step "Nothing broke on the way"
assert_eq "reconnects" 0 "$(count_in_kernel_news 'nvme.*[Rr]econnect')"
assert_no_nvme_warnings
nvme_disconnect
stop_target
