//! Write protection of namespaces by hosts (Base, 8.12; feature 84h).
//!
//! Set Features completes after the target has carried out `Action::SetProtection`. Hosts with
//! access then receive an event.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::common::Common;
use crate::wire::Status;
use crate::wire::feature::{WriteProtection, WriteProtectionState as State};

use super::command::SetFeatures;
use super::refusal::byte;
use super::{Action, Completion, Controller, Outcome, Refusal};

pub(super) type Protecting = BTreeMap<u32, u16>;

/// NWPC; permanent protection (bit 2) requires that the target saves the state.
pub(super) fn nwpc(keeps_protection: bool) -> u8 {
    1 << 0 | 1 << 1 | u8::from(keeps_protection) << 2
}

impl Controller {
    pub(super) fn set_protection(
        &mut self,
        common: &mut Common,
        cid: u16,
        set: &SetFeatures,
        actions: &mut Vec<Action>,
    ) -> Result<Outcome, Refusal> {
        super::features::check_settable(set)?;
        let state = State(WriteProtection(set.cdw11).wps());
        let nsid = set.nsid;
        let known = match state {
            State::NONE | State::PROTECTED | State::UNTIL_POWER_CYCLE => true,
            State::PERMANENT => {
                let namespace = common.namespaces.seen(nsid, &self.seen);
                namespace.is_some_and(|namespace| namespace.keeps_protection)
            }
            _ => false,
        };
        if !known {
            return Err(Refusal::field(byte::CDW11));
        }
        let change = common.namespaces.protect(nsid, &self.seen, state);
        let change = change.map_err(|status| match status {
            Status::COMMAND_INTERRUPTED => Refusal::transient(status),
            Status::INVALID_NAMESPACE_OR_FORMAT => Refusal::new(status).at(byte::NSID),
            _ => Refusal::new(status).at(byte::CDW10),
        })?;
        let Some(change) = change else {
            return Ok(Outcome::Complete(Completion::success(cid, 0)));
        };
        self.protecting.insert(nsid, cid);
        actions.push(Action::SetProtection {
            cntlid: self.cntlid,
            nsid,
            state,
            change,
        });
        Ok(Outcome::Parked)
    }

    pub(crate) fn protection_done(&mut self, nsid: u32, status: Status, actions: &mut Vec<Action>) {
        if let Some(cid) = self.protecting.remove(&nsid) {
            self.complete_parked(cid, status, actions);
        }
    }

    pub(super) fn complete_parked(&self, cid: u16, status: Status, actions: &mut Vec<Action>) {
        actions.push(Action::Complete {
            cntlid: self.cntlid,
            completion: Completion {
                cid,
                status,
                result: 0,
            },
        });
    }
}
