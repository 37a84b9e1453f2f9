//! Bring-up of an association, in Linux's order: admin queue, controller, I/O queues, events.

use alloc::boxed::Box;
use core::time::Duration;

use zerocopy::{FromBytes, IntoBytes};

use crate::wire::cm::{CNTLID_NONE, RequestData};
use crate::wire::cqe::CQE_BYTES;
use crate::wire::fabrics::{
    CNTLID_DYNAMIC, Cattr, ConnectCommand, ConnectData, ConnectResult, PropertyGetCommand,
    PropertySetCommand, PropertySize,
};
use crate::wire::feature::{AsyncEventConfig, Feature, NumberOfQueues, SetFeaturesCdw10};
use crate::wire::identify::{Cns, IDENTIFY_BYTES, IdentifyCdw10, IdentifyController, Lpa, Sgls};
use crate::wire::log::{CommandEffects, CommandEffectsLog, GetLogCdw10, LogPage};
use crate::wire::property::{Cap, Cc, Crto, Csts, Vs, offset};
use crate::wire::sqe::SQE_BYTES;
use crate::wire::{AdminOpcode, Cqe, NvmOpcode, Sqe};

use super::teardown::Teardown;
use super::{Action, Association, AssociationState, Cause, Payload, Phase, QueueSpec, Report};

/// Entries of the admin queue: the specified minimum, as in Linux.
pub const ADMIN_ENTRIES: u16 = 32;
/// Maximum in-capsule data in bytes, even if IOCCSZ allows more.
pub const IN_CAPSULE_BYTES_MAX: usize = 16 * 1024;

/// Bytes per unit of IOCCSZ and IORCSZ (Base, 5.17.2.1).
const CAPSULE_UNIT: usize = 16;
/// Milliseconds per unit of CAP.TO and CRTO.
const READY_UNIT_MS: u64 = 500;
/// Interval between reads of CSTS.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);
const COMMAND_EFFECTS_BYTES: usize = size_of::<CommandEffectsLog>();
const REAUTHENTICATION: &str = "reauthentication";
const IOSQES: u8 = SQE_BYTES.trailing_zeros() as u8;
const IOCQES: u8 = CQE_BYTES.trailing_zeros() as u8;

/// Steps of the bring-up, in order.
///
/// After [`Step::QueueCount`], the first three repeat for each I/O queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Link(u16),
    Connect(u16),
    Authenticate(u16),
    Capabilities,
    Configure,
    /// Reads CAP again, because CC.CSS may change it (Base, 3.1.3.1).
    CapabilitiesAgain,
    /// Reads CRTO, if CAP.CRMS announces it.
    ReadyTimeouts,
    Enable,
    Ready,
    Version,
    Identify,
    Effects,
    QueueCount,
    Events,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct IoQueues {
    pub(super) count: u16,
    sqsize: u16,
    capsule_bytes: usize,
}

impl Step {
    fn name(self) -> &'static str {
        match self {
            Self::Link(_) => "a connection",
            Self::Connect(_) => "Connect",
            Self::Authenticate(_) => "authentication",
            Self::Capabilities | Self::CapabilitiesAgain => "Property Get (CAP)",
            Self::ReadyTimeouts => "Property Get (CRTO)",
            Self::Configure | Self::Enable => "Property Set (CC)",
            Self::Ready => "Property Get (CSTS)",
            Self::Version => "Property Get (VS)",
            Self::Identify => "Identify Controller",
            Self::Effects => "Get Log Page (05h)",
            Self::QueueCount => "Set Features (Number of Queues)",
            Self::Events => "Set Features (Asynchronous Event Configuration)",
        }
    }
}

impl Association {
    pub(super) fn start_bring_up(&mut self, now: Duration) {
        self.authenticated = false;
        self.step(Step::Link(0), now);
    }

    pub(super) fn step(&mut self, step: Step, now: Duration) {
        self.phase = Phase::BringUp(step);
        match step {
            Step::Link(qid) => self.link(qid, now),
            Step::Connect(qid) => self.send_connect(qid, now),
            Step::Authenticate(qid) => self.ask_for_authentication(qid, None),
            Step::Capabilities | Step::CapabilitiesAgain => {
                self.get_property(PropertySize::Eight, offset::CAP, now);
            }
            Step::Configure => {
                self.cc = configuration(self.cap);
                self.set_cc(self.cc, now);
            }
            Step::ReadyTimeouts => self.get_property(PropertySize::Four, offset::CRTO, now),
            Step::Enable => {
                self.cc = self.cc.with_en(true);
                self.set_cc(self.cc, now);
            }
            Step::Ready => {
                self.reached_by = now + self.ready_timeout();
                self.look(now);
            }
            Step::Version => self.get_property(PropertySize::Four, offset::VS, now),
            Step::Identify => {
                let mut sqe = command(AdminOpcode::IDENTIFY);
                sqe.cdw10
                    .set(IdentifyCdw10(0).with_cns(Cns::CONTROLLER.0).0);
                self.send_step(0, sqe, Payload::ToHost(IDENTIFY_BYTES as u32), now);
            }
            Step::Effects => {
                let numd = COMMAND_EFFECTS_BYTES as u32 / 4 - 1;
                let cdw10 = GetLogCdw10(0).with_lid(LogPage::COMMAND_EFFECTS.0);
                let mut sqe = command(AdminOpcode::GET_LOG_PAGE);
                sqe.cdw10.set(cdw10.with_numdl(numd as u16).0);
                self.send_step(0, sqe, Payload::ToHost(COMMAND_EFFECTS_BYTES as u32), now);
            }
            Step::QueueCount => {
                let count = self.settings.io_queues - 1;
                let asked = NumberOfQueues(0).with_nsq(count).with_ncq(count);
                self.set_feature(Feature::NUMBER_OF_QUEUES, asked.0, now);
            }
            Step::Events => {
                let enabled = self.enabled_events();
                self.set_feature(Feature::ASYNC_EVENT_CONFIGURATION, enabled.0, now);
            }
        }
    }

    pub(super) fn step_answered(&mut self, cqe: &Cqe, data: &[u8], now: Duration) {
        let status = cqe.status();
        let is_optional = self.phase == Phase::BringUp(Step::Effects);
        if !status.is_success() && !is_optional {
            let command = match self.phase {
                Phase::BringUp(step) => step.name(),
                Phase::Live => REAUTHENTICATION,
                _ => Teardown::COMMAND,
            };
            let result = cqe.result();
            let cause = Cause::Status {
                command,
                status,
                result,
            };
            return match self.phase {
                Phase::Live => self.not_renewed(cause, now),
                _ => self.fail(cause, now),
            };
        }
        if let Some(qid) = self.authenticating() {
            return self.ask_for_authentication(qid, Some(data));
        }
        match self.phase {
            Phase::BringUp(step) => match self.learn(step, cqe, data, now) {
                Ok(next) => self.step_ended(next, now),
                Err(cause) => self.fail(cause, now),
            },
            Phase::TearingDown(teardown) => self.left(teardown, cqe, now),
            _ => {}
        }
    }

    fn learn(
        &mut self,
        step: Step,
        cqe: &Cqe,
        data: &[u8],
        now: Duration,
    ) -> Result<Option<Step>, Cause> {
        Ok(Some(match step {
            Step::Link(qid) => Step::Connect(qid),
            Step::Connect(qid) => return self.after_connect_command(qid, cqe),
            Step::Authenticate(qid) => return Ok(self.after_connect(qid)),
            Step::Capabilities => {
                self.cap = Cap(cqe.result());
                if self.cap.mpsmin() > 0 {
                    return Err(Cause::Unusable(
                        "it requires host pages larger than 4 KiB (CAP.MPSMIN)",
                    ));
                }
                Step::Configure
            }
            Step::Configure => Step::CapabilitiesAgain,
            Step::CapabilitiesAgain => {
                self.cap = Cap(cqe.result());
                self.crwmt = 0;
                if self.cap.crwms() {
                    Step::ReadyTimeouts
                } else {
                    Step::Enable
                }
            }
            Step::ReadyTimeouts => {
                self.crwmt = Crto(cqe.dw0.get()).crwmt();
                Step::Enable
            }
            Step::Enable => Step::Ready,
            Step::Ready => match Csts(cqe.dw0.get()) {
                csts if csts.cfs() => return Err(Cause::Fatal),
                csts if csts.rdy() => Step::Version,
                _ => return self.look_again(now).map(|()| Some(Step::Ready)),
            },
            Step::Version => {
                self.vs = Vs(cqe.dw0.get());
                Step::Identify
            }
            Step::Identify => {
                let identity = IdentifyController::read_from_bytes(data)
                    .map_err(|_| Cause::Unusable("its Identify data are not 4096 bytes long"))?;
                self.check_usable(&identity)?;
                self.io_queues = self.shape(&identity);
                let has_effects = Lpa(identity.lpa).command_effects();
                self.identity = Some(Box::new(identity));
                self.cancels = false;
                match self.settings.io_queues {
                    0 => return Ok(self.after_queue(0)),
                    _ if has_effects => Step::Effects,
                    _ => Step::QueueCount,
                }
            }
            Step::Effects => {
                let log = CommandEffectsLog::ref_from_bytes(data).ok();
                let log = log.filter(|_| cqe.status().is_success());
                let effects = log.map(|log| log.iocs[usize::from(NvmOpcode::CANCEL.0)]);
                self.cancels = effects.is_some_and(|of| CommandEffects(of.get()).csupp());
                Step::QueueCount
            }
            Step::QueueCount => {
                let granted = NumberOfQueues(cqe.dw0.get());
                let granted = granted.nsq().min(granted.ncq()).saturating_add(1);
                self.io_queues.count = granted.min(self.settings.io_queues);
                Step::Link(1)
            }
            Step::Events => return Ok(None),
        }))
    }

    fn go_on(&mut self, next: Step, now: Duration) {
        if self.look_at.is_none() {
            self.step(next, now);
        }
    }

    fn after_connect_command(&mut self, qid: u16, cqe: &Cqe) -> Result<Option<Step>, Cause> {
        let result = ConnectResult(cqe.dw0.get());
        if result.ascr() {
            return Err(Cause::Unusable(
                "it requires a secure channel, which RDMA does not have",
            ));
        }
        if qid == 0 {
            self.cntlid = result.cntlid();
        }
        if result.atr() {
            return Ok(Some(Step::Authenticate(qid)));
        }
        if self.settings.expects_proof && !self.settings.subnqn.is_discovery() {
            return Err(Cause::NotAuthenticated(
                "the target does not ask for it, and so does not prove who it is; give it this \
                 host's key, or connect without the controller's secret",
            ));
        }
        Ok(self.after_connect(qid))
    }

    pub(super) fn after_connect(&self, qid: u16) -> Option<Step> {
        if qid == 0 {
            Some(Step::Capabilities)
        } else {
            self.after_queue(qid)
        }
    }

    pub(super) fn step_ended(&mut self, next: Option<Step>, now: Duration) {
        match next {
            Some(next) => self.go_on(next, now),
            None => self.go_live(now),
        }
    }

    fn after_queue(&self, qid: u16) -> Option<Step> {
        if qid < self.io_queues.count {
            return Some(Step::Link(qid + 1));
        }
        (self.enabled_events().0 != 0).then_some(Step::Events)
    }

    fn go_live(&mut self, now: Duration) {
        self.phase = Phase::Live;
        self.begin_duties(now);
        self.begin_renewals(now);
        let tries = self.loss.take().map_or(0, |loss| loss.tries);
        self.going_up = AssociationState::Reconnecting { tries: 0 };
        self.report(Report::Live { tries });
    }

    fn link(&mut self, qid: u16, now: Duration) {
        self.open.insert(qid);
        self.step_due = Some(now + self.settings.step_timeout);
        // HRQSIZE is 1-based, HSQSIZE 0-based (RDMA, figure 5).
        let (sqsize, capsule_bytes, cntlid) = if qid == 0 {
            (ADMIN_ENTRIES - 1, SQE_BYTES, CNTLID_NONE)
        } else {
            let io = &self.io_queues;
            (io.sqsize, io.capsule_bytes, self.cntlid)
        };
        let spare = u16::from(qid != 0 && self.settings.spare_entry);
        self.actions.push_back(Action::Connect(QueueSpec {
            qid,
            depth: sqsize.saturating_sub(spare).max(1),
            capsule_bytes,
            request: RequestData::new(qid, sqsize + 1, sqsize, cntlid),
        }));
    }

    fn send_connect(&mut self, qid: u16, now: Duration) {
        let settings = &self.settings;
        let (cntlid, sqsize, kato_ms) = match qid {
            0 => (CNTLID_DYNAMIC, ADMIN_ENTRIES - 1, settings.kato_ms),
            _ => (self.cntlid, self.io_queues.sqsize, 0),
        };
        let data = ConnectData::new(settings.hostid, cntlid, &settings.subnqn, &settings.hostnqn);
        let mut connect = ConnectCommand::new(0, qid, sqsize);
        connect.cattr = Cattr(0).with_dissqfc(settings.disable_sq_flow_control).0;
        connect.kato.set(kato_ms);
        let payload = Payload::FromHost(data.as_bytes().into());
        self.send_step(qid, connect.into(), payload, now);
    }

    pub(super) fn set_cc(&mut self, cc: Cc, now: Duration) {
        let set = PropertySetCommand::new(0, PropertySize::Four, offset::CC, cc.0.into());
        self.send_step(0, set.into(), Payload::None, now);
    }

    fn get_property(&mut self, size: PropertySize, ofst: u32, now: Duration) {
        let get = PropertyGetCommand::new(0, size, ofst);
        self.send_step(0, get.into(), Payload::None, now);
    }

    fn set_feature(&mut self, feature: Feature, value: u32, now: Duration) {
        let mut sqe = command(AdminOpcode::SET_FEATURES);
        sqe.cdw10.set(SetFeaturesCdw10(0).with_fid(feature.0).0);
        sqe.cdw11.set(value);
        self.send_step(0, sqe, Payload::None, now);
    }

    pub(super) fn look(&mut self, now: Duration) {
        self.look_at = None;
        self.get_property(PropertySize::Four, offset::CSTS, now);
    }

    pub(super) fn look_again(&mut self, now: Duration) -> Result<(), Cause> {
        if now >= self.reached_by {
            return Err(self.overdue());
        }
        self.look_at = Some(now + LOOK_INTERVAL);
        Ok(())
    }

    pub(super) fn overdue(&self) -> Cause {
        match self.phase {
            Phase::BringUp(Step::Link(qid)) => Cause::NotConnected { qid },
            Phase::BringUp(Step::Ready) => Cause::TooSlow {
                what: "the controller's being ready (CSTS.RDY)",
            },
            Phase::BringUp(step) => Cause::TooSlow { what: step.name() },
            Phase::Live => Cause::TooSlow {
                what: REAUTHENTICATION,
            },
            Phase::TearingDown(teardown) => Cause::TooSlow {
                what: teardown.goal_name(),
            },
            _ => Cause::TooSlow { what: "a step" },
        }
    }

    pub(super) fn ready_timeout(&self) -> Duration {
        let units = u64::from(self.cap.to()).max(self.crwmt.into());
        // As in Linux, one unit is added: TO 0 allows half a second.
        Duration::from_millis((units + 1) * READY_UNIT_MS)
    }

    pub(super) fn enabled_events(&self) -> AsyncEventConfig {
        let offered = self.identity.as_ref().map_or(0, |id| id.oaes.get());
        AsyncEventConfig(offered & self.settings.events.0)
    }

    fn check_usable(&self, identity: &IdentifyController) -> Result<(), Cause> {
        let discovery = self.settings.subnqn.is_discovery()
            || identity.cntrltype == IdentifyController::CNTRLTYPE_DISCOVERY;
        Err(Cause::Unusable(if identity.cntlid.get() != self.cntlid {
            "Identify and Connect differ in CNTLID"
        } else if !Sgls(identity.sgls.get()).keyed() {
            "SGLS lacks keyed data blocks, without which no data move by RDMA"
        } else if identity.icdoff.get() != 0 {
            "ICDOFF is not 0"
        } else if !discovery && (identity.ioccsz.get() as usize) < SQE_BYTES / CAPSULE_UNIT {
            "IOCCSZ does not hold an SQE"
        } else if !discovery && identity.iorcsz.get() == 0 {
            "IORCSZ does not hold a CQE"
        } else if !discovery && self.settings.kato_ms > 0 && identity.kas.get() == 0 {
            "it has no keep alive timer (KAS); connect with a KATO of 0"
        } else {
            return Ok(());
        }))
    }

    fn shape(&self, identity: &IdentifyController) -> IoQueues {
        let least = 1 + u16::from(self.settings.spare_entry);
        let asked = self.settings.queue_entries.saturating_sub(1).max(least);
        let mut sqsize = asked.min(self.cap.mqes().max(1));
        // MAXCMD 0 violates the specification and is treated as no limit.
        if let Some(most) = identity.maxcmd.get().checked_sub(1) {
            sqsize = sqsize.min(most.max(1));
        }
        let in_capsule = if Sgls(identity.sgls.get()).in_capsule_offset() {
            (identity.ioccsz.get() as usize * CAPSULE_UNIT)
                .saturating_sub(SQE_BYTES)
                .min(IN_CAPSULE_BYTES_MAX)
        } else {
            0
        };
        IoQueues {
            count: self.io_queues.count,
            sqsize,
            capsule_bytes: SQE_BYTES + in_capsule,
        }
    }
}

fn configuration(cap: Cap) -> Cc {
    let css = if cap.css() & Cap::CSS_IOCS != 0 {
        Cc::CSS_IOCS
    } else {
        Cc::CSS_NVM
    };
    Cc(0).with_css(css).with_iosqes(IOSQES).with_iocqes(IOCQES)
}

pub(super) fn command(opcode: AdminOpcode) -> Sqe {
    Sqe::new(0, opcode.0, 0)
}
