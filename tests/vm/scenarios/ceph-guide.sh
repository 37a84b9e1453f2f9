#!/bin/bash
# From a Ceph cluster to a mounted disk with the guide's commands; the OSD is killed during verified file I/O.
# vm: programs=cairn-target examples=cairn-ceph-cluster network=tap timeout=600 by-name
#
# Cluster and target run on the build machine (tests/vm/beside/ceph-guide.sh). The scenario runs only by name, because
# it requires Ceph there (`cargo demo ceph --install`).

GUEST_ADDR=192.0.2.2
GUIDE_ADDR=192.0.2.1
NQN=nqn.2024-01.com.example:vm-7

disk_there() { [ -b /dev/nvme0n1 ]; }

step "A host of the name that the guide allows"
load_rdma
join_build_machine "$GUEST_ADDR" "$GUIDE_ADDR"
rdma link add rxe0 type rxe netdev eth0
mkdir -p /etc/nvme
cp "$OUT/hostnqn" /etc/nvme/hostnqn
mark_kernel_log

step "The guide's commands for the host"
while read -r line; do
    show bash -c "$line" < /dev/null
    wait_for 20 "the disk" disk_there
done < "$OUT/host-commands.sh"
assert_eq "commands for the host" 3 "$(wc -l < "$OUT/host-commands.sh")"
assert_eq "bytes" $((100 << 30)) "$(blockdev --getsize64 /dev/nvme0n1)"
show df /mnt

step "Files, written and verified while the OSD is killed and started again"
make_tree /tmp/tree
tree_checksums /tmp/tree > /tmp/expected
touch "$OUT/host-writes"
fio --name=writer --directory=/mnt --ioengine=libaio --direct=1 --rw=write --bs=64k --iodepth=8 --size=64m \
    --verify=crc32c --verify_fatal=1 --eta=never --rate=4m --output="$OUT/fio-writer.log" &
WRITER=$!
wait_for 120 "the OSD to be dead" test -e "$OUT/osd-is-dead"
kill -0 "$WRITER" || fail "the writer ended before the OSD did"
cp -a /tmp/tree /mnt/
sync -f /mnt
wait_for 120 "the OSD to be back" test -e "$OUT/osd-is-back"
wait "$WRITER" || fail "fio's data"
grep -q 'err= 0' "$OUT/fio-writer.log" || fail "fio reported an error"
say "ok: fio verified what it wrote"

step "After a new mount all of it is there"
umount /mnt
blockdev --flushbufs /dev/nvme0n1
show e2fsck -f -n /dev/nvme0n1
mount /dev/nvme0n1 /mnt
tree_checksums /mnt/tree > /tmp/seen
cmp /tmp/expected /tmp/seen
say "ok: $(wc -l < /tmp/expected) files read back with the same checksums"
umount /mnt

step "Nothing broke on the way"
assert_eq "reconnects" 0 "$(count_in_kernel_news 'nvme.*[Rr]econnect')"
nvme_disconnect
wait_for 20 "the controller to go" no_controllers
