//! Remedies appended to error messages.

use std::net::SocketAddr;

use cairn_rdma::DisconnectReason;
use cairn_trouble::{self as trouble, Trouble};
use cairn_trouble::{Caller, End};
use nvme_proto::wire::Status;
use nvme_proto::wire::cm::RejectStatus;

use super::Loss;

const CALLER: Caller = Caller {
    end: End::Host,
    host: "cairn-initiator",
    target: "cairn-target",
};

pub(super) fn on_status(command: &str, status: Status, result: u64) -> String {
    let is_connect = command.starts_with("Connect");
    let known = trouble::of_connect(status.sct(), status.sc(), result as u32);
    match known.filter(|_| is_connect) {
        Some(known) => format!(": {}", known.line(CALLER, "ADDR")),
        None => String::new(),
    }
}

pub(super) fn on_reject(status: RejectStatus, remote: SocketAddr) -> String {
    trouble::of_nvme_reject(status.0).line(CALLER, remote.ip())
}

pub(super) fn on_refusal(reason: u16, remote: SocketAddr) -> String {
    trouble::of_reject(reason).line(CALLER, remote.ip())
}

pub(super) fn on_silence(reason: &str, remote: SocketAddr) -> String {
    let next = trouble::NO_ANSWER.next.command(CALLER, remote.ip());
    format!("{reason}; next: {next}")
}

pub(super) fn on_loss(loss: &Loss, remote: SocketAddr) -> String {
    let trouble = match loss {
        Loss::Disconnected(reason) => of_disconnect(*reason),
        Loss::Transport(status) => trouble::of_completion(status.code()),
        Loss::Protocol(_)
        | Loss::GivenUp(_)
        | Loss::Closed
        | Loss::Replaced(_)
        | Loss::NotBack { .. } => return loss.to_string(),
    };
    trouble.line(CALLER, remote.ip())
}

pub(super) fn on_cut_off(qid: u16, moment: &str, loss: &Loss, remote: SocketAddr) -> String {
    match loss {
        Loss::Disconnected(DisconnectReason::Peer) => {
            format!("the target ended the connection of queue {qid} {moment}")
        }
        loss => format!(
            "the connection of queue {qid} ended {moment}; if the target did not end it: {}",
            on_loss(loss, remote)
        ),
    }
}

pub(super) fn of_disconnect(reason: DisconnectReason) -> &'static Trouble {
    match reason {
        DisconnectReason::Peer => &trouble::PEER_LEFT,
        DisconnectReason::Transport => &trouble::TRANSPORT_GAVE_UP,
        DisconnectReason::AddressChanged => &trouble::ADDRESS_CHANGED,
        DisconnectReason::PeerMoved => &trouble::PEER_MOVED,
        DisconnectReason::DeviceRemoved => &trouble::DEVICE_REMOVED,
        DisconnectReason::DeviceFault => &trouble::DEVICE_FAULT,
    }
}

#[cfg(test)]
mod tests {
    use cairn_rdma::WorkStatus;

    use crate::error::HostError;

    use super::*;
    use nvme_proto::wire::fabrics::ConnectInvalidParameter as Parameter;

    #[test]
    fn each_parameter_of_connect_is_explained() {
        for (parameter, name) in [
            (Parameter::QID, "QID"),
            (Parameter::SQSIZE, "SQSIZE"),
            (Parameter::KATO, "KATO"),
            (Parameter::HOSTID, "HOSTID"),
            (Parameter::CNTLID, "CNTLID"),
            (Parameter::SUBNQN, "SUBNQN"),
            (Parameter::HOSTNQN, "HOSTNQN"),
            (Parameter::CATTR, "Connect Invalid Parameters"),
        ] {
            let status = Status::CONNECT_INVALID_PARAMETERS;
            let known = trouble::of_connect(status.sct(), status.sc(), parameter.0).unwrap();
            assert_eq!(known.name, name);
            let text = on_status("Connect", status, parameter.0.into());
            assert!(
                text.contains(known.what) && text.contains("; next: "),
                "{text}"
            );
            assert_eq!(on_status("Read", status, parameter.0.into()), "");
        }
        let status = Status::CONNECT_INVALID_HOST;
        let known = trouble::of_connect(status.sct(), status.sc(), Parameter::SUBNQN.0).unwrap();
        assert_eq!(known.name, "Connect Invalid Host");
    }

    #[test]
    fn errors_say_what_to_do() {
        let remote = "192.0.2.1:4420".parse().unwrap();
        let refused = HostError::Status {
            command: "Connect".to_owned(),
            status: Status::CONNECT_INVALID_PARAMETERS.with_dnr(),
            result: Parameter::SUBNQN.0.into(),
        };
        assert!(refused.to_string().contains("cairn-initiator discover"));
        let read = HostError::Status {
            command: "Read".to_owned(),
            status: Status::CONNECT_INVALID_HOST,
            result: 0,
        };
        assert!(!read.to_string().contains("allow"));
        let rejected = HostError::Rejected {
            remote,
            qid: 3,
            status: RejectStatus::NO_RESOURCES,
        };
        let text = rejected.to_string();
        assert!(text.contains("192.0.2.1:4420") && text.contains("queue 3"));
        assert!(text.contains("fewer I/O queues"));
        assert!(
            text.contains("likely (1) the target is shutting down"),
            "{text}"
        );
        let refused = HostError::Refused {
            remote,
            qid: 0,
            reason: 8,
        };
        assert!(refused.to_string().contains("nothing listens there"));
        let lost = HostError::Lost {
            remote,
            qid: 1,
            loss: Loss::Disconnected(DisconnectReason::Transport),
        };
        let next = "next: cairn-initiator doctor --peer 192.0.2.1";
        assert!(lost.to_string().ends_with(next), "{lost}");
        let failed = HostError::Lost {
            remote,
            qid: 1,
            loss: Loss::Transport(WorkStatus::RetryExceeded),
        };
        let text = failed.to_string();
        assert!(
            text.contains("IBV_WC_RETRY_EXC_ERR") && text.ends_with(next),
            "{text}"
        );
    }
}
