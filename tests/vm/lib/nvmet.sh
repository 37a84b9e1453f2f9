# Target of the kernel, nvmet-rdma, configured through configfs as by nvmetcli.

NVMET=/sys/kernel/config/nvmet

# start_nvmet ADDRESS [DISK]: Exports a disk, or 1 GiB of memory, as namespace 1 of NQN at ADDRESS.
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

# Adds the subsystem to the port, so that hosts can connect.
open_nvmet() { ln -s "$NVMET/subsystems/$NQN" "$NVMET/ports/1/subsystems/$NQN"; }

# Removes the subsystem from the port, which ends its controllers and keeps the data.
close_nvmet() { rm "$NVMET/ports/1/subsystems/$NQN"; }
