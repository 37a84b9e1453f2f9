//! Test fixture: a subsystem with its host and target.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nvme_proto::ana::AnaStates;
use nvme_proto::controller::{
    Action, AdminCommand, Completion, ConnectRequest, Exchange, Outcome, Refusal, SmartCounters,
    Transfer,
};
use nvme_proto::discovery::LocalEnd;
use nvme_proto::limits::Limits;
use nvme_proto::namespace::{Atomic, Namespace};
use nvme_proto::subsystem::{Arrival, CNTLIDS_ALL, Connected, HostAccess, Settings, Subsystem};
use nvme_proto::wire::fabrics::{
    ConnectCommand, ConnectData, PropertyGetCommand, PropertySetCommand, PropertySize,
};
use nvme_proto::wire::feature::WriteProtectionState;
use nvme_proto::wire::identify::{Cns, IdentifyCdw10};
use nvme_proto::wire::property::offset;
use nvme_proto::wire::{AdminOpcode, FromBytes, FromZeros, Nqn, Sqe, Status, U16, U32};

pub(crate) const SUBNQN: &str = "nqn.2026-01.org.example:disks";
pub(crate) const HOSTNQN: &str = "nqn.2026-01.org.example:host";

/// Values of CC written by Linux.
pub(crate) const CC_DISABLED: u64 = 0x0046_0060;
pub(crate) const CC_ENABLED: u64 = 0x0046_0061;
pub(crate) const CC_SHUT_DOWN: u64 = 0x0046_4061;
pub(crate) const CC_SHUT_DOWN_ABRUPTLY: u64 = 0x0046_8061;

pub(crate) fn nqn(name: &str) -> Nqn {
    name.parse().unwrap()
}

pub(crate) fn settings() -> Settings {
    Settings {
        nqn: nqn(SUBNQN),
        serial: "CAIRN0001".into(),
        model: "Cairn".into(),
        firmware: "0.1.0".into(),
        hosts: HostAccess::Any,
        volatile_write_cache: true,
        cntlids: CNTLIDS_ALL,
        limits: Limits::default(),
    }
}

pub(crate) fn namespace(nsid: u32) -> Namespace {
    Namespace {
        nsid,
        uuid: [nsid as u8; 16],
        nguid: [0; 16],
        eui64: [0; 8],
        anagrpid: 1,
        blocks: 1 << 20,
        block_shift: 12,
        read_only: false,
        protectable: true,
        keeps_protection: false,
        protection: WriteProtectionState::NONE,
        deallocates: true,
        write_uncorrectable: false,
        reservable: true,
        keeps_reservations: true,
        reservations_persist: false,
        preferred: None,
        atomic: Atomic::BLOCK,
        boundary: 0,
    }
}

#[derive(Clone)]
pub(crate) struct Connect {
    pub command: ConnectCommand,
    pub data: ConnectData,
}

impl Connect {
    pub(crate) fn admin(subnqn: &str, kato_ms: u32) -> Self {
        let mut command = ConnectCommand::new_zeroed();
        command.opc = 0x7f;
        command.flags = Sqe::FLAGS_SGL;
        command.fctype = 1;
        command.sqsize = U16::new(31);
        command.kato = U32::new(kato_ms);
        let mut data = ConnectData::new_zeroed();
        data.hostid = [7; 16];
        data.cntlid = U16::new(0xffff);
        data.subnqn = nqn(subnqn).encode();
        data.hostnqn = nqn(HOSTNQN).encode();
        Self { command, data }
    }

    pub(crate) fn io(cntlid: u16, qid: u16) -> Self {
        let mut connect = Self::admin(SUBNQN, 0);
        connect.command.qid = U16::new(qid);
        connect.command.sqsize = U16::new(127);
        connect.data.cntlid = U16::new(cntlid);
        connect
    }

    pub(crate) fn send(
        &self,
        subsystem: &mut Subsystem,
        now: Duration,
    ) -> Result<Connected, Refusal> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let request = ConnectRequest::parse(&self.command.into(), &self.data)?;
        let local = Some(LocalEnd {
            address: "192.0.2.1".parse().unwrap(),
            pkey: 0xffff,
        });
        subsystem.connect(
            &request,
            &Arrival {
                now,
                cm: None,
                peer: None,
                local,
                port: 0,
                random: NEXT.fetch_add(1, Ordering::Relaxed),
                ana: &AnaStates::default(),
            },
        )
    }
}

pub(crate) struct Rig {
    pub subsystem: Subsystem,
    pub now: Duration,
    pub cntlid: u16,
    pub actions: Vec<Action>,
    pub smart: SmartCounters,
    last_cid: u16,
}

impl Rig {
    pub(crate) fn connected(mut subsystem: Subsystem, kato_ms: u32) -> Self {
        let subnqn = subsystem.settings().nqn;
        let now = Duration::from_secs(1000);
        let connect = Connect::admin(subnqn.raw(), kato_ms);
        let connected = connect.send(&mut subsystem, now).unwrap();
        Self {
            subsystem,
            now,
            cntlid: connected.cntlid,
            actions: Vec::new(),
            smart: SmartCounters::default(),
            last_cid: 0,
        }
    }

    pub(crate) fn ready() -> Self {
        let mut subsystem = Subsystem::new(settings());
        for nsid in [1, 2] {
            subsystem
                .add_namespace(namespace(nsid), &mut Vec::new())
                .unwrap();
        }
        let mut rig = Self::connected(subsystem, 5000);
        rig.enable();
        rig
    }

    pub(crate) fn enable(&mut self) {
        assert_eq!(self.set_cc(CC_DISABLED).status, Status::SUCCESS);
        assert_eq!(self.set_cc(CC_ENABLED).status, Status::SUCCESS);
    }

    pub(crate) fn set_cc(&mut self, cc: u64) -> Completion {
        let set = PropertySetCommand::new(0, PropertySize::Four, offset::CC, cc);
        self.complete(set.into())
    }

    pub(crate) fn csts(&mut self) -> u32 {
        let get = PropertyGetCommand::new(0, PropertySize::Four, offset::CSTS);
        self.complete(get.into()).result as u32
    }

    pub(crate) fn send(&mut self, mut sqe: Sqe, data_in: &[u8]) -> (Outcome, Vec<u8>) {
        self.last_cid += 1;
        sqe.cid.set(self.last_cid);
        self.send_as_is(&sqe, data_in)
    }

    pub(crate) fn send_as_is(&mut self, sqe: &Sqe, data_in: &[u8]) -> (Outcome, Vec<u8>) {
        let (cntlid, cid) = (self.cntlid, sqe.cid.get());
        let transfer_bytes = self.subsystem.settings().limits.transfer_bytes();
        let command = match AdminCommand::parse(sqe, transfer_bytes) {
            Ok(command) => command,
            Err(refusal) => {
                let completion = self.subsystem.refuse(cntlid, cid, refusal);
                return (Outcome::Complete(completion), Vec::new());
            }
        };
        let (from_host, to_host) = match command.transfer() {
            Transfer::None => (0, 0),
            Transfer::ToHost { length } => (0, length as usize),
            Transfer::FromHost { length } => (length as usize, 0),
        };
        // The filler shows bytes that were not written.
        let mut data_out = vec![0xee; to_host];
        let exchange = Exchange {
            now: self.now,
            smart: &self.smart,
            data_in: &data_in[..from_host],
            data_out: &mut data_out,
        };
        let outcome = self
            .subsystem
            .execute(cntlid, cid, &command, exchange, &mut self.actions);
        (outcome, data_out)
    }

    pub(crate) fn complete(&mut self, sqe: Sqe) -> Completion {
        completion(self.send(sqe, &[0; 512]).0)
    }

    pub(crate) fn succeed(&mut self, sqe: Sqe) -> (u32, Vec<u8>) {
        let (outcome, data) = self.send(sqe, &[0; 512]);
        let completion = completion(outcome);
        assert_eq!(completion.status, Status::SUCCESS, "{sqe:?}");
        (completion.result as u32, data)
    }

    pub(crate) fn fail(&mut self, sqe: Sqe) -> Status {
        let completion = self.complete(sqe);
        assert!(!completion.status.is_success(), "{sqe:?}");
        assert!(
            completion.status.more(),
            "every failure is in the error log"
        );
        completion.status.code()
    }

    pub(crate) fn identify(&mut self, cns: Cns, nsid: u32) -> Vec<u8> {
        self.succeed(identify(cns, nsid)).1
    }

    pub(crate) fn identify_as<T: FromBytes>(&mut self, cns: Cns, nsid: u32) -> T {
        T::read_from_bytes(&self.identify(cns, nsid)).ok().unwrap()
    }

    pub(crate) fn log(&mut self, lid: u8, length: usize) -> Vec<u8> {
        self.succeed(log(lid, length)).1
    }

    pub(crate) fn park_aer(&mut self) -> u16 {
        let (outcome, _) = self.send(sqe(AdminOpcode::ASYNC_EVENT_REQUEST), &[]);
        assert_eq!(outcome, Outcome::Parked);
        self.last_cid
    }

    pub(crate) fn take_actions(&mut self) -> Vec<Action> {
        core::mem::take(&mut self.actions)
    }

    pub(crate) fn connect_io(&mut self, qid: u16) -> Result<Connected, Refusal> {
        Connect::io(self.cntlid, qid).send(&mut self.subsystem, self.now)
    }

    pub(crate) fn disconnect(&mut self, qid: u16) {
        let (cntlid, now) = (self.cntlid, self.now);
        self.subsystem
            .queue_disconnected(cntlid, qid, now, &mut self.actions);
    }

    pub(crate) fn flushed(&mut self, intact: bool) {
        let (cntlid, now) = (self.cntlid, self.now);
        self.subsystem
            .flushed(cntlid, intact, now, &mut self.actions);
    }

    pub(crate) fn last_cid(&self) -> u16 {
        self.last_cid
    }
}

pub(crate) fn completion(outcome: Outcome) -> Completion {
    match outcome {
        Outcome::Complete(completion) => completion,
        Outcome::Parked => panic!("the command was parked"),
    }
}

pub(crate) fn sqe(opcode: AdminOpcode) -> Sqe {
    let mut sqe = Sqe::new_zeroed();
    sqe.opc = opcode.0;
    sqe.flags = Sqe::FLAGS_SGL;
    sqe
}

pub(crate) fn identify(cns: Cns, nsid: u32) -> Sqe {
    let mut sqe = sqe(AdminOpcode::IDENTIFY);
    sqe.nsid.set(nsid);
    sqe.cdw10.set(IdentifyCdw10(0).with_cns(cns.0).0);
    sqe
}

pub(crate) fn log(lid: u8, length: usize) -> Sqe {
    let numd = length as u32 / 4 - 1;
    let mut sqe = sqe(AdminOpcode::GET_LOG_PAGE);
    sqe.nsid.set(u32::MAX);
    sqe.cdw10.set(u32::from(lid) | numd << 16);
    sqe.cdw11.set(numd >> 16);
    sqe
}

pub(crate) fn log_at(lid: u8, length: usize, lpo: u64) -> Sqe {
    let mut sqe = log(lid, length);
    sqe.cdw12.set(lpo as u32);
    sqe.cdw13.set((lpo >> 32) as u32);
    sqe
}

pub(crate) fn with_rae(mut sqe: Sqe) -> Sqe {
    sqe.cdw10.set(sqe.cdw10.get() | 1 << 15);
    sqe
}

pub(crate) fn get_features(fid: u8, select: u32, cdw11: u32) -> Sqe {
    let mut sqe = sqe(AdminOpcode::GET_FEATURES);
    sqe.cdw10.set(u32::from(fid) | select << 8);
    sqe.cdw11.set(cdw11);
    sqe
}

pub(crate) fn set_features(fid: u8, cdw11: u32) -> Sqe {
    let mut sqe = sqe(AdminOpcode::SET_FEATURES);
    sqe.cdw10.set(u32::from(fid));
    sqe.cdw11.set(cdw11);
    sqe
}

pub(crate) fn read<T: FromBytes>(data: &[u8]) -> T {
    T::read_from_prefix(data).ok().unwrap().0
}
