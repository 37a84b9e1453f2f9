use std::sync::Arc;

use cairn_config::Config;
use nvme_proto::discovery;
use nvme_proto::wire::log::RdmaProvider;

use super::exports::{Exports, allowed};
use super::listeners::Listeners;
use cairn_data_path::registry::SubsystemShared;

pub(super) struct Discovery(Arc<SubsystemShared>);

impl Discovery {
    pub(super) fn new(exports: &Exports, config: &Config) -> Self {
        Self(exports.add_discovery(config.target.discovery_nqn))
    }

    pub(super) fn update(&self, config: &Config, listeners: &Listeners) {
        let open = listeners.all().iter().filter(|listener| !listener.drained);
        let open = open.map(|listener| discovery::Listener {
            portid: listener.config.port_id,
            address: listener.local_addr(),
            provider: RdmaProvider::NONE,
            pkey: listener.config.pkey.bits(),
        });
        let subsystems = config.subsystems.iter();
        let exported = subsystems.map(|subsystem| discovery::Exported {
            nqn: subsystem.nqn,
            hosts: allowed(subsystem),
            ports: listeners.ports_of(subsystem),
        });
        let referrals = config.referrals.iter();
        let referrals = referrals.map(|referral| discovery::Referral {
            address: referral.address,
            nqn: referral.nqn,
        });
        let (open, exported) = (open.collect(), exported.collect());
        let referrals = referrals.collect();
        self.0.administer(|subsystem, actions| {
            subsystem.set_discovery(open, exported, actions);
            subsystem.set_referrals(referrals, actions);
        });
    }
}
