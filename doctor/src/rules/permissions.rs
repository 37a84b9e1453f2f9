use super::{Examination, Finding, Severity};

pub(super) const NAME: &str = "permissions";

pub(super) fn check(examination: &Examination, findings: &mut Vec<Finding>) {
    let host = &examination.fabric.host;
    let Some(user) = host.user.get() else {
        return;
    };
    for node in host.nodes.values().filter_map(|node| node.get()) {
        let mode = format!(
            "mode {:04o}, owner {}, group {}",
            node.node.mode, node.node.uid, node.node.gid
        );
        if !user.may_open(&node.node) {
            findings.push(
                Finding::new(
                    NAME,
                    Severity::Error,
                    &node.path,
                    format!("user {} may not open it", user.uid),
                )
                .because("libibverbs and librdmacm need to read and write it")
                .seen(&node.path, mode)
                .fixed_by(format!(
                    "chgrp rdma {path} && chmod 0660 {path}, and put the user into group rdma; to \
                     last: SUBSYSTEM==\"infiniband*\", GROUP=\"rdma\", MODE=\"0660\" in \
                     /etc/udev/rules.d/90-rdma.rules",
                    path = node.path
                )),
            );
        } else if node.node.mode & 0o006 != 0 && node.path.contains("uverbs") {
            findings.push(
                Finding::new(
                    NAME,
                    Severity::Note,
                    &node.path,
                    "every local user may open it",
                )
                .because(
                    "that is how distributions ship it. Each can open queue pairs on the storage \
                     network, beside the firewall, since RDMA bypasses the kernel",
                )
                .seen(&node.path, mode)
                .fixed_by(
                    "echo 'SUBSYSTEM==\"infiniband_verbs\", GROUP=\"rdma\", MODE=\"0660\"' > \
                     /etc/udev/rules.d/90-rdma.rules && udevadm trigger",
                ),
            );
        }
    }
}
