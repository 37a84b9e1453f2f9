//! Errors of a host and its controller.

mod advice;

use std::net::SocketAddr;
use std::time::Duration;

use cairn_rdma::{DisconnectReason, FabricError, WorkStatus};
use cairn_trouble as trouble;
use nvme_proto::host::Cause;
use nvme_proto::wire::Status;
use nvme_proto::wire::cm::RejectStatus;

/// Failure of a host's operation.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The fabric refused the operation before anything reached the controller.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// The target rejected the connection with a reason.
    #[error("{remote} rejects queue {qid}: {}", advice::on_reject(*status, *remote))]
    Rejected {
        /// The target's address.
        remote: SocketAddr,
        /// Queue ID.
        qid: u16,
        /// Reason given by the target.
        status: RejectStatus,
    },
    /// The target's machine rejected the connection, or its program did without an NVMe reason.
    #[error("{remote} rejects queue {qid}: {}", advice::on_refusal(*reason, *remote))]
    Refused {
        /// The target's address.
        remote: SocketAddr,
        /// Queue ID.
        qid: u16,
        /// The connection manager's reason (IBTA 12.6.7.2).
        reason: u16,
    },
    /// The connection was not established, for an unknown reason.
    #[error("cannot connect queue {qid} to {remote}: {}", advice::on_silence(reason, *remote))]
    Unreachable {
        /// The target's address.
        remote: SocketAddr,
        /// Queue ID.
        qid: u16,
        /// Reason given by the fabric.
        reason: String,
    },
    /// The controller completed a command with an error.
    #[error("{command} failed: {status}{}", advice::on_status(command, *status, *result))]
    Status {
        /// Name of the command as in the specification.
        command: String,
        /// Status of the command.
        status: Status,
        /// Result of the command: for Connect, the invalid parameter.
        result: u64,
    },
    /// The target requires authentication and this host's fails, or the target's own fails.
    #[error("cannot authenticate with {remote}: {why}")]
    NotAuthenticated {
        /// The target's address.
        remote: SocketAddr,
        /// Reason and remedy.
        why: &'static str,
    },
    /// A queue's connection ended during authentication. A target that refuses a key may close the
    /// connection before its reason arrives.
    #[error("cannot authenticate with {remote}: {}", advice::on_cut_off(*qid, moment, loss, *remote))]
    LostAuthenticating {
        /// The target's address.
        remote: SocketAddr,
        /// Queue ID.
        qid: u16,
        /// Progress of the authentication, and what to check.
        moment: &'static str,
        /// How the connection ended.
        loss: Loss,
    },
    /// A queue and its command were lost: it is unknown whether the command was executed. Nothing
    /// accesses its buffers any more.
    #[error("queue {qid} to {remote} is lost: {}", advice::on_loss(loss, *remote))]
    Lost {
        /// The target's address.
        remote: SocketAddr,
        /// Queue ID.
        qid: u16,
        /// Cause of the loss.
        loss: Loss,
    },
    /// The namespace became another disk or disappeared, after a loss of the controller or a
    /// reported change. It is unknown whether a command in flight at that time was executed on the
    /// original disk.
    #[error(
        "namespace {nsid} of {remote} is not the disk any more that was opened: its identifiers \
         (UUID, NGUID, EUI-64) or its format differ, or it is gone; look at the target's \
         configuration, and open the namespace anew to use the disk that is there"
    )]
    Replaced {
        /// The target's address.
        remote: SocketAddr,
        /// NSID of the namespace.
        nsid: u32,
    },
    /// The command's namespace was not opened at this controller.
    #[error(
        "namespace {nsid} was not opened at this controller, so the disk behind it is not known: \
         open it first"
    )]
    NotOpened {
        /// NSID of the namespace.
        nsid: u32,
    },
    /// No path of the namespace is usable or expected back in time. It is unknown whether the
    /// command was executed.
    #[error("no path to the namespace is left, of {paths}: {why}")]
    NoPath {
        /// Number of paths.
        paths: usize,
        /// State of each path.
        why: String,
    },
    /// The queue does not exist.
    #[error("queue {qid} does not exist")]
    NoQueue {
        /// Requested queue ID.
        qid: u16,
    },
    /// The queue is full.
    #[error("queue {qid} is full")]
    QueueFull {
        /// Queue ID.
        qid: u16,
    },
    /// An operation took too long.
    #[error("timed out after {timeout:?} waiting for {what}")]
    Timeout {
        /// Awaited event.
        what: String,
        /// Time limit.
        timeout: Duration,
    },
    /// The controller did not confirm its shutdown: it was lost before, did not finish in time, or
    /// could not make its caches durable.
    #[error(
        "the controller did not confirm its shutdown, so writes that it had answered may not be \
         durable: {0}"
    )]
    NotShutDown(Box<HostError>),
    /// This host cannot operate the controller.
    #[error("the controller cannot be used: {0}")]
    Unsupported(String),
}

/// Cause of the loss of a queue.
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
    /// The host gave up the controller.
    #[error("{0}")]
    GivenUp(Cause),
    /// The host closed the connection.
    #[error("closed by this host")]
    Closed,
    /// The namespace is not the disk that was opened.
    #[error("namespace {0} is another disk than was opened")]
    Replaced(u32),
    /// The controller was lost and could not be reconnected.
    #[error("{first}; connecting again failed: {last}")]
    NotBack {
        /// Cause of the loss.
        first: Box<Loss>,
        /// Error of the last attempt to reconnect.
        last: String,
    },
}

impl Loss {
    /// True if the loss is a consequence of a cause that it does not name.
    pub(crate) fn is_consequence(&self) -> bool {
        matches!(
            self,
            Self::Transport(WorkStatus::Flushed) | Self::Disconnected(DisconnectReason::Transport)
        )
    }

    /// True if the loss names its cause.
    pub(crate) fn is_cause(&self) -> bool {
        !self.is_consequence() && *self != Self::Closed
    }
}
