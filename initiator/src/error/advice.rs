//! What to do about it: the end of an error's text, where there is something to say.

use cairn_rdma::DisconnectReason;
use nvme_proto::wire::Status;
use nvme_proto::wire::cm::RejectStatus;
use nvme_proto::wire::fabrics::ConnectInvalidParameter as Parameter;

/// For a command that was completed with an error: a leading colon, and the advice.
pub(super) fn on_status(command: &str, status: Status, result: u64) -> &'static str {
    if command != "Connect" {
        return "";
    }
    match status.code() {
        Status::CONNECT_INVALID_HOST => {
            ": the subsystem does not allow this host's NQN; add it to its allowed hosts, or \
             connect as another host"
        }
        Status::CONNECT_INVALID_PARAMETERS => match Parameter(result as u32) {
            Parameter::SUBNQN => {
                ": there is no such subsystem (SUBNQN); `discover` lists those there are"
            }
            Parameter::HOSTNQN => ": the host's NQN is not valid (HOSTNQN)",
            Parameter::HOSTID => ": the host identifier is not valid (HOSTID); it must not be 0",
            Parameter::CNTLID => {
                ": the controller is gone (CNTLID), or another host's; connect anew"
            }
            Parameter::SQSIZE => ": the target takes no queue of that size; ask for fewer entries",
            Parameter::QID => ": the target takes no such queue (QID); ask for fewer I/O queues",
            Parameter::KATO => ": the target takes no such keep alive timeout (KATO)",
            _ => "",
        },
        Status::CONNECT_CONTROLLER_BUSY => {
            ": the target has no controller to spare; disconnect a host that is not needed, or \
             raise the target's limit"
        }
        Status::AUTHENTICATION_REQUIRED => {
            ": the subsystem demands authentication, which this host does not speak"
        }
        _ => "",
    }
}

/// For a connection that the target rejected.
pub(super) fn on_reject(status: RejectStatus) -> &'static str {
    match status {
        RejectStatus::NO_RESOURCES => {
            "; the target is out of queue pairs or memory: ask for fewer I/O queues, or \
             disconnect a host that is not needed"
        }
        RejectStatus::INVALID_HSQSIZE | RejectStatus::INVALID_HRQSIZE => {
            "; ask for fewer entries a queue"
        }
        RejectStatus::INVALID_QID => "; ask for fewer I/O queues",
        RejectStatus::INVALID_CNTLID => "; the controller is gone: connect anew",
        _ => "",
    }
}

/// Why a connection ended, in words.
pub(super) fn on_disconnect(reason: DisconnectReason) -> &'static str {
    match reason {
        DisconnectReason::Peer => {
            "the target ended the connection; its log says why (a shutdown, a keep alive that \
             came too late, a host that may no longer connect)"
        }
        DisconnectReason::Transport => {
            "the transport gave up: check that the target is alive, and the path to it"
        }
        DisconnectReason::AddressChanged => "our address moved to another device: connect anew",
        DisconnectReason::DeviceRemoved => "the device was removed: connect anew once it is back",
    }
}

#[cfg(test)]
mod tests {
    use crate::error::{HostError, Loss};

    use super::*;

    #[test]
    fn errors_say_what_to_do() {
        let remote = "192.0.2.1:4420".parse().unwrap();
        let refused = HostError::Status {
            command: "Connect".to_owned(),
            status: Status::CONNECT_INVALID_PARAMETERS.with_dnr(),
            result: Parameter::SUBNQN.0.into(),
        };
        assert!(refused.to_string().contains("`discover` lists"));
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
        let lost = HostError::Lost {
            remote,
            qid: 1,
            loss: Loss::Disconnected(DisconnectReason::Transport),
        };
        assert!(lost.to_string().ends_with("and the path to it"));
    }
}
