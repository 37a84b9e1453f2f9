//! Namespaces that took the place of others under NSIDs that a host uses.
//!
//! A host that has not noticed would write to the new disk what is meant for the old one. So the
//! NSID is inactive to it until it has looked twice: the first time it finds that the old
//! namespace is gone, and the second time, which an event asks for, that there is another.

use alloc::vec::Vec;

use crate::wire::identify::Cns;

use super::command::Identify;
use super::{Action, Controller};

/// What a host does not see yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Withheld {
    pub(super) nsid: u32,
    anagrpid: u32,
    /// Whether the host has looked, and found nothing there.
    is_missed: bool,
}

/// Whether an answer says whether a namespace is there.
fn is_about(identify: &Identify, nsid: u32) -> bool {
    match identify.cns {
        Cns::ACTIVE_NAMESPACES | Cns::IO_COMMAND_SET_ACTIVE_NAMESPACES => nsid > identify.nsid,
        Cns::NAMESPACE
        | Cns::NAMESPACE_DESCRIPTORS
        | Cns::IO_COMMAND_SET_NAMESPACE
        | Cns::NAMESPACE_INDEPENDENT => nsid == identify.nsid,
        _ => false,
    }
}

impl Controller {
    /// The host sees a namespace once it has noticed that another one was there.
    pub(crate) fn withhold(&mut self, nsid: u32, anagrpid: u32, actions: &mut Vec<Action>) {
        self.withheld.push(Withheld {
            nsid,
            anagrpid,
            is_missed: false,
        });
        self.report_namespace(nsid, actions);
    }

    /// Before an answer: the host has looked at these before.
    pub(super) fn show_missed(&mut self, identify: &Identify, actions: &mut Vec<Action>) {
        let is_due = |one: &mut Withheld| one.is_missed && is_about(identify, one.nsid);
        let due: Vec<Withheld> = self.withheld.extract_if(.., is_due).collect();
        for one in due {
            self.show(one.nsid, one.anagrpid, actions);
        }
    }

    /// After an answer, in which these were missing: the host looks again.
    pub(super) fn note_missed(&mut self, identify: &Identify, actions: &mut Vec<Action>) {
        let mut missed = Vec::new();
        for one in &mut self.withheld {
            if !one.is_missed && is_about(identify, one.nsid) {
                one.is_missed = true;
                missed.push(one.nsid);
            }
        }
        for nsid in missed {
            self.report_namespace(nsid, actions);
        }
    }
}
