# Stock nvme-cli discovers, connects and inspects; the kernel logs no warnings.
# Sourced by scenarios: run_suite connect

step "A target with four namespaces, 512-byte and 4096-byte blocks"
setup_fabric
small=$(make_backing_file small-blocks 64M)
large=$(make_backing_file large-blocks 96M)
write_config /tmp/cairn.toml \
    "1 $small block_size=512" \
    "2 $large block_size=4096" \
    "3 mem:32M block_size=512" \
    "4 null:1G"
start_target_from /tmp/cairn.toml
mark_kernel_log

step "Discover, by the line that the target printed"
paste_told discover > /dev/null
log=$(nvme_discover)
assert_json "the discovery log has the subsystem at the listener's address" \
    ".records | any(.subnqn == \"$NQN\" and .traddr == \"$FABRIC_ADDR\" and .trsvcid == \"$PORT\"
        and .trtype == \"rdma\" and .adrfam == \"ipv4\" and .subtype == \"nvme subsystem\")" "$log"

step "Connect, by the line that the target printed"
paste_told connect
for nsid in 1 2 3 4; do
    wait_for 20 "namespace $nsid" namespace_device "$nsid"
done
ctrl=$(controllers)
assert_eq "the controller's state" live "$(cat "/sys/class/nvme/$ctrl/state")"
n1=$(namespace_device 1)
n2=$(namespace_device 2)

step "List"
listed=$(nvme list -o json)
assert_json "nvme list shows four namespaces" '.Devices | length == 4' "$listed"
assert_json "namespace 1 has 512-byte blocks" \
    '.Devices[] | select(.NameSpace == 1) | .SectorSize == 512 and .PhysicalSize == 67108864' "$listed"
assert_json "namespace 2 has 4096-byte blocks" \
    '.Devices[] | select(.NameSpace == 2) | .SectorSize == 4096 and .PhysicalSize == 100663296' "$listed"
assert_json "nvme list-ns" '[.nsid_list[].nsid] == [1, 2, 3, 4]' "$(nvme list-ns "/dev/$ctrl" -o json)"
assert_json "nvme list-subsys shows one live rdma path" \
    ".[0].Subsystems[] | select(.NQN == \"$NQN\") | .Paths[0].Transport == \"rdma\"
        and .Paths[0].State == \"live\"" "$(nvme list-subsys -o json)"

step "Identify"
id_ctrl=$(nvme id-ctrl "/dev/$ctrl" -o json)
assert_json "id-ctrl names the subsystem" ".subnqn == \"$NQN\"" "$id_ctrl"
assert_json "id-ctrl: an I/O controller of NVMe 2.0 or later" '.cntrltype == 1 and .ver >= 131072' "$id_ctrl"
assert_json "id-ctrl: capsules with 4 KiB of data, of no offset" \
    '.ioccsz == 260 and .iorcsz == 1 and .icdoff == 0' "$id_ctrl"
assert_json "id-ctrl: 1 MiB transfers, keep-alive, queue entries of 64 and 16 bytes" \
    '.mdts == 8 and .kas > 0 and .sqes == 102 and .cqes == 68 and .maxcmd > 0' "$id_ctrl"
assert_json "id-ctrl: keyed SGLs and in-capsule offsets" \
    '(.sgls / 4 | floor % 2 == 1) and (.sgls / 1048576 | floor % 2 == 1)' "$id_ctrl"
assert_json "id-ctrl: it says who it is" \
    '(.sn | test("[^ ]")) and (.mn | test("[^ ]")) and (.fr | test("[^ ]"))' "$id_ctrl"
id_ns=$(nvme id-ns "$n1" -o json)
assert_json "id-ns of 512-byte blocks" \
    '.nsze == 131072 and .ncap == .nsze and .lbafs[.flbas % 16].ds == 9 and .lbafs[.flbas % 16].ms == 0' "$id_ns"
id_ns=$(nvme id-ns "$n2" -o json)
assert_json "id-ns of 4096-byte blocks" '.nsze == 24576 and .lbafs[.flbas % 16].ds == 12' "$id_ns"
for device in "$n1" "$n2"; do
    descs=$(nvme ns-descs "$device" -o json)
    assert_json "ns-descs of $device has a UUID or NGUID, and the command set" \
        '."ns-descs" | any(.type == "uuid" or .type == "nguid") and any(.type == "csi")' "$descs"
done
nvme cmdset-ind-id-ns "$n1" --namespace-id=1 -o json > "$OUT/cmdset-ind-id-ns.json"
nvme nvm-id-ns "$n1" -o json > "$OUT/nvm-id-ns.json"
nvme nvm-id-ctrl "/dev/$ctrl" -o json > "$OUT/nvm-id-ctrl.json"
assert_fails "an Identify of a kind that is not there is refused" nvme list-ctrl "/dev/$ctrl"

step "Log pages"
before=$(nvme smart-log "/dev/$ctrl" -o json)
assert_json "smart-log counts the reads of the partition scan" \
    '(.host_read_commands | tonumber) > 0 and .critical_warning == 0' "$before"
dd if="$n1" of=/dev/null bs=64k count=16 iflag=direct status=none
after=$(nvme smart-log "/dev/$ctrl" -o json)
assert_json "smart-log counts 16 more reads" \
    "(.host_read_commands | tonumber) >= $(jq '.host_read_commands | tonumber + 16' <<< "$before")" "$after"
assert_json "error-log" '.errors | length > 0' "$(nvme error-log "/dev/$ctrl" -o json)"
effects=$(nvme effects-log "/dev/$ctrl" --csi=0 -o json)
assert_json "effects-log has something to say" '. | length > 0' "$effects"
nvme fw-log "/dev/$ctrl" -o json > "$OUT/fw-log.json"
nvme changed-ns-list-log "/dev/$ctrl" -o json > "$OUT/changed-ns-list.json"
nvme supported-log-pages "/dev/$ctrl" > "$OUT/supported-log-pages.txt"
# ANA is optional; CMIC bit 3 reports whether the target supports it.
if [ "$(jq '.cmic / 8 | floor % 2' <<< "$id_ctrl")" = 1 ]; then
    assert_json "ana-log: every namespace is optimized" \
        '."ANA DESC LIST " | all(.state == "optimized") and ([.[].nsids // .[].NSIDS] | length > 0)' \
        "$(nvme ana-log "/dev/$ctrl" -o json)"
else
    assert_fails "no ANA, so no ana-log" nvme ana-log "/dev/$ctrl" -o json
fi

step "Features"
for feature in 0x01 0x02 0x04 0x06 0x07 0x08 0x09 0x0a 0x0b 0x0e 0x0f 0x10 0x16 0x81; do
    # Over fabrics the Host Identifier (81h) has 128 bits, which the host must request with EXHID.
    dword11=$([ "$feature" = 0x81 ] && echo 1 || echo 0)
    nvme get-feature "/dev/$ctrl" -f "$feature" -c "$dword11" > /tmp/feature ||
        fail "get-feature $feature"
    nvme get-feature "/dev/$ctrl" -f "$feature" -c "$dword11" --sel=3 > /tmp/supported ||
        fail "supported capabilities of feature $feature"
    say "$(head -n 1 /tmp/feature) / $(head -n 1 /tmp/supported | grep -oE 'Supported.*')"
done
nvme get-feature "/dev/$ctrl" -n 1 -f 0x05
assert_contains "keep-alive is the host's 5 s" 0x00001388 "$(nvme get-feature "/dev/$ctrl" -f 0x0f)"
assert_fails "a feature that does not exist is refused" nvme get-feature "/dev/$ctrl" -f 0xc0
entries=$(nvme error-log "/dev/$ctrl" -o json)
assert_json "the refusal is the error log's newest entry" \
    '.errors[0].error_count > 0 and .errors[0].sqid == 0 and .errors[0].status_field != 0' "$entries"

step "Disconnect"
nvme_disconnect
wait_for 20 "the controller to go" no_controllers
assert_no_nvme_warnings
stop_target
