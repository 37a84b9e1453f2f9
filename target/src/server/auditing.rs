//! Audit log in the control plane: start, reconfiguration, end and failures.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use cairn_config::Config;
use cairn_rdma::ConnRequest;

use super::control::Control;
use super::error::StartError;
use crate::audit::{Changed, Event};
use crate::outlook::{Missing, Thing};
use crate::registry::ControlMessage;

/// Time for destinations to write remaining events at shutdown.
const END_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) fn reload(ended: &Result<(), String>) -> Event {
    let event = Event::new("reload");
    match ended {
        Ok(()) => event.text("outcome", "done"),
        Err(reason) => event.text("outcome", "refused").text("reason", reason),
    }
}

impl Control {
    pub(super) fn begin_audit(&mut self, config: &Config) -> Result<(), StartError> {
        self.apply_audit(config)?;
        let version = env!("CARGO_PKG_VERSION");
        let started = || {
            Event::new("start")
                .value("pid", std::process::id())
                .text("version", version)
        };
        self.audit.record(started);
        Ok(())
    }

    pub(super) fn apply_audit(&mut self, config: &Config) -> Result<(), StartError> {
        let plane = self.messages_out.clone();
        let changed: Changed = Arc::new(move || {
            // Fails only if the control plane has ended.
            let _ = plane.send(ControlMessage::AuditChanged);
        });
        let applied: io::Result<()> = self.audit.apply(&config.audit, &changed);
        applied.map_err(StartError::Audit)?;
        self.audit_changed();
        Ok(())
    }

    /// Updates the missing parts after a destination failed, recovered or was removed.
    pub(super) fn audit_changed(&mut self) {
        let troubles = self.audit.troubles();
        let is_over = |missing: &&Missing| match missing.thing {
            Thing::Audit(kind) => !troubles.iter().any(|(name, _)| *name == kind),
            _ => false,
        };
        let over = self.missing.all().iter().filter(is_over);
        let over: Vec<Thing> = over.map(|missing| missing.thing).collect();
        for thing in over {
            self.found(&thing);
        }
        for (kind, trouble) in troubles {
            self.note_missing(Thing::Audit(kind), &trouble);
        }
        self.publish_outlook();
    }

    pub(super) fn record_refusal(
        &self,
        request: &ConnRequest,
        provider: &'static str,
        reason: &str,
    ) {
        self.audit.record(|| {
            Event::new("refuse")
                .of_peer(request.peer)
                .cheap(true)
                .text("local", &request.local.to_string())
                .text("provider", provider)
                .text("at", "connection request")
                .text("reason", reason)
        });
    }

    /// Writes the last events; no queue may be open.
    pub(super) fn end_audit(&self) {
        self.audit.record(|| Event::new("stop"));
        self.audit.end(END_TIMEOUT);
    }
}
