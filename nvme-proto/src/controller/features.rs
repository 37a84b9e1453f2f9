//! Get Features and Set Features (Base, 5.15 and 5.27).
//!
//! Values belong to one association, except those of namespaces. No value can be saved. Interrupt
//! features and thermal management cannot be changed.

use alloc::vec::Vec;
use core::time::Duration;

use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::common::{Common, Health, Kind};
use crate::wire::aen::AsyncEvent;
use crate::wire::feature::{
    Arbitration, AsyncEventConfig, ErrorRecovery, Feature, HostBehavior, HostIdentifier,
    InterruptVector, NumberOfQueues, PowerManagement, Select, SupportedCapabilities,
    TemperatureThreshold, Timestamp, VolatileWriteCache, WriteAtomicity, WriteProtection,
};
use crate::wire::{NSID_ALL, Status};

use super::command::{GetFeatures, SetFeatures};
use super::refusal::byte;
use super::{Action, Controller, Exchange, Refusal};

/// Feature 19h: always 0 (NVM command set).
const IO_COMMAND_SET_PROFILE: Feature = Feature(0x19);

const NVM_FEATURES: [Feature; 19] = [
    Feature::ARBITRATION,
    Feature::POWER_MANAGEMENT,
    Feature::TEMPERATURE_THRESHOLD,
    Feature::ERROR_RECOVERY,
    Feature::VOLATILE_WRITE_CACHE,
    Feature::NUMBER_OF_QUEUES,
    Feature::INTERRUPT_COALESCING,
    Feature::INTERRUPT_VECTOR_CONFIGURATION,
    Feature::WRITE_ATOMICITY,
    Feature::ASYNC_EVENT_CONFIGURATION,
    Feature::TIMESTAMP,
    Feature::KEEP_ALIVE_TIMER,
    Feature::HOST_THERMAL_MANAGEMENT,
    Feature::HOST_BEHAVIOR_SUPPORT,
    IO_COMMAND_SET_PROFILE,
    Feature::HOST_IDENTIFIER,
    Feature::RESERVATION_NOTIFICATION_MASK,
    Feature::RESERVATION_PERSISTENCE,
    Feature::NAMESPACE_WRITE_PROTECTION,
];

/// Features of discovery controllers (Base, figure 29).
const DISCOVERY_FEATURES: [Feature; 2] = [
    Feature::ASYNC_EVENT_CONFIGURATION,
    Feature::KEEP_ALIVE_TIMER,
];

const TMPSEL_COMPOSITE: u8 = 0;
const TMPSEL_ALL: u8 = 0xf;
const THSEL_OVER: u8 = 0;
const THSEL_UNDER: u8 = 1;

const WARNING_TEMPERATURE: u8 = 1 << 1;
const WARNING_SPARE: u8 = 1 << 0;

#[derive(Debug)]
pub(super) struct Features {
    arbitration: Arbitration,
    power: PowerManagement,
    over_temperature_k: u16,
    under_temperature_k: u16,
    pub(super) write_cache: bool,
    write_atomicity: WriteAtomicity,
    events: AsyncEventConfig,
    clock: Clock,
    behavior: [u8; 3],
}

pub(super) fn supported(kind: Kind) -> &'static [Feature] {
    match kind {
        Kind::Nvm => &NVM_FEATURES,
        Kind::Discovery => &DISCOVERY_FEATURES,
    }
}

pub(super) fn capabilities(fid: Feature) -> SupportedCapabilities {
    let fixed = matches!(
        fid,
        Feature::INTERRUPT_COALESCING
            | Feature::INTERRUPT_VECTOR_CONFIGURATION
            | Feature::HOST_THERMAL_MANAGEMENT
            | Feature::HOST_IDENTIFIER
    );
    SupportedCapabilities(0)
        .with_namespace_specific(matches!(
            fid,
            Feature::ERROR_RECOVERY
                | Feature::RESERVATION_NOTIFICATION_MASK
                | Feature::RESERVATION_PERSISTENCE
                | Feature::NAMESPACE_WRITE_PROTECTION
        ))
        .with_changeable(!fixed)
}

impl Features {
    pub(super) fn new(write_cache: bool, now: Duration) -> Self {
        Self {
            // AB = 111b: no limit.
            arbitration: Arbitration(0).with_ab(0b111),
            power: PowerManagement(0),
            over_temperature_k: u16::MAX,
            under_temperature_k: 0,
            write_cache,
            write_atomicity: WriteAtomicity(0),
            events: AsyncEventConfig(0),
            clock: Clock::reset(now),
            behavior: [0; 3],
        }
    }

    pub(super) fn is_enabled(&self, event: AsyncEvent) -> bool {
        match event {
            AsyncEvent::NOTICE_NAMESPACE_CHANGED => self.events.namespace_attribute(),
            AsyncEvent::NOTICE_ANA_CHANGED => self.events.ana_change(),
            AsyncEvent::NOTICE_CROSS_CONTROLLER_RESET => self.events.cross_controller_reset(),
            AsyncEvent::NOTICE_DISCOVERY_CHANGED => self.events.discovery_change(),
            AsyncEvent::SMART_TEMPERATURE => self.events.smart() & WARNING_TEMPERATURE != 0,
            AsyncEvent::SMART_SPARE => self.events.smart() & WARNING_SPARE != 0,
            _ => true,
        }
    }

    pub(super) fn critical_warning(&self, health: &Health) -> u8 {
        let kelvin = health.temperature_k;
        let crossed = kelvin >= self.over_temperature_k || kelvin <= self.under_temperature_k;
        let temperature = if kelvin != 0 && crossed {
            WARNING_TEMPERATURE
        } else {
            0
        };
        health.critical_warning & !WARNING_TEMPERATURE | temperature
    }

    fn dword(&self, get: &GetFeatures) -> Result<u32, Refusal> {
        match get.fid {
            Feature::ARBITRATION => Ok(self.arbitration.0),
            Feature::POWER_MANAGEMENT => Ok(self.power.0),
            Feature::TEMPERATURE_THRESHOLD => {
                let asked = TemperatureThreshold(get.cdw11);
                let kelvin = match (asked.tmpsel(), asked.thsel()) {
                    (TMPSEL_COMPOSITE, THSEL_OVER) => self.over_temperature_k,
                    (TMPSEL_COMPOSITE, THSEL_UNDER) => self.under_temperature_k,
                    _ => return Err(Refusal::field(byte::CDW11)),
                };
                Ok(u32::from(kelvin))
            }
            Feature::VOLATILE_WRITE_CACHE => Ok(VolatileWriteCache(0).with_wce(self.write_cache).0),
            Feature::WRITE_ATOMICITY => Ok(self.write_atomicity.0),
            Feature::ASYNC_EVENT_CONFIGURATION => Ok(self.events.0),
            Feature::INTERRUPT_VECTOR_CONFIGURATION => {
                let iv = InterruptVector(get.cdw11).iv();
                Ok(InterruptVector(0).with_iv(iv).with_cd(true).0)
            }
            _ => Ok(0),
        }
    }

    fn behavior(&self) -> HostBehavior {
        let mut behavior = HostBehavior::new_zeroed();
        [behavior.acre, behavior.etdas, behavior.lbafee] = self.behavior;
        behavior
    }

    fn set_behavior(&mut self, data: &[u8]) -> Result<(), Refusal> {
        let behavior = HostBehavior::ref_from_bytes(data).expect("the length was checked");
        let values = [behavior.acre, behavior.etdas, behavior.lbafee];
        // CDFE enables the copy descriptor formats from 2h, which are not supported.
        if values.iter().any(|&value| value > 1) || behavior.cdfe.get() != 0 {
            return Err(Refusal::new(Status::INVALID_FIELD));
        }
        self.behavior = values;
        Ok(())
    }

    fn set_threshold(&mut self, value: TemperatureThreshold) -> Result<(), Refusal> {
        if !matches!(value.tmpsel(), TMPSEL_COMPOSITE | TMPSEL_ALL) {
            return Err(Refusal::field(byte::CDW11));
        }
        match value.thsel() {
            THSEL_OVER => self.over_temperature_k = value.tmpth(),
            THSEL_UNDER => self.under_temperature_k = value.tmpth(),
            _ => return Err(Refusal::field(byte::CDW11)),
        }
        Ok(())
    }
}

impl Controller {
    pub(super) fn get_features(
        &self,
        common: &Common,
        get: &GetFeatures,
        exchange: &mut Exchange<'_>,
    ) -> Result<u32, Refusal> {
        check_supported(common, get.fid)?;
        match get.select {
            Select::SUPPORTED_CAPABILITIES => return Ok(capabilities(get.fid).0),
            Select::CURRENT => {}
            // If saving is unsupported, the saved value is the default value (Base, 4.4).
            _ => return self.get_default(common, get, exchange),
        }
        match get.fid {
            Feature::ERROR_RECOVERY => {
                let tler = common
                    .namespaces
                    .tler(get.nsid, &self.seen)
                    .map_err(in_nsid)?;
                Ok(ErrorRecovery(0).with_tler(tler).0)
            }
            Feature::NAMESPACE_WRITE_PROTECTION => {
                let state = common.namespaces.protection(get.nsid, &self.seen);
                let state = state.map_err(in_nsid)?;
                Ok(WriteProtection(0).with_wps(state.0).0)
            }
            Feature::RESERVATION_NOTIFICATION_MASK | Feature::RESERVATION_PERSISTENCE => {
                self.get_reservation_feature(common, get)
            }
            Feature::NUMBER_OF_QUEUES => Ok(self.number_of_queues().0),
            Feature::KEEP_ALIVE_TIMER => Ok(self.keep_alive.kato_ms()),
            Feature::HOST_IDENTIFIER => {
                // EXHID is 1 over Fabrics (CTRATT bit 0).
                if !HostIdentifier(get.cdw11).exhid() {
                    return Err(Refusal::field(byte::CDW11));
                }
                exchange.data_out.copy_from_slice(&self.host.id);
                Ok(0)
            }
            _ => self.features.get(get, exchange),
        }
    }

    fn get_default(
        &self,
        common: &Common,
        get: &GetFeatures,
        exchange: &mut Exchange<'_>,
    ) -> Result<u32, Refusal> {
        match get.fid {
            Feature::NUMBER_OF_QUEUES => Ok(queues(common.limits().io_queues).0),
            Feature::HOST_IDENTIFIER => self.get_features(
                common,
                &GetFeatures {
                    select: Select::CURRENT,
                    ..*get
                },
                exchange,
            ),
            Feature::RESERVATION_NOTIFICATION_MASK | Feature::RESERVATION_PERSISTENCE => {
                self.get_reservation_feature(common, get).map(|_| 0)
            }
            Feature::ERROR_RECOVERY | Feature::NAMESPACE_WRITE_PROTECTION => {
                common
                    .namespaces
                    .tler(get.nsid, &self.seen)
                    .map_err(in_nsid)?;
                Ok(0)
            }
            _ => Features::new(common.has_write_cache(), exchange.now).get(get, exchange),
        }
    }

    pub(super) fn set_features(
        &mut self,
        common: &mut Common,
        set: &SetFeatures,
        exchange: &mut Exchange<'_>,
        actions: &mut Vec<Action>,
    ) -> Result<u32, Refusal> {
        check_supported(common, set.fid)?;
        check_settable(set)?;
        match set.fid {
            Feature::ARBITRATION => self.features.arbitration = Arbitration(set.cdw11),
            Feature::POWER_MANAGEMENT => {
                if PowerManagement(set.cdw11).ps() != 0 {
                    return Err(Refusal::field(byte::CDW11));
                }
                self.features.power = PowerManagement(set.cdw11);
            }
            Feature::TEMPERATURE_THRESHOLD => {
                self.features
                    .set_threshold(TemperatureThreshold(set.cdw11))?;
                // The old temperature is passed as unknown, so that a temperature already beyond
                // the new threshold raises an event.
                let unknown = Health {
                    temperature_k: 0,
                    ..common.health
                };
                self.health_changed(&unknown, &common.health, actions);
            }
            Feature::ERROR_RECOVERY => {
                let value = ErrorRecovery(set.cdw11);
                // DULBE is not supported (NSFEAT.DAE is 0).
                if value.dulbe() {
                    return Err(Refusal::field(byte::CDW11));
                }
                common
                    .namespaces
                    .set_tler(set.nsid, &self.seen, value.tler())
                    .map_err(in_nsid)?;
            }
            Feature::RESERVATION_NOTIFICATION_MASK => self.set_notification_mask(common, set)?,
            Feature::VOLATILE_WRITE_CACHE => {
                let enabled = VolatileWriteCache(set.cdw11).wce();
                self.features.write_cache = enabled;
                actions.push(Action::SetWriteCache {
                    cntlid: self.cntlid,
                    enabled,
                });
            }
            Feature::NUMBER_OF_QUEUES => {
                return self.set_number_of_queues(common, NumberOfQueues(set.cdw11));
            }
            Feature::WRITE_ATOMICITY => self.features.write_atomicity = WriteAtomicity(set.cdw11),
            Feature::ASYNC_EVENT_CONFIGURATION => {
                let value = AsyncEventConfig(set.cdw11);
                if value.0 & !offered_events(common.kind()).0 != 0 {
                    return Err(Refusal::field(byte::CDW11));
                }
                self.features.events = value;
            }
            Feature::TIMESTAMP => {
                let stamp =
                    Timestamp::ref_from_bytes(exchange.data_in).expect("the length was checked");
                self.features.clock = Clock::set(stamp.get(), exchange.now);
            }
            Feature::KEEP_ALIVE_TIMER => self.keep_alive.set_kato(set.cdw11, exchange.now),
            Feature::HOST_BEHAVIOR_SUPPORT => self.features.set_behavior(exchange.data_in)?,
            IO_COMMAND_SET_PROFILE => {
                if set.cdw11 != 0 {
                    return Err(Refusal::new(Status::IO_COMMAND_SET_COMBINATION_REJECTED));
                }
            }
            _ => unreachable!("feature {} is supported and changeable", set.fid),
        }
        Ok(0)
    }

    /// Grants the smaller of NSQR and NCQR, up to `io_queues`: a Fabrics queue has one SQ and one
    /// CQ (Base, 5.27.1.5).
    fn set_number_of_queues(
        &mut self,
        common: &Common,
        asked: NumberOfQueues,
    ) -> Result<u32, Refusal> {
        if !self.queues.is_empty() {
            return Err(Refusal::new(Status::COMMAND_SEQUENCE_ERROR).at(byte::CDW10));
        }
        // FFFFh would request 65,536 queues, which is invalid.
        let fewer = asked.nsq().min(asked.ncq());
        if asked.nsq() == u16::MAX || asked.ncq() == u16::MAX {
            return Err(Refusal::field(byte::CDW11));
        }
        self.queues_granted = (fewer + 1).min(common.limits().io_queues);
        Ok(self.number_of_queues().0)
    }

    fn number_of_queues(&self) -> NumberOfQueues {
        queues(self.queues_granted)
    }

    pub(crate) fn health_changed(&mut self, old: &Health, new: &Health, actions: &mut Vec<Action>) {
        let risen = self.features.critical_warning(new) & !self.features.critical_warning(old);
        if risen & WARNING_SPARE != 0 {
            self.raise(AsyncEvent::SMART_SPARE, actions);
        }
        if risen & WARNING_TEMPERATURE != 0 {
            self.raise(AsyncEvent::SMART_TEMPERATURE, actions);
        }
        let others = risen & !(WARNING_SPARE | WARNING_TEMPERATURE);
        if others & self.features.events.smart() != 0 {
            self.raise(AsyncEvent::SMART_RELIABILITY, actions);
        }
    }
}

impl Features {
    fn get(&self, get: &GetFeatures, exchange: &mut Exchange<'_>) -> Result<u32, Refusal> {
        match get.fid {
            Feature::TIMESTAMP => {
                let stamp = self.clock.read(exchange.now);
                exchange.data_out.copy_from_slice(stamp.as_bytes());
                Ok(0)
            }
            Feature::HOST_BEHAVIOR_SUPPORT => {
                exchange
                    .data_out
                    .copy_from_slice(self.behavior().as_bytes());
                Ok(0)
            }
            _ => self.dword(get),
        }
    }
}

pub(super) fn offered_events(kind: Kind) -> AsyncEventConfig {
    let offered = AsyncEventConfig(0).with_cross_controller_reset(true);
    match kind {
        Kind::Nvm => offered
            .with_smart(0xff)
            .with_namespace_attribute(true)
            .with_ana_change(true),
        Kind::Discovery => offered.with_discovery_change(true),
    }
}

fn queues(number: u16) -> NumberOfQueues {
    NumberOfQueues(0).with_nsq(number - 1).with_ncq(number - 1)
}

fn in_nsid(status: Status) -> Refusal {
    Refusal::new(status).at(byte::NSID)
}

fn check_supported(common: &Common, fid: Feature) -> Result<(), Refusal> {
    let absent = fid == Feature::VOLATILE_WRITE_CACHE && !common.has_write_cache();
    if absent || !supported(common.kind()).contains(&fid) {
        return Err(Refusal::field(byte::CDW10));
    }
    Ok(())
}

pub(super) fn check_settable(set: &SetFeatures) -> Result<(), Refusal> {
    let capabilities = capabilities(set.fid);
    if set.save && !capabilities.saveable() {
        return Err(Refusal::new(Status::FEATURE_NOT_SAVEABLE).at(byte::CDW10));
    }
    // Only Connect sets the host identifier over Fabrics (Base, 5.27.1.25.2).
    if set.fid == Feature::HOST_IDENTIFIER {
        return Err(Refusal::new(Status::COMMAND_SEQUENCE_ERROR).at(byte::CDW10));
    }
    if !capabilities.changeable() {
        return Err(Refusal::new(Status::FEATURE_NOT_CHANGEABLE).at(byte::CDW10));
    }
    let one_namespace = !matches!(set.nsid, 0 | NSID_ALL);
    if one_namespace && !capabilities.namespace_specific() {
        return Err(in_nsid(Status::FEATURE_NOT_NAMESPACE_SPECIFIC));
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Clock {
    base_ms: u64,
    set_at: Duration,
    origin: u8,
}

impl Clock {
    fn reset(now: Duration) -> Self {
        Self {
            base_ms: 0,
            set_at: now,
            origin: Timestamp::ORIGIN_RESET,
        }
    }

    fn set(ms: u64, now: Duration) -> Self {
        Self {
            base_ms: ms,
            set_at: now,
            origin: Timestamp::ORIGIN_HOST,
        }
    }

    fn read(&self, now: Duration) -> Timestamp {
        let passed_ms = now.saturating_sub(self.set_at).as_millis() as u64;
        Timestamp::new(self.base_ms.wrapping_add(passed_ms), self.origin)
    }
}
