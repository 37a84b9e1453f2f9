use cairn_doctor::tos::Tos;
use cairn_initiator::{Host, IoQueue};
use clap::Args;
use nvme_proto::wire::log::{
    AddressFamily, DiscoveryEntry, Eflags, RdmaProvider, RdmaTsas, SubsystemType, TransportType,
};
use nvme_proto::wire::{Escaped, FromBytes, Nqn};

use super::fields::lines;
use super::session::{Session, namespace, text};
use super::{Controller, Result};
use cairn_bench::object::Object;

#[derive(Debug, Args)]
pub(super) struct Discover {
    #[command(flatten)]
    controller: Controller,
}

impl Discover {
    pub(super) fn run(&self) -> Result<()> {
        let log = Session::new(&self.controller.address)?.discovery_log()?;
        let object = Object::new()
            .with("genctr", log.genctr)
            .with_list("records", log.entries.iter().map(record));
        let names = log.entries.iter().map(|entry| name(&entry.subnqn));
        let names = names.map(|name| Escaped(&name).to_string());
        if self.controller.output.has_shown_names(names) {
            return Ok(());
        }
        self.controller.output.show(&object, |_| {
            let mut out = format!(
                "Discovery Log Number of Records {}, Generation counter {}\n",
                log.entries.len(),
                log.genctr
            );
            for (at, entry) in log.entries.iter().enumerate() {
                out += &format!("=====Discovery Log Entry {at}======\n");
                out += &lines(&record(entry), ":  ", 0);
            }
            out
        });
        Ok(())
    }
}

fn record(entry: &DiscoveryEntry) -> Object {
    let object = Object::new()
        .with("trtype", transport(entry.trtype))
        .with("adrfam", address_family(entry.adrfam))
        .with("subtype", subtype(entry.subtype))
        .with("treq", treq(entry.treq))
        .with("portid", entry.portid.get())
        .with("trsvcid", ascii(&entry.trsvcid))
        .with("subnqn", name(&entry.subnqn))
        .with("traddr", ascii(&entry.traddr))
        .with("eflags", eflags(Eflags(entry.eflags.get())));
    if TransportType(entry.trtype) != TransportType::RDMA {
        return object;
    }
    let tsas = RdmaTsas::read_from_bytes(&entry.tsas).expect("TSAS has 256 bytes");
    object
        .with("rdma_prtype", rdma_provider(tsas.prtype))
        .with("rdma_qptype", rdma_service(tsas.qptype))
        .with("rdma_cms", rdma_cms(tsas.cms))
        .with("rdma_pkey", tsas.pkey.get())
}

pub(super) fn transport(code: u8) -> &'static str {
    match TransportType(code) {
        TransportType::RDMA => "rdma",
        TransportType::FIBRE_CHANNEL => "fibre-channel",
        TransportType::TCP => "tcp",
        TransportType::INTRA_HOST => "loop",
        _ => "unrecognized",
    }
}

fn address_family(code: u8) -> &'static str {
    match AddressFamily(code) {
        AddressFamily::IPV4 => "ipv4",
        AddressFamily::IPV6 => "ipv6",
        AddressFamily::INFINIBAND => "infiniband",
        AddressFamily::FIBRE_CHANNEL => "fibre-channel",
        _ => "unrecognized",
    }
}

fn subtype(code: u8) -> &'static str {
    match SubsystemType(code) {
        SubsystemType::DISCOVERY_REFERRAL => "discovery subsystem referral",
        SubsystemType::NVM => "nvme subsystem",
        SubsystemType::CURRENT_DISCOVERY => "current discovery subsystem",
        _ => "unrecognized",
    }
}

/// Text of TREQ: secure channel (bits 1:0), SQ flow control (bit 2) (Base, figure 265).
fn treq(code: u8) -> &'static str {
    match code & 7 {
        0 => "not specified",
        1 => "required",
        2 => "not required",
        4 => "not specified, sq flow control disable supported",
        5 => "required, sq flow control disable supported",
        6 => "not required, sq flow control disable supported",
        _ => "unrecognized",
    }
}

fn eflags(flags: Eflags) -> &'static str {
    match (flags.epcsd(), flags.dupretinfo()) {
        (true, true) => "explicit discovery connections, duplicate discovery information",
        (true, false) => "explicit discovery connections",
        (false, true) => "duplicate discovery information",
        (false, false) => "none",
    }
}

fn rdma_provider(code: u8) -> &'static str {
    match RdmaProvider(code) {
        RdmaProvider::NONE => "not specified",
        RdmaProvider::INFINIBAND => "infiniband",
        RdmaProvider::ROCE => "roce",
        RdmaProvider::ROCE_V2 => "roce-v2",
        RdmaProvider::IWARP => "iwarp",
        _ => "unrecognized",
    }
}

fn rdma_service(code: u8) -> &'static str {
    match code {
        RdmaTsas::QPTYPE_CONNECTED => "connected",
        2 => "datagram",
        _ => "unrecognized",
    }
}

fn rdma_cms(code: u8) -> &'static str {
    match code {
        RdmaTsas::CMS_RDMA_IP_CM => "rdma-cm",
        _ => "unrecognized",
    }
}

/// Text of an NQN field. A valid NQN keeps trailing spaces.
fn name(field: &[u8; 256]) -> String {
    Nqn::decode(field).map_or_else(|_| ascii(field), |nqn| nqn.raw().to_owned())
}

/// Text of an ASCII field without trailing spaces and NUL bytes.
pub(super) fn ascii(field: &[u8]) -> String {
    let text = String::from_utf8_lossy(field);
    text.trim_end_matches(['\0', ' ']).to_owned()
}

fn authenticated(host: &Host) -> &'static str {
    let secrets = host.options().authentication.as_ref();
    match secrets {
        Some(secrets) if host.controller().is_authenticated() => match secrets.controller {
            Some(_) => "host and controller",
            None => "host",
        },
        _ => "none",
    }
}

#[derive(Debug, Args)]
pub(super) struct ConnectCheck {
    #[command(flatten)]
    controller: Controller,
}

impl ConnectCheck {
    pub(super) fn run(&self) -> Result<()> {
        let address = &self.controller.address;
        let session = Session::new(address)?;
        let subsystem = session.subsystem()?;
        let mut host = session.connect_to(subsystem, address.io_queues())?;
        let identity = host.identity();
        let mut object = Object::new()
            .with("subnqn", subsystem.raw())
            .with("provider", session.provided.name)
            .with("device", host.device().name())
            .with("cntlid", host.cntlid())
            .with("authenticated", authenticated(&host))
            .with("model", ascii(&identity.mn))
            .with("serial", ascii(&identity.sn))
            .with("firmware", ascii(&identity.fr))
            .with("io_queues", host.io_queues().len())
            .with("queue_depth", host.depth(IoQueue::FIRST))
            .with("in_capsule_bytes", host.in_capsule_max(IoQueue::FIRST))
            .with("transfer_max_bytes", host.transfer_max())
            .with("pkey", host.options().pkey.to_string());
        if let Some(marked) = host.controller_mut().marked(IoQueue::FIRST) {
            let tos = Tos(marked.traffic_class);
            object = object
                .with("tos", tos.0)
                .with("dscp", tos.dscp())
                .with("sl", tos.sl());
            if let Some(priorities) = address.priorities(session.provided.name)? {
                object = object.with("pcp", priorities.pcp(tos));
            }
            object = object.with("hop_limit", marked.hop_limit);
        }
        let namespaces = host.active_namespaces().map_err(text)?;
        object = object.with("namespaces", &namespaces);
        for &nsid in &namespaces {
            namespace(&mut host, Some(nsid))?.format(&host)?;
        }
        host.shutdown().map_err(text)?;
        self.controller.output.show(&object, |object| {
            format!(
                "{}ok: connected, identified and disconnected\n",
                lines(object, " : ", 18)
            )
        });
        Ok(())
    }
}
