//! Rule: compatibility of RoCE v1 and v2.
//!
//! The connecting side chooses the version. With v1 it reaches servers of either version, with v2
//! only servers that support v2.

use super::{Examination, Finding, Severity};
use crate::facts::{Device, Port, RoceVersion};

pub(super) const NAME: &str = "versions";

#[must_use]
pub(super) fn can_connect(client: RoceVersion, server: RoceVersion) -> bool {
    client == RoceVersion::V1 || server == RoceVersion::V2
}

pub(super) fn check(examination: &Examination, findings: &mut Vec<Finding>) {
    for (device, port) in examination.fabric.ports() {
        let versions = port.versions();
        if !port.is_ethernet() || versions.is_empty() || !Examination::is_v1(port) {
            continue;
        }
        let cannot_v2 = versions == [RoceVersion::V1];
        findings.push(v1(examination, device, port, cannot_v2));
    }
}

fn v1(examination: &Examination, device: &Device, port: &Port, cannot_v2: bool) -> Finding {
    let number = port.number.to_string();
    let what = if cannot_v2 {
        "the port can do RoCE v1 alone"
    } else {
        "connections use RoCE v1 by default, and the port could do v2"
    };
    let finding = Finding::new(
        NAME,
        Severity::Warning,
        format!("{} port {number}", device.name),
        what,
    )
    .because(format!(
        "{}. RoCE v1 has no IP header: it does not pass a router, and both ends must be in one \
         broadcast domain",
        table()
    ));
    if cannot_v2 {
        return finding
            .seen(format!("{}/gid_attrs/types", port.path), "IB/RoCE v1 only")
            .fixed_by(format!(
                "cma_roce_mode -d DEVICE -p 1 -m 1  # on each host: connect by v1 to {}",
                device.name
            ))
            .fixed_by("--provider soft  # RoCE v2 in user space on the same network interface");
    }
    let path = format!(
        "{}/{}/ports/{number}/default_roce_mode",
        crate::facts::RDMA_CM,
        device.name
    );
    let mode = port.defaults.get().map(|defaults| defaults.mode.as_str());
    finding
        .seen(path, mode.unwrap_or("IB/RoCE v1"))
        .safely_fixed_by(&[
            examination.intent.caller.program(),
            "fabric",
            "set-mode",
            &device.name,
            "v2",
            "--port",
            &number,
        ])
}

fn table() -> String {
    let versions = [RoceVersion::V1, RoceVersion::V2];
    let pairs = versions
        .into_iter()
        .flat_map(|client| versions.map(|server| (client, server)));
    let cells: Vec<String> = pairs
        .map(|(client, server)| {
            let verb = if can_connect(client, server) {
                "connects"
            } else {
                "does NOT connect"
            };
            format!("client {client} {verb} to server {server}")
        })
        .collect();
    cells.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_v2_to_v1_fails() {
        use RoceVersion::{V1, V2};
        assert!(can_connect(V1, V1) && can_connect(V1, V2) && can_connect(V2, V2));
        assert!(!can_connect(V2, V1));
        assert_eq!(table().matches("NOT").count(), 1);
    }
}
