use super::finding::size;
use super::{Examination, Finding, Severity};
use crate::facts::RMEM_MAX;

pub(super) const NAME: &str = "buffers";

/// Receive buffer in bytes that RoCE in user space requests for its socket.
const REQUESTED_BYTES: u64 = 8 << 20;

pub(super) fn check(examination: &Examination, findings: &mut Vec<Finding>) {
    let Some(limit) = &examination.fabric.host.receive_buffer else {
        return;
    };
    let is_granted = limit.has_cap_net_admin || limit.max_bytes >= REQUESTED_BYTES;
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
                size(REQUESTED_BYTES)
            ),
        )
        .because(
            "the kernel drops the packets of a burst that exceeds the buffer, and the peer sends them \
             again. CAP_NET_ADMIN lifts the limit",
        )
        .seen(RMEM_MAX, limit.max_bytes)
        .fixed_by("sysctl -w net.core.rmem_max=16777216  # then restart the program"),
    );
}
