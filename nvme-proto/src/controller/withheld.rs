//! Replaced namespaces, hidden until the host has noticed the replacement.
//!
//! A host that missed the replacement would write old data to the new disk. The NSID therefore
//! stays inactive until the host has read it as inactive. An event then makes the host read the new
//! namespace.

use alloc::vec::Vec;

use crate::wire::identify::Cns;

use super::command::Identify;
use super::{Action, Controller};

#[derive(Clone, Copy, Debug)]
pub(super) struct Withheld {
    pub(super) nsid: u32,
    anagrpid: u32,
    is_missed: bool,
}

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
    pub(crate) fn withhold(&mut self, nsid: u32, anagrpid: u32, actions: &mut Vec<Action>) {
        self.withheld.push(Withheld {
            nsid,
            anagrpid,
            is_missed: false,
        });
        self.report_namespace(nsid, actions);
    }

    pub(super) fn show_missed(&mut self, identify: &Identify, actions: &mut Vec<Action>) {
        let is_due = |one: &mut Withheld| one.is_missed && is_about(identify, one.nsid);
        let due: Vec<Withheld> = self.withheld.extract_if(.., is_due).collect();
        for one in due {
            self.show(one.nsid, one.anagrpid, actions);
        }
    }

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
