# The kernel's own target, nvmet-rdma, for hosts of ours to connect to. It is set up through
# configfs, as nvmetcli does.

NVMET=/sys/kernel/config/nvmet

# start_nvmet ADDRESS [DISK]: exports a disk, or 1 GiB of memory, as namespace 1 of NQN, at the
# address.
start_nvmet() {
    local disk=${2:-/dev/nullb0}
    modprobe nvmet-rdma
    if [ ! -e "$disk" ]; then
        modprobe null_blk nr_devices=1 gb=1 memory_backed=1 bs=512
    fi
    mountpoint -q /sys/kernel/config || mount -t configfs configfs /sys/kernel/config
    mkdir "$NVMET/subsystems/$NQN" "$NVMET/subsystems/$NQN/namespaces/1"
    echo 1 > "$NVMET/subsystems/$NQN/attr_allow_any_host"
    echo "$disk" > "$NVMET/subsystems/$NQN/namespaces/1/device_path"
    echo 1 > "$NVMET/subsystems/$NQN/namespaces/1/enable"
    mkdir "$NVMET/ports/1"
    echo rdma > "$NVMET/ports/1/addr_trtype"
    echo ipv4 > "$NVMET/ports/1/addr_adrfam"
    echo "$1" > "$NVMET/ports/1/addr_traddr"
    echo "$PORT" > "$NVMET/ports/1/addr_trsvcid"
    open_nvmet
}

# From here on hosts can connect.
open_nvmet() { ln -s "$NVMET/subsystems/$NQN" "$NVMET/ports/1/subsystems/$NQN"; }

# Its controllers end, and its listeners close. The data stays.
close_nvmet() { rm "$NVMET/ports/1/subsystems/$NQN"; }
