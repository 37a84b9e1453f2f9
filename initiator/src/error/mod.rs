mod advice;

use std::net::SocketAddr;
use std::time::Duration;

use cairn_rdma::{DisconnectReason, FabricError, WorkStatus};
use cairn_trouble as trouble;
use nvme_proto::host::Cause;
use nvme_proto::wire::Status;
use nvme_proto::wire::cm::RejectStatus;

/// Error of a connection, a command or memory registration.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The local fabric failed, or refused the operation.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// The target rejected the connection for an NVMe/RDMA reason.
    #[error("{remote} rejects queue {qid}: {}", advice::on_reject(*status, *remote))]
    Rejected {
        /// Target address.
        remote: SocketAddr,
        /// QID (admin queue: 0).
        qid: u16,
        /// NVMe/RDMA reason.
        status: RejectStatus,
    },
    /// The remote connection manager rejected the connection without an NVMe/RDMA reason.
    #[error("{remote} rejects queue {qid}: {}", advice::on_refusal(*reason, *remote))]
    Refused {
        /// Target address.
        remote: SocketAddr,
        /// QID (admin queue: 0).
        qid: u16,
        /// Reason of the connection manager (IBTA 12.6.7.2).
        reason: u16,
    },
    /// The connection attempt got no response.
    #[error("cannot connect queue {qid} to {remote}: {}", advice::on_silence(reason, *remote))]
    Unreachable {
        /// Target address.
        remote: SocketAddr,
        /// QID (admin queue: 0).
        qid: u16,
        /// Error message of the RDMA provider.
        reason: String,
    },
    /// The controller completed a command with an error.
    #[error("{command} failed: {status}{}", advice::on_status(command, *status, *result))]
    Status {
        /// Name of the command in the specification, with the host's NQN if the target does not
        /// permit the host.
        command: String,
        /// Status field of the completion.
        status: Status,
        /// Result (DW0 and DW1), which names the invalid parameter of a Connect.
        result: u64,
    },
    /// One end rejected the other end's authentication.
    #[error("cannot authenticate with {remote}: {why}")]
    NotAuthenticated {
        /// Target address.
        remote: SocketAddr,
        /// Reason with a remedy.
        why: &'static str,
    },
    /// The connection ended during authentication, before the target's reason arrived.
    #[error("cannot authenticate with {remote}: {}", advice::on_cut_off(*qid, moment, loss, *remote))]
    LostAuthenticating {
        /// Target address.
        remote: SocketAddr,
        /// QID (admin queue: 0).
        qid: u16,
        /// Step at which the connection ended, with a remedy.
        moment: &'static str,
        /// Why the connection ended.
        loss: Loss,
    },
    /// The queue was lost. The command may have been executed. The controller no longer accesses
    /// the buffer.
    #[error("queue {qid} to {remote} is lost: {}", advice::on_loss(loss, *remote))]
    Lost {
        /// Target address.
        remote: SocketAddr,
        /// QID (admin queue: 0).
        qid: u16,
        /// Why the connection ended.
        loss: Loss,
    },
    /// The NSID refers to another disk than the opened one, or to none. Commands in flight during
    /// the change may have been executed on the opened disk.
    #[error(
        "namespace {nsid} of {remote} is not the disk any more that was opened: its identifiers \
         (UUID, NGUID, EUI-64) or its format differ, or it is gone; look at the target's \
         configuration, and open the namespace anew to use the disk that is there"
    )]
    Replaced {
        /// Target address.
        remote: SocketAddr,
        /// NSID of the opened namespace.
        nsid: u32,
    },
    /// The namespace of an I/O command is not opened.
    #[error(
        "namespace {nsid} was not opened at this controller, so the disk behind it is not known: \
         open it first"
    )]
    NotOpened {
        /// NSID of the command.
        nsid: u32,
    },
    /// No path is usable, and none is expected to return in time. The command may have been
    /// executed.
    #[error("no path to the namespace is left, of {paths}: {why}")]
    NoPath {
        /// Number of paths tried.
        paths: usize,
        /// States of the paths.
        why: String,
    },
    /// The queue does not exist.
    #[error("queue {qid} does not exist")]
    NoQueue {
        /// Requested queue ID.
        qid: u16,
    },
    /// The queue has no free entry until another command ends.
    #[error("queue {qid} is full")]
    QueueFull {
        /// QID; 0 for the admin queue and [`Multipath`](crate::multipath::Multipath).
        qid: u16,
    },
    /// An awaited event did not occur in time.
    #[error("timed out after {timeout:?} waiting for {what}")]
    Timeout {
        /// Awaited event.
        what: String,
        /// Time limit.
        timeout: Duration,
    },
    /// The controller did not confirm its shutdown, so acknowledged writes may not be durable.
    #[error(
        "the controller did not confirm its shutdown, so writes that it had answered may not be \
         durable: {0}"
    )]
    NotShutDown(Box<HostError>),
    /// The host does not support the controller or operation.
    #[error("the controller cannot be used: {0}")]
    Unsupported(String),
}

/// Cause of the loss of a queue or its commands.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Loss {
    /// The connection ended.
    #[error("{}", advice::of_disconnect(*.0))]
    Disconnected(DisconnectReason),
    /// Sending or receiving a capsule failed.
    #[error("{}", trouble::of_completion(.0.code()))]
    Transport(WorkStatus),
    /// The controller violated the protocol.
    #[error("the controller broke the protocol: {0}")]
    Protocol(String),
    /// The host gave up the controller.
    #[error("{0}")]
    GivenUp(Cause),
    /// The host closed the connection.
    #[error("closed by this host")]
    Closed,
    /// The NSID refers to another disk than the opened one.
    #[error("namespace {0} is another disk than was opened")]
    Replaced(u32),
    /// All attempts to reconnect failed so far.
    #[error("{first}; connecting again failed: {last}")]
    NotBack {
        /// Cause of the first loss.
        first: Box<Loss>,
        /// Error of the last attempt.
        last: String,
    },
}

impl Loss {
    pub(crate) fn is_consequence(&self) -> bool {
        matches!(
            self,
            Self::Transport(WorkStatus::Flushed) | Self::Disconnected(DisconnectReason::Transport)
        )
    }

    pub(crate) fn is_cause(&self) -> bool {
        !self.is_consequence() && *self != Self::Closed
    }
}
