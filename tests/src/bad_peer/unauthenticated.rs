use anyhow::{Result, bail, ensure};
use cairn_initiator::Secrets;
use cairn_rdma::QpId;
use nvme_auth::host::Negotiating;
use nvme_auth::message::MESSAGE_BYTES_MAX;
use nvme_auth::{Names, Policy, Secret};
use nvme_proto::wire::fabrics::{
    AuthenticationCommand, CNTLID_DYNAMIC, PropertyGetCommand, PropertySize,
};
use nvme_proto::wire::property::offset;
use nvme_proto::wire::{AdminOpcode, FabricsType, SglDescriptor, Sqe, Status};

use super::peer::{BUFFER, ENTRIES, Peer};
use super::{Setting, host_nqn};

pub(super) const FAILURE: [u8; 2] = [0x00, 0xf1];
const CHALLENGE: [u8; 2] = [0x01, 0x01];
pub(super) const SUCCESS: [u8; 2] = [0x01, 0x03];

/// Checks that the target fails other commands before authentication, and closes the queue after a
/// failed authentication.
pub fn knock(setting: &Setting) -> Result<()> {
    let mut peer = Peer::open(setting)?;
    let admin = peer.connect_queue(0, ENTRIES)?;
    let required = Status::AUTHENTICATION_REQUIRED;
    let get = PropertyGetCommand::new(peer.new_cid(), PropertySize::Eight, offset::CAP);
    peer.expect(admin, get.into(), required)?;
    for opcode in [AdminOpcode::IDENTIFY, AdminOpcode::KEEP_ALIVE] {
        let mut sqe = Sqe::fabrics(peer.new_cid(), FabricsType::CONNECT);
        sqe.opc = opcode.0;
        peer.expect(admin, sqe, required)?;
    }
    let mut connect = Sqe::fabrics(peer.new_cid(), FabricsType::CONNECT);
    connect.dptr = SglDescriptor::none();
    let again = Status::COMMAND_SEQUENCE_ERROR;
    peer.expect(admin, connect, again)?;
    let mut other = Peer::open(setting)?;
    let io = other.dial_queue(1, ENTRIES)?;
    let connect = other.connect_command(1, ENTRIES - 1);
    let data = other.connect_data();
    let refused = other.run_connect(io, connect, &data)?;
    ensure!(
        !refused.status().is_success(),
        "an I/O queue without a host"
    );
    exchange(
        &mut peer,
        admin,
        FabricsType::AUTHENTICATION_SEND,
        Some(&[0xff; 64]),
    )?;
    let answer = exchange(&mut peer, admin, FabricsType::AUTHENTICATION_RECEIVE, None)?;
    ensure!(
        answer.starts_with(&FAILURE),
        "not AUTH_Failure1: {answer:x?}"
    );
    peer.expect_closed(admin)
}

/// Checks that the target rejects a reply recorded on another connection.
pub fn replay(setting: &Setting, secret: &Secret) -> Result<()> {
    let mut recorded: Option<(Vec<u8>, Vec<u8>)> = None;
    loop {
        let mut peer = Peer::open(setting)?;
        let admin = peer.connect_queue(0, ENTRIES)?;
        let names = Names {
            host: host_nqn("bad-peer").raw().to_owned(),
            subsystem: setting.subnqn.raw().to_owned(),
        };
        let secrets = Secrets {
            host: secret.clone(),
            controller: None,
        };
        let host = Negotiating::new(names, secrets, Policy::default(), 1);
        let (send, receive) = (
            FabricsType::AUTHENTICATION_SEND,
            FabricsType::AUTHENTICATION_RECEIVE,
        );
        exchange(&mut peer, admin, send, Some(&host.message()))?;
        let challenge = exchange(&mut peer, admin, receive, None)?;
        if let Some((old, reply)) = recorded {
            ensure!(old != challenge, "the same challenge twice");
            exchange(&mut peer, admin, send, Some(&reply))?;
            let answer = exchange(&mut peer, admin, receive, None)?;
            ensure!(
                answer.starts_with(&FAILURE),
                "a replayed reply is not refused: {answer:x?}"
            );
            return peer.expect_closed(admin);
        }
        let replied = host.challenged(&challenge, 1, &mut |bytes| bytes.fill(7));
        let Ok(replied) = replied else {
            bail!("no challenge that a host can answer: {challenge:x?}");
        };
        exchange(&mut peer, admin, send, Some(&replied.message))?;
        let answer = exchange(&mut peer, admin, receive, None)?;
        ensure!(answer.starts_with(&SUCCESS), "not accepted: {answer:x?}");
        recorded = Some((challenge, replied.message));
    }
}

/// Peer that has received a challenge and sends no reply.
pub struct HalfDone {
    _peer: Peer,
}

impl std::fmt::Debug for HalfDone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HalfDone")
    }
}

impl HalfDone {
    pub fn new(setting: &Setting) -> Result<Self> {
        let mut peer = Peer::open(setting)?;
        let admin = peer.connect_queue(0, ENTRIES)?;
        let names = Names {
            host: String::new(),
            subsystem: String::new(),
        };
        let secrets = Secrets {
            host: Secret::generate(32, None, &mut |bytes| bytes.fill(1)),
            controller: None,
        };
        let begun = Negotiating::new(names, secrets, Policy::default(), 1).message();
        exchange(
            &mut peer,
            admin,
            FabricsType::AUTHENTICATION_SEND,
            Some(&begun),
        )?;
        let answer = exchange(&mut peer, admin, FabricsType::AUTHENTICATION_RECEIVE, None)?;
        ensure!(answer.starts_with(&CHALLENGE), "no challenge: {answer:x?}");
        Ok(Self { _peer: peer })
    }
}

/// Peers that connect with another host's NQN, but do not authenticate.
pub struct Impostors {
    _peers: Vec<Peer>,
}

impl std::fmt::Debug for Impostors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Impostors")
    }
}

impl Impostors {
    /// Starts two peers that connect the queues `qids` without authentication. Queue 0 requests a
    /// new controller, other queues the controller `cntlid`.
    pub fn new(setting: &Setting, cntlid: u16, qids: &[u16]) -> Result<Self> {
        let mut peers = Vec::new();
        for _ in 0..2 {
            let mut peer = Peer::open(setting)?;
            for &qid in qids {
                peer.cntlid = if qid == 0 { CNTLID_DYNAMIC } else { cntlid };
                let qp = peer.connect_queue(qid, ENTRIES)?;
                let mut sqe = Sqe::fabrics(peer.new_cid(), FabricsType::CONNECT);
                sqe.opc = AdminOpcode::KEEP_ALIVE.0;
                peer.expect(qp, sqe, Status::AUTHENTICATION_REQUIRED)?;
            }
            peers.push(peer);
        }
        Ok(Self { _peers: peers })
    }
}

pub(super) fn exchange(
    peer: &mut Peer,
    admin: QpId,
    fctype: FabricsType,
    message: Option<&[u8]>,
) -> Result<Vec<u8>> {
    let length = message.map_or(MESSAGE_BYTES_MAX, <[u8]>::len);
    let bytes = message.map_or_else(|| vec![0; length], <[u8]>::to_vec);
    peer.node.fill(BUFFER, &bytes);
    let mut command = AuthenticationCommand::from(Sqe::fabrics(peer.new_cid(), fctype));
    (command.secp, command.spsp0, command.spsp1) = (0xe9, 1, 1);
    command.length.set(length as u32);
    command.sgl1 = peer.keyed(length as u32);
    peer.expect(admin, command.into(), Status::SUCCESS)?;
    Ok(peer.node.bytes(BUFFER, length))
}
