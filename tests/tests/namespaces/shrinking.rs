//! Path whose MTU shrinks below that of an agreed SEND.

use std::sync::mpsc::channel;

use cairn_rdma::{Operation, Provider, QpOptions, WorkStatus};

use crate::cable::{Cable, FarEnd, ip};
use crate::fabric::{End, PATIENCE, listen, qp_options};

const LONG: usize = 4160;
const OFFSET: usize = 1 << 17;

pub(crate) fn run(cable: Cable) {
    let (ready_out, ready_in) = channel();
    let target = move |_: FarEnd| {
        move || {
            let provider = cable.provider();
            let (listener, requests) = listen(&provider, cable);
            let device = provider.device_for(listener.local_addr(), None).unwrap();
            let mut end = End::open(&device);
            ready_out.send(()).unwrap();
            for _ in 0..2 {
                let qp = end.accept(&requests, cable);
                end.await_disconnect(qp);
            }
            let landed = end.completion(1000);
            assert_eq!(
                (landed.status, landed.byte_len),
                (WorkStatus::Success, LONG as u32)
            );
        }
    };
    let host = move || {
        ready_in.recv_timeout(PATIENCE).unwrap();
        let remote = cable.listener(1, 4420);
        let provider = cable.provider();
        let mut end = End::open(&provider.device_for(remote, None).unwrap());
        let options = QpOptions {
            retry_count: 1,
            ..qp_options()
        };
        let qp = end.connect(remote, options);
        assert_eq!(end.packet_bytes(qp), LONG as u32);
        ip("link set cable1 mtu 4200");
        let status = end.status(qp, 1, Operation::Send, OFFSET, LONG);
        assert_eq!(status, WorkStatus::RetryExceeded);
        end.disconnect(qp);
        ip("link set cable1 mtu 9000");
        let qp = end.connect(remote, options);
        assert_eq!(end.packet_bytes(qp), 4096, "the path may still be short");
        let status = end.status(qp, 2, Operation::Send, OFFSET, LONG);
        assert_eq!(status, WorkStatus::Success);
        end.disconnect(qp);
    };
    cable.join_unwatched(target, host);
}
