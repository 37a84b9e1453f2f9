use cairn_rdma::SOCKET_RECEIVE_BYTES;

use super::finding::size;
use super::{Examination, Finding, Severity};
use crate::facts::RMEM_MAX;

pub(super) const NAME: &str = "buffers";

pub(super) fn check(examination: &Examination, findings: &mut Vec<Finding>) {
    let Some(limit) = &examination.fabric.host.receive_buffer else {
        return;
    };
    let requested_bytes = u64::from(SOCKET_RECEIVE_BYTES);
    let is_granted = limit.has_cap_net_admin || limit.max_bytes >= requested_bytes;
    if is_granted || !examination.is_soft() {
        return;
    }
    findings.push(
        Finding::new(
            NAME,
            Severity::Note,
            examination.intent.caller.program(),
            format!(
                "the socket of RoCE in user space gets a receive buffer of {} instead of {}",
                size(limit.max_bytes),
                size(requested_bytes)
            ),
        )
        .because(
            "the kernel drops the packets of a burst that exceeds the buffer, and the peer sends them \
             again. CAP_NET_ADMIN lifts the limit",
        )
        .seen(RMEM_MAX, limit.max_bytes)
        .fixed_by(format!("sysctl -w net.core.rmem_max={}  # then restart the program", 2 * requested_bytes)),
    );
}
