//! Hosts that authenticate queues of a live association again, correctly or not.

use anyhow::{Result, bail, ensure};
use cairn_initiator::command;
use cairn_rdma::QpId;
use nvme_auth::host::{Negotiating, Replied};
use nvme_auth::message::Message;
use nvme_auth::{Names, Policy, Secret, Secrets};
use nvme_proto::wire::{FabricsType, Sqe, Status};

use super::capsules::plain;
use super::peer::{ENTRIES, Peer};
use super::unauthenticated::{FAILURE, SUCCESS, exchange};
use super::{Setting, host_nqn};

const SEND: FabricsType = FabricsType::AUTHENTICATION_SEND;
const RECEIVE: FabricsType = FabricsType::AUTHENTICATION_RECEIVE;

/// Violation of the message order during an authentication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disorder {
    /// The host sends DH-HMAC-CHAP_Success2 first.
    SuccessFirst,
    OtherTransaction,
    /// The host sends Authentication Receive first.
    Receive,
    NegotiateTwice,
    Nonsense,
}

impl Disorder {
    pub const ALL: [Self; 5] = [
        Self::SuccessFirst,
        Self::OtherTransaction,
        Self::Receive,
        Self::NegotiateTwice,
        Self::Nonsense,
    ];
}

/// Host with an admin and an I/O queue, which can authenticate again.
pub struct Renewing {
    peer: Peer,
    queues: [QpId; 2],
    transaction: u16,
    is_live: bool,
}

impl std::fmt::Debug for Renewing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Renewing")
    }
}

impl Renewing {
    pub fn new(setting: &Setting, secret: Option<&Secret>) -> Result<Self> {
        let mut peer = Peer::open(setting)?;
        let admin = peer.connect_queue(0, ENTRIES)?;
        let mut own = Self {
            peer,
            queues: [admin; 2],
            transaction: 0,
            is_live: false,
        };
        if let Some(secret) = secret {
            own.authenticate(0, secret)?;
        }
        own.peer.enable(admin)?;
        own.queues[1] = own.peer.connect_queue(1, ENTRIES)?;
        if let Some(secret) = secret {
            own.authenticate(1, secret)?;
        }
        own.is_live = true;
        Ok(own)
    }

    #[must_use]
    pub fn cntlid(&self) -> u16 {
        self.peer.cntlid
    }

    /// Connects and authenticates I/O queue `qid`, which later calls use as queue 1.
    pub fn add_queue(&mut self, qid: u16, secret: &Secret) -> Result<()> {
        self.queues[1] = self.peer.connect_queue(qid, ENTRIES)?;
        let is_live = std::mem::replace(&mut self.is_live, false);
        self.authenticate(1, secret)?;
        self.is_live = is_live;
        self.check()
    }

    /// Authenticates a queue. On a queue in use, other commands run during the authentication.
    pub fn authenticate(&mut self, qid: usize, secret: &Secret) -> Result<()> {
        let answer = self.reply(qid, secret)?;
        ensure!(answer.starts_with(&SUCCESS), "not accepted: {answer:x?}");
        Ok(())
    }

    /// Authenticates a queue with a wrong secret. The target must close the queue, or both queues
    /// if `qid` is 0.
    pub fn expect_refused(mut self, qid: usize, secret: &Secret) -> Result<()> {
        let answer = self.reply(qid, secret)?;
        self.expect_end(qid, &answer)
    }

    /// Violates the message order. The target must report the reason and close the queue.
    pub fn break_order(mut self, qid: usize, how: Disorder) -> Result<()> {
        let negotiate = self.negotiating(&some_secret()).message();
        match how {
            Disorder::Receive => {}
            Disorder::Nonsense => {
                self.exchange(qid, SEND, Some(&[0xff; 64]))?;
            }
            Disorder::SuccessFirst => {
                let success = Message::Success2.encode(0);
                self.exchange(qid, SEND, Some(&success))?;
            }
            Disorder::OtherTransaction => {
                let mut reply = self.replied(qid, &some_secret())?.message;
                reply[4] ^= 0x55;
                self.exchange(qid, SEND, Some(&reply))?;
            }
            Disorder::NegotiateTwice => {
                self.exchange(qid, SEND, Some(&negotiate))?;
                self.exchange(qid, SEND, Some(&negotiate))?;
            }
        }
        let answer = self.exchange(qid, RECEIVE, None)?;
        self.expect_end(qid, &answer)
    }

    pub fn begin(&mut self, qid: usize) -> Result<()> {
        self.replied(qid, &some_secret()).map(drop)
    }

    /// Starts an authentication. The target must reject it as unsupported, and keep the two queues.
    pub fn expect_not_offered(&mut self, qid: usize) -> Result<()> {
        let sqe = Sqe::fabrics(self.peer.new_cid(), SEND);
        self.peer
            .expect(self.queues[qid], sqe, Status::INVALID_OPCODE)?;
        self.check()
    }

    pub fn check(&mut self) -> Result<()> {
        let [admin, io] = self.queues;
        let keep_alive = plain(&mut self.peer, command::keep_alive());
        self.peer.expect(admin, keep_alive, Status::SUCCESS)?;
        let flush = command::flush(self.peer.nsid);
        let flush = plain(&mut self.peer, flush);
        self.peer.expect(io, flush, Status::SUCCESS).map(drop)
    }

    fn expect_end(&mut self, qid: usize, answer: &[u8]) -> Result<()> {
        ensure!(
            answer.starts_with(&FAILURE),
            "not AUTH_Failure1: {answer:x?}"
        );
        self.peer.expect_closed(self.queues[qid])?;
        match qid {
            0 => self.peer.expect_closed(self.queues[1]),
            _ => Ok(()),
        }
    }

    fn negotiating(&mut self, secret: &Secret) -> Negotiating {
        self.transaction += 1;
        let names = Names {
            host: host_nqn("bad-peer").raw().to_owned(),
            subsystem: self.peer.setting().subnqn.raw().to_owned(),
        };
        let secrets = Secrets {
            host: secret.clone(),
            controller: None,
        };
        Negotiating::new(names, secrets, Policy::default(), self.transaction)
    }

    fn replied(&mut self, qid: usize, secret: &Secret) -> Result<Replied> {
        let host = self.negotiating(secret);
        self.exchange(qid, SEND, Some(&host.message()))?;
        let challenge = self.exchange(qid, RECEIVE, None)?;
        match host.challenged(&challenge, 1, &mut |bytes| bytes.fill(7)) {
            Ok(replied) => Ok(replied),
            Err(_) => bail!("no challenge that a host can answer: {challenge:x?}"),
        }
    }

    fn reply(&mut self, qid: usize, secret: &Secret) -> Result<Vec<u8>> {
        let replied = self.replied(qid, secret)?;
        if self.is_live {
            self.check()?;
        }
        self.exchange(qid, SEND, Some(&replied.message))?;
        self.exchange(qid, RECEIVE, None)
    }

    fn exchange(
        &mut self,
        qid: usize,
        fctype: FabricsType,
        message: Option<&[u8]>,
    ) -> Result<Vec<u8>> {
        exchange(&mut self.peer, self.queues[qid], fctype, message)
    }
}

fn some_secret() -> Secret {
    Secret::generate(32, None, &mut |bytes| bytes.fill(0xa5))
}
