use super::canvas::Canvas;

struct Node {
    package: &'static str,
    folder: &'static str,
    what: &'static str,
    column: u32,
    row: u32,
}

const fn node(
    package: &'static str,
    folder: &'static str,
    what: &'static str,
    (column, row): (u32, u32),
) -> Node {
    Node {
        package,
        folder,
        what,
        column,
        row,
    }
}

const NODES: [Node; 21] = [
    node(
        "cairn-initiator-cli",
        "initiator/cli",
        "cairn-initiator",
        (4, 0),
    ),
    node("cairn-fio", "initiator/fio", "an engine for fio", (6, 0)),
    node("cairn-attach", "initiator/attach", "local disks", (2, 1)),
    node("cairn-bench", "initiator/bench", "fio's jobs", (4, 1)),
    node("cairn-target", "target", "the target", (0, 1)),
    node(
        "cairn-initiator",
        "initiator",
        "the host, a library",
        (5, 2),
    ),
    node("cairn-config", "config", "TOML and flags", (0, 4)),
    node("cairn-roce", "rdma/roce", "RoCE in user space", (2, 3)),
    node("cairn-verbs", "rdma/verbs", "RDMA devices", (6, 4)),
    node("cairn-doctor", "doctor", "fabric, doctor", (6, 3)),
    node(
        "cairn-trouble",
        "rdma/trouble",
        "RDMA errors, explained",
        (4, 4),
    ),
    node("cairn-disk", "target/disk", "disks, io_uring", (10, 3)),
    node("cairn-data-path", "target/data-path", "reactors", (0, 2)),
    node("cairn-rbd", "target/rbd", "images of Ceph", (10, 4)),
    node(
        "cairn-interop",
        "target/interop",
        "SPDK's methods, nvmet",
        (8, 2),
    ),
    node(
        "cairn-control",
        "target/control",
        "the control socket",
        (8, 3),
    ),
    node(
        "cairn-roce-proto",
        "rdma/roce-proto",
        "RoCE without I/O",
        (2, 4),
    ),
    node("nvme-auth", "nvme-proto/auth", "DH-HMAC-CHAP", (8, 4)),
    node("cairn-rdma", "rdma", "the RDMA traits", (4, 5)),
    node("cairn-base", "rdma/base", "clocks, logs, memory", (7, 6)),
    node("nvme-proto", "nvme-proto", "NVMe without I/O", (0, 5)),
];

const EDGES: [(&str, &str); 30] = [
    ("cairn-initiator-cli", "cairn-bench"),
    ("cairn-initiator-cli", "cairn-attach"),
    ("cairn-attach", "cairn-initiator"),
    ("cairn-bench", "cairn-initiator"),
    ("cairn-fio", "cairn-initiator"),
    ("cairn-target", "cairn-data-path"),
    ("cairn-target", "cairn-roce"),
    ("cairn-target", "cairn-interop"),
    ("cairn-interop", "cairn-control"),
    ("cairn-control", "cairn-config"),
    ("cairn-data-path", "cairn-config"),
    ("cairn-data-path", "cairn-doctor"),
    ("cairn-data-path", "cairn-disk"),
    ("cairn-data-path", "nvme-auth"),
    ("cairn-initiator", "cairn-roce"),
    ("cairn-initiator", "cairn-trouble"),
    ("cairn-initiator", "nvme-proto"),
    ("cairn-initiator", "nvme-auth"),
    ("cairn-config", "cairn-rdma"),
    ("cairn-config", "nvme-proto"),
    ("cairn-roce", "cairn-roce-proto"),
    ("cairn-roce-proto", "cairn-rdma"),
    ("cairn-verbs", "cairn-rdma"),
    ("cairn-doctor", "cairn-verbs"),
    ("cairn-doctor", "cairn-trouble"),
    ("cairn-initiator", "cairn-verbs"),
    ("cairn-initiator-cli", "cairn-doctor"),
    ("cairn-disk", "cairn-rbd"),
    ("cairn-rbd", "cairn-base"),
    ("cairn-rdma", "cairn-base"),
];

const BENDS: [(&str, &str, f64); 2] = [
    ("cairn-initiator", "nvme-proto", 463.0),
    ("cairn-data-path", "nvme-auth", 1159.0),
];

const WIDTH: f64 = 190.0;
const HEIGHT: f64 = 52.0;

impl Node {
    fn x(&self) -> f64 {
        20.0 + f64::from(self.column) * 116.0
    }

    fn y(&self) -> f64 {
        20.0 + f64::from(self.row) * 104.0
    }
}

pub(super) fn draw() -> String {
    let mut canvas = Canvas::new(
        1394,
        718,
        "The crates of Cairn",
        "Target and initiator both use the RDMA providers, the fabric diagnostics and nvme-proto. \
         They do not use each other.",
    );
    let find = |package: &str| NODES.iter().find(|node| node.package == package);
    for (user, used) in EDGES {
        let (Some(user), Some(used)) = (find(user), find(used)) else {
            continue;
        };
        let lean = f64::from(used.column) - f64::from(user.column);
        let from = (
            user.x() + WIDTH / 2.0 + lean.clamp(-4.0, 4.0) * 18.0,
            user.y() + HEIGHT,
        );
        let to = (
            used.x() + WIDTH / 2.0 - lean.clamp(-4.0, 4.0) * 12.0,
            used.y() - 2.0,
        );
        let bends = |bend: &&(&str, &str, f64)| (bend.0, bend.1) == (user.package, used.package);
        if let Some((_, _, x)) = BENDS.iter().find(bends) {
            let (above, below) = ((*x, from.1 + 44.0), (*x, to.1 - 42.0));
            canvas.line("line", from, above);
            canvas.line("line", above, below);
            canvas.arrow(below, to);
        } else {
            canvas.arrow(from, to);
        }
    }
    for node in &NODES {
        let class = match node.row {
            0..=2 => "ours",
            3 => "box",
            _ => "low",
        };
        canvas.rect(class, (node.x(), node.y()), (WIDTH, HEIGHT));
        let middle = node.x() + WIDTH / 2.0;
        canvas.text("bold middle", (middle, node.y() + 22.0), node.folder);
        canvas.text("small middle", (middle, node.y() + 41.0), node.what);
    }
    canvas.finish()
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::path::Path;
    use std::process::Command;

    use super::*;

    const ABOVE: [&str; 9] = [
        "cairn-sim",
        "cairn-benches",
        "cairn-ceph",
        "cairn-demo",
        "cairn-fuzzed",
        "cairn-skips",
        "cairn-threads",
        "cairn-tests",
        "xtask",
    ];

    type Uses = BTreeMap<String, BTreeSet<String>>;

    fn uses() -> Uses {
        let output = Command::new(env!("CARGO"))
            .args(["metadata", "--no-deps", "--offline", "--format-version=1"])
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")))
            .output()
            .unwrap();
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let packages = document["packages"].as_array().unwrap();
        let name = |value: &serde_json::Value| value["name"].as_str().unwrap().to_owned();
        let ours: BTreeSet<String> = packages.iter().map(name).collect();
        let normal = |value: &&serde_json::Value| value["kind"].is_null();
        packages
            .iter()
            .map(|package| {
                let used = package["dependencies"].as_array().unwrap();
                let used = used.iter().filter(normal).map(name);
                (
                    name(package),
                    used.filter(|used| ours.contains(used)).collect(),
                )
            })
            .collect()
    }

    fn reached(uses: &Uses, from: &str) -> BTreeSet<String> {
        let mut all = uses[from].clone();
        for used in &uses[from] {
            all.extend(reached(uses, used));
        }
        all
    }

    #[test]
    fn the_picture_shows_what_cargo_says() {
        let uses = uses();
        let drawn: BTreeSet<&str> = NODES.iter().map(|node| node.package).collect();
        let mut expected = BTreeSet::new();
        for (user, used) in &uses {
            if ABOVE.contains(&user.as_str()) {
                continue;
            }
            assert!(
                drawn.contains(user.as_str()),
                "{user} is not in the picture: add it to NODES and run `cargo xtask pictures`"
            );
            for one in used {
                let by_another = used.iter().any(|other| reached(&uses, other).contains(one));
                if !by_another {
                    expected.insert((user.as_str(), one.as_str()));
                }
            }
        }
        assert_eq!(
            BTreeSet::from(EDGES),
            expected,
            "left: the arrows in EDGES; right: Cargo.toml; correct EDGES, run `cargo xtask pictures`"
        );
    }
}
