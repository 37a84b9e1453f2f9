//! `id-ctrl`, `id-ns`: with the keys of nvme-cli.

use clap::Args;
use nvme_proto::wire::identify::{IdentifyController, IdentifyNamespace, PowerState};
use uuid::Uuid;

use super::discover::ascii;
use super::fields::lines;
use super::fields::with_fields;
use super::session::{Session, namespace, text};
use super::{Controller, Result};
use cairn_bench::object::Object;

#[derive(Debug, Args)]
pub(super) struct IdCtrl {
    #[command(flatten)]
    controller: Controller,
}

impl IdCtrl {
    pub(super) fn run(&self) -> Result<()> {
        let host = Session::new(&self.controller.address)?.connect(0)?;
        let identity = *host.identity();
        host.shutdown().map_err(text)?;
        self.controller
            .output
            .show(&controller(&identity), |object| {
                format!("NVME Identify Controller:\n{}", lines(object, " : ", 10))
            });
        Ok(())
    }
}

/// Identify Controller as nvme-cli's JSON has it.
fn controller(id: &IdentifyController) -> Object {
    // IEEE is an OUI of three bytes, the last one first.
    let ieee = id.ieee.iter().rev();
    let ieee = ieee.fold(0u32, |all, &byte| all << 8 | u32::from(byte));
    let object = with_fields!(Object::new(), id; vid ssvid)
        .with("sn", padded(&id.sn))
        .with("mn", padded(&id.mn))
        .with("fr", padded(&id.fr));
    let object = with_fields!(object, id; rab).with("ieee", ieee);
    let object =
        with_fields!(object, id; cmic mdts cntlid ver rtd3r rtd3e oaes ctratt rrls cntrltype)
            .with("fguid", Uuid::from_bytes(id.fguid).to_string());
    let object = with_fields!(object, id;
        crdt1 crdt2 crdt3 nvmsr vwci mec oacs acl aerl frmw lpa elpe npss avscc apsta wctemp cctemp
        mtfa hmpre hmmin tnvmcap unvmcap rpmbs edstt dsto fwug kas hctma mntmt mxtmt sanicap
        hmminds hmmaxd nsetidmax endgidmax anatt anacap anagrpmax nanagrpid pels domainid megcap
        sqes cqes maxcmd nn oncs fuses fna vwc awun awupf icsvscc nwpc acwu
    );
    // There, CDFS is called OCFS.
    let object = object.with("ocfs", id.cdfs.get());
    let mut object = with_fields!(object, id; sgls mnan maxdna maxcna);
    let subnqn = ascii(&id.subnqn);
    if !subnqn.is_empty() {
        object = object.with("subnqn", subnqn);
    }
    let states = id.psd.iter().take(usize::from(id.npss) + 1);
    with_fields!(object, id; ioccsz iorcsz icdoff fcatt msdbd ofcs)
        .with_list("psds", states.map(power_state))
}

/// Text with the spaces that it is padded with, as nvme-cli shows it.
fn padded(field: &[u8]) -> String {
    let text = String::from_utf8_lossy(field);
    text.split('\0').next().unwrap_or_default().to_owned()
}

fn power_state(state: &PowerState) -> Object {
    let [read_tput, read_lat, write_tput, write_lat] = state.relative;
    let rest = state.rest;
    let idle_power = u16::from_le_bytes([rest[0], rest[1]]);
    let active_power = u16::from_le_bytes([rest[4], rest[5]]);
    Object::new()
        .with("max_power", state.mp.get())
        .with("flags", state.flags)
        .with("entry_lat", state.enlat.get())
        .with("exit_lat", state.exlat.get())
        .with("read_tput", read_tput)
        .with("read_lat", read_lat)
        .with("write_tput", write_tput)
        .with("write_lat", write_lat)
        .with("idle_power", idle_power)
        .with("idle_scale", rest[2])
        .with("active_power", active_power)
        .with("active_power_work", rest[6] & 7)
        .with("active_scale", rest[6])
}

#[derive(Debug, Args)]
pub(super) struct IdNs {
    /// Which namespace; needed only if there are several
    #[arg(short = 'N', long, value_name = "NSID")]
    namespace_id: Option<u32>,
    #[command(flatten)]
    controller: Controller,
}

impl IdNs {
    pub(super) fn run(&self) -> Result<()> {
        let mut host = Session::new(&self.controller.address)?.connect(0)?;
        let namespace = namespace(&mut host, self.namespace_id)?;
        host.shutdown().map_err(text)?;
        let identity = &namespace.identity;
        self.controller
            .output
            .show(&of_namespace(identity), |object| {
                format!(
                    "NVME Identify Namespace {}:\n{}{}",
                    namespace.nsid,
                    lines(object, " : ", 8),
                    formats(identity)
                )
            });
        Ok(())
    }
}

/// Identify Namespace as nvme-cli's JSON has it.
fn of_namespace(id: &IdentifyNamespace) -> Object {
    /// NSFEAT bit 4, OPTPERF: NPWG to NOWS are there.
    const OPTPERF: u8 = 1 << 4;
    let mut object = with_fields!(Object::new(), id;
        nsze ncap nuse nsfeat nlbaf flbas mc dpc dps nmic rescap fpi dlfeat nawun nawupf nacwu
        nabsn nabo nabspf noiob nvmcap nsattr nvmsetid
    );
    if id.nsfeat & OPTPERF != 0 {
        object = with_fields!(object, id; npwg npwa npdg npda nows);
    }
    let formats = id.lbaf.iter().take(usize::from(id.nlbaf) + 1);
    let formats = formats.map(|format| {
        Object::new()
            .with("ms", format.ms.get())
            .with("ds", format.lbads)
            .with("rp", format.rp)
    });
    with_fields!(object, id; mssrl mcl msrc nulbaf anagrpid endgid)
        .with("eui64", hex(&id.eui64))
        .with("nguid", hex(&id.nguid))
        .with_list("lbafs", formats)
}

fn formats(id: &IdentifyNamespace) -> String {
    let mut out = String::new();
    for (at, format) in id.lbaf.iter().enumerate().take(usize::from(id.nlbaf) + 1) {
        let in_use = if usize::from(id.flbas & 0xf) == at {
            " (in use)"
        } else {
            ""
        };
        let (ms, lbads, rp) = (format.ms.get(), format.lbads, format.rp);
        out += &format!("lbaf {at:>2} : ms:{ms:<3} lbads:{lbads:<2} rp:{rp:#x}{in_use}\n");
    }
    out
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
