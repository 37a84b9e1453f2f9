use super::finding::size;
use super::{Examination, Finding, Severity};

pub(super) const NAME: &str = "memlock";

pub(super) fn check(examination: &Examination, findings: &mut Vec<Finding>) {
    let Some(memlock) = examination.fabric.host.memlock.get() else {
        return;
    };
    let needed = examination.intent.memory_bytes();
    let Some(limit) = memlock.soft_bytes else {
        return;
    };
    if memlock.has_cap_ipc_lock || limit >= needed {
        return;
    }
    // User-space RoCE also works without locked memory.
    let severity = if examination.is_soft() {
        Severity::Warning
    } else {
        Severity::Error
    };
    let terms: Vec<String> = examination
        .intent
        .memory
        .iter()
        .map(|(what, bytes)| format!("{what}: {}", size(*bytes)))
        .collect();
    let program = examination.intent.caller.program();
    findings.push(
        Finding::new(
            NAME,
            severity,
            program,
            format!(
                "the limit on locked memory is {}, and {program} needs {} ({})",
                size(limit),
                size(needed),
                terms.join("; ")
            ),
        )
        .because(format!(
            "an adapter reads and writes locked memory alone: registering it is going to fail. \
             This is the limit of the shell that asks; a service has its own (systemctl show \
             {program} -p LimitMEMLOCK)"
        ))
        .seen("/proc/self/limits", &memlock.line)
        .fixed_by(format!(
            "systemctl edit {program}, and add: [Service] LimitMEMLOCK=infinity"
        ))
        .fixed_by("ulimit -l unlimited  # in this shell, as root")
        .fixed_by(
            "echo '* - memlock unlimited' > /etc/security/limits.d/rdma.conf  # at the next login",
        ),
    );
}
