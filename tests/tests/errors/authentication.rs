//! Errors of a host if the target disconnects during authentication, as nvmet does after a failure.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use cairn_initiator::{Host, HostOptions, Secret, Secrets};
use cairn_rdma::{
    Completion, CompletionKind, Operation, QpId, RecvWork, RemoteBuffer, SendWork, Sge,
};
use nvme_auth::message::Message;
use nvme_auth::{Group, Hash, Reason};
use nvme_proto::wire::fabrics::ConnectResult;
use nvme_proto::wire::{Cqe, FromBytes, FromZeros, IntoBytes, Sqe};

use super::fake::{Accepted, Fake};
use super::log::assert_in_order;
use super::{PATIENCE, Place};

const MESSAGE: usize = 4096;
const RESPONSE: usize = 8192;
const TRANSACTION: u16 = 1;

struct Controller {
    accepted: Accepted,
    qp: Option<QpId>,
    received: VecDeque<Completion>,
}

impl Controller {
    fn new(fake: &Fake) -> Self {
        let accepted = fake.accept(1024);
        Self {
            accepted,
            qp: None,
            received: VecDeque::new(),
        }
    }

    fn sge(&self, at: usize, length: usize) -> Sge {
        self.accepted.region.sge(at, length as u32)
    }

    fn poll_for(&mut self, kind: CompletionKind) -> Completion {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut batch = [Completion::EMPTY; 1];
            if self.accepted.endpoint.poll(&mut batch) > 0 {
                let [completion] = batch;
                assert!(completion.status.is_success(), "{completion:?}");
                if completion.kind == kind {
                    return completion;
                }
                if completion.kind == CompletionKind::Recv {
                    self.received.push_back(completion);
                }
            }
            self.accepted.endpoint.poll_events(&mut Vec::new());
            assert!(Instant::now() < deadline, "no {kind:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn command(&mut self) -> Sqe {
        let received = self.received.pop_front();
        let received = received.unwrap_or_else(|| self.poll_for(CompletionKind::Recv));
        self.qp = Some(received.qp);
        let mut capsule = [0; 64];
        self.accepted.region.mapping().read(0, &mut capsule);
        let receive = RecvWork {
            id: 0,
            sges: self.sge(0, 1024).into(),
        };
        self.accepted.endpoint.post_receives(&[receive]).unwrap();
        Sqe::read_from_bytes(&capsule).unwrap()
    }

    fn answer(&mut self, sqe: &Sqe, result: u32, message: &[u8]) {
        let mut cqe = Cqe::new_zeroed();
        cqe.cid = sqe.cid;
        cqe.dw0.set(result);
        let mapping = self.accepted.region.mapping();
        mapping.write(MESSAGE, message);
        mapping.write(RESPONSE, cqe.as_bytes());
        // Keyed SGL descriptor: address (8 bytes), length (3), key (4).
        let dptr = sqe.dptr.as_bytes();
        let key = u32::from_le_bytes(dptr[11..15].try_into().unwrap());
        let to = RemoteBuffer {
            addr: u64::from_le_bytes(dptr[..8].try_into().unwrap()),
            rkey: key,
        };
        let write = SendWork {
            id: 1,
            op: Operation::Write(to),
            sges: self.sge(MESSAGE, message.len()).into(),
            signaled: false,
        };
        let send = SendWork {
            id: 2,
            op: Operation::Send,
            sges: self.sge(RESPONSE, 16).into(),
            signaled: true,
        };
        let work = [write, send];
        let first = usize::from(message.is_empty());
        let qp = self.qp.expect("a command came");
        self.accepted.endpoint.post(qp, &work[first..]).unwrap();
        self.poll_for(CompletionKind::Send);
    }

    fn disconnect(&mut self) {
        let qp = self.qp.expect("a command came");
        self.accepted.endpoint.disconnect(qp);
        for _ in 0..20 {
            self.accepted.endpoint.poll(&mut [Completion::EMPTY; 8]);
            self.accepted.endpoint.poll_events(&mut Vec::new());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn run(fake: &Fake, answers: &[(u32, Vec<u8>)]) {
    let mut controller = Controller::new(fake);
    for (result, message) in answers {
        let sqe = controller.command();
        controller.answer(&sqe, *result, message);
    }
    controller.command();
    controller.disconnect();
}

fn run_and_leave(fake: &Fake, answers: &[(u32, Vec<u8>)]) {
    let mut controller = Controller::new(fake);
    for (result, message) in answers {
        let sqe = controller.command();
        controller.answer(&sqe, *result, message);
    }
    controller.disconnect();
}

fn answers(last: &Message<'_>) -> Vec<(u32, Vec<u8>)> {
    let challenge = Message::Challenge {
        hash: Hash::Sha256 as u8,
        group: Group::Null as u8,
        seqnum: 1,
        challenge: &[7; 32],
        public_key: &[],
    };
    vec![
        (ConnectResult(0).with_cntlid(1).with_atr(true).0, Vec::new()),
        (0, Vec::new()),
        (0, challenge.encode(TRANSACTION)),
        (0, Vec::new()),
        (0, last.encode(TRANSACTION)),
    ]
}

fn secret(seed: u8) -> Secret {
    Secret::generate(32, None, &mut |bytes| bytes.fill(seed))
}

fn failure(place: &Place, mutual: bool, target: impl FnOnce(&Fake)) -> String {
    let fake = Fake::open(place);
    let port = fake.port();
    std::thread::scope(|scope| {
        let host = scope.spawn(|| {
            let secrets = Secrets {
                host: secret(1),
                controller: mutual.then(|| secret(2)),
            };
            let options = HostOptions {
                authentication: Some(secrets),
                ..place.options(port)
            };
            let refused = Host::connect(&*place.provider, options);
            refused.map(drop).unwrap_err().to_string()
        });
        target(&fake);
        host.join().unwrap()
    })
}

#[test]
fn a_target_that_leaves_is_named_with_the_step_and_what_to_check() {
    let failed = Message::Failure1(Reason::AuthenticationFailed);
    for place in Place::both() {
        let who = format!("cannot authenticate with {}:", place.target);
        for (answered, moment, remedy) in [
            (
                1,
                "before the target's challenge",
                "a key for this host's NQN",
            ),
            (
                2,
                "before the target's challenge",
                "a key for this host's NQN",
            ),
            (3, "after this host's response", "compare --dhchap-secret"),
            (4, "after this host's response", "compare --dhchap-secret"),
        ] {
            let said = failure(&place, false, |fake| {
                run(fake, &answers(&failed)[..answered]);
            });
            let ended = "the target ended the connection of queue 0";
            assert_in_order(&said, &[&who, ended, moment, remedy]);
        }
        let said = failure(&place, false, |fake| {
            run_and_leave(fake, &answers(&failed)[..4]);
        });
        assert_in_order(
            &said,
            &[&who, "after this host's response", "--dhchap-secret"],
        );
        let said = failure(&place, false, |fake| run_and_leave(fake, &answers(&failed)));
        let reason = "the target does not accept this host's response";
        assert_in_order(&said, &[&who, reason, "--dhchap-secret"]);
    }
}

#[test]
fn why_this_host_refuses_stays_the_error_when_the_target_leaves() {
    let wrong = Message::Success1 {
        hash_len: 32,
        response: Some(&[0; 32]),
    };
    for place in Place::both() {
        let said = failure(&place, true, |fake| run(fake, &answers(&wrong)));
        let reason = "did not prove that it has the controller's secret";
        assert_in_order(&said, &["cannot authenticate with", reason]);
    }
}
