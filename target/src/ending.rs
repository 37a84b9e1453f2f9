//! Why a queue ends.

use std::borrow::Cow;
use std::net::IpAddr;

use cairn_fabric::trouble::{self, Trouble};
use cairn_fabric::{Caller, End};
use cairn_rdma::WorkStatus;

use crate::work_id::WorkKind;

/// This program, and Cairn's own host: lines of the log name them in commands.
pub(crate) const CALLER: Caller = Caller {
    end: End::Target,
    host: "cairn-initiator",
    target: "cairn-target",
};

/// Why a queue ends, in words for the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// As it should: no end is to blame.
    Orderly(&'static str),
    /// Something is wrong: with the host, the path to it, or here.
    Fault(&'static str),
    /// Work of this kind failed.
    Work(WorkKind, WorkStatus),
    /// The connection itself has a trouble that others know, too.
    Trouble(&'static Trouble),
}

impl Ending {
    /// In words. `None`: orderly.
    pub(crate) fn fault(self, peer: IpAddr) -> Option<Cow<'static, str>> {
        match self {
            Self::Orderly(_) => None,
            Self::Fault(reason) => Some(reason.into()),
            Self::Work(kind, status) => {
                let trouble = trouble::of_completion(status.code());
                let line = trouble.line(CALLER, peer);
                Some(format!("{}: {line}", kind.doing()).into())
            }
            Self::Trouble(trouble) => Some(trouble.line(CALLER, peer).into()),
        }
    }
}
