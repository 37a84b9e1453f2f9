/// Examples for the help of each command, run by a test.
pub(super) const EXAMPLES: &str = "\
PROGRAM discover -t rdma -a 192.0.2.1 -s 4420
PROGRAM connect-check -t rdma -a 192.0.2.1 -n nqn.2024-01.com.example:disk --nr-io-queues 2
PROGRAM list -a 192.0.2.1
PROGRAM id-ctrl -a 192.0.2.1 -n nqn.2024-01.com.example:disk -H
PROGRAM id-ctrl -a 192.0.2.1 -n nqn.2024-01.com.example:disk -o json
PROGRAM id-ns -a 192.0.2.1 -n nqn.2024-01.com.example:disk -N 1 -H
PROGRAM get-log -a 192.0.2.1 -n nqn.2024-01.com.example:disk --log-id smart
PROGRAM get-log -a 192.0.2.1 -n nqn.2024-01.com.example:disk --log-id error -o json
PROGRAM smart-log -a 192.0.2.1 -n nqn.2024-01.com.example:disk -o json
PROGRAM error-log -a 192.0.2.1 -n nqn.2024-01.com.example:disk
PROGRAM fw-log -a 192.0.2.1 -n nqn.2024-01.com.example:disk
PROGRAM effects-log -a 192.0.2.1 -n nqn.2024-01.com.example:disk
PROGRAM ana-log -a 192.0.2.1 -n nqn.2024-01.com.example:disk
PROGRAM list-ns -a 192.0.2.1 -n nqn.2024-01.com.example:disk
PROGRAM list-subsys -a 192.0.2.1
PROGRAM ns-descs -a 192.0.2.1 -n nqn.2024-01.com.example:disk -N 1
PROGRAM show-regs -a 192.0.2.1 -n nqn.2024-01.com.example:disk -H
PROGRAM get-feature -a 192.0.2.1 -n nqn.2024-01.com.example:disk -f 0x06 -H
PROGRAM set-feature -a 192.0.2.1 -n nqn.2024-01.com.example:disk -f 0x0b -V 0x100
PROGRAM flush -a 192.0.2.1 -n nqn.2024-01.com.example:disk -N 1
PROGRAM read -a 192.0.2.1 -n nqn.2024-01.com.example:disk --start-block 0 -c 7 -d blocks.bin
head -c 4096 /dev/urandom | PROGRAM write -a 192.0.2.1 -n nqn.2024-01.com.example:disk --start-block 0 -z 4096 --destroy-data
head -c 4096 /dev/zero | PROGRAM compare -a 192.0.2.1 -n nqn.2024-01.com.example:disk --start-block 64 -z 4096
head -c 512 /dev/urandom | PROGRAM compare-and-write -a 192.0.2.1 -n nqn.2024-01.com.example:disk --start-block 0 --expected /dev/zero --destroy-data
PROGRAM write-zeroes -a 192.0.2.1 -n nqn.2024-01.com.example:disk --start-block 0 -c 7 --destroy-data
PROGRAM dsm -a 192.0.2.1 -n nqn.2024-01.com.example:disk --slbs 0,64 --blocks 8,8 --ad --destroy-data
PROGRAM resv-register -a 192.0.2.1 -n nqn.2024-01.com.example:disk --nrkey 0xa1
PROGRAM resv-acquire -a 192.0.2.1 -n nqn.2024-01.com.example:disk --crkey 0xa1 --rtype 3
PROGRAM resv-release -a 192.0.2.1 -n nqn.2024-01.com.example:disk --crkey 0xa1 --rrela 1
PROGRAM resv-report -a 192.0.2.1 -n nqn.2024-01.com.example:disk --eds
PROGRAM copy -a 192.0.2.1 -n nqn.2024-01.com.example:disk --slbs 0,64 --blocks 7,7 --sdlba 128 --destroy-data
PROGRAM attach -a 192.0.2.1 -n nqn.2024-01.com.example:disk --socket disk.sock & until test -S disk.sock; do sleep 1; done; kill $!
PROGRAM attach -a 192.0.2.1 -n nqn.2024-01.com.example:disk --as vhost-user --socket disk.sock & until test -S disk.sock; do sleep 1; done; kill $!
PROGRAM detach --device 9999 --as nbd || echo \"exit code $?: no such device\"
PROGRAM bench -a 192.0.2.1 -n nqn.2024-01.com.example:disk --rw=randread --bs=4k --iodepth=32 --runtime=2 --time_based
PROGRAM bench -a 192.0.2.1 -n nqn.2024-01.com.example:disk --destroy-data --rw=randrw --bs=4k --iodepth=16 --size=16m --verify=crc32c --output-format=json
PROGRAM verify -a 192.0.2.1 -n nqn.2024-01.com.example:disk --bs=4k --size=16m
PROGRAM ping -a 192.0.2.1 -n nqn.2024-01.com.example:disk
PROGRAM link --listen 127.4.18.2 --provider soft --once & sleep 1; PROGRAM link -a 127.4.18.2 --provider soft --time 100
PROGRAM doctor --peer 192.0.2.1 || echo \"exit code $?: 1 is a warning, 2 an error\"
";

pub(super) const RECORDS: &[&str] = &["discover", "list", "list-ns", "list-subsys"];
