use clap::Args;
use nvme_proto::wire::log::{ErrorEntry, FirmwareSlotLog, LOG_BITS, LogPage, SmartLog};
use nvme_proto::wire::{FromBytes, NSID_ALL};

use super::bit_fields::Detail;
use super::discover::ascii;
use super::fields::with_fields;
use super::number::number;
use super::output::{hexdump, print_bytes};
use super::session::{Session, text};
use super::{Controller, Result};
use cairn_bench::object::Object;
use cairn_initiator::Host;

const NAMES: &[(&str, LogPage)] = &[
    ("supported", LogPage::SUPPORTED_LOG_PAGES),
    ("error", LogPage::ERROR_INFORMATION),
    ("smart", LogPage::SMART),
    ("firmware", LogPage::FIRMWARE_SLOT),
    ("changed-ns", LogPage::CHANGED_NAMESPACES),
    ("effects", LogPage::COMMAND_EFFECTS),
    ("ana", LogPage::ANA),
    ("discovery", LogPage::DISCOVERY),
];
const LENGTH: usize = 512;

#[derive(Debug, Args)]
pub(super) struct GetLog {
    /// Log page: a number, or supported, error, smart, firmware, changed-ns, effects, ana,
    /// discovery
    #[arg(short = 'L', long, value_name = "LID", value_parser = parse_page)]
    log_id: LogPage,
    /// Bytes to read
    #[arg(long, value_name = "BYTES", value_parser = number::<usize>)]
    log_len: Option<usize>,
    /// Offset in the page, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 0, value_parser = number::<u64>)]
    lpo: u64,
    /// Number of entries of the error log
    #[arg(short = 'e', long, value_name = "N", value_parser = number::<usize>)]
    log_entries: Option<usize>,
    /// Retain the asynchronous event of the page
    #[arg(long)]
    rae: bool,
    /// Namespace, for a page that each namespace has
    #[arg(short = 'N', long, value_name = "NSID", default_value_t = NSID_ALL, value_parser = number::<u32>)]
    namespace_id: u32,
    /// Write the page as binary data
    #[arg(short = 'b', long)]
    raw_binary: bool,
    #[command(flatten)]
    detail: Detail,
    #[command(flatten)]
    controller: Controller,
}

fn parse_page(text: &str) -> Result<LogPage> {
    if let Some((_, page)) = NAMES.iter().find(|(name, _)| *name == text) {
        return Ok(*page);
    }
    let number = match text.strip_prefix("0x") {
        Some(hex) => u8::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    };
    number.map(LogPage).ok_or_else(|| {
        let names: Vec<_> = NAMES.iter().map(|(name, _)| *name).collect();
        format!(
            "neither a number up to 0xff nor one of {}",
            names.join(", ")
        )
    })
}

impl GetLog {
    pub(super) fn of(log_id: LogPage, detail: Detail, controller: Controller) -> Self {
        Self {
            log_id,
            log_len: None,
            lpo: 0,
            log_entries: None,
            rae: false,
            raw_binary: false,
            namespace_id: NSID_ALL,
            detail,
            controller,
        }
    }

    pub(super) fn of_namespace(self, nsid: Option<u32>) -> Self {
        Self {
            namespace_id: nsid.unwrap_or(NSID_ALL),
            ..self
        }
    }

    pub(super) fn run(&self) -> Result<()> {
        let mut host = Session::new(&self.controller.address)?.connect(0)?;
        let bytes = self.fetch(&mut host)?;
        host.shutdown().map_err(text)?;
        if self.raw_binary {
            return print_bytes(&bytes);
        }
        let whole = self.lpo == 0;
        match self.log_id {
            LogPage::SMART if whole && bytes.len() >= size_of::<SmartLog>() => {
                self.show_smart(&bytes);
            }
            LogPage::ERROR_INFORMATION if whole => self.show_errors(&bytes),
            LogPage::FIRMWARE_SLOT if whole && bytes.len() >= size_of::<FirmwareSlotLog>() => {
                self.show_firmware(&bytes);
            }
            page => self.show_bytes(page, &bytes),
        }
        Ok(())
    }

    fn fetch(&self, host: &mut Host) -> Result<Vec<u8>> {
        let has_entries = self.log_id == LogPage::ERROR_INFORMATION && self.log_len.is_none();
        if self.log_entries == Some(0) || (self.log_entries.is_some() && !has_entries) {
            return Err(
                "--log-entries is a number from 1, of --log-id error without --log-len".to_owned(),
            );
        }
        let length = match (self.log_len, self.log_id) {
            (Some(length), _) => length,
            (None, LogPage::ERROR_INFORMATION) => {
                // ELPE is 0-based.
                let all = usize::from(host.identity().elpe) + 1;
                self.log_entries.unwrap_or(all).min(all) * size_of::<ErrorEntry>()
            }
            (None, LogPage::COMMAND_EFFECTS | LogPage::CHANGED_NAMESPACES) => 4096,
            (None, LogPage::SUPPORTED_LOG_PAGES | LogPage::FEATURE_EFFECTS) => 1024,
            (None, _) => LENGTH,
        };
        if length == 0 || !length.is_multiple_of(4) {
            return Err(format!(
                "--log-len {length}: log pages come in multiples of 4 bytes"
            ));
        }
        host.log_page_of(self.namespace_id, self.log_id, self.lpo, length, self.rae)
            .map_err(text)
    }

    fn show_smart(&self, bytes: &[u8]) {
        let (log, _) = SmartLog::read_from_prefix(bytes).expect("its length was looked at");
        let object = with_fields!(Object::new(), log; critical_warning)
            .with("temperature", log.composite_temperature.get())
            .with("avail_spare", log.avsp)
            .with("spare_thresh", log.avspt)
            .with("percent_used", log.pused)
            .with(
                "endurance_grp_critical_warning_summary",
                log.endurance_group_warning,
            );
        let object = with_fields!(object, log;
            data_units_read data_units_written host_read_commands host_write_commands
            controller_busy_time power_cycles power_on_hours unsafe_shutdowns media_errors
        );
        let error_entries = super::fields::Field::value(&log.error_log_entries);
        let mut object = object
            .with("num_err_log_entries", error_entries)
            .with("warning_temp_time", log.warning_temperature_time.get())
            .with("critical_comp_time", log.critical_temperature_time.get());
        for (at, sensor) in log.temperature_sensors.iter().enumerate() {
            if sensor.get() != 0 {
                object = object.with(&format!("temperature_sensor_{}", at + 1), sensor.get());
            }
        }
        let object = object
            .with("thm_temp1_trans_count", log.thermal1_transitions.get())
            .with("thm_temp2_trans_count", log.thermal2_transitions.get())
            .with("thm_temp1_total_time", log.thermal1_time.get())
            .with("thm_temp2_total_time", log.thermal2_time.get());
        self.controller.output.show(&object, |object| {
            format!(
                "Smart Log for NVME controller:{:08x}\n{}",
                self.namespace_id,
                self.detail.lines(object, 40, LOG_BITS)
            )
        });
    }

    fn show_errors(&self, bytes: &[u8]) {
        let entries: Vec<ErrorEntry> = bytes
            .chunks_exact(size_of::<ErrorEntry>())
            .map(|entry| ErrorEntry::read_from_bytes(entry).expect("a whole chunk"))
            .collect();
        let object = Object::new().with_list("errors", entries.iter().map(error));
        self.controller.output.show(&object, |_| {
            let mut out = format!("Error Log Entries, {} of them:\n", entries.len());
            for (at, entry) in entries.iter().enumerate() {
                if entry.error_count.get() != 0 {
                    out += &format!(
                        " Entry[{at:>2}]\n{}",
                        self.detail.lines(&error(entry), 20, LOG_BITS)
                    );
                }
            }
            if entries.iter().all(|entry| entry.error_count.get() == 0) {
                out += "no errors\n";
            }
            out
        });
    }

    fn show_firmware(&self, bytes: &[u8]) {
        let (log, _) = FirmwareSlotLog::read_from_prefix(bytes).expect("its length was looked at");
        let mut slots = Object::new().with("Active Firmware Slot (afi)", log.afi);
        for (at, revision) in log.frs.iter().enumerate() {
            if revision[0] != 0 {
                let text = format!("{} ({})", u64::from_le_bytes(*revision), ascii(revision));
                slots = slots.with(&format!("Firmware Rev Slot {}", at + 1), text);
            }
        }
        let lines = self.detail.lines(&slots, 28, LOG_BITS);
        let object = Object::new().with_object("firmware", slots);
        self.controller
            .output
            .show(&object, |_| format!("Firmware Log:\n{lines}"));
    }

    fn show_bytes(&self, page: LogPage, bytes: &[u8]) {
        let object = Object::new()
            .with("log_id", page.0)
            .with("offset", self.lpo)
            .with("data", bytes);
        self.controller.output.show(&object, |_| {
            format!("Log page {:#04x} ({page}):\n{}", page.0, hexdump(bytes))
        });
    }
}

fn error(entry: &ErrorEntry) -> Object {
    let status = entry.status.get();
    Object::new()
        .with("error_count", entry.error_count.get())
        .with("sqid", entry.sqid.get())
        .with("cmdid", entry.cid.get())
        .with("status_field", status >> 1)
        .with("phase_tag", status & 1)
        .with("parm_error_location", entry.parameter_error_location.get())
        .with("lba", entry.lba.get())
        .with("nsid", entry.nsid.get())
        .with("vs", entry.vendor_log_page)
        .with("trtype", entry.trtype)
        .with("cs", entry.command_specific.get())
        .with("trtype_spec_info", entry.transport_specific.get())
}
