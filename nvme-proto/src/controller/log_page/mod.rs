//! Get Log Page (Base, 5.16).
//!
//! Reads past a page's present end return zeroes, because hosts know its length from Identify or an
//! earlier read. Offsets above its maximum length fail.

mod effects;
mod health;

use zerocopy::{FromZeros, IntoBytes};

use crate::common::{Common, Kind};
use crate::limits::{
    CHANGED_NAMESPACES_MAX, CROSS_RESET_LOG_ENTRIES, DISCOVERY_LOG_BYTES, ERROR_LOG_ENTRIES,
    ana_log_bytes,
};
use crate::window::Window;
use crate::wire::cross_reset::{CrossResetEntry, CrossResetLsp};
use crate::wire::identify::{CSI_NVM, ascii_field};
use crate::wire::log::{
    AnaGroup, AnaLogHeader, AnaLsp, CommandEffectsLog, ErrorEntry, FirmwareSlotLog, LogPage,
    SmartLog, SupportedLogPage, SupportedLogPages,
};
use crate::wire::reservation::NotificationLog;
use crate::wire::{NSID_ALL, Status, U32};

use super::command::GetLogPage;
use super::refusal::byte;
use super::{Controller, Exchange, Refusal};

pub use health::SmartCounters;

/// Log page 13h (NVMe-MI commands): all zeroes, but required by LPA bit 5.
const MI_EFFECTS: LogPage = LogPage(0x13);

const NVM_PAGES: [LogPage; 11] = [
    LogPage::SUPPORTED_LOG_PAGES,
    LogPage::ERROR_INFORMATION,
    LogPage::SMART,
    LogPage::FIRMWARE_SLOT,
    LogPage::CHANGED_NAMESPACES,
    LogPage::COMMAND_EFFECTS,
    LogPage::ANA,
    LogPage::FEATURE_EFFECTS,
    MI_EFFECTS,
    LogPage::CROSS_CONTROLLER_RESET,
    LogPage::RESERVATION_NOTIFICATION,
];

/// Log pages of discovery controllers (Base, figure 28).
const DISCOVERY_PAGES: [LogPage; 7] = [
    LogPage::SUPPORTED_LOG_PAGES,
    LogPage::ERROR_INFORMATION,
    LogPage::COMMAND_EFFECTS,
    LogPage::FEATURE_EFFECTS,
    MI_EFFECTS,
    LogPage::CROSS_CONTROLLER_RESET,
    LogPage::DISCOVERY,
];

const NSID_BYTES: u64 = size_of::<U32>() as u64;

fn pages(kind: Kind) -> &'static [LogPage] {
    match kind {
        Kind::Nvm => &NVM_PAGES,
        Kind::Discovery => &DISCOVERY_PAGES,
    }
}

impl Controller {
    pub(super) fn get_log_page(
        &mut self,
        common: &Common,
        log: &GetLogPage,
        exchange: &mut Exchange<'_>,
    ) -> Result<(), Refusal> {
        if !pages(common.kind()).contains(&log.lid) {
            return Err(Refusal::new(Status::INVALID_LOG_PAGE).at(byte::CDW10));
        }
        self.check_scope(log)?;
        if log.lpo > self.longest_page(common, log.lid) {
            return Err(Refusal::field(byte::CDW12));
        }
        let smart = exchange.smart;
        let mut page = Window::new(&mut *exchange.data_out, log.lpo);
        match log.lid {
            LogPage::SUPPORTED_LOG_PAGES => put_supported_pages(common.kind(), &mut page),
            LogPage::ERROR_INFORMATION => self.put_errors(&mut page),
            LogPage::SMART => self.put_smart(common, smart, &mut page),
            LogPage::FIRMWARE_SLOT => put_firmware(common, &mut page),
            LogPage::CHANGED_NAMESPACES => self.put_changed_namespaces(&mut page),
            LogPage::COMMAND_EFFECTS => {
                let write_uncorrectable = self.has_write_uncorrectable(common);
                effects::put_commands(common.kind(), write_uncorrectable, &mut page);
            }
            LogPage::ANA => self.put_ana(common, AnaLsp(log.lsp), &mut page),
            LogPage::FEATURE_EFFECTS => effects::put_features(common, &mut page),
            LogPage::RESERVATION_NOTIFICATION => self.reservation_notices.put_log(&mut page),
            LogPage::CROSS_CONTROLLER_RESET => self.cross_resets.put_log(&mut page),
            LogPage::DISCOVERY => common.discovery.render(&self.host, self.local, &mut page),
            _ => {}
        }
        if log.lid == LogPage::CROSS_CONTROLLER_RESET
            && CrossResetLsp(log.lsp).rmc()
            && log.lpo == 0
            && u64::from(log.length) >= self.cross_resets.log_bytes()
        {
            self.cross_resets.remove_completed();
        }
        if !log.rae {
            self.events.clear(log.lid.0);
            if log.lid == LogPage::CHANGED_NAMESPACES {
                self.changed_namespaces.clear();
            }
            if log.lid == LogPage::RESERVATION_NOTIFICATION {
                self.reservation_notices.log_was_read();
            }
        }
        Ok(())
    }

    fn check_scope(&self, log: &GetLogPage) -> Result<(), Refusal> {
        // The SMART log is per controller (LPA bit 0 is 0).
        if log.lid == LogPage::SMART && !matches!(log.nsid, 0 | NSID_ALL) {
            return Err(Refusal::field(byte::NSID));
        }
        if log.lid == LogPage::COMMAND_EFFECTS && log.csi != CSI_NVM {
            return Err(Refusal::field(byte::CDW14));
        }
        Ok(())
    }

    /// Returns the largest possible size of the page for this controller, in bytes.
    fn longest_page(&self, common: &Common, lid: LogPage) -> u64 {
        let length = match lid {
            LogPage::ERROR_INFORMATION => size_of::<ErrorEntry>() * ERROR_LOG_ENTRIES,
            LogPage::SMART => size_of::<SmartLog>(),
            LogPage::FIRMWARE_SLOT => size_of::<FirmwareSlotLog>(),
            LogPage::CHANGED_NAMESPACES => CHANGED_NAMESPACES_MAX * size_of::<U32>(),
            LogPage::COMMAND_EFFECTS | MI_EFFECTS => size_of::<CommandEffectsLog>(),
            LogPage::RESERVATION_NOTIFICATION => size_of::<NotificationLog>(),
            LogPage::CROSS_CONTROLLER_RESET => {
                size_of::<CrossResetEntry>() * (1 + CROSS_RESET_LOG_ENTRIES)
            }
            LogPage::ANA => return ana_log_bytes(common.limits().namespaces),
            LogPage::DISCOVERY => {
                let present = common.discovery.length(&self.host, self.local);
                return present.max(DISCOVERY_LOG_BYTES);
            }
            _ => size_of::<SupportedLogPages>(),
        };
        length as u64
    }

    fn put_errors(&self, page: &mut Window<'_>) {
        let mut at = 0;
        for entry in self.errors.entries() {
            page.put(at, entry.as_bytes());
            at += size_of::<ErrorEntry>() as u64;
        }
    }

    fn put_changed_namespaces(&self, page: &mut Window<'_>) {
        put_nsids(0, self.changed_namespaces.entries(), page);
    }

    fn put_ana(&self, common: &Common, lsp: AnaLsp, page: &mut Window<'_>) {
        let groups = common.namespaces.by_ana_group(|nsid| self.sees(nsid));
        let mut header = AnaLogHeader::new_zeroed();
        header.chgcnt.set(self.ana.changes());
        header.ngrps.set(groups.len() as u16);
        page.put(0, header.as_bytes());
        let mut at = size_of::<AnaLogHeader>() as u64;
        for (anagrpid, nsids) in groups {
            let nsids = shown(&nsids, lsp);
            let mut group = AnaGroup::new_zeroed();
            group.agid.set(anagrpid);
            group.nnsids.set(nsids.len() as u32);
            group.chgcnt.set(self.ana.group_changes(anagrpid));
            group.anas = self.ana.get(anagrpid).0;
            page.put(at, group.as_bytes());
            at += size_of::<AnaGroup>() as u64;
            put_nsids(at, nsids.iter().copied(), page);
            at += size_of_val(nsids) as u64;
        }
    }
}

fn put_supported_pages(kind: Kind, page: &mut Window<'_>) {
    let mut supported = SupportedLogPages::new_zeroed();
    for lid in pages(kind) {
        supported.lids[usize::from(lid.0)].set(SupportedLogPage(0).with_lsupp(true).0);
    }
    page.put(0, supported.as_bytes());
}

fn put_firmware(common: &Common, page: &mut Window<'_>) {
    let mut firmware = FirmwareSlotLog::new_zeroed();
    firmware.afi = 1;
    firmware.frs[0] = ascii_field(&common.settings.firmware);
    page.put(0, firmware.as_bytes());
}

fn shown(nsids: &[u32], lsp: AnaLsp) -> &[u32] {
    if lsp.rgo() { &[] } else { nsids }
}

fn put_nsids(at: u64, nsids: impl Iterator<Item = u32>, page: &mut Window<'_>) {
    let places = (0..).map(|index| at + index * NSID_BYTES);
    for (at, nsid) in places.zip(nsids) {
        page.put(at, &nsid.to_le_bytes());
    }
}
