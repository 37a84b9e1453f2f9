//! Reservation commands.

use clap::Args;
use nvme_proto::reservation::ReservationType;
use nvme_proto::wire::Status;
use nvme_proto::wire::reservation::{AcquireCdw10, RegisterCdw10, ReleaseCdw10};

use super::number::{number, number_in};
use super::output::hex;
use super::session::{Session, namespace, text};
use super::{Controller, Result};
use cairn_bench::object::Object;
use cairn_initiator::{Host, HostError, Namespace, ReservationReport};

/// Arguments of each reservation command.
#[derive(Debug, Args)]
struct Target {
    /// Namespace; required only if there are several
    #[arg(short = 'N', long, value_name = "NSID", value_parser = number::<u32>)]
    namespace_id: Option<u32>,
    #[command(flatten)]
    controller: Controller,
}

impl Target {
    fn open(&self) -> Result<(Host, Namespace)> {
        let mut host = Session::new(&self.controller.address)?.connect(1)?;
        let namespace = namespace(&mut host, self.namespace_id)?.disk()?;
        Ok((host, namespace))
    }

    fn change(
        &self,
        name: &str,
        remedies: &Remedies,
        command: impl FnOnce(&Namespace, &mut Host) -> std::result::Result<(), HostError>,
    ) -> Result<()> {
        let (mut host, namespace) = self.open()?;
        let changed = command(&namespace, &mut host);
        changed.map_err(|error| remedies.explain(&error))?;
        let nsid = namespace.nsid;
        let object = Object::new().with("command", name).with("nsid", nsid);
        let show = |_: &Object| format!("{name}: namespace {nsid}: Success");
        self.controller.output.show(&object, show);
        host.shutdown().map_err(text)
    }
}

struct Remedies {
    conflict: &'static str,
    invalid_field: &'static str,
}

const NOT_RESERVABLE: &str =
    "the namespace has no reservations (RESCAP is 0), as disks of Cairn with shared = true";

pub(super) fn explain_conflict(error: &HostError) -> String {
    match error {
        HostError::Status { status, .. } if status.code() == Status::RESERVATION_CONFLICT => {
            format!("{error}: another host has reserved the namespace: see resv-report")
        }
        _ => error.to_string(),
    }
}

impl Remedies {
    fn explain(&self, error: &HostError) -> String {
        let HostError::Status { status, .. } = error else {
            return error.to_string();
        };
        let remedy = match status.code() {
            Status::RESERVATION_CONFLICT => self.conflict,
            Status::INVALID_FIELD => self.invalid_field,
            Status::INVALID_OPCODE => NOT_RESERVABLE,
            Status::INTERNAL_ERROR => "the log of the target names the cause",
            _ => return error.to_string(),
        };
        format!("{error}: {remedy}")
    }
}

#[derive(Debug, Args)]
pub(super) struct Register {
    /// Present key of this host, to replace or unregister it
    #[arg(long, value_name = "KEY", default_value_t = 0, value_parser = number::<u64>)]
    crkey: u64,
    /// New key
    #[arg(long, value_name = "KEY", default_value_t = 0, value_parser = number::<u64>)]
    nrkey: u64,
    /// Action: 0 register, 1 unregister, 2 replace
    #[arg(long, value_name = "ACTION", default_value_t = 0, value_parser = |text: &str| number_in::<u8>(text, 0..=2))]
    rrega: u8,
    /// Do not check --crkey
    #[arg(long)]
    iekey: bool,
    /// Persistence through power loss: 0 keep, 2 clear, 3 set
    #[arg(long, value_name = "CHANGE", default_value_t = 0, value_parser = |text: &str| number_in::<u8>(text, 0..=3))]
    cptpl: u8,
    #[command(flatten)]
    target: Target,
}

impl Register {
    pub(super) fn run(&self) -> Result<()> {
        let fields = RegisterCdw10(0)
            .with_rrega(self.rrega)
            .with_iekey(self.iekey)
            .with_cptpl(self.cptpl);
        let remedies = Remedies {
            conflict: "this host has another key, or none: resv-report shows it; give it as --crkey with --rrega=2 \
                       or 1, or say --iekey",
            invalid_field: "give a --nrkey other than 0; --cptpl=3 requires a target that keeps reservations \
                            (Cairn: state_directory)",
        };
        self.target
            .change("resv-register", &remedies, |namespace, host| {
                namespace.register(host, fields, self.crkey, self.nrkey)
            })
    }
}

#[derive(Debug, Args)]
pub(super) struct Acquire {
    /// Key of this host
    #[arg(long, value_name = "KEY", default_value_t = 0, value_parser = number::<u64>)]
    crkey: u64,
    /// Key of the hosts to preempt
    #[arg(long, value_name = "KEY", default_value_t = 0, value_parser = number::<u64>)]
    prkey: u64,
    /// Type: 1 write exclusive, 2 exclusive access; 3 and 4: the same for registrants only; 5 and
    /// 6: the same for all registrants
    #[arg(long, value_name = "TYPE", value_parser = |text: &str| number_in::<u8>(text, 1..=6))]
    rtype: u8,
    /// Action: 0 acquire, 1 preempt, 2 preempt and abort
    #[arg(long, value_name = "ACTION", default_value_t = 0, value_parser = |text: &str| number_in::<u8>(text, 0..=2))]
    racqa: u8,
    /// Do not check --crkey
    #[arg(long)]
    iekey: bool,
    #[command(flatten)]
    target: Target,
}

impl Acquire {
    pub(super) fn run(&self) -> Result<()> {
        let fields = AcquireCdw10(0)
            .with_racqa(self.racqa)
            .with_iekey(self.iekey)
            .with_rtype(self.rtype);
        let remedies = Remedies {
            conflict: "--crkey is not the key of this host (resv-register), no host has the key --prkey, or another \
                       reservation is held, which --racqa=1 with --prkey preempts: resv-report shows them",
            invalid_field: "--prkey=0 preempts only the types 5 and 6, and NVMe 2.1 forbids --iekey here",
        };
        self.target
            .change("resv-acquire", &remedies, |namespace, host| {
                namespace.acquire(host, fields, self.crkey, self.prkey)
            })
    }
}

#[derive(Debug, Args)]
pub(super) struct Release {
    /// Key of this host
    #[arg(long, value_name = "KEY", default_value_t = 0, value_parser = number::<u64>)]
    crkey: u64,
    /// Type of the reservation, as in resv-report
    #[arg(long, value_name = "TYPE", default_value_t = 0, value_parser = |text: &str| number_in::<u8>(text, 0..=6))]
    rtype: u8,
    /// Action: 0 release, 1 clear reservation and registrations
    #[arg(long, value_name = "ACTION", default_value_t = 0, value_parser = |text: &str| number_in::<u8>(text, 0..=1))]
    rrela: u8,
    /// Do not check --crkey
    #[arg(long)]
    iekey: bool,
    #[command(flatten)]
    target: Target,
}

impl Release {
    pub(super) fn run(&self) -> Result<()> {
        let fields = ReleaseCdw10(0)
            .with_rrela(self.rrela)
            .with_iekey(self.iekey)
            .with_rtype(self.rtype);
        let remedies = Remedies {
            conflict: "--crkey is not the key of this host: resv-report shows it",
            invalid_field: "--rtype is not the type of the reservation (resv-report), and NVMe 2.1 forbids --iekey here",
        };
        self.target
            .change("resv-release", &remedies, |namespace, host| {
                namespace.release(host, fields, self.crkey)
            })
    }
}

#[derive(Debug, Args)]
pub(super) struct Report {
    /// Extended data structures, which reports over Fabrics always have
    #[arg(long)]
    eds: bool,
    #[command(flatten)]
    target: Target,
}

impl Report {
    pub(super) fn run(&self) -> Result<()> {
        let (mut host, namespace) = self.target.open()?;
        let remedies = Remedies {
            conflict: "",
            invalid_field: "the controller does not permit so long a report",
        };
        let report = namespace.reservations(&mut host);
        let report = report.map_err(|error| remedies.explain(&error))?;
        host.shutdown().map_err(text)?;
        let output = self.target.controller.output;
        output.show(&object(&report), |_| lines(&report));
        Ok(())
    }
}

fn object(report: &ReservationReport) -> Object {
    let registrants = report.registrants.iter().zip(&report.cntlids);
    let registrants = registrants.map(|(one, cntlid)| {
        Object::new()
            .with("cntlid", cntlid)
            .with("rcsts", u8::from(report.holders.contains(&one.host)))
            .with("rkey", one.key)
            .with("hostid", hex(&one.host))
    });
    Object::new()
        .with("gen", report.generation)
        .with("rtype", report.rtype.map_or(0, ReservationType::code))
        .with("regctl", report.registrants.len())
        .with("ptpls", u8::from(report.persistent))
        .with_list("regctlext", registrants)
}

fn lines(report: &ReservationReport) -> String {
    let rtype = report
        .rtype
        .map_or("none".to_owned(), |rtype| rtype.to_string());
    let mut out = format!(
        "gen       : {}\nrtype     : {} ({rtype})\nregctl    : {}\nptpls     : {}\n",
        report.generation,
        report.rtype.map_or(0, ReservationType::code),
        report.registrants.len(),
        u8::from(report.persistent),
    );
    let registrants = report.registrants.iter().zip(&report.cntlids);
    for (number, (one, cntlid)) in registrants.enumerate() {
        out += &format!(
            "regctlext[{number}] :\n  cntlid     : {cntlid:x}\n  rcsts      : {}\n  rkey       : {:x}\n  \
             hostid     : {}\n",
            u8::from(report.holders.contains(&one.host)),
            one.key,
            hex(&one.host),
        );
    }
    out
}
