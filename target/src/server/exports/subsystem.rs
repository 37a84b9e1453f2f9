use std::sync::Arc;
use std::time::Instant;

use cairn_base::Clock;
use nvme_proto::limits::Limits;
use nvme_proto::subsystem::{CNTLIDS_ALL, HostAccess, Settings, Subsystem};
use nvme_proto::wire::Nqn;
use tokio::sync::mpsc::UnboundedSender;

use cairn_data_path::registry::{Authenticator, ControlMessage, Mailbox, SubsystemShared};

/// Firmware revision (FR): at most 8 ASCII characters.
const FIRMWARE: &str = env!("CARGO_PKG_VERSION");

pub(crate) struct Parts {
    pub(super) limits: Limits,
    clock: Clock,
    started: Instant,
    pub(super) reactors: Arc<[Mailbox]>,
    authenticator: Authenticator,
    pub(super) control: UnboundedSender<ControlMessage>,
}

impl Parts {
    pub(crate) fn new(
        limits: Limits,
        clock: &Clock,
        started: Instant,
        reactors: &Arc<[Mailbox]>,
        authenticator: &Authenticator,
        control: &UnboundedSender<ControlMessage>,
    ) -> Self {
        Self {
            limits,
            clock: clock.clone(),
            started,
            reactors: Arc::clone(reactors),
            authenticator: authenticator.clone(),
            control: control.clone(),
        }
    }

    pub(crate) fn discovery(&self, id: u32, nqn: Nqn) -> SubsystemShared {
        let settings = Settings {
            nqn,
            serial: "0".to_owned(),
            model: "Cairn discovery".to_owned(),
            firmware: FIRMWARE.to_owned(),
            hosts: HostAccess::Any,
            volatile_write_cache: false,
            cntlids: CNTLIDS_ALL,
            limits: self.limits,
        };
        self.share(id, Subsystem::discovery_named(settings))
    }

    pub(crate) fn nvm(&self, id: u32, config: &cairn_config::Subsystem) -> SubsystemShared {
        let settings = Settings {
            nqn: config.nqn,
            serial: config.serial.clone(),
            model: config.model.clone(),
            firmware: FIRMWARE.to_owned(),
            hosts: allowed(config),
            // The value cannot change when a disk with a cache is added later. A needless Flush
            // costs nothing.
            volatile_write_cache: true,
            cntlids: config.controller_ids.clone(),
            limits: self.limits,
        };
        self.share(id, Subsystem::new(settings))
    }

    fn share(&self, id: u32, subsystem: Subsystem) -> SubsystemShared {
        SubsystemShared::new(
            id,
            subsystem,
            self.clock.clone(),
            self.started,
            Arc::clone(&self.reactors),
            self.authenticator.clone(),
            self.control.clone(),
        )
    }
}

pub(crate) fn allowed(config: &cairn_config::Subsystem) -> HostAccess {
    match config.allow_any_host {
        true => HostAccess::Any,
        false => HostAccess::Only(Arc::clone(&config.allowed_hosts.hosts)),
    }
}
