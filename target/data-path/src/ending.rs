use std::borrow::Cow;
use std::net::IpAddr;

use cairn_rdma::WorkStatus;
use cairn_trouble::{self as trouble, Trouble};
use cairn_trouble::{Caller, End};

use crate::work_id::WorkKind;

pub const CALLER: Caller = Caller {
    end: End::Target,
    host: "cairn-initiator",
    target: "cairn-target",
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Orderly(&'static str),
    Fault(&'static str),
    Work(WorkKind, WorkStatus),
    Trouble(&'static Trouble),
}

impl Ending {
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
