//! Log page 02h: SMART / Health Information (Base, 5.16.1.3).

use core::time::Duration;

use zerocopy::{FromZeros, IntoBytes};

use crate::common::Common;
use crate::controller::Controller;
use crate::window::Window;
use crate::wire::log::SmartLog;

/// Counters for log page 02h, maintained by the target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SmartCounters {
    /// Bytes read by hosts.
    pub read_bytes: u64,
    /// Bytes written by hosts.
    pub written_bytes: u64,
    /// Completed Read, Compare and Verify commands.
    pub read_commands: u64,
    /// Completed Write commands.
    pub write_commands: u64,
    /// Time with I/O commands in flight.
    pub busy: Duration,
    /// Running time of the target.
    pub power_on: Duration,
    /// Number of target starts.
    pub power_cycles: u64,
    /// Number of target stops without a shutdown.
    pub unsafe_shutdowns: u64,
    /// Failures with SCT 2h (media errors).
    pub media_errors: u64,
}

const DATA_UNIT_BYTES: u64 = 512_000;
const MINUTE_S: u64 = 60;
const HOUR_S: u64 = 60 * MINUTE_S;

impl Controller {
    pub(super) fn put_smart(
        &self,
        common: &Common,
        counters: &SmartCounters,
        page: &mut Window<'_>,
    ) {
        let health = &common.health;
        let mut log = SmartLog::new_zeroed();
        log.critical_warning = self.features.critical_warning(health);
        log.composite_temperature.set(health.temperature_k);
        log.avsp = health.available_spare;
        log.avspt = health.available_spare_threshold;
        log.pused = health.percentage_used;
        let units = |bytes: u64| u128::from(bytes.div_ceil(DATA_UNIT_BYTES));
        log.data_units_read.set(units(counters.read_bytes));
        log.data_units_written.set(units(counters.written_bytes));
        log.host_read_commands.set(counters.read_commands.into());
        log.host_write_commands.set(counters.write_commands.into());
        log.controller_busy_time
            .set((counters.busy.as_secs() / MINUTE_S).into());
        log.power_cycles.set(counters.power_cycles.into());
        log.power_on_hours
            .set((counters.power_on.as_secs() / HOUR_S).into());
        log.unsafe_shutdowns.set(counters.unsafe_shutdowns.into());
        log.media_errors.set(counters.media_errors.into());
        log.error_log_entries.set(self.errors.count().into());
        page.put(0, log.as_bytes());
    }
}
