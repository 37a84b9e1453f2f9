pub(super) const EXAMPLES: &str = "\
PROGRAM serve --listen 192.0.2.1 --export /dev/vg0/disk1 --export mem:1GiB
PROGRAM serve --config /etc/cairn/target.toml
PROGRAM check /etc/cairn/target.toml
PROGRAM top --count 1 -o json
PROGRAM status --check
PROGRAM reload
PROGRAM subsystem list -o wide
PROGRAM subsystem add nqn.2024-01.com.example:disks --host nqn.2024-01.com.example:host1
PROGRAM subsystem remove nqn.2024-01.com.example:disks
PROGRAM subsystem set nqn.2024-01.com.example:disks --listener 192.0.2.1 --require-key on
PROGRAM namespace list -o json
PROGRAM namespace add nqn.2024-01.com.example:disks /dev/vg0/disk1 --nsid 1
PROGRAM namespace remove nqn.2024-01.com.example:disks 1
PROGRAM namespace set nqn.2024-01.com.example:disks 1 --read-only on
PROGRAM listener list -o name
PROGRAM listener add [2001:db8::1]:4420
PROGRAM listener remove 192.0.2.1:4421
PROGRAM listener set 192.0.2.1 --ana inaccessible
PROGRAM host list nqn.2024-01.com.example:disks
PROGRAM host add nqn.2024-01.com.example:disks nqn.2024-01.com.example:host1
PROGRAM host remove nqn.2024-01.com.example:disks nqn.2024-01.com.example:host1
PROGRAM host any nqn.2024-01.com.example:disks on
PROGRAM host group list
PROGRAM host group add cluster nqn.2024-01.com.example:host1 nqn.2024-01.com.example:host2
PROGRAM host group remove cluster nqn.2024-01.com.example:host2
PROGRAM host key show nqn.2024-01.com.example:disks
PROGRAM host key set nqn.2024-01.com.example:disks nqn.2024-01.com.example:host1 --key /etc/cairn/host1.key
PROGRAM host key remove nqn.2024-01.com.example:disks nqn.2024-01.com.example:host1
PROGRAM referral list
PROGRAM referral add 192.0.2.9:8009
PROGRAM referral remove 192.0.2.9:8009
PROGRAM limit list
PROGRAM limit set nqn.2024-01.com.example:disks 1 --iops 20000 --total 500MiB
PROGRAM limit remove nqn.2024-01.com.example:disks 1
PROGRAM reservation list
PROGRAM reservation show nqn.2024-01.com.example:disks 1
PROGRAM reservation clear nqn.2024-01.com.example:disks 1
PROGRAM connection list --no-headers
PROGRAM connection disconnect nqn.2024-01.com.example:disks 1
PROGRAM drain 192.0.2.1 --timeout 30
PROGRAM drain --undo
PROGRAM log cairn_target=debug
PROGRAM config show
PROGRAM rpc cairn_connection_remove '{\"nqn\": \"nqn.2024-01.com.example:disks\", \"cntlid\": 1}'
PROGRAM key generate --file /etc/cairn/host1.key
PROGRAM key check /etc/cairn/host1.key
PROGRAM import nvmet /etc/nvmet/config.json
PROGRAM import spdk spdk.json
PROGRAM export nvmet /etc/cairn/target.toml
PROGRAM export spdk /etc/cairn/target.toml
PROGRAM schema --of status
PROGRAM doctor --config /etc/cairn/target.toml
";

pub(super) const RECORDS: &[&str] = &[
    "subsystem list",
    "namespace list",
    "listener list",
    "host list",
    "host group list",
    "host key show",
    "referral list",
    "limit list",
    "reservation list",
    "connection list",
    "drain",
];
