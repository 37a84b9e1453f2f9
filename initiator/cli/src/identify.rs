//! The commands `id-ctrl` and `id-ns`, with nvme-cli's keys.

use clap::Args;
use nvme_proto::wire::identify::{
    CONTROLLER_BITS, IdentifyController, IdentifyNamespace, LbaFormat, NAMESPACE_BITS, Nsfeat,
    PowerState,
};
use uuid::Uuid;

use super::bit_fields::{self, Detail};
use super::discover::ascii;
use super::fields::with_fields;
use super::number::number;
use super::output::hex;
use super::session::{Session, namespace, text};
use super::{Controller, Result};
use cairn_bench::object::Object;

#[derive(Debug, Args)]
pub(super) struct IdCtrl {
    #[command(flatten)]
    detail: Detail,
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
                let lines = self.detail.lines(object, 10, CONTROLLER_BITS);
                format!("NVME Identify Controller:\n{lines}")
            });
        Ok(())
    }
}

fn controller(id: &IdentifyController) -> Object {
    // IEEE is an OUI of 3 bytes, least significant byte first.
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
    // nvme-cli prints CDFS as `ocfs`.
    let object = object.with("ocfs", id.ocfs.get());
    let mut object = with_fields!(object, id; sgls mnan maxdna maxcna);
    let subnqn = ascii(&id.subnqn);
    if !subnqn.is_empty() {
        object = object.with("subnqn", subnqn);
    }
    let states = id.psd.iter().take(usize::from(id.npss) + 1);
    with_fields!(object, id; ioccsz iorcsz icdoff fcatt msdbd ofcs)
        .with_list("psds", states.map(power_state))
}

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
    /// Namespace; required only if there are several
    #[arg(short = 'N', long, value_name = "NSID", value_parser = number::<u32>)]
    namespace_id: Option<u32>,
    #[command(flatten)]
    detail: Detail,
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
                    self.detail.lines(object, 8, NAMESPACE_BITS),
                    formats(identity, self.detail)
                )
            });
        Ok(())
    }
}

fn of_namespace(id: &IdentifyNamespace) -> Object {
    let mut object = with_fields!(Object::new(), id;
        nsze ncap nuse nsfeat nlbaf flbas mc dpc dps nmic rescap fpi dlfeat nawun nawupf nacwu
        nabsn nabo nabspf noiob nvmcap nsattr nvmsetid
    );
    if Nsfeat(id.nsfeat).optperf() {
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

fn formats(id: &IdentifyNamespace, detail: Detail) -> String {
    let formats = id.lbaf.iter().enumerate().take(usize::from(id.nlbaf) + 1);
    let formats = formats.map(|(at, format)| {
        let in_use = id.lba_format_index() == at;
        let in_use = if in_use { " (in use)" } else { "" };
        if detail.human_readable {
            return format!("LBA Format {at:>2} : {}{in_use}\n", in_words(format));
        }
        let (ms, lbads, rp) = (format.ms.get(), format.lbads, format.rp);
        format!("lbaf {at:>2} : ms:{ms:<3} lbads:{lbads:<2} rp:{rp:#x}{in_use}\n")
    });
    formats.collect()
}

fn in_words(format: &LbaFormat) -> String {
    let performance = ["Best", "Better", "Good", "Degraded"];
    let rp = format.rp & 3;
    // LBADS is not checked on receipt, so the shift may overflow.
    let data = match 1u64.checked_shl(format.lbads.into()) {
        Some(bytes) => format!("{bytes} bytes"),
        None => format!("2^{} bytes", format.lbads),
    };
    format!(
        "Metadata Size: {:<3} bytes - Data Size: {data} - Relative Performance: {} {}",
        format.ms.get(),
        bit_fields::hex(rp.into()),
        performance[usize::from(rp)]
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::HEX;
    use nvme_proto::wire::{FromZeros, U16};

    const IN_WORDS: Detail = Detail {
        human_readable: true,
    };

    #[test]
    fn each_set_of_bits_is_explained_below_its_field() {
        let mut id = IdentifyController::new_zeroed();
        id.oncs = U16::new(1 << 3);
        let object = controller(&id);
        let text = IN_WORDS.lines(&object, 10, CONTROLLER_BITS);
        let (_, oncs) = text.split_once("\noncs       : 0x8\n").unwrap();
        let first: Vec<_> = oncs.lines().take(6).collect();
        assert_eq!(first[0], "  [8:8] : 0\tCopy: not supported");
        assert_eq!(first[5], "  [3:3] : 0x1\tWrite Zeroes: supported");
        let plain = Detail {
            human_readable: false,
        };
        let plain = plain.lines(&object, 10, CONTROLLER_BITS);
        assert!(!plain.contains("[3:3]"), "{plain}");
    }

    #[test]
    fn no_set_of_bits_is_left_out() {
        const NUMBERS: [&str; 3] = ["vid", "ssvid", "ieee"];
        let controller = controller(&IdentifyController::new_zeroed());
        let namespace = of_namespace(&IdentifyNamespace::new_zeroed());
        for (object, fields) in [(controller, CONTROLLER_BITS), (namespace, NAMESPACE_BITS)] {
            let keys: Vec<_> = object.values().map(|(key, _)| key.to_owned()).collect();
            for key in keys.iter().filter(|key| HEX.contains(&key.as_str())) {
                let explained = fields.iter().any(|field| field.name == key);
                assert!(explained || NUMBERS.contains(&key.as_str()), "{key}");
            }
            for field in fields {
                assert!(keys.iter().any(|key| key == field.name), "{}", field.name);
            }
        }
    }

    #[test]
    fn the_format_in_use_may_be_past_the_sixteenth() {
        let mut id = IdentifyNamespace::new_zeroed();
        id.nlbaf = 17;
        // FLBAS bits 6:5 are bits 5:4 of the format index.
        id.flbas = 1 << 5 | 1;
        id.lbaf[17] = LbaFormat {
            ms: U16::new(8),
            lbads: 12,
            rp: 2,
        };
        id.lbaf[16].lbads = 200;
        let text = formats(&id, IN_WORDS);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 18);
        assert_eq!(
            lines[17],
            "LBA Format 17 : Metadata Size: 8   bytes - Data Size: 4096 bytes - Relative Performance: 0x2 Good (in use)"
        );
        assert!(lines[16].contains("Data Size: 2^200 bytes"));
        assert_eq!(text.matches("in use").count(), 1);
    }
}
