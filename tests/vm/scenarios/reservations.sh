#!/bin/bash
# Two Linux hosts reserve a disk and fence each other by nvme-cli and by the ioctls IOC_PR_*, also after a restart.
# vm: programs=cairn-target timeout=400
#
# Without native multipath, the two connections of this machine are two hosts with a disk each.

BYTES=$((16 << 20))

disk_of() { ls -d "/sys/class/nvme/$1/$1"n* 2>/dev/null | sed 's|.*/|/dev/|' | grep .; }

# connect_host NUMBER HOSTNQN: Connects the next host through /dev/nvme-fabrics, because nvme-cli 2.3 fails with "already
# connected", and prints its disk.
connect_host() {
    local kernel answer ctrl host="hostnqn=$2,hostid=00000000-0000-4000-8000-00000000000$1"
    exec {kernel}<>/dev/nvme-fabrics
    printf 'transport=rdma,traddr=%s,trsvcid=%s,nqn=%s,reconnect_delay=1,keep_alive_tmo=30,%s' \
        "$FABRIC_ADDR" "$PORT" "$NQN" "$host" >&"$kernel" || return
    read -r answer <&"$kernel" || return
    exec {kernel}>&-
    ctrl=nvme$(grep -o 'instance=[0-9]*' <<< "$answer" | cut -d = -f 2)
    wait_for 20 "the disk of host $1" disk_of "$ctrl" > /dev/null || return
    disk_of "$ctrl"
}

# pr DISK ACTION NUMBER...: Runs an ioctl IOC_PR_*, and prints its result: 0, or the status.
pr() {
    perl -e '
        my ($disk, $action, @numbers) = @ARGV;
        my %ioctls = (
            register => [200, "QQLL"], reserve => [201, "QLL"], release => [202, "QLL"],
            preempt => [203, "QQLL"], preempt_abort => [204, "QQLL"], clear => [205, "QLL"]);
        my ($number, $format) = @{$ioctls{$action}};
        my $data = pack($format, map { oct } @numbers);
        open(my $file, "+<", $disk) or die "$disk: $!\n";
        my $code = 1 << 30 | length($data) << 16 | ord("p") << 8 | $number;
        my $result = ioctl($file, $code, $data);
        die "$action: $!\n" unless defined $result;
        print $result + 0, "\n";
    ' "$@"
}

assert_pr() {
    local what=$1
    shift
    assert_eq "$what" 0 "$(pr "$@")"
}

# assert_status EXPECTED WHAT COMMAND...: Checks the NVMe status of a command of nvme-cli.
assert_status() {
    local expected=$1 what=$2
    shift 2
    assert_eq "$what" "$expected" "$(nvme_status "$@")"
}

# report DISK: Prints type, number of registrants, PTPL state, and the keys of the holders.
report() {
    nvme resv-report "$1" --eds -o json |
        jq -c '[.rtype, .regctl, .ptpls, [.regctlext[] | select(.rcsts == 1) | .rkey]]'
}

# writes DISK: Writes the block 0 again.
writes() { dd if="$1" of="$1" bs=4096 count=1 iflag=direct oflag=direct conv=notrunc status=none; }

# fill BYTE: Prints the content of a disk that consists of this byte, which is given in octal.
fill() { head -c "$BYTES" /dev/zero | tr '\0' "\\$1"; }

step "Two hosts with a disk each"
modprobe nvme_core multipath=N
setup_rxe
file=$(make_backing_file disk "$BYTES")
mkdir -p /var/lib/cairn
TARGET_SETTINGS=('state_directory="/var/lib/cairn"' reactors=2)
write_config /tmp/cairn.toml "1 $file block_size=4096"
start_target_from /tmp/cairn.toml
one=$(connect_host 1 nqn.2024-01.com.example:one)
two=$(connect_host 2 nqn.2024-01.com.example:two)
assert_eq "the disks" "/dev/nvme0n1 /dev/nvme1n1" "$one $two"

step "nvme-cli: register, acquire, preempt, release, clear"
assert_status 0 "one registers" resv-register "$one" --nrkey=0xa1 --rrega=0
assert_status 0 "two registers" resv-register "$two" --nrkey=0xb2 --rrega=0
assert_status 0 "two acquires" resv-acquire "$two" --crkey=0xb2 --rtype=1 --racqa=0
assert_eq "the report" "[1,2,0,[178]]" "$(report "$one")"
assert_status 0x83 "one may not acquire" resv-acquire "$one" --crkey=0xa1 --rtype=1 --racqa=0
assert_fails "one may not write" writes "$one"
assert_status 0 "one preempts" resv-acquire "$one" --crkey=0xa1 --prkey=0xb2 --rtype=3 --racqa=2
assert_eq "the report" "[3,1,0,[161]]" "$(report "$two")"
writes "$one"
assert_fails "two may not write" writes "$two"
assert_status 0 "one releases" resv-release "$one" --crkey=0xa1 --rtype=3 --rrela=0
writes "$two"
assert_status 0 "one clears" resv-release "$one" --crkey=0xa1 --rrela=1
assert_eq "the report" "[0,0,0,[]]" "$(report "$one")"

step "The order of fence_scsi, by ioctls, while the loser writes"
assert_pr "one registers" "$one" register 0 0xa1 0 0
assert_pr "two registers" "$two" register 0 0xb2 0 0
assert_pr "two reserves for registrants only" "$two" reserve 0xb2 3 0
assert_eq "the report" "[3,2,1,[178]]" "$(report "$one")"
fio --name=loser --filename="$two" --ioengine=libaio --direct=1 --rw=randwrite --bs=4k --iodepth=32 \
    --size="$BYTES" --time_based --runtime=120 --buffer_pattern=0xbb --eta=never \
    --output="$OUT/loser.log" &
loser=$!
loser_wrote() { cmp -s -n 4096 <(fill 273) <(dd if="$file" bs=4096 skip=100 count=1 status=none); }
wait_for 60 "a write of the loser" loser_wrote
kill -0 "$loser" || fail "the loser has ended before it was fenced"
assert_pr "one preempts and aborts" "$one" preempt_abort 0xa1 0xb2 3 0
fill 252 | dd of="$one" bs=64k iflag=fullblock oflag=direct status=none
code=0
wait "$loser" || code=$?
[ "$code" != 0 ] || fail "the loser wrote for two minutes"
assert_contains "the loser's error" "Invalid exchange" "$(cat "$OUT/loser.log")"
assert_contains "the kernel's word" "reservation conflict" "$(dmesg)"
assert_eq "the disk" "$(fill 252 | sha256sum)" "$(sha256sum < "$file")"
assert_eq "the report" "[3,1,1,[161]]" "$(report "$two")"
assert_fails "two may not write" writes "$two"

step "The reservation outlasts a target that is killed"
kill_target
no_live_controllers() { ! live_controllers 2; }
wait_for 30 "the hosts to lose the target" no_live_controllers
start_target_from /tmp/cairn.toml
wait_for 60 "both hosts to connect again" live_controllers 2
assert_eq "the report" "[3,1,1,[161]]" "$(report "$two")"
assert_fails "two may not write" writes "$two"
assert_pr "two registers again" "$two" register 0 0xb2 0 0
writes "$two"
[ "$(pr "$two" reserve 0xb2 1 0)" != 0 ] || fail "two holds a second reservation"

step "The administrator sees and clears it"
cairn-target status | tee "$OUT/status.txt"
assert_contains "the holder" "nqn.2024-01.com.example:one" "$(cat "$OUT/status.txt")"
cairn-target reservation clear "$NQN" 1
assert_eq "the report" "[0,0,1,[]]" "$(report "$two")"
assert_pr "two registers" "$two" register 0 0xb2 0 0
assert_pr "two reserves" "$two" reserve 0xb2 2 0
assert_fails "one may not write" writes "$one"
assert_pr "two releases" "$two" release 0xb2 2 0
writes "$one"
assert_pr "two clears" "$two" clear 0xb2 0 0
assert_eq "the report" "[0,0,1,[]]" "$(report "$one")"

nvme_disconnect > /dev/null
wait_for 20 "the controllers to go" no_controllers
stop_target
