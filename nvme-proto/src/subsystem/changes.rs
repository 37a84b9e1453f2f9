use alloc::vec::Vec;

use super::{Health, HostAccess, Kind, Subsystem};
use crate::ana::AnaStates;
use crate::controller::{Action, Controller, Termination};
use crate::discovery::{Exported, Listener, Referral};
use crate::namespace::{Namespace, NamespaceError};
use crate::reservation::{HostId, Notice};
use crate::wire::Status;
use crate::wire::aen::AsyncEvent;
use crate::wire::cross_reset::Instance;

impl Subsystem {
    /// Adds a namespace visible to every host.
    pub fn add_namespace(
        &mut self,
        namespace: Namespace,
        actions: &mut Vec<Action>,
    ) -> Result<(), NamespaceError> {
        self.add_namespace_for(namespace, &HostAccess::Any, actions)
    }

    /// Adds a namespace visible to `hosts`.
    pub fn add_namespace_for(
        &mut self,
        namespace: Namespace,
        hosts: &HostAccess,
        actions: &mut Vec<Action>,
    ) -> Result<(), NamespaceError> {
        assert_eq!(self.common.kind, Kind::Nvm, "discovery has no namespaces");
        let nn = self.common.settings.limits.namespaces;
        self.common.namespaces.add(namespace, hosts.clone(), nn)?;
        self.show_to(&namespace, hosts, actions);
        Ok(())
    }

    /// Adds a namespace at the NSID of the removed namespace `former`.
    ///
    /// If the UUIDs differ, the NSID stays inactive for each connected host until the host has read
    /// it as inactive.
    pub fn add_namespace_after(
        &mut self,
        former: &Namespace,
        namespace: Namespace,
        hosts: &HostAccess,
        actions: &mut Vec<Action>,
    ) -> Result<(), NamespaceError> {
        if former.uuid == namespace.uuid {
            return self.add_namespace_for(namespace, hosts, actions);
        }
        let nn = self.common.settings.limits.namespaces;
        self.common.namespaces.add(namespace, hosts.clone(), nn)?;
        for controller in self.controllers.values_mut() {
            if hosts.allows(&controller.host().nqn) {
                controller.withhold(namespace.nsid, namespace.anagrpid, actions);
            }
        }
        Ok(())
    }

    /// Sets the hosts that may access a namespace. Hosts with changed access receive an event.
    pub fn set_namespace_hosts(
        &mut self,
        nsid: u32,
        hosts: &HostAccess,
        actions: &mut Vec<Action>,
    ) -> Result<(), NamespaceError> {
        let namespace = *self.common.namespaces.set_hosts(nsid, hosts.clone())?;
        self.show_to(&namespace, hosts, actions);
        Ok(())
    }

    /// Removes a namespace, reports the removal to its hosts, and ends pending changes of its write
    /// protection or PTPL state.
    pub fn remove_namespace(
        &mut self,
        nsid: u32,
        actions: &mut Vec<Action>,
    ) -> Result<Namespace, NamespaceError> {
        let removed = self.common.namespaces.remove(nsid)?;
        self.end_protecting(nsid, Status::INVALID_NAMESPACE_OR_FORMAT, actions);
        for controller in self.controllers.values_mut() {
            controller.persistence_removed(nsid, actions);
        }
        self.show_to(&removed, &HostAccess::only([]), actions);
        Ok(removed)
    }

    /// Changes the size to `blocks` logical blocks, and reports a change to hosts.
    pub fn resize_namespace(
        &mut self,
        nsid: u32,
        blocks: u64,
        actions: &mut Vec<Action>,
    ) -> Result<(), NamespaceError> {
        if self.common.namespaces.resize(nsid, blocks)? {
            self.namespace_changed(nsid, actions);
        }
        Ok(())
    }

    /// Handles the result of [`Action::SetProtection`]. `intact` is true if the change succeeded.
    /// Otherwise the former state stays, and the command fails with Write Fault.
    pub fn protection_done(
        &mut self,
        nsid: u32,
        change: u64,
        intact: bool,
        actions: &mut Vec<Action>,
    ) {
        if !self.common.namespaces.end_change(nsid, change, intact) {
            return;
        }
        let status = if intact {
            Status::SUCCESS
        } else {
            Status::WRITE_FAULT
        };
        self.end_protecting(nsid, status, actions);
        if intact {
            self.namespace_changed(nsid, actions);
        }
    }

    /// Records the PTPL state of a namespace (`persist`), and sends `notices` to hosts.
    pub fn reservations_changed(
        &mut self,
        nsid: u32,
        persist: bool,
        notices: &[(HostId, Notice)],
        actions: &mut Vec<Action>,
    ) {
        self.common
            .namespaces
            .set_reservations_persist(nsid, persist);
        for controller in self.controllers.values_mut() {
            controller.notify_of_reservation(nsid, notices, actions);
        }
    }

    /// Handles the result of [`Action::PersistReservations`].
    pub fn persistence_done(
        &mut self,
        cntlid: u16,
        nsid: u32,
        change: u64,
        status: Status,
        actions: &mut Vec<Action>,
    ) {
        if let Some(controller) = self.controllers.get_mut(&cntlid) {
            controller.persistence_done(nsid, change, status, actions);
        }
    }

    /// Sets whether hosts may write-protect a namespace.
    ///
    /// If false, protection set by a host is removed; the target must accept writes before this
    /// call.
    pub fn set_protectable(
        &mut self,
        nsid: u32,
        protectable: bool,
        actions: &mut Vec<Action>,
    ) -> Result<(), NamespaceError> {
        let namespaces = &mut self.common.namespaces;
        let was_protected = namespaces.set_protectable(nsid, protectable)?;
        if !protectable {
            self.end_protecting(nsid, Status::FEATURE_NOT_CHANGEABLE, actions);
        }
        if was_protected {
            self.namespace_changed(nsid, actions);
        }
        Ok(())
    }

    fn end_protecting(&mut self, nsid: u32, status: Status, actions: &mut Vec<Action>) {
        for controller in self.controllers.values_mut() {
            controller.protection_done(nsid, status, actions);
        }
    }

    /// Moves a namespace to another ANA group, and reports a move to its hosts.
    pub fn set_ana_group(
        &mut self,
        nsid: u32,
        anagrpid: u32,
        actions: &mut Vec<Action>,
    ) -> Result<(), NamespaceError> {
        let old = self.common.namespaces.set_ana_group(nsid, anagrpid)?;
        if old != anagrpid {
            for controller in self.controllers.values_mut() {
                controller.ana_group_changed(nsid, [old, anagrpid], actions);
            }
        }
        Ok(())
    }

    /// Sets the ANA states of a port; its hosts receive an event if visible namespaces are
    /// affected.
    pub fn set_ana_states(&mut self, port: u64, states: &AnaStates, actions: &mut Vec<Action>) {
        let groups = self.common.namespaces.by_ana_group(|_| true);
        for controller in self.controllers.values_mut() {
            if controller.port() == port {
                controller.ana_changed(states, &groups, actions);
            }
        }
    }

    /// Health of the media from [`Self::set_health`].
    #[must_use]
    pub fn health(&self) -> &Health {
        &self.common.health
    }

    /// Sets the health of the media; new warnings raise SMART events.
    pub fn set_health(&mut self, health: Health, actions: &mut Vec<Action>) {
        let old = core::mem::replace(&mut self.common.health, health);
        for controller in self.controllers.values_mut() {
            controller.health_changed(&old, &health, actions);
        }
    }

    /// Raises a persistent or transient internal error event.
    pub fn internal_error(&mut self, persistent: bool, actions: &mut Vec<Action>) {
        let event = match persistent {
            true => AsyncEvent::ERROR_PERSISTENT_INTERNAL,
            false => AsyncEvent::ERROR_TRANSIENT_INTERNAL,
        };
        self.raise(event, actions);
    }

    /// Sets the hosts that may connect; ends associations of other hosts.
    pub fn set_hosts(&mut self, hosts: HostAccess, actions: &mut Vec<Action>) {
        let unwelcome = |controller: &Controller| !hosts.allows(&controller.host().nqn);
        self.terminate(unwelcome, Termination::HostNotAllowed, actions);
        self.common.settings.hosts = hosts;
    }

    /// Ends all associations before the subsystem's removal. The target must reject new
    /// associations.
    pub fn terminate_all(&mut self, actions: &mut Vec<Action>) {
        self.terminate(|_| true, Termination::SubsystemRemoved, actions);
    }

    /// Ends the associations of a port that was removed, or no longer exports the subsystem. The
    /// target must reject new associations.
    pub fn terminate_port(&mut self, port: u64, reason: Termination, actions: &mut Vec<Action>) {
        let of_port = |controller: &Controller| controller.port() == port;
        self.terminate(of_port, reason, actions);
    }

    /// Ends an association; the host may reconnect.
    pub fn disconnect(&mut self, cntlid: u16, actions: &mut Vec<Action>) {
        let of_it = |controller: &Controller| controller.cntlid() == cntlid;
        self.terminate(of_it, Termination::Disconnected, actions);
    }

    /// Ends an association that lost state through a fault of the target.
    pub fn terminate_faulty(&mut self, cntlid: u16, actions: &mut Vec<Action>) {
        let faulty = |controller: &Controller| controller.cntlid() == cntlid;
        self.terminate(faulty, Termination::TargetFault, actions);
    }

    pub(super) fn reset_instance(&mut self, instance: &Instance, actions: &mut Vec<Action>) {
        let of_it = |controller: &Controller| controller.instance() == Some(*instance);
        self.terminate(of_it, Termination::CrossControllerReset, actions);
    }

    /// Sets listeners and subsystems of the discovery log; a change raises an event.
    pub fn set_discovery(
        &mut self,
        listeners: Vec<Listener>,
        exported: Vec<Exported>,
        actions: &mut Vec<Action>,
    ) {
        assert_eq!(
            self.common.kind,
            Kind::Discovery,
            "log page 70h is discovery's"
        );
        if self.common.discovery.set(listeners, exported) {
            self.raise(AsyncEvent::NOTICE_DISCOVERY_CHANGED, actions);
        }
    }

    /// Sets the referrals of the discovery log; a change raises an event.
    pub fn set_referrals(&mut self, referrals: Vec<Referral>, actions: &mut Vec<Action>) {
        assert_eq!(
            self.common.kind,
            Kind::Discovery,
            "log page 70h is discovery's"
        );
        if self.common.discovery.refer(referrals) {
            self.raise(AsyncEvent::NOTICE_DISCOVERY_CHANGED, actions);
        }
    }

    fn show_to(&mut self, namespace: &Namespace, hosts: &HostAccess, actions: &mut Vec<Action>) {
        for controller in self.controllers.values_mut() {
            let is_seen = hosts.allows(&controller.host().nqn);
            controller.set_seen(namespace.nsid, namespace.anagrpid, is_seen, actions);
        }
    }

    fn namespace_changed(&mut self, nsid: u32, actions: &mut Vec<Action>) {
        for controller in self.controllers.values_mut() {
            controller.namespace_changed(nsid, actions);
        }
    }

    fn raise(&mut self, event: AsyncEvent, actions: &mut Vec<Action>) {
        for controller in self.controllers.values_mut() {
            controller.raise(event, actions);
        }
    }

    fn terminate(
        &mut self,
        which: impl Fn(&Controller) -> bool,
        reason: Termination,
        actions: &mut Vec<Action>,
    ) {
        for (&cntlid, controller) in &mut self.controllers {
            if which(controller) && controller.condemn() {
                actions.push(Action::Terminate { cntlid, reason });
            }
        }
    }
}
