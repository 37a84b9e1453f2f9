//! Planted faults whose only symptom is "it does not connect" or "it is slow".
//!
//! `doctor` must name the cause first, with evidence and fix, and docs/roce/troubleshooting.md must
//! list the rule below the symptom.

mod common;

use cairn_doctor::rules::RULES;
use common::{changed, findings, findings_with_peer, recorded, text};

/// Headings of docs/roce/troubleshooting.md.
const DOES_NOT_CONNECT: &str = "It does not connect";
const IS_SLOW: &str = "It is slow";

struct Fault {
    machine: &'static str,
    symptom: &'static str,
    name: &'static str,
    change: &'static str,
    found: &'static [&'static str],
    evidence: &'static str,
    fix: &'static str,
}

const FAULTS: [Fault; 11] = [
    Fault {
        machine: "healthy",
        symptom: DOES_NOT_CONNECT,
        name: "the server does v1, the hosts v2",
        change: "[/sys/kernel/config/rdma_cm]\nmlx5_0/ports/1/default_roce_mode = IB/RoCE v1",
        found: &[
            "warning [versions] mlx5_0 port 1",
            "client v2 does NOT connect to server v1",
        ],
        evidence: "/sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_mode",
        fix: "cairn-target fabric set-mode mlx5_0 v2 --port 1",
    },
    Fault {
        machine: "healthy",
        symptom: DOES_NOT_CONNECT,
        name: "memlock is too small",
        change: "[/proc]\nself/limits = Max locked memory         8388608              8388608              bytes",
        found: &[
            "error [memlock]",
            "is 8 MiB",
            "needs 40 MiB",
            "data buffers of 2 reactors: 32 MiB",
        ],
        evidence: "/proc/self/limits",
        fix: "systemctl edit cairn-target, and add: [Service] LimitMEMLOCK=infinity",
    },
    Fault {
        machine: "healthy",
        symptom: DOES_NOT_CONNECT,
        name: "the address has no GID",
        change: "- /sys/class/infiniband/mlx5_0/ports/1/gids/2\n- /sys/class/infiniband/mlx5_0/ports/1/gids/3",
        found: &["error [gid] 192.0.2.1", "mlx5_0 port 1 has no GID for it"],
        evidence: "/sys/class/infiniband/mlx5_0/ports/1/gids",
        fix: "ip address del 192.0.2.1/24 dev eth2 && ip address add 192.0.2.1/24 dev eth2",
    },
    Fault {
        machine: "healthy",
        symptom: DOES_NOT_CONNECT,
        name: "the GID is of the wrong type",
        change: "- /sys/class/infiniband/mlx5_0/ports/1/gids/3",
        found: &["error [gid] 192.0.2.1", "its GID is of RoCE v1 alone"],
        evidence: "/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/2",
        fix: "cairn-target fabric set-mode mlx5_0 v1 --port 1",
    },
    Fault {
        machine: "healthy",
        symptom: IS_SLOW,
        name: "a switch drops jumbo frames",
        change: "[?]\necho 192.0.2.9 2144 = \"silent\"\necho 192.0.2.9 4192 = \"silent\"\necho 192.0.2.9 4200 = \"silent\"",
        found: &[
            "error [peer] 192.0.2.9",
            "packets of 1120 bytes come back, those of 4200 do not",
        ],
        evidence: "echo 192.0.2.9 4200",
        fix: "ip link set eth2 mtu 1280  # here, until then",
    },
    Fault {
        machine: "healthy",
        symptom: IS_SLOW,
        name: "PFC protects another priority",
        change: "[/sys/kernel/config/rdma_cm]\nmlx5_0/ports/1/default_roce_tos = 0",
        found: &["warning [pfc] eth2", "priority 0; PFC protects 3"],
        evidence: "dcb eth2",
        fix: "cairn-target fabric set-tos mlx5_0 96 --port 1",
    },
    Fault {
        machine: "healthy",
        symptom: IS_SLOW,
        name: "packets are discarded",
        change: "[later]\n[/sys/class/infiniband/mlx5_0/ports/1]\ncounters/port_xmit_discards = 1234",
        found: &[
            "warning [counters] mlx5_0 port 1",
            "discards",
            "+1234 in 1.0 s",
        ],
        evidence: "/sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_discards",
        fix: "dcb pfc show dev eth2; ethtool -S eth2 | grep -E 'pause|discard'  # and the same on the switch",
    },
    Fault {
        machine: "healthy",
        symptom: IS_SLOW,
        name: "the MTU is that of an office network",
        change: "[/sys/class/net]\neth2/mtu = 1500",
        found: &[
            "warning [mtu] eth2",
            "RoCE packets of 1024 bytes",
            "98.0 % of the wire",
            "92.6 %",
        ],
        evidence: "/sys/class/net/eth2/mtu",
        fix: "ip link set eth2 mtu 4200",
    },
    Fault {
        machine: "healthy",
        symptom: DOES_NOT_CONNECT,
        name: "this user may not open the device",
        change: "[/dev/infiniband]\nuverbs0 @ 0600 0 0",
        found: &[
            "error [permissions] /dev/infiniband/uverbs0",
            "user 1000 may not open it",
        ],
        evidence: "/dev/infiniband/uverbs0",
        fix: "chgrp rdma /dev/infiniband/uverbs0",
    },
    Fault {
        machine: "healthy",
        symptom: DOES_NOT_CONNECT,
        name: "the cable is out",
        change: "[/sys/class/infiniband/mlx5_0/ports/1]\nstate = 1: DOWN\nphys_state = 3: Disabled",
        found: &["error [port] mlx5_0 port 1", "is DOWN, not ACTIVE"],
        evidence: "/sys/class/infiniband/mlx5_0/ports/1/state",
        fix: "ip link set eth2 up",
    },
    Fault {
        machine: "rxe",
        symptom: DOES_NOT_CONNECT,
        name: "rdma_rxe has broken its GSI queue pair",
        change: "[?]\nqueue-pairs rxe0 = [{\"port\":1,\"type\":\"GSI\",\"state\":\"ERR\",\"count\":1}]",
        found: &["error [gsi] rxe0 port 1", "is broken (state ERR)"],
        evidence: "rdma resource show qp link rxe0",
        fix: "rdma link delete rxe0 && rdma link add rxe0 type rxe netdev dummy0",
    },
];

#[test]
fn each_planted_fault_is_found_with_its_evidence_and_the_command_that_fixes_it() {
    for fault in &FAULTS {
        let findings = findings_with_peer(&changed(fault.machine, fault.change));
        let all: Vec<String> = findings.iter().map(text).collect();
        let first = &all[0];
        assert!(
            fault.found.iter().all(|part| first.contains(part)),
            "{} is not what is said first:\n{}",
            fault.name,
            all.join("\n\n")
        );
        let found = &findings[0];
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
                .fix
                .iter()
                .any(|fix| fix.command.starts_with(fault.fix)),
            "{}: not fixed by {}:\n{}",
            fault.name,
            fault.fix,
            text(found)
        );
        assert!(!found.why.is_empty(), "{}", fault.name);
        let rules = rules_of(fault.symptom);
        assert!(
            rules.contains(&found.rule.to_owned()),
            "{}: {:?} does not lead to {}: {rules:?}",
            fault.name,
            fault.symptom,
            found.rule
        );
    }
}

fn rules_of(symptom: &str) -> Vec<String> {
    let page = include_str!("../../docs/roce/troubleshooting.md");
    let heading = format!("## {symptom}\n");
    let (_, section) = page.split_once(&heading).expect("the page has the heading");
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter(|line| line.starts_with("| "));
    let cells = rows.filter_map(|row| row.trim_end_matches(" |").rsplit(" | ").next());
    let rules = cells.flat_map(|cell| cell.split(", "));
    rules.map(str::to_owned).collect()
}

#[test]
fn the_page_begins_with_what_people_say() {
    for symptom in [DOES_NOT_CONNECT, IS_SLOW] {
        let rules = rules_of(symptom);
        assert!(rules.len() > 5, "{symptom}: {rules:?}");
        let planted = FAULTS.iter().filter(|fault| fault.symptom == symptom);
        assert!(planted.count() >= 4, "{symptom}");
        for rule in rules.iter().skip(1).filter(|rule| !rule.starts_with('[')) {
            let known = RULES.iter().any(|known| known.name == rule);
            assert!(known, "{symptom}: there is no rule {rule:?}");
        }
    }
}

#[test]
fn the_same_machines_without_a_fault_have_nothing_but_notes() {
    for (machine, findings) in [
        ("healthy", findings_with_peer(&recorded("healthy"))),
        ("rxe", findings(&recorded("rxe"))),
    ] {
        let bad: Vec<String> = findings
            .iter()
            .filter(|finding| finding.severity > cairn_doctor::rules::Severity::Note)
            .map(text)
            .collect();
        assert!(bad.is_empty(), "{machine}:\n{}", bad.join("\n\n"));
    }
}
