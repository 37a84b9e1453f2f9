//! Replay of captured sessions with this crate's host instead of Linux.
//!
//! The host receives the captured responses. Each of its commands must be a captured command, in
//! the captured order.

use std::time::Duration;

use nvme_proto::host::{
    Action, Association, OwnCommand, Payload, Recovery, Report, Settings, all_notices,
};
use nvme_proto::wire::cm::RequestData;
use nvme_proto::wire::fabrics::{ConnectCommand, ConnectData};
use nvme_proto::wire::{
    AdminOpcode, Cqe, FabricsType, FromBytes, IntoBytes, Nqn, SglDescriptor, Sqe,
};

use crate::capture::{Capsule, Session};
use crate::replay::data;

const NOW: Duration = Duration::ZERO;

struct Replay<'a> {
    session: &'a Session,
    /// Connection and frame of its last replayed command, by QID.
    connections: Vec<(usize, usize)>,
    host: Association,
    reports: Vec<Report>,
}

impl<'a> Replay<'a> {
    fn new(session: &'a Session, admin: usize, io_queues: u16) -> Self {
        let connect = session
            .commands
            .iter()
            .find(|c| c.connection == admin)
            .unwrap();
        let (sqe, _) = Sqe::split_capsule(&connect.capsule).unwrap();
        let who: &ConnectData = data(session, connect);
        let settings = Settings {
            subnqn: Nqn::decode(&who.subnqn).unwrap(),
            hostnqn: Nqn::decode(&who.hostnqn).unwrap(),
            hostid: who.hostid,
            io_queues,
            queue_entries: 128,
            kato_ms: ConnectCommand::from(*sqe).kato.get(),
            disable_sq_flow_control: false,
            expects_proof: false,
            reauthenticate_every: None,
            spare_entry: false,
            events: all_notices(),
            step_timeout: Duration::from_secs(1),
            recovery: Recovery::NONE,
        };
        let connections = (0..=usize::from(io_queues)).map(|qid| (admin + qid, 0));
        Self {
            session,
            connections: connections.collect(),
            host: Association::new(settings),
            reports: Vec::new(),
        }
    }

    fn settle(&mut self) {
        while let Some(action) = self.host.next_action() {
            match action {
                Action::Connect(spec) => {
                    let (connection, _) = self.connections[usize::from(spec.qid)];
                    let private = &self.session.requests[connection].1;
                    assert_eq!(RequestData::parse(private).unwrap(), spec.request);
                    self.host.queue_connected(spec.qid, NOW);
                }
                Action::Send(command) => self.send(&command),
                Action::Disconnect { qid } => self.host.queue_closed(qid, NOW),
                Action::Authenticate { .. } => panic!("the target does not require it"),
                Action::Report(report) => self.reports.push(report),
            }
        }
    }

    fn send(&mut self, ours: &OwnCommand) {
        let session = self.session;
        let (connection, frame) = self.connections[usize::from(ours.qid)];
        let theirs = session
            .commands
            .iter()
            .filter(|c| c.connection == connection && c.frame > frame)
            .find(|c| alike(sqe(c)) == alike(&ours.sqe));
        let theirs = theirs.unwrap_or_else(|| panic!("no Linux host sent {:?}", ours.sqe));
        self.connections[usize::from(ours.qid)].1 = theirs.frame;
        if let Payload::FromHost(bytes) = &ours.payload {
            assert_eq!(bytes[..], *data(session, theirs).as_bytes());
        }
        if AdminOpcode(ours.sqe.opc) == AdminOpcode::ASYNC_EVENT_REQUEST {
            return;
        }
        let cid = sqe(theirs).cid;
        let answer = session
            .completions
            .iter()
            .filter(|c| c.connection == connection && c.frame > theirs.frame)
            .find_map(|c| {
                let cqe = Cqe::ref_from_bytes(&c.capsule).unwrap();
                (cqe.cid == cid).then_some(cqe)
            });
        let came: &[u8] = match ours.payload {
            Payload::ToHost(_) => {
                let mut all = session.payloads();
                all.find(|(of, _)| *of == sqe(theirs)).unwrap().1
            }
            _ => &[],
        };
        self.host.completed(ours.duty, answer.unwrap(), came, NOW);
    }
}

fn sqe(command: &Capsule) -> &Sqe {
    Sqe::split_capsule(&command.capsule).unwrap().0
}

fn alike(sqe: &Sqe) -> Sqe {
    let mut sqe = *sqe;
    sqe.cid.set(0);
    sqe.flags = 0;
    sqe.dptr = SglDescriptor::none();
    sqe
}

#[test]
fn our_host_goes_the_way_that_linux_went() {
    for session in crate::sessions() {
        let connects: Vec<_> = session
            .commands
            .iter()
            .filter(|c| sqe(c).is_fabrics() && sqe(c).fctype() == FabricsType::CONNECT)
            .collect();
        for admin in connects.iter().filter(|c| c.qid == 0) {
            let connection = admin.connection;
            let io_queues = connects
                .iter()
                .skip_while(|c| c.connection <= connection)
                .take_while(|c| c.qid != 0)
                .count();
            let mut replay = Replay::new(&session, connection, io_queues as u16);
            replay.host.begin(NOW);
            replay.settle();
            assert_eq!(replay.reports, [Report::Live { tries: 0 }]);
            replay.host.shutdown(NOW);
            replay.settle();
            while let Some(at) = replay.host.deadline() {
                replay.host.tick(at);
                replay.settle();
            }
            assert_eq!(replay.reports[1..], [Report::Gone(None)]);
        }
    }
}
