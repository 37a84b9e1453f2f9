#!/bin/busybox sh
# The first program in the guest: reach the root file system and the host's folders, move there.
# What the host has to say is in its folder `out`, and is passed on as environment.

die() {
    echo "initramfs: $*" >&2
    /bin/busybox poweroff -f
}

/bin/busybox --install -s /bin
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys

while read -r module; do
    insmod "/modules/$module" || die "cannot load $module"
done < /modules/order

tries=0
until [ -b /dev/vda ]; do
    tries=$((tries + 1))
    [ "$tries" -lt 100 ] || die "no disk"
    sleep 0.05
done
if [ -n "$CAIRN_HOLD" ]; then
    # The host keeps this machine in a file. What follows runs in each machine that begins with it.
    stty -echo
    echo "cairn: booted"
    read -r _
    hwclock -s -u || echo "initramfs: the clock stands where it was" >&2
fi
mount -t ext4 /dev/vda /root || die "cannot mount the root file system"
for share in tests programs out; do
    options=trans=virtio,version=9p2000.L,msize=262144
    # Nothing changes these while the guest runs, and programs start again and again.
    [ "$share" = out ] || options=$options,cache=loose
    mount -t 9p -o "$options" "$share" "/root/cairn/$share" ||
        die "cannot mount the host's folder $share"
done
[ -z "$CAIRN_HOLD" ] || : > /root/cairn/out/awake
set -a
. /root/cairn/out/settings
set +a
for moved in dev proc sys; do
    mount --move "/$moved" "/root/$moved"
done
exec switch_root /root /cairn/tests/lib/init.sh
