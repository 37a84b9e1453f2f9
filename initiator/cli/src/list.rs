use cairn_doctor::cli::print_message;
use clap::Args;
use nvme_proto::wire::Nqn;

use super::discover::ascii;
use super::output::{size, table};
use super::session::{Session, namespace, subsystems, text};
use super::{Controller, Result};
use cairn_bench::object::Object;

#[derive(Debug, Args)]
pub(super) struct List {
    #[command(flatten)]
    controller: Controller,
}

struct Row {
    subsystem: Nqn,
    nsid: u32,
    serial: String,
    model: String,
    firmware: String,
    used_bytes: u64,
    bytes: u64,
    blocks: u64,
    block_bytes: u32,
}

impl List {
    pub(super) fn run(&self) -> Result<()> {
        let address = &self.controller.address;
        let session = Session::new(address)?;
        let names = match address.subsystem()? {
            Some(name) => vec![name],
            None => subsystems(&session.discovery_log()?.entries)?,
        };
        let mut rows = Vec::new();
        for name in &names {
            look_at(&session, *name, &mut rows)?;
        }
        let object = Object::new().with_list("Devices", rows.iter().map(Row::object));
        if rows.is_empty() {
            let host = session.options(Nqn::discovery())?.hostnqn;
            print_message(why_empty(&names, &host));
        }
        let ids = rows
            .iter()
            .map(|row| format!("{} {}", row.subsystem, row.nsid));
        if self.controller.output.has_shown_names(ids) {
            return Ok(());
        }
        self.controller.output.show(&object, |_| {
            let head = [
                "Subsystem",
                "NSID",
                "SN",
                "Model",
                "Usage",
                "Format",
                "FW Rev",
            ];
            table(head, rows.iter().map(Row::cells))
        });
        Ok(())
    }
}

fn why_empty(subsystems: &[Nqn], host: &Nqn) -> String {
    if subsystems.is_empty() {
        return format!(
            "note: the target has no subsystem for this host, {host}: it has none, or none whose \
             allowed_hosts has this name (--hostnqn gives another)"
        );
    }
    let names: Vec<_> = subsystems.iter().map(Nqn::to_string).collect();
    format!(
        "note: this host, {host}, sees no namespace of {}: there is none, its disk is missing at the \
         target, or its list `hosts` does not have this name",
        names.join(", ")
    )
}

fn look_at(session: &Session, subsystem: Nqn, rows: &mut Vec<Row>) -> Result<()> {
    let mut host = session.connect_to(subsystem, 0)?;
    let identity = *host.identity();
    for nsid in host.active_namespaces().map_err(text)? {
        let namespace = namespace(&mut host, Some(nsid))?;
        let format = namespace.format(&host)?;
        rows.push(Row {
            subsystem,
            nsid,
            serial: ascii(&identity.sn),
            model: ascii(&identity.mn),
            firmware: ascii(&identity.fr),
            used_bytes: namespace
                .identity
                .nuse
                .get()
                .saturating_mul(u64::from(format.block_bytes)),
            bytes: format.bytes(),
            blocks: format.blocks,
            block_bytes: format.block_bytes,
        });
    }
    host.shutdown().map_err(text)
}

impl Row {
    /// Returns JSON with nvme-cli's keys. DevicePath is subsystem and NSID, because no kernel
    /// device exists.
    fn object(&self) -> Object {
        Object::new()
            .with("NameSpace", self.nsid)
            .with("DevicePath", format!("{}/{}", self.subsystem, self.nsid))
            .with("Firmware", &self.firmware)
            .with("ModelNumber", &self.model)
            .with("SerialNumber", &self.serial)
            .with("UsedBytes", self.used_bytes)
            .with("MaximumLBA", self.blocks)
            .with("PhysicalSize", self.bytes)
            .with("SectorSize", self.block_bytes)
    }

    fn cells(&self) -> Vec<String> {
        vec![
            self.subsystem.to_string(),
            self.nsid.to_string(),
            self.serial.clone(),
            self.model.clone(),
            format!("{} / {}", size(self.used_bytes), size(self.bytes)),
            format!("{} + 0 B", size(u64::from(self.block_bytes))),
            self.firmware.clone(),
        ]
    }
}
