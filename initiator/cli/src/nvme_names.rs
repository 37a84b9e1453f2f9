//! Commands with nvme-cli's names for log pages, lists and properties.

use clap::Args;
use nvme_proto::host::multipath::{AnaEntry, AnaLog};
use nvme_proto::wire::identify::{Cns, NamespaceDescriptor, namespace_descriptors};
use nvme_proto::wire::log::{
    AnaGroup, AnaLogHeader, CommandEffects, CommandEffectsLog, EFFECT_BITS, LogPage, SubsystemType,
};
use nvme_proto::wire::property::{Cap, Cc, Csts, PROPERTY_BITS, Vs, offset};
use nvme_proto::wire::{AdminOpcode, FromBytes, Nqn, NvmOpcode, U32};
use uuid::Uuid;

use super::bit_fields::Detail;
use super::discover::{ascii, transport};
use super::logs::GetLog;
use super::number::number;
use super::output::{hex, table};
use super::session::{Session, namespace, text};
use super::{Controller, Result};
use cairn_bench::object::Object;

/// Arguments of commands with the option `-H`.
#[derive(Debug, Args)]
pub(super) struct Detailed {
    #[command(flatten)]
    detail: Detail,
    #[command(flatten)]
    controller: Controller,
}

/// The SMART log, of the controller or of a namespace.
#[derive(Debug, Args)]
pub(super) struct SmartLog {
    /// Namespace of the log, if namespaces have their own logs [default: the controller's log]
    #[arg(short = 'N', long, value_name = "NSID", value_parser = number::<u32>)]
    namespace_id: Option<u32>,
    #[command(flatten)]
    detail: Detail,
    #[command(flatten)]
    controller: Controller,
}

impl SmartLog {
    pub(super) fn run(self) -> Result<()> {
        let log = GetLog::of(LogPage::SMART, self.detail, self.controller);
        log.of_namespace(self.namespace_id).run()
    }
}

impl Detailed {
    pub(super) fn run(self, page: LogPage) -> Result<()> {
        GetLog::of(page, self.detail, self.controller).run()
    }

    pub(super) fn effects(&self) -> Result<()> {
        let mut host = Session::new(&self.controller.address)?.connect(0)?;
        let bytes = host.log_page(LogPage::COMMAND_EFFECTS, 0, 4096, false);
        let bytes = bytes.map_err(text)?;
        host.shutdown().map_err(text)?;
        let log = CommandEffectsLog::read_from_bytes(&bytes).expect("a page of 4096 bytes");
        let admin = supported("admin", &log.acs, |opcode| AdminOpcode(opcode).to_string());
        let io = supported("io", &log.iocs, |opcode| NvmOpcode(opcode).to_string());
        let all: Vec<Effect> = admin.chain(io).collect();
        let object = Object::new().with_list("commands", all.iter().map(Effect::object));
        let detail = self.detail;
        self.controller.output.show(&object, |_| {
            if detail.human_readable {
                let each = all
                    .iter()
                    .map(|one| detail.lines(&one.object(), 7, EFFECT_BITS));
                return each.collect::<Vec<_>>().join("\n");
            }
            let head = ["Set", "Opcode", "Command", "Effects", "May change"];
            table(head, all.iter().map(Effect::cells))
        });
        Ok(())
    }

    pub(super) fn show_regs(&self) -> Result<()> {
        let mut host = Session::new(&self.controller.address)?.connect(0)?;
        let cap = Cap(host.wide_property(offset::CAP).map_err(text)?);
        let vs = Vs(host.property(offset::VS).map_err(text)?);
        let cc = Cc(host.property(offset::CC).map_err(text)?);
        let csts = Csts(host.property(offset::CSTS).map_err(text)?);
        host.shutdown().map_err(text)?;
        let object = Object::new()
            .with("cap", cap.0)
            .with("version", vs.0)
            .with("cc", cc.0)
            .with("csts", csts.0);
        let detail = self.detail;
        self.controller.output.show(&object, |object| {
            if detail.human_readable {
                return detail.lines(object, 8, PROPERTY_BITS);
            }
            format!(
                "cap     : {:x}\n  MQES {} (commands of a queue), CQR {}, TO {} (units of 500 ms), CSS {:#x}, MPSMIN {}, MPSMAX {}\n\
                 version : {:x}\n  NVMe {}.{}.{}\n\
                 cc      : {:x}\n  EN {}, CSS {}, MPS {}, AMS {}, SHN {}, IOSQES {}, IOCQES {}\n\
                 csts    : {:x}\n  RDY {}, CFS {}, SHST {}, NSSRO {}, PP {}\n",
                cap.0, u32::from(cap.mqes()) + 1, u8::from(cap.cqr()), cap.to(), cap.css(), cap.mpsmin(), cap.mpsmax(),
                vs.0, vs.mjr(), vs.mnr(), vs.ter(),
                cc.0, u8::from(cc.en()), cc.css(), cc.mps(), cc.ams(), cc.shn(), cc.iosqes(), cc.iocqes(),
                csts.0, u8::from(csts.rdy()), u8::from(csts.cfs()), csts.shst(), u8::from(csts.nssro()), u8::from(csts.pp()),
            )
        });
        Ok(())
    }
}

/// Arguments of commands without the option `-H`.
#[derive(Debug, Args)]
pub(super) struct Named {
    #[command(flatten)]
    controller: Controller,
}

impl Named {
    pub(super) fn ana(&self) -> Result<()> {
        let mut host = Session::new(&self.controller.address)?.connect(0)?;
        let groups = host.identity().nanagrpid.get() as usize;
        let namespaces = host.active_namespaces().map_err(text)?.len();
        if host.identity().anacap == 0 {
            host.shutdown().map_err(text)?;
            return Err("the controller does not report ANA: ANACAP is 0".to_owned());
        }
        let length = size_of::<AnaLogHeader>() + groups * size_of::<AnaGroup>() + 4 * namespaces;
        let bytes = host
            .log_page(LogPage::ANA, 0, length, false)
            .map_err(text)?;
        host.shutdown().map_err(text)?;
        let log = AnaLog::parse(&bytes).map_err(text)?;
        let groups: Vec<_> = log.groups().collect();
        let object = Object::new()
            .with("chgcnt", log.chgcnt())
            .with("ngrps", groups.len())
            .with_list("groups", groups.iter().map(group_object));
        self.controller.output.show(&object, |_| {
            let head = ["Group", "State", "Change count", "Namespaces"];
            table(head, groups.iter().map(group_cells))
        });
        Ok(())
    }

    pub(super) fn list_ns(&self) -> Result<()> {
        let mut host = Session::new(&self.controller.address)?.connect(0)?;
        let nsids = host.active_namespaces().map_err(text)?;
        host.shutdown().map_err(text)?;
        let objects = nsids.iter().map(|nsid| Object::new().with("nsid", nsid));
        let object = Object::new().with_list("nsid_list", objects);
        if self.controller.output.has_shown_names(&nsids) {
            return Ok(());
        }
        self.controller.output.show(&object, |_| {
            let lines = nsids.iter().enumerate();
            let lines = lines.map(|(at, nsid)| format!("[{at:4}]:{nsid:#x}\n"));
            if nsids.is_empty() {
                "this host sees no namespace of the subsystem\n".to_owned()
            } else {
                lines.collect()
            }
        });
        Ok(())
    }

    pub(super) fn list_subsys(&self) -> Result<()> {
        let session = Session::new(&self.controller.address)?;
        let host = session.options(Nqn::discovery())?;
        let log = session.discovery_log()?;
        let mut all: Vec<(Nqn, Vec<Way>)> = Vec::new();
        let nvm = |subtype: u8| SubsystemType(subtype) == SubsystemType::NVM;
        for entry in log.entries.iter().filter(|entry| nvm(entry.subtype)) {
            let nqn = Nqn::decode(&entry.subnqn).map_err(text)?;
            let (traddr, trsvcid) = (ascii(&entry.traddr), ascii(&entry.trsvcid));
            let way = Way {
                transport: transport(entry.trtype),
                address: format!("traddr={traddr},trsvcid={trsvcid}"),
            };
            match all.iter_mut().find(|(known, _)| *known == nqn) {
                Some((_, ways)) => ways.push(way),
                None => all.push((nqn, vec![way])),
            }
        }
        let names = all.iter().map(|(nqn, _)| nqn);
        if self.controller.output.has_shown_names(names) {
            return Ok(());
        }
        let object = Object::new()
            .with("HostNQN", host.hostnqn.raw())
            .with("HostID", Uuid::from_bytes(host.hostid).to_string())
            .with_list("Subsystems", subsystem_objects(&all));
        self.controller.output.show_list(&[object], |_| {
            let mut out = String::new();
            for (at, (nqn, ways)) in all.iter().enumerate() {
                out += &format!("nvme-subsys{at} - NQN={nqn}\n\\\n");
                for way in ways {
                    out += &format!(" +- {} {}\n", way.transport, way.address);
                }
            }
            if all.is_empty() {
                out += "the target has no subsystem for this host\n";
            }
            out
        });
        Ok(())
    }
}

struct Way {
    transport: &'static str,
    address: String,
}

/// Returns subsystems with nvme-cli's keys. Controllers have placeholder names and states, because
/// no kernel devices exist.
fn subsystem_objects(all: &[(Nqn, Vec<Way>)]) -> Vec<Object> {
    let mut controllers = 0..;
    let all = all.iter().enumerate().map(|(at, (nqn, ways))| {
        let ways = ways.iter().zip(controllers.by_ref());
        let paths = ways.map(|(way, controller)| {
            Object::new()
                .with("Name", format!("nvme{controller}"))
                .with("Transport", way.transport)
                .with("Address", &way.address)
                .with("State", "new")
        });
        Object::new()
            .with("Name", format!("nvme-subsys{at}"))
            .with("NQN", nqn.raw())
            .with_list("Paths", paths)
    });
    all.collect()
}

struct Effect {
    set: &'static str,
    opcode: u8,
    name: String,
    effects: CommandEffects,
}

fn supported(
    set: &'static str,
    all: &[U32; 256],
    name: impl Fn(u8) -> String,
) -> impl Iterator<Item = Effect> {
    let all = all
        .iter()
        .zip(0..=u8::MAX)
        .map(move |(effects, opcode)| Effect {
            set,
            opcode,
            name: name(opcode),
            effects: CommandEffects(effects.get()),
        });
    all.filter(|one| one.effects.csupp())
}

impl Effect {
    fn object(&self) -> Object {
        Object::new()
            .with("set", self.set)
            .with("opcode", self.opcode)
            .with("command", &self.name)
            .with("effects", self.effects.0)
    }

    fn cells(&self) -> Vec<String> {
        let Self { effects, .. } = self;
        let changes = [
            (effects.lbcc(), "logical blocks"),
            (effects.ncc(), "namespace capabilities"),
            (effects.nic(), "namespace inventory"),
            (effects.ccc(), "controller capabilities"),
        ];
        let changes = changes.iter().filter(|(is_so, _)| *is_so);
        let changes: Vec<_> = changes.map(|(_, what)| *what).collect();
        vec![
            self.set.to_owned(),
            format!("{:#04x}", self.opcode),
            self.name.clone(),
            format!("{:#010x}", effects.0),
            changes.join(", "),
        ]
    }
}

fn group_object(group: &AnaEntry<'_>) -> Object {
    Object::new()
        .with("agid", group.anagrpid)
        .with("state", group.state.to_string())
        .with("chgcnt", group.chgcnt)
        .with("nsids", group.nsids().collect::<Vec<_>>())
}

fn group_cells(group: &AnaEntry<'_>) -> Vec<String> {
    let nsids: Vec<_> = group.nsids().map(|nsid| nsid.to_string()).collect();
    vec![
        group.anagrpid.to_string(),
        group.state.to_string(),
        group.chgcnt.to_string(),
        nsids.join(", "),
    ]
}

#[derive(Debug, Args)]
pub(super) struct NsDescs {
    /// Namespace; required only if there are several
    #[arg(short = 'N', long, value_name = "NSID", value_parser = number::<u32>)]
    namespace_id: Option<u32>,
    #[command(flatten)]
    controller: Controller,
}

impl NsDescs {
    pub(super) fn run(&self) -> Result<()> {
        let mut host = Session::new(&self.controller.address)?.connect(0)?;
        let nsid = namespace(&mut host, self.namespace_id)?.nsid;
        let list = host.identify_bytes(Cns::NAMESPACE_DESCRIPTORS, nsid);
        let list = list.map_err(text)?;
        host.shutdown().map_err(text)?;
        let ids: Vec<_> = namespace_descriptors(&list).map(Id::of).collect();
        let object = Object::new().with_list("ns-descs", Id::objects(&ids));
        self.controller.output.show(&object, |_| {
            let lines = ids
                .iter()
                .fold(Object::new(), |lines, id| lines.with(&id.name, &id.id));
            let lines = super::fields::lines(&lines, " : ", 8);
            format!("NVME Namespace Identification Descriptors NS {nsid}:\n{lines}")
        });
        Ok(())
    }
}

struct Id {
    nidt: u8,
    nidl: usize,
    name: String,
    id: String,
}

impl Id {
    fn of(descriptor: NamespaceDescriptor<'_>) -> Self {
        let (nidt, nidl, name, id) = match descriptor {
            NamespaceDescriptor::Eui64(id) => (1, 8, "eui64".to_owned(), hex(&id)),
            NamespaceDescriptor::Nguid(id) => (2, 16, "nguid".to_owned(), hex(&id)),
            NamespaceDescriptor::Uuid(id) => {
                (3, 16, "uuid".to_owned(), Uuid::from_bytes(id).to_string())
            }
            NamespaceDescriptor::Csi(0) => (4, 1, "csi".to_owned(), "0".to_owned()),
            NamespaceDescriptor::Csi(csi) => (4, 1, "csi".to_owned(), format!("{csi:#x}")),
            NamespaceDescriptor::Other { nidt, nid } => {
                (nidt, nid.len(), format!("type {nidt}"), hex(nid))
            }
        };
        Self {
            nidt,
            nidl,
            name,
            id,
        }
    }

    /// Returns JSON with nvme-cli's keys. Unknown types are omitted, as in nvme-cli.
    fn objects(ids: &[Self]) -> Vec<Object> {
        const HEAD: usize = 4;
        let mut loc = 0;
        let mut objects = Vec::new();
        for id in ids {
            if (1..=4).contains(&id.nidt) {
                let object = Object::new()
                    .with("loc", loc)
                    .with("nidt", id.nidt)
                    .with("nidl", id.nidl)
                    .with("type", &id.name);
                objects.push(object.with(&id.name, &id.id));
            }
            loc += HEAD + id.nidl;
        }
        objects
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nvme_proto::wire::{IntoBytes, U16, U64};

    #[test]
    fn an_ana_log_is_read_whole_or_refused() {
        let log = AnaLogHeader {
            chgcnt: U64::new(3),
            ngrps: U16::new(1),
            reserved10: [0; 6],
        };
        let group = AnaGroup {
            agid: U32::new(7),
            nnsids: U32::new(2),
            chgcnt: U64::new(4),
            anas: 3,
            reserved17: [0; 15],
        };
        let mut bytes = [log.as_bytes(), group.as_bytes()].concat();
        bytes.extend([1, 0, 0, 0, 9, 0, 0, 0]);
        let log = AnaLog::parse(&bytes).unwrap();
        let cells = ["7", "ANA Inaccessible (03h)", "4", "1, 9"];
        assert_eq!(group_cells(&log.groups().next().unwrap()), cells);
        for length in 0..bytes.len() {
            assert!(AnaLog::parse(&bytes[..length]).is_err(), "{length}");
        }
    }
}
