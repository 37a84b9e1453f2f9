//! What can go wrong between a host and its controller.

mod advice;

use std::net::SocketAddr;
use std::time::Duration;

use cairn_fabric::trouble;
use cairn_rdma::{DisconnectReason, FabricError, WorkStatus};
use nvme_proto::host::Cause;
use nvme_proto::wire::Status;
use nvme_proto::wire::cm::RejectStatus;

/// A host's operation failed.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The fabric refused before anything reached the controller.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// The target rejected the connection and said why.
    #[error("{remote} rejects queue {qid}: {}", advice::on_reject(*status, *remote))]
    Rejected {
        /// The target's address.
        remote: SocketAddr,
        /// For which queue.
        qid: u16,
        /// Its reason.
        status: RejectStatus,
    },
    /// The target's machine, or its program without NVMe's words, rejected the connection.
    #[error("{remote} rejects queue {qid}: {}", advice::on_refusal(*reason, *remote))]
    Refused {
        /// The target's address.
        remote: SocketAddr,
        /// For which queue.
        qid: u16,
        /// The connection manager's reason (IBTA 12.6.7.2).
        reason: u16,
    },
    /// The connection was not established, for an unknown reason.
    #[error("cannot connect queue {qid} to {remote}: {}", advice::on_silence(reason, *remote))]
    Unreachable {
        /// The target's address.
        remote: SocketAddr,
        /// For which queue.
        qid: u16,
        /// What the fabric says.
        reason: String,
    },
    /// The controller completed a command with an error.
    #[error("{command} failed: {status}{}", advice::on_status(command, *status, *result))]
    Status {
        /// Which command, in the specification's words.
        command: String,
        /// How it ended.
        status: Status,
        /// Its result: for Connect, which parameter is invalid.
        result: u64,
    },
    /// The target requires authentication and this host's fails, or the target's own does.
    #[error("cannot authenticate with {remote}: {why}")]
    NotAuthenticated {
        /// The target's address.
        remote: SocketAddr,
        /// Why, and the remedy.
        why: &'static str,
    },
    /// A queue's connection ended while it authenticated. A target that refuses a key may end it
    /// before its reason arrives.
    #[error("cannot authenticate with {remote}: {}", advice::on_cut_off(*qid, moment, loss, *remote))]
    LostAuthenticating {
        /// The target's address.
        remote: SocketAddr,
        /// Which queue.
        qid: u16,
        /// How far it was, and what to check.
        moment: &'static str,
        /// How the connection ended.
        loss: Loss,
    },
    /// A queue is gone, and the command with it: whether it was carried out is
    /// not known. Its buffers are its caller's again.
    #[error("queue {qid} to {remote} is lost: {}", advice::on_loss(loss, *remote))]
    Lost {
        /// The target's address.
        remote: SocketAddr,
        /// Which queue.
        qid: u16,
        /// Why.
        loss: Loss,
    },
    /// The controller was lost, or reported a change, and the namespace is another disk
    /// since, or none. Whether a command that was under way then was carried out on the
    /// disk that it was is not known.
    #[error(
        "namespace {nsid} of {remote} is not the disk any more that was opened: its identifiers \
         (UUID, NGUID, EUI-64) or its format differ, or it is gone; look at the target's \
         configuration, and open the namespace anew to use the disk that is there"
    )]
    Replaced {
        /// The target's address.
        remote: SocketAddr,
        /// NSID.
        nsid: u32,
    },
    /// A command is for a namespace that was not opened at this controller.
    #[error(
        "namespace {nsid} was not opened at this controller, so the disk behind it is not known: \
         open it first"
    )]
    NotOpened {
        /// NSID.
        nsid: u32,
    },
    /// Of several paths to a namespace none is left, and none will come back (soon
    /// enough). Whether the command was carried out is not known.
    #[error("no path to the namespace is left, of {paths}: {why}")]
    NoPath {
        /// How many there were.
        paths: usize,
        /// What became of each.
        why: String,
    },
    /// There is no such queue.
    #[error("there is no queue {qid}")]
    NoQueue {
        /// Which was asked for.
        qid: u16,
    },
    /// As many commands are outstanding as the queue holds.
    #[error("queue {qid} is full")]
    QueueFull {
        /// Which queue.
        qid: u16,
    },
    /// Something took too long.
    #[error("{what} did not come about within {timeout:?}")]
    Timeout {
        /// What was waited for.
        what: String,
        /// For how long.
        timeout: Duration,
    },
    /// The controller did not confirm its shutdown: it was lost before, did not get to
    /// the end in time, or could not make its caches durable.
    #[error(
        "the controller did not confirm its shutdown, so writes that it had answered may not be \
         durable: {0}"
    )]
    NotShutDown(Box<HostError>),
    /// The controller is not one that this host can drive.
    #[error("the controller cannot be used: {0}")]
    Unsupported(String),
}

/// Why a queue is lost.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Loss {
    /// The connection ended.
    #[error("{}", advice::of_disconnect(*.0))]
    Disconnected(DisconnectReason),
    /// A capsule could not be sent.
    #[error("{}", trouble::of_completion(.0.code()))]
    Transport(WorkStatus),
    /// The controller broke the protocol.
    #[error("the controller broke the protocol: {0}")]
    Protocol(String),
    /// The host gave its controller up.
    #[error("{0}")]
    GivenUp(Cause),
    /// This end closed it.
    #[error("closed by this host")]
    Closed,
    /// The namespace is another disk than was opened.
    #[error("namespace {0} is another disk than was opened")]
    Replaced(u32),
    /// The controller was lost, and could not be connected to again.
    #[error("{first}; connecting again failed: {last}")]
    NotBack {
        /// Why it was lost.
        first: Box<Loss>,
        /// The error of the last try to connect again.
        last: String,
    },
}

impl Loss {
    /// Whether something else caused it, which this does not name.
    pub(crate) fn is_consequence(&self) -> bool {
        matches!(
            self,
            Self::Transport(WorkStatus::Flushed) | Self::Disconnected(DisconnectReason::Transport)
        )
    }

    /// Whether it names the cause.
    pub(crate) fn is_cause(&self) -> bool {
        !self.is_consequence() && *self != Self::Closed
    }
}
