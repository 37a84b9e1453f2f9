# The kernel's NFS server and client in one machine: a file system that cannot be asked not to wait.

# NFSEXP_FSID, NFSEXP_NOSUBTREECHECK and NFSEXP_INSECURE_PORT of linux/nfsd/export.h.
NFS_EXPORT_FLAGS=$((0x2000 | 0x0400 | 0x0002))

# mount_nfs FOLDER MOUNT_POINT: exports a folder and mounts it, by NFS 4.2 over loopback.
#
# The server asks a daemon (rpc.mountd) by /proc/net/rpc who may mount what. There is none here: what it
# would answer is written beforehand, and holds for a day.
mount_nfs() {
    local until
    until=$(($(date +%s) + 86400))
    modprobe nfsd
    mount -t nfsd nfsd /proc/fs/nfsd
    mkdir -p "$1" "$2" /var/lib/nfs/v4recovery
    ip link set lo up
    printf 'nfsd 127.0.0.1 %s guest\n' "$until" > /proc/net/rpc/auth.unix.ip/channel
    printf 'guest %s %s %s 65534 65534 0\n' "$1" "$until" "$NFS_EXPORT_FLAGS" \
        > /proc/net/rpc/nfsd.export/channel
    # A file handle of kind 1, a number: 0 is the root.
    printf 'guest 1 \\x00000000 %s %s\n' "$until" "$1" > /proc/net/rpc/nfsd.fh/channel
    # Older versions need rpcbind.
    echo '-2 -3 +4 +4.1 +4.2' > /proc/fs/nfsd/versions
    echo 'tcp 2049' > /proc/fs/nfsd/portlist
    echo 4 > /proc/fs/nfsd/threads
    # No client of an earlier server has locks to claim.
    echo Y > /proc/fs/nfsd/v4_end_grace
    mount -i -t nfs4 -o vers=4.2,addr=127.0.0.1,clientaddr=127.0.0.1,sec=sys 127.0.0.1:/ "$2"
    say "mounted: $(grep " $2 " /proc/mounts | cut -c 1-120)"
}
