//! Controller properties, and the controller states that depend on CC (Base, 3.1.3, 3.5 to 3.7).
//!
//! ```text
//!            CC.EN=1                 CC.SHN              queues gone         flushed
//! Disabled ----------> Ready -----------------> Draining ------------> Flushing ------> ShutDown
//!     ^                  | CC.EN=0                 |                      |                |
//!     | queues gone,     v                         |        CC.EN=0       |                |
//!     +------------- Resetting <-------------------+----------------------+----------------+
//!       flushed
//! ```
//!
//! At most one flush is in progress; a reset waits for the flush.
//!
//! The version is 2.0, because log pages 00h, 12h and 13h, Identify CNS 06h, 08h and 1Ch, and
//! CAP.CRMS require it.

use crate::limits::{self, Limits};
use crate::wire::Status;
use crate::wire::fabrics::PropertySize;
use crate::wire::property::{Cap, Cc, Crto, Csts, Vs, offset};

use super::Refusal;
use super::refusal::byte;

/// Specification version.
pub const VERSION: Vs = Vs::V2_0;
/// CC.IOSQES: log2 of the SQE size in bytes.
pub const IOSQES: u8 = 6;
/// CC.IOCQES: log2 of the CQE size in bytes.
pub const IOCQES: u8 = 4;

const CC_BITS: u32 = 0x01ff_fff1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EnableState {
    Disabled,
    Ready,
    /// CC.EN was cleared; I/O queues are still connected, or caches are being flushed.
    Resetting {
        flushing: bool,
    },
    /// CC.SHN was set; I/O queues are still connected. If `flush`, a cache flush follows.
    Draining {
        flush: bool,
    },
    Flushing,
    ShutDown,
}

/// Work required after a change of CC, a flush, or the close of the last I/O queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transition {
    /// Nothing is required.
    None,
    /// The controller has become ready.
    Enabled,
    /// The controller is not ready: disconnect its I/O queues.
    DrainQueues,
    /// The reset is complete.
    Reset,
    /// Volatile caches must be flushed.
    Flush,
    /// The shutdown is complete.
    ShutDown,
}

/// CAP, CC and the state that CSTS reports.
#[derive(Debug)]
pub struct Properties {
    cap: Cap,
    cc: Cc,
    state: EnableState,
    fatal: bool,
}

impl Properties {
    /// Creates the properties of a disabled controller (CC is 0).
    #[must_use]
    pub fn new(limits: &Limits) -> Self {
        let cap = Cap(0)
            .with_mqes(limits.io_queue_entries - 1)
            .with_cqr(true)
            .with_to(limits::READY_TIMEOUT)
            .with_css(Cap::CSS_NVM | Cap::CSS_IOCS)
            .with_crwms(true);
        Self {
            cap,
            cc: Cc(0),
            state: EnableState::Disabled,
            fatal: false,
        }
    }

    /// True if commands other than Fabrics commands are accepted.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.state == EnableState::Ready && !self.fatal
    }

    /// True if CC.EN was cleared and CSTS.RDY is still set.
    #[must_use]
    pub fn is_resetting(&self) -> bool {
        matches!(self.state, EnableState::Resetting { .. })
    }

    /// Sets CSTS.CFS: the controller must be reset.
    pub fn set_fatal(&mut self) {
        self.fatal = true;
    }

    /// Executes Property Get.
    pub fn get(&self, ofst: u32, size: PropertySize) -> Result<u64, Refusal> {
        let (value, true_size) = match ofst {
            offset::CAP => (self.cap.0, PropertySize::Eight),
            offset::VS => (u64::from(VERSION.0), PropertySize::Four),
            offset::CC => (u64::from(self.cc.0), PropertySize::Four),
            offset::CSTS => (u64::from(self.csts().0), PropertySize::Four),
            offset::CRTO => (u64::from(self.crto().0), PropertySize::Four),
            _ => return Err(Refusal::field(byte::OFST)),
        };
        if size == true_size {
            Ok(value)
        } else {
            Err(Refusal::field(byte::ATTRIB))
        }
    }

    /// Executes Property Set; `io_queues` is true while I/O queues are connected.
    pub fn set(
        &mut self,
        ofst: u32,
        size: PropertySize,
        value: u64,
        io_queues: bool,
    ) -> Result<Transition, Refusal> {
        // Only CC is writable: CAP.NSSRS is 0, and CSTS.NSSRO is never set.
        if ofst != offset::CC {
            return Err(Refusal::field(byte::OFST));
        }
        if size != PropertySize::Four {
            return Err(Refusal::field(byte::ATTRIB));
        }
        // In a 4-byte property, bits 63:32 are reserved.
        let cc = u32::try_from(value).map_err(|_| Refusal::field(byte::VALUE))?;
        self.write_cc(Cc(cc), io_queues)
    }

    /// Continues a reset or shutdown after the last I/O queue closes.
    pub fn queues_gone(&mut self) -> Transition {
        match self.state {
            EnableState::Resetting { flushing: false } => self.reset(),
            EnableState::Draining { flush: true } => {
                self.state = EnableState::Flushing;
                Transition::Flush
            }
            EnableState::Draining { flush: false } => {
                self.state = EnableState::ShutDown;
                Transition::ShutDown
            }
            _ => Transition::None,
        }
    }

    /// Continues after a flush. If `intact` is false (data loss), a shutdown sets CSTS.CFS.
    pub fn flushed(&mut self, intact: bool) -> Transition {
        match self.state {
            EnableState::Flushing => {
                self.state = EnableState::ShutDown;
                self.fatal |= !intact;
                Transition::ShutDown
            }
            EnableState::Resetting { flushing: true } => self.reset(),
            _ => Transition::None,
        }
    }

    fn reset(&mut self) -> Transition {
        self.state = EnableState::Disabled;
        self.fatal = false;
        Transition::Reset
    }

    fn write_cc(&mut self, cc: Cc, io_queues: bool) -> Result<Transition, Refusal> {
        self.check_cc(cc)?;
        let old = core::mem::replace(&mut self.cc, cc);
        if old.en() && !cc.en() {
            let flushing = self.state == EnableState::Flushing;
            self.state = EnableState::Resetting { flushing };
        } else if !old.en() && cc.en() {
            self.state = EnableState::Ready;
            return Ok(Transition::Enabled);
        } else if cc.shn() != Cc::SHN_NONE && self.may_shut_down() {
            // Only a normal shutdown flushes caches (Base, 3.6.2).
            self.state = EnableState::Draining {
                flush: cc.shn() == Cc::SHN_NORMAL,
            };
        } else {
            return Ok(Transition::None);
        }
        Ok(if io_queues {
            Transition::DrainQueues
        } else {
            self.queues_gone()
        })
    }

    fn check_cc(&self, cc: Cc) -> Result<(), Refusal> {
        let refused = Err(Refusal::field(byte::VALUE));
        if cc.0 & !CC_BITS != 0 || cc.crime() || cc.shn() > Cc::SHN_ABRUPT {
            return refused;
        }
        if !cc.en() {
            return Ok(());
        }
        // Only 4 KiB pages (MPSMIN, MPSMAX) and round robin (CAP.AMS) are supported.
        if cc.mps() != 0 || cc.ams() != 0 || !matches!(cc.css(), Cc::CSS_NVM | Cc::CSS_IOCS) {
            return refused;
        }
        // Without I/O queues, IOSQES and IOCQES may be 0.
        if !matches!(cc.iosqes(), 0 | IOSQES) || !matches!(cc.iocqes(), 0 | IOCQES) {
            return refused;
        }
        if self.cc.en() {
            return if cc.css() == self.cc.css() {
                Ok(())
            } else {
                refused
            };
        }
        // CC.EN may be set again when CSTS.RDY is 0 (Base, 3.1.3.5).
        match self.state {
            EnableState::Disabled | EnableState::ShutDown => Ok(()),
            _ => Err(Refusal::new(Status::COMMAND_SEQUENCE_ERROR).at(byte::VALUE)),
        }
    }

    fn may_shut_down(&self) -> bool {
        matches!(self.state, EnableState::Disabled | EnableState::Ready)
    }

    /// True if I/O queues may connect: ready, with IOSQES and IOCQES set.
    #[must_use]
    pub fn takes_io_queues(&self) -> bool {
        self.is_ready() && self.cc.iosqes() == IOSQES && self.cc.iocqes() == IOCQES
    }

    fn csts(&self) -> Csts {
        let shst = match self.state {
            EnableState::Draining { .. } | EnableState::Flushing => Csts::SHST_OCCURRING,
            EnableState::ShutDown => Csts::SHST_COMPLETE,
            _ => Csts::SHST_NORMAL,
        };
        // CSTS.RDY follows CC.EN, but stays 1 until a reset is complete.
        let rdy = self.cc.en() || self.is_resetting();
        Csts(0).with_rdy(rdy).with_cfs(self.fatal).with_shst(shst)
    }

    fn crto(&self) -> Crto {
        Crto(0).with_crwmt(u16::from(self.cap.to()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENABLE: u64 = 0x0046_0061;
    const SHUT_DOWN: u64 = 0x0046_4061;
    const ABRUPT: u64 = 0x0046_8061;

    fn properties() -> Properties {
        Properties::new(&Limits::default())
    }

    fn set(properties: &mut Properties, cc: u64, io_queues: bool) -> Transition {
        properties
            .set(offset::CC, PropertySize::Four, cc, io_queues)
            .unwrap()
    }

    fn csts(properties: &Properties) -> Csts {
        Csts(properties.get(offset::CSTS, PropertySize::Four).unwrap() as u32)
    }

    #[test]
    fn linux_requires_4k_pages_a_ready_timeout_and_crto_where_crwms_is_set() {
        let properties = properties();
        let cap = Cap(properties.get(offset::CAP, PropertySize::Eight).unwrap());
        assert_eq!(cap.mpsmin(), 0);
        assert_eq!(cap.mqes(), 127);
        assert!(cap.cqr() && !cap.nssrs() && !cap.crims());
        assert!(cap.to() > 0);
        assert!(cap.crwms());
        let crto = Crto(properties.get(offset::CRTO, PropertySize::Four).unwrap() as u32);
        assert_eq!(crto.crwmt(), u16::from(cap.to()));
        assert_eq!(
            properties.get(offset::VS, PropertySize::Four),
            Ok(0x0002_0000)
        );
    }

    #[test]
    fn linux_requires_rdy_to_follow_en_and_shst_to_follow_shn() {
        let mut properties = properties();
        assert_eq!(set(&mut properties, 0x0046_0060, false), Transition::None);
        assert_eq!(csts(&properties).0, 0);
        assert_eq!(set(&mut properties, ENABLE, false), Transition::Enabled);
        assert_eq!(csts(&properties).0, 1);
        assert_eq!(set(&mut properties, SHUT_DOWN, false), Transition::Flush);
        assert_eq!(csts(&properties).shst(), Csts::SHST_OCCURRING);
        assert_eq!(properties.flushed(true), Transition::ShutDown);
        assert_eq!(csts(&properties).shst(), Csts::SHST_COMPLETE);
        assert!(!properties.is_ready());
    }

    #[test]
    fn a_reset_waits_for_io_queues_and_ends_a_shutdown() {
        let mut properties = properties();
        set(&mut properties, ENABLE, false);
        assert_eq!(
            set(&mut properties, SHUT_DOWN, true),
            Transition::DrainQueues
        );
        assert_eq!(
            set(&mut properties, 0x0046_0060, true),
            Transition::DrainQueues
        );
        assert!(csts(&properties).rdy());
        let early = properties.set(offset::CC, PropertySize::Four, ENABLE, true);
        assert_eq!(
            early.unwrap_err().status.code(),
            Status::COMMAND_SEQUENCE_ERROR
        );
        assert_eq!(properties.queues_gone(), Transition::Reset);
        assert_eq!(csts(&properties).0, 0);
        assert_eq!(properties.flushed(false), Transition::None, "no host asked");
        assert_eq!(csts(&properties).0, 0);
        assert_eq!(set(&mut properties, ENABLE, false), Transition::Enabled);
    }

    #[test]
    fn a_reset_waits_for_a_flush() {
        let mut properties = properties();
        set(&mut properties, ENABLE, false);
        assert_eq!(set(&mut properties, SHUT_DOWN, false), Transition::Flush);
        assert_eq!(set(&mut properties, 0, false), Transition::None);
        assert!(csts(&properties).rdy(), "not before the flush is over");
        let early = properties.set(offset::CC, PropertySize::Four, ENABLE, false);
        assert!(early.is_err(), "so that no second flush can begin");
        assert_eq!(properties.flushed(false), Transition::Reset);
        assert_eq!(csts(&properties).0, 0);
        assert_eq!(set(&mut properties, ENABLE, false), Transition::Enabled);
    }

    #[test]
    fn a_reset_goes_before_a_shutdown() {
        let mut properties = properties();
        set(&mut properties, ENABLE, true);
        assert_eq!(set(&mut properties, 0, true), Transition::DrainQueues);
        let shut_down_disabled = SHUT_DOWN & !1;
        assert_eq!(
            set(&mut properties, shut_down_disabled, true),
            Transition::None
        );
        assert!(csts(&properties).rdy());
        assert_eq!(properties.queues_gone(), Transition::Reset);
    }

    #[test]
    fn an_abrupt_shutdown_does_not_flush() {
        let mut properties = properties();
        set(&mut properties, ENABLE, false);
        assert_eq!(set(&mut properties, ABRUPT, false), Transition::ShutDown);
        assert_eq!(csts(&properties).shst(), Csts::SHST_COMPLETE);
        assert_eq!(
            set(&mut properties, SHUT_DOWN, false),
            Transition::None,
            "again"
        );
    }

    #[test]
    fn a_failed_flush_is_fatal_until_a_reset() {
        let mut properties = properties();
        set(&mut properties, ENABLE, false);
        set(&mut properties, SHUT_DOWN, false);
        assert_eq!(properties.flushed(false), Transition::ShutDown);
        assert!(csts(&properties).cfs());
        assert_eq!(set(&mut properties, 0, false), Transition::Reset);
        assert_eq!(csts(&properties).0, 0);
    }

    #[test]
    fn what_cap_does_not_offer_is_refused() {
        let good = Cc(ENABLE as u32);
        let bad = [
            good.with_mps(1),
            good.with_ams(1),
            good.with_css(Cc::CSS_ADMIN_ONLY),
            good.with_css(1),
            good.with_iosqes(5),
            good.with_iocqes(6),
            good.with_shn(3),
            good.with_crime(true),
            Cc(good.0 | 1 << 25),
            Cc(good.0 | 1 << 1),
        ];
        for cc in bad {
            let mut properties = properties();
            let set = properties.set(offset::CC, PropertySize::Four, u64::from(cc.0), false);
            assert_eq!(set, Err(Refusal::field(byte::VALUE)), "{cc:?}");
            assert_eq!(csts(&properties).0, 0);
        }
    }

    #[test]
    fn the_command_sets_stay_while_enabled() {
        let mut properties = properties();
        set(&mut properties, ENABLE, false);
        let others = Cc(ENABLE as u32).with_css(Cc::CSS_NVM).0.into();
        let refused = properties.set(offset::CC, PropertySize::Four, others, false);
        assert_eq!(refused, Err(Refusal::field(byte::VALUE)));
        assert!(properties.is_ready());
    }

    #[test]
    fn offsets_and_sizes_must_match() {
        let mut properties = properties();
        for (ofst, size) in [
            (offset::CAP, PropertySize::Four),
            (offset::VS, PropertySize::Eight),
            (offset::CSTS, PropertySize::Eight),
        ] {
            assert_eq!(
                properties.get(ofst, size),
                Err(Refusal::field(byte::ATTRIB))
            );
        }
        for ofst in [offset::NSSR, 4, 0x24, u32::MAX] {
            assert!(properties.get(ofst, PropertySize::Four).is_err());
        }
        for ofst in [
            offset::CAP,
            offset::VS,
            offset::CSTS,
            offset::NSSR,
            offset::CRTO,
        ] {
            assert!(properties.set(ofst, PropertySize::Four, 0, false).is_err());
        }
        let wide = properties.set(offset::CC, PropertySize::Four, 1 << 32, false);
        assert_eq!(wide, Err(Refusal::field(byte::VALUE)));
    }
}
