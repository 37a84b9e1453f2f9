//! Reasons for which an association fails or ends.

use core::fmt;

use crate::wire::Status;

/// Reason for which an association failed. The driver adds the fabric's error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The connection of this queue could not be established.
    NotConnected {
        /// QID.
        qid: u16,
    },
    /// The connection of this queue ended.
    QueueLost {
        /// QID.
        qid: u16,
    },
    /// The connection of this queue ended during authentication.
    ///
    /// A controller that rejects the host may close the connection before its reason arrives.
    LostAuthenticating {
        /// QID.
        qid: u16,
    },
    /// The controller completed one of the association's commands with an error.
    Status {
        /// Command name as in the specification.
        command: &'static str,
        /// Status of the completion.
        status: Status,
        /// Result of the completion; for Connect, the invalid parameter.
        result: u64,
    },
    /// An answer or a controller state did not arrive in time.
    TooSlow {
        /// Name of the expected answer or state.
        what: &'static str,
    },
    /// A command stayed unanswered, and aborting it did not help.
    CommandTimeout {
        /// QID of the command's queue.
        qid: u16,
        /// CID of the command.
        cid: u16,
    },
    /// CSTS.CFS is set: the controller reports a fatal error.
    Fatal,
    /// The host or the controller failed to authenticate.
    NotAuthenticated(&'static str),
    /// The controller does not meet the requirements of this host.
    Unusable(&'static str),
}

impl Cause {
    /// True if a retry cannot succeed: the status has DNR set, or a secret is wrong.
    pub(super) fn is_final(&self) -> bool {
        match self {
            Self::Status { status, .. } => status.dnr(),
            Self::NotAuthenticated(_) => true,
            _ => false,
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotConnected { qid } => write!(f, "queue {qid} cannot be connected"),
            Self::QueueLost { qid } => write!(f, "the connection of queue {qid} ended"),
            Self::LostAuthenticating { qid } => write!(
                f,
                "the connection of queue {qid} ended during authentication: compare the keys of \
                 host and target"
            ),
            Self::Status {
                command, status, ..
            } => write!(f, "{command} failed: {status}"),
            Self::TooSlow { what } => write!(f, "{what} did not come about in time"),
            Self::CommandTimeout { qid, cid } => {
                write!(f, "command {cid:#x} of queue {qid} got no answer")
            }
            Self::Fatal => f.write_str("the controller reports a fatal error (CSTS.CFS)"),
            Self::NotAuthenticated(why) => write!(f, "authentication failed: {why}"),
            Self::Unusable(why) => write!(f, "the controller cannot be used: {why}"),
        }
    }
}
