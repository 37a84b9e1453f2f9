use core::fmt;

use crate::wire::Status;
use crate::wire::fabrics::ConnectInvalidParameter;

/// Reason why an association failed or ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The queue's connection was not established.
    NotConnected {
        /// Queue identifier.
        qid: u16,
    },
    /// The queue's connection ended.
    QueueLost {
        /// Queue identifier.
        qid: u16,
    },
    /// The queue's connection ended during authentication.
    ///
    /// A controller that rejects the host may disconnect before its reason arrives.
    LostAuthenticating {
        /// Queue identifier.
        qid: u16,
    },
    /// A command of the association failed.
    Status {
        /// Command name from the specification.
        command: &'static str,
        /// Status of the completion.
        status: Status,
        /// Result (DW0 and DW1); for Connect, the invalid parameter.
        result: u64,
    },
    /// The controller's response or state came too late.
    TooSlow {
        /// Name of the missing response or state.
        what: &'static str,
    },
    /// A command got no response, even after an Abort.
    CommandTimeout {
        /// Queue identifier.
        qid: u16,
        /// Command identifier.
        cid: u16,
    },
    /// CSTS.CFS is set: fatal error of the controller.
    Fatal,
    /// Reason why authentication failed.
    NotAuthenticated(&'static str),
    /// The host cannot use the controller for this reason.
    Unusable(&'static str),
}

impl Cause {
    /// True if a retry cannot succeed: DNR is set, or authentication failed.
    ///
    /// Connect Invalid Parameters for CNTLID is not final, although nvmet sets DNR: the controller
    /// may have ended, and a retry creates a new controller.
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
