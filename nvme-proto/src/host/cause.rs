//! Why an association could not be made, or ended.

use core::fmt;

use crate::wire::Status;

/// What went wrong. What the fabric had to say is the driver's to add.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// No connection came about for this queue.
    NotConnected {
        /// QID.
        qid: u16,
    },
    /// The connection of this queue ended.
    QueueLost {
        /// QID.
        qid: u16,
    },
    /// The connection of this queue ended while it authenticated. A controller that refuses may
    /// end it before its reason arrives.
    LostAuthenticating {
        /// QID.
        qid: u16,
    },
    /// The controller completed a command of ours with an error.
    Status {
        /// Which command, in the specification's words.
        command: &'static str,
        /// How it ended.
        status: Status,
        /// Its result: for Connect, which parameter is invalid.
        result: u64,
    },
    /// It did not answer in time, or did not reach the requested state.
    TooSlow {
        /// What was waited for.
        what: &'static str,
    },
    /// A command got no answer, nor did the attempt to abort it help.
    CommandTimeout {
        /// The command's queue.
        qid: u16,
        /// The command.
        cid: u16,
    },
    /// CSTS.CFS is set: the controller reports a fatal error.
    Fatal,
    /// A queue could not authenticate, or the controller could not.
    NotAuthenticated(&'static str),
    /// The controller is not one that this host can drive.
    Unusable(&'static str),
}

impl Cause {
    /// Whether the same would happen again: the controller said "do not retry", or a secret is
    /// wrong.
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
