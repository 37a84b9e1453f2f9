//! Reasons for the failure or end of an association.

use core::fmt;

use crate::wire::Status;
use crate::wire::fabrics::ConnectInvalidParameter;

/// Reason for the failure of an association. The driver adds the fabric's error.
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
    /// A controller that rejects the host may close the connection before sending its reason.
    LostAuthenticating {
        /// QID.
        qid: u16,
    },
    /// A command of the association failed.
    Status {
        /// Command name of the specification.
        command: &'static str,
        /// Status of the completion.
        status: Status,
        /// Result of the completion; for Connect, the invalid parameter.
        result: u64,
    },
    /// A response or controller state was overdue.
    TooSlow {
        /// Name of the response or state.
        what: &'static str,
    },
    /// A command stayed unanswered after an Abort.
    CommandTimeout {
        /// QID of the command's queue.
        qid: u16,
        /// CID of the command.
        cid: u16,
    },
    /// CSTS.CFS is set: the controller reports a fatal error.
    Fatal,
    /// Authentication failed at the host or controller.
    NotAuthenticated(&'static str),
    /// The controller does not meet the requirements of this host.
    Unusable(&'static str),
}

impl Cause {
    /// True if a new association cannot succeed: DNR is set, or a secret is wrong.
    ///
    /// A refused CNTLID is not final. Only an I/O queue's Connect names one, and its controller can
    /// end at any time after the admin queue's Connect. nvmet sets DNR in that case.
    pub(super) fn is_final(&self) -> bool {
        match self {
            Self::Status { status, result, .. } => {
                let names_cntlid = status.code() == Status::CONNECT_INVALID_PARAMETERS
                    && *result == u64::from(ConnectInvalidParameter::CNTLID.0);
                status.dnr() && !names_cntlid
            }
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
            Self::TooSlow { what } => write!(f, "{what} timed out"),
            Self::CommandTimeout { qid, cid } => {
                write!(f, "command {cid:#x} of queue {qid} got no answer")
            }
            Self::Fatal => f.write_str("the controller reports a fatal error (CSTS.CFS)"),
            Self::NotAuthenticated(why) => write!(f, "authentication failed: {why}"),
            Self::Unusable(why) => write!(f, "the controller cannot be used: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_controller_that_ended_between_two_connects_is_connected_anew() {
        let refused = |result| Cause::Status {
            command: "Connect",
            status: Status::CONNECT_INVALID_PARAMETERS.with_dnr(),
            result,
        };
        assert!(!refused(0x1_0010).is_final(), "CNTLID");
        assert!(refused(0x1_0100).is_final(), "SUBNQN");
    }
}
