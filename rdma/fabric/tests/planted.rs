//! Ten planted faults. Somebody says "it does not connect" or "it is slow", and
//! knows no more; `doctor` names the cause, shows the evidence and has the
//! command that mends it.

mod common;

use common::{changed, findings_with_peer, recorded, text};

/// A fault in an otherwise healthy machine.
struct Fault {
    /// What is wrong.
    name: &'static str,
    /// What changes in the recording.
    change: &'static str,
    /// Words that the finding must have.
    found: &'static [&'static str],
    /// Where it must be seen.
    evidence: &'static str,
    /// The command that mends it.
    mend: &'static str,
}

const FAULTS: [Fault; 10] = [
    Fault {
        name: "it does not connect: the server does v1, the hosts v2",
        change: "[/sys/kernel/config/rdma_cm]\nmlx5_0/ports/1/default_roce_mode = IB/RoCE v1",
        found: &[
            "warning [versions] mlx5_0 port 1",
            "client v2 does NOT connect to server v1",
        ],
        evidence: "/sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_mode",
        mend: "cairn-target fabric set-mode mlx5_0 v2 --port 1",
    },
    Fault {
        name: "it does not start: memlock is too small",
        change: "[/proc]\nself/limits = Max locked memory         8388608              8388608              bytes",
        found: &[
            "error [memlock]",
            "is 8 MiB",
            "needs 40 MiB",
            "data buffers of 2 reactors: 32 MiB",
        ],
        evidence: "/proc/self/limits",
        mend: "systemctl edit cairn-target, and add: [Service] LimitMEMLOCK=infinity",
    },
    Fault {
        name: "it does not connect: the address has no GID",
        change: "- /sys/class/infiniband/mlx5_0/ports/1/gids/2\n- /sys/class/infiniband/mlx5_0/ports/1/gids/3",
        found: &["error [gid] 192.0.2.1", "mlx5_0 port 1 has no GID for it"],
        evidence: "/sys/class/infiniband/mlx5_0/ports/1/gids",
        mend: "ip address del 192.0.2.1/24 dev eth2 && ip address add 192.0.2.1/24 dev eth2",
    },
    Fault {
        name: "it does not connect: the GID is of the wrong type",
        change: "- /sys/class/infiniband/mlx5_0/ports/1/gids/3",
        found: &["error [gid] 192.0.2.1", "its GID is of RoCE v1 alone"],
        evidence: "/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/2",
        mend: "cairn-target fabric set-mode mlx5_0 v1 --port 1",
    },
    Fault {
        name: "it hangs after connecting: a switch drops jumbo frames",
        change: "[?]\necho 192.0.2.9 2144 = \"silent\"\necho 192.0.2.9 4192 = \"silent\"\necho 192.0.2.9 4200 = \"silent\"",
        found: &[
            "error [peer] 192.0.2.9",
            "packets of 1120 bytes come back, those of 4200 do not",
        ],
        evidence: "echo 192.0.2.9 4200",
        mend: "ip link set eth2 mtu 1120  # here, until then",
    },
    Fault {
        name: "it is slow under load: PFC protects another priority",
        change: "[/sys/kernel/config/rdma_cm]\nmlx5_0/ports/1/default_roce_tos = 0",
        found: &["warning [pfc] eth2", "priority 0; PFC protects 3"],
        evidence: "dcb eth2",
        mend: "cairn-target fabric set-tos mlx5_0 96 --port 1",
    },
    Fault {
        name: "it is slow: packets are discarded",
        change: "[later]\n[/sys/class/infiniband/mlx5_0/ports/1]\ncounters/port_xmit_discards = 1234",
        found: &[
            "warning [counters] mlx5_0 port 1",
            "discards",
            "+1234 in 1.0 s",
        ],
        evidence: "/sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_discards",
        mend: "dcb pfc show dev eth2; ethtool -S eth2 | grep -E 'pause|discard'  # and the same on the switch",
    },
    Fault {
        name: "it is slow: the MTU is that of an office network",
        change: "[/sys/class/net]\neth2/mtu = 1500",
        found: &[
            "warning [mtu] eth2",
            "RoCE packets of 1024 bytes",
            "98.0 % of the wire",
            "92.6 %",
        ],
        evidence: "/sys/class/net/eth2/mtu",
        mend: "ip link set eth2 mtu 4200",
    },
    Fault {
        name: "it does not start: this user may not open the device",
        change: "[/dev/infiniband]\nuverbs0 @ 0600 0 0",
        found: &[
            "error [permissions] /dev/infiniband/uverbs0",
            "user 1000 may not open it",
        ],
        evidence: "/dev/infiniband/uverbs0",
        mend: "chgrp rdma /dev/infiniband/uverbs0",
    },
    Fault {
        name: "it does not connect: the cable is out",
        change: "[/sys/class/infiniband/mlx5_0/ports/1]\nstate = 1: DOWN\nphys_state = 3: Disabled",
        found: &["error [port] mlx5_0 port 1", "is DOWN, not ACTIVE"],
        evidence: "/sys/class/infiniband/mlx5_0/ports/1/state",
        mend: "ip link set eth2 up",
    },
];

#[test]
fn each_planted_fault_is_found_with_its_evidence_and_the_command_that_mends_it() {
    for fault in &FAULTS {
        let findings = findings_with_peer(&changed("healthy", fault.change));
        let found = findings.iter().find(|finding| {
            let text = text(finding);
            fault.found.iter().all(|part| text.contains(part))
        });
        let all: Vec<String> = findings.iter().map(text).collect();
        let found = found.unwrap_or_else(|| panic!("{}:\n{}", fault.name, all.join("\n\n")));
        assert!(
            found
                .evidence
                .iter()
                .any(|evidence| evidence.path == fault.evidence),
            "{}: not seen at {}:\n{}",
            fault.name,
            fault.evidence,
            text(found)
        );
        assert!(
            found
                .mend
                .iter()
                .any(|mend| mend.command.starts_with(fault.mend)),
            "{}: not mended by {}:\n{}",
            fault.name,
            fault.mend,
            text(found)
        );
        assert!(!found.why.is_empty(), "{}", fault.name);
    }
}

#[test]
fn the_same_machine_without_a_fault_has_nothing_but_notes() {
    let findings = findings_with_peer(&recorded("healthy"));
    let bad: Vec<String> = findings
        .iter()
        .filter(|finding| finding.severity > cairn_fabric::doctor::Severity::Note)
        .map(text)
        .collect();
    assert!(bad.is_empty(), "{}", bad.join("\n\n"));
}
