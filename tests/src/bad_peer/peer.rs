use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use cairn_rdma::{ConnectOptions, Event, Operation, PKey, QpId, QpOptions, RemoteBuffer};
use nvme_proto::wire::cm::{RejectData, RejectStatus, RequestData};
use nvme_proto::wire::fabrics::{
    CNTLID_DYNAMIC, ConnectCommand, ConnectData, PropertyGetCommand, PropertySetCommand,
    PropertySize,
};
use nvme_proto::wire::property::{Cc, Csts, offset};
use nvme_proto::wire::{Cqe, FromBytes, FromZeros, IntoBytes, SglDescriptor, Sqe, Status, U16};

use super::{Setting, host_nqn};
use crate::node::{DATA, Node, SLOT, qp_of, signaled, slot_of};

pub(super) const ENTRIES: u16 = 32;
const CAPSULES: usize = 128;
pub(super) const BUFFER: usize = DATA + CAPSULES * SLOT;
pub(super) const BUFFER_LEN: u32 = 1024 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Response(Cqe),
    Closed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    Status(RejectStatus),
    Silent,
}

pub(super) struct Peer {
    pub(super) node: Node,
    setting: Setting,
    pub(super) nsid: u32,
    pub(super) cntlid: u16,
    next_capsule: usize,
    next_cid: u16,
    replenish: bool,
    responses: VecDeque<(QpId, Cqe)>,
}

impl Peer {
    pub(super) fn open(setting: &Setting) -> Result<Self> {
        let mut peer = Self::open_deaf(setting)?;
        peer.node.post_receives(0..crate::node::RECEIVES)?;
        peer.replenish = true;
        Ok(peer)
    }

    pub(super) fn open_deaf(setting: &Setting) -> Result<Self> {
        let device = setting.provider.device_for(setting.remote, None)?;
        Ok(Self {
            node: Node::open(&device)?,
            setting: setting.clone(),
            nsid: setting.nsid,
            cntlid: CNTLID_DYNAMIC,
            next_capsule: 0,
            next_cid: 0,
            replenish: false,
            responses: VecDeque::new(),
        })
    }

    pub(super) fn setting(&self) -> &Setting {
        &self.setting
    }

    pub(super) fn read_again(&mut self) -> Result<()> {
        self.node.post_receives(0..crate::node::RECEIVES)?;
        self.replenish = true;
        Ok(())
    }

    pub(super) fn with_controller(setting: &Setting) -> Result<(Self, QpId)> {
        let mut peer = Self::open(setting)?;
        let admin = peer.connect_queue(0, ENTRIES)?;
        peer.enable(admin)?;
        Ok((peer, admin))
    }

    pub(super) fn with_io_queue(setting: &Setting) -> Result<(Self, QpId, QpId)> {
        let (mut peer, admin) = Self::with_controller(setting)?;
        let io = peer.connect_queue(1, ENTRIES)?;
        Ok((peer, admin, io))
    }

    pub(super) fn dial(
        &mut self,
        private_data: &[u8],
        qp: &QpOptions,
    ) -> Result<Result<QpId, Refusal>> {
        let options = ConnectOptions {
            remote: self.setting.remote,
            local: None,
            pkey: PKey::DEFAULT,
            qp: *qp,
            timeout: self.setting.patience,
        };
        self.setting.dials.fetch_add(1, Ordering::Relaxed);
        let qp = self.node.endpoint.connect(&options, private_data)?;
        let event = self.wait("an answer to the connection request", |peer| {
            peer.node.take_event(|event| qp_of(event) == Some(qp))
        })?;
        match event {
            Event::Established { .. } => Ok(Ok(qp)),
            Event::Rejected { private_data, .. } => {
                let data = RejectData::parse(private_data.as_slice()).ok();
                Ok(Err(match data.filter(|data| data.sts.get() != 0) {
                    Some(data) => Refusal::Status(data.status()),
                    None => Refusal::Silent,
                }))
            }
            other => bail!("the connection request ended in {other:?}"),
        }
    }

    pub(super) fn dial_queue(&mut self, qid: u16, entries: u16) -> Result<QpId> {
        let cntlid = if qid == 0 { 0 } else { self.cntlid };
        let request = RequestData::new(qid, entries, entries - 1, cntlid);
        match self.dial(request.as_bytes(), &host_qp())? {
            Ok(qp) => Ok(qp),
            Err(refusal) => bail!("the target refuses queue {qid}: {refusal:?}"),
        }
    }

    pub(super) fn connect_queue(&mut self, qid: u16, entries: u16) -> Result<QpId> {
        let qp = self.dial_queue(qid, entries)?;
        self.connect_on(qp, qid, entries)
    }

    pub(super) fn connect_queue_with(&mut self, qid: u16, entries: u16, reads: u8) -> Result<QpId> {
        let request = RequestData::new(qid, entries, entries - 1, self.cntlid);
        let options = QpOptions {
            responder_resources: reads,
            ..host_qp()
        };
        let dialed = self.dial(request.as_bytes(), &options)?;
        let qp = dialed.map_err(|refusal| anyhow::anyhow!("{refusal:?}"))?;
        self.connect_on(qp, qid, entries)
    }

    fn connect_on(&mut self, qp: QpId, qid: u16, entries: u16) -> Result<QpId> {
        let connect = self.connect_command(qid, entries - 1);
        let data = self.connect_data();
        let cqe = self.run_connect(qp, connect, &data)?;
        ensure!(
            cqe.status().is_success(),
            "Connect of queue {qid} ended in {}",
            cqe.status()
        );
        self.cntlid = cqe.dw0.get() as u16;
        Ok(qp)
    }

    pub(super) fn connect_command(&mut self, qid: u16, sqsize: u16) -> ConnectCommand {
        let cid = self.new_cid();
        let mut connect = ConnectCommand::from(Sqe::fabrics(cid, ConnectCommand::FCTYPE));
        connect.qid = U16::new(qid);
        connect.sqsize = U16::new(sqsize);
        connect
    }

    pub(super) fn connect_data(&self) -> ConnectData {
        let mut data = ConnectData::new_zeroed();
        data.hostid = *b"a bad peer's id!";
        data.cntlid = U16::new(self.cntlid);
        data.subnqn = self.setting.subnqn.encode();
        data.hostnqn = host_nqn("bad-peer").encode();
        data
    }

    pub(super) fn run_connect(
        &mut self,
        qp: QpId,
        mut connect: ConnectCommand,
        data: &ConnectData,
    ) -> Result<Cqe> {
        self.node.fill(BUFFER, data.as_bytes());
        connect.sgl1 = self.keyed(data.as_bytes().len() as u32);
        self.run(qp, connect.into())
    }

    pub(super) fn enable(&mut self, admin: QpId) -> Result<()> {
        let cc = Cc(0).with_iosqes(6).with_iocqes(4).with_en(true);
        let set =
            PropertySetCommand::new(self.new_cid(), PropertySize::Four, offset::CC, cc.0.into());
        let cqe = self.run(admin, set.into())?;
        ensure!(cqe.status().is_success(), "CC.EN: {}", cqe.status());
        self.wait_ready(admin, true)
    }

    pub(super) fn wait_ready(&mut self, admin: QpId, ready: bool) -> Result<()> {
        let deadline = Instant::now() + self.setting.patience;
        loop {
            let get = PropertyGetCommand::new(self.new_cid(), PropertySize::Four, offset::CSTS);
            let csts = Csts(self.run(admin, get.into())?.dw0.get());
            if csts.rdy() == ready {
                return Ok(());
            }
            ensure!(
                Instant::now() < deadline,
                "CSTS.RDY does not become {ready}"
            );
        }
    }

    pub(super) fn new_cid(&mut self) -> u16 {
        self.next_cid = self.next_cid.wrapping_add(1);
        self.next_cid
    }

    pub(super) fn keyed(&self, length: u32) -> SglDescriptor {
        let RemoteBuffer { addr, rkey } = self.node.remote(BUFFER);
        SglDescriptor::keyed(addr, length, rkey, false)
    }

    pub(super) fn say(&mut self, qp: QpId, capsule: &[u8]) -> Result<()> {
        self.say_all(qp, &[capsule])
    }

    pub(super) fn say_all(&mut self, qp: QpId, capsules: &[&[u8]]) -> Result<()> {
        assert!(capsules.len() <= CAPSULES, "too much at a time");
        let mut chain = Vec::with_capacity(capsules.len());
        for capsule in capsules {
            let at = DATA + self.next_capsule * SLOT;
            self.next_capsule = (self.next_capsule + 1) % CAPSULES;
            self.node.fill(at, capsule);
            let sge = self.node.sge(at, capsule.len());
            chain.push(signaled(0, Operation::Send, sge.into()));
        }
        self.node
            .endpoint
            .post(qp, &chain)
            .context("sending a capsule")
    }

    pub(super) fn run(&mut self, qp: QpId, sqe: Sqe) -> Result<Cqe> {
        self.run_capsule(qp, sqe.as_bytes())
    }

    pub(super) fn run_capsule(&mut self, qp: QpId, capsule: &[u8]) -> Result<Cqe> {
        let (sqe, _) = Sqe::split_capsule(capsule).context("a capsule without an SQE")?;
        let cid = sqe.cid.get();
        self.say(qp, capsule)?;
        loop {
            match self.receive(qp)? {
                Answer::Response(cqe) if cqe.cid.get() == cid => return Ok(cqe),
                Answer::Response(_) => {}
                Answer::Closed => bail!("the target closed the queue instead of answering"),
            }
        }
    }

    pub(super) fn expect(&mut self, qp: QpId, sqe: Sqe, status: Status) -> Result<Cqe> {
        self.expect_capsule(qp, sqe.as_bytes(), status)
    }

    pub(super) fn expect_capsule(
        &mut self,
        qp: QpId,
        capsule: &[u8],
        status: Status,
    ) -> Result<Cqe> {
        let cqe = self.run_capsule(qp, capsule)?;
        ensure!(
            cqe.status().code() == status,
            "it ended in {}, not in {status}",
            cqe.status()
        );
        Ok(cqe)
    }

    pub(super) fn receive(&mut self, qp: QpId) -> Result<Answer> {
        self.wait("a response, or the end of the queue", |peer| {
            peer.try_receive(qp)
        })
    }

    pub(super) fn expect_closed(&mut self, qp: QpId) -> Result<()> {
        self.wait("the end of the queue", |peer| {
            while let Some(answer) = peer.try_receive(qp) {
                if answer == Answer::Closed {
                    return Some(());
                }
            }
            None
        })
    }

    pub(super) fn hang_up(&mut self, qp: QpId) -> Result<()> {
        self.node.endpoint.disconnect(qp);
        self.wait("the end of the queue", |peer| {
            peer.node.is_closed(qp).then_some(())
        })
    }

    pub(super) fn wait<T>(
        &mut self,
        what: &str,
        mut ready: impl FnMut(&mut Self) -> Option<T>,
    ) -> Result<T> {
        let patience = self.setting.patience;
        let deadline = Instant::now() + patience;
        loop {
            let progress = self.node.pump()?;
            self.listen()?;
            if let Some(value) = ready(self) {
                self.node.endpoint.arm()?;
                return Ok(value);
            }
            ensure!(Instant::now() < deadline, "no {what} within {patience:?}");
            if !progress {
                thread::sleep(Duration::from_micros(50));
            }
        }
    }

    fn listen(&mut self) -> Result<()> {
        self.node.forget_sends();
        while let Some(landed) = self.node.take_receive() {
            if landed.status.is_success() {
                let bytes = self.node.received(&landed);
                let cqe = Cqe::read_from_bytes(&bytes).ok();
                let cqe = cqe.with_context(|| format!("a response of {} bytes", bytes.len()))?;
                self.responses.push_back((landed.qp, cqe));
            }
            if self.replenish {
                let slot = slot_of(landed.id);
                self.node.post_receives(slot..slot + 1)?;
            }
        }
        Ok(())
    }

    fn try_receive(&mut self, qp: QpId) -> Option<Answer> {
        if let Some(at) = self.responses.iter().position(|(on, _)| *on == qp) {
            return self
                .responses
                .remove(at)
                .map(|(_, cqe)| Answer::Response(cqe));
        }
        let about_end =
            |event: &Event| qp_of(event) == Some(qp) && !matches!(event, Event::Established { .. });
        if let Some(Event::Disconnected { .. }) = self.node.take_event(about_end) {
            self.node.endpoint.disconnect(qp);
        }
        self.node.is_closed(qp).then_some(Answer::Closed)
    }
}

pub(super) fn host_qp() -> QpOptions {
    QpOptions {
        send_work: 256,
        initiator_depth: 0,
        responder_resources: 16,
        rnr_retry_count: 7,
        ..QpOptions::default()
    }
}
