//! Audit log of the control plane: start, reconfiguration, stop and failures.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use cairn_config::Config;
use cairn_rdma::ConnRequest;
use tokio::sync::mpsc::UnboundedSender;

use super::error::StartError;
use super::missing::MissingParts;
use crate::health::{Obstacle, Thing};
use cairn_data_path::audit::{Audit, Changed, Event};
use cairn_data_path::registry::ControlMessage;

const END_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) fn reload(ended: &Result<(), String>) -> Event {
    let event = Event::new("reload");
    match ended {
        Ok(()) => event.text("outcome", "done"),
        Err(reason) => event.text("outcome", "refused").text("reason", reason),
    }
}

pub(super) fn refusal(request: &ConnRequest, provider: &'static str, reason: &str) -> Event {
    Event::new("refuse")
        .of_peer(request.peer)
        .cheap(true)
        .text("local", &request.local.to_string())
        .text("provider", provider)
        .text("at", "connection request")
        .text("reason", reason)
}

pub(super) struct AuditLog {
    audit: Audit,
    control: UnboundedSender<ControlMessage>,
}

fn of_process(event: Event) -> Event {
    event
        .value("pid", std::process::id())
        .text("version", env!("CARGO_PKG_VERSION"))
}

impl AuditLog {
    pub(super) fn new(audit: Audit, control: UnboundedSender<ControlMessage>) -> Self {
        Self { audit, control }
    }

    pub(super) fn begin(&self) {
        self.audit.record(|| of_process(Event::new("start")));
    }

    pub(super) fn apply(&self, config: &Config) -> Result<(), StartError> {
        let control = self.control.clone();
        let changed: Changed = Arc::new(move || {
            let _ = control.send(ControlMessage::AuditChanged);
        });
        let applied: io::Result<()> = self.audit.apply(&config.audit, &changed);
        applied.map_err(StartError::Audit)
    }

    pub(super) fn update(&self, missing: &mut MissingParts) {
        let troubles = self.audit.troubles();
        missing.retain(|thing| match thing {
            Thing::Audit(kind) => troubles.iter().any(|(name, _)| name == kind),
            _ => true,
        });
        for (kind, trouble) in troubles {
            missing.note_reason(Thing::Audit(kind), &trouble.to_string(), Obstacle::Other);
        }
    }

    /// Records the stop, after all queues are closed.
    pub(super) fn end(&self) {
        self.audit.record(|| of_process(Event::new("stop")));
        self.audit.end(END_TIMEOUT);
    }
}
