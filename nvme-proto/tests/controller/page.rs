//! Compares the page docs/nvme.md with controllers.

use std::fs;
use std::path::Path;

use nvme_proto::controller::{AuthenticationRequest, Outcome};
use nvme_proto::io::{Cancel, IoCommand};
use nvme_proto::namespace::{Atomic, Namespace, Preferred};
use nvme_proto::reservation;
use nvme_proto::subsystem::Subsystem;
use nvme_proto::wire::feature::Feature;
use nvme_proto::wire::identify::{Cns, IdentifyController, Oncs};
use nvme_proto::wire::log::{CommandEffectsLog, LogPage, SupportedLogPages};
use nvme_proto::wire::{AdminOpcode, FabricsType, NvmOpcode, Sqe, Status, U32};

use crate::rig::*;

/// Codes that the NVMe specifications define, by heading.
const DEFINED: [(&str, &[u8]); 6] = [
    (
        "## Admin commands",
        b"\x00\x01\x02\x04\x05\x06\x08\x09\x0a\x0c\x0d\x10\x11\x14\x15\x18\x19\x1a\x1c\x1d\x1e\x20\x21\x22\
          \x24\x25\x28\x29\x2a\x2d\x31\x35\x38\x39\x3d\x3e\x41\x42\x45\x7c\x7f\x80\x81\x82\x84\x86",
    ),
    ("## Fabrics commands", b"\x00\x01\x04\x05\x06\x08"),
    (
        "## I/O commands",
        b"\x00\x01\x02\x04\x05\x08\x09\x0c\x0d\x0e\x11\x12\x15\x18\x19\x1d",
    ),
    (
        "## Features",
        b"\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18\
          \x19\x1a\x1b\x1c\x1d\x1e\x1f\x20\x21\x78\x79\x7d\x7e\x7f\x80\x81\x82\x83\x84\x85",
    ),
    (
        "## Log pages",
        b"\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\
          \x18\x19\x1a\x1b\x1c\x1e\x20\x21\x22\x23\x70\x71\x72\x73\x80\x81",
    ),
    (
        "## Identify",
        b"\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\
          \x1d\x1e\x1f\x20",
    ),
];

const PAGE: &str = include_str!("../../../docs/nvme.md");

struct Row {
    codes: Vec<usize>,
    cells: Vec<&'static str>,
}

impl Row {
    fn claims(&self, column: usize) -> bool {
        let cell = self.cells[column];
        let (yes, no) = (cell.starts_with("yes"), cell.starts_with("no"));
        assert!(
            yes != no,
            "{:?}: {cell:?} is neither yes nor no",
            self.cells
        );
        yes
    }
}

/// Rows of the first table below a heading.
fn table(heading: &str) -> Vec<Row> {
    let at = PAGE.find(&format!("\n{heading}\n"));
    let section = &PAGE[at.unwrap_or_else(|| panic!("no heading {heading}"))..];
    let lines = section.lines().skip_while(|line| !line.starts_with('|'));
    let lines = lines.take_while(|line| line.starts_with('|')).skip(2);
    let rows: Vec<Row> = lines
        .map(|line| {
            let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
            let codes = codes(cells[0]);
            Row { codes, cells }
        })
        .collect();
    assert!(rows.len() > 1, "{heading} has no table");
    let mut all: Vec<usize> = rows.iter().flat_map(|row| row.codes.clone()).collect();
    all.sort_unstable();
    let twice = all.windows(2).find(|pair| pair[0] == pair[1]);
    assert!(twice.is_none(), "{heading}: {twice:?} is in two rows");
    rows
}

/// Parses lists of codes such as `0Ch, 19h`, and byte ranges such as `4-71`.
fn codes(cell: &str) -> Vec<usize> {
    let parts = cell.split(", ").map(|part| match part.strip_suffix('h') {
        Some(code) => {
            let code = usize::from_str_radix(code, 16).unwrap();
            code..=code
        }
        None => {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            first.parse().unwrap()..=last.parse().unwrap()
        }
    });
    parts.flatten().collect()
}

fn compare(heading: &str, column: usize, mut works: impl FnMut(u8) -> bool) {
    let rows = table(heading);
    let mut wrong = Vec::new();
    for code in 0..=u8::MAX {
        let row = rows.iter().find(|row| row.codes.contains(&code.into()));
        let claimed = row.is_some_and(|row| row.claims(column));
        if claimed != works(code) {
            wrong.push(format!("{code:02X}h: the page has {claimed}"));
        }
    }
    assert!(wrong.is_empty(), "{heading}, column {column}: {wrong:?}");
}

/// Checks that each code named in nvme-proto has a row, with this name if the row has one code.
fn check_names(heading: &str, name: impl Fn(u8) -> Option<&'static str>) {
    let rows = table(heading);
    for (code, name) in (0..=u8::MAX).filter_map(|code| Some((code, name(code)?))) {
        let row = rows.iter().find(|row| row.codes.contains(&code.into()));
        let row = row.unwrap_or_else(|| panic!("{heading} lacks {name} ({code:02X}h)"));
        assert!(
            row.codes.len() > 1 || row.cells[1] == name,
            "{name}: {:?}",
            row.cells
        );
    }
}

fn full(nsid: u32) -> Namespace {
    Namespace {
        nguid: [1; 16],
        eui64: [2; 8],
        read_only: true,
        write_uncorrectable: true,
        preferred: Some(Preferred {
            write: 2,
            write_alignment: 2,
            optimal_write: 2,
            deallocate: 2,
            deallocate_alignment: 2,
        }),
        atomic: Atomic {
            normal: 2,
            power_fail: 2,
            boundary: 2,
            boundary_offset: 1,
            boundary_power_fail: 2,
        },
        boundary: 8,
        ..namespace(nsid)
    }
}

fn nvm() -> Rig {
    let mut subsystem = Subsystem::new(settings());
    subsystem.add_namespace(full(1), &mut Vec::new()).unwrap();
    let mut rig = Rig::connected(subsystem, 5000);
    rig.enable();
    rig
}

fn discovery() -> Rig {
    let mut rig = Rig::connected(Subsystem::discovery(settings()), 0);
    rig.enable();
    rig
}

/// True unless the controller rejects the command with one of these statuses.
fn accepts(rig: &mut Rig, sqe: Sqe, refusals: &[Status]) -> bool {
    match rig.send(sqe, &[0; 512]).0 {
        Outcome::Complete(completion) => !refusals.contains(&completion.status.code()),
        Outcome::Parked => true,
    }
}

const UNKNOWN: [Status; 1] = [Status::INVALID_OPCODE];

#[test]
fn admin_commands_are_those_of_the_page() {
    check_names("## Admin commands", |code| AdminOpcode(code).name());
    for mut rig in [nvm(), discovery()] {
        compare("## Admin commands", 2, |opcode| {
            accepts(&mut rig, sqe(AdminOpcode(opcode)), &UNKNOWN)
        });
        let effects: CommandEffectsLog = read(&rig.log(0x05, 4096));
        compare("## Admin commands", 2, |opcode| {
            is_supported(&effects.acs, opcode)
        });
    }
}

#[test]
fn fabrics_commands_are_those_of_the_page() {
    check_names("## Fabrics commands", |code| FabricsType(code).name());
    let mut rig = nvm();
    compare("## Fabrics commands", 2, |fctype| {
        let sqe = Sqe::fabrics(1, FabricsType(fctype));
        AuthenticationRequest::is_one(&sqe) || accepts(&mut rig, sqe, &UNKNOWN)
    });
    compare("## Fabrics commands", 3, |fctype| {
        let sqe = Sqe::fabrics(1, FabricsType(fctype));
        AuthenticationRequest::is_one(&sqe) || fctype == FabricsType::CONNECT.0
    });
}

fn is_supported(effects: &[U32; 256], code: u8) -> bool {
    effects[usize::from(code)].get() & 1 != 0
}

#[test]
fn commands_of_io_queues_are_those_of_the_page() {
    let name = |code| {
        NvmOpcode(code)
            .name()
            .filter(|_| code != NvmOpcode::FABRICS.0)
    };
    check_names("## I/O commands", name);
    let mut rig = nvm();
    let (limits, view) = (rig.subsystem.io_limits(), full(1).view());
    let works = |opcode| {
        let sqe = Sqe::new(1, opcode, 1);
        let parsed = IoCommand::parse(&sqe, 0, Some(&view), &limits);
        let refused = parsed.is_err_and(|status| status.code() == Status::INVALID_OPCODE);
        reservation::Request::is_one(&sqe) || Cancel::is_one(&sqe) || !refused
    };
    compare("## I/O commands", 2, works);
    let effects: CommandEffectsLog = read(&rig.log(0x05, 4096));
    compare("## I/O commands", 2, |opcode| {
        is_supported(&effects.iocs, opcode)
    });
    let id: IdentifyController = rig.identify_as(Cns::CONTROLLER, 0);
    let oncs = Oncs(id.oncs.get());
    let announced = [
        (oncs.compare(), NvmOpcode::COMPARE),
        (oncs.write_uncorrectable(), NvmOpcode::WRITE_UNCORRECTABLE),
        (oncs.dataset_management(), NvmOpcode::DATASET_MANAGEMENT),
        (oncs.write_zeroes(), NvmOpcode::WRITE_ZEROES),
        (oncs.reservations(), NvmOpcode::RESERVATION_REGISTER),
        (oncs.verify(), NvmOpcode::VERIFY),
        (oncs.copy(), NvmOpcode::COPY),
    ];
    for (bit, opcode) in announced {
        assert_eq!(bit, works(opcode.0), "{opcode}");
    }
}

#[test]
fn features_are_those_of_the_page_and_of_log_page_12h() {
    check_names("## Features", |code| Feature(code).name());
    for (column, mut rig) in [(2, nvm()), (3, discovery())] {
        compare("## Features", column, |fid| {
            let mut get = get_features(fid, 0, 1);
            get.cdw11.set(u32::from(fid == Feature::HOST_IDENTIFIER.0));
            get.nsid.set(1);
            accepts(&mut rig, get, &[Status::INVALID_FIELD])
        });
        compare("## Features", column, |fid| {
            let refusals = [Status::INVALID_FIELD, Status::INVALID_NAMESPACE_OR_FORMAT];
            accepts(&mut rig, get_features(fid, 3, 0), &refusals)
        });
        let effects: [U32; 256] = read(&rig.log(0x12, 1024));
        compare("## Features", column, |fid| is_supported(&effects, fid));
    }
}

#[test]
fn log_pages_are_those_of_the_page_and_of_log_page_00h() {
    check_names("## Log pages", |code| LogPage(code).name());
    for (column, mut rig) in [(2, nvm()), (3, discovery())] {
        compare("## Log pages", column, |lid| {
            accepts(&mut rig, log(lid, 512), &[Status::INVALID_LOG_PAGE])
        });
        let supported: SupportedLogPages = read(&rig.log(0x00, 1024));
        compare("## Log pages", column, |lid| {
            is_supported(&supported.lids, lid)
        });
        assert!(rig.log(0x13, 4096).iter().all(|&byte| byte == 0));
    }
}

#[test]
fn structures_and_fields_of_identify_are_those_of_the_page() {
    check_names("## Identify", |code| Cns(code).name());
    for (column, mut rig) in [(2, nvm()), (3, discovery())] {
        compare("## Identify", column, |cns| {
            let mut identify = identify(Cns(cns), 1);
            // CNTID FFFFh is this controller (CNS 1Ch).
            identify.cdw10.set(identify.cdw10.get() | 0xffff << 16);
            accepts(&mut rig, identify, &[Status::INVALID_FIELD])
        });
    }
    let mut rig = nvm();
    for (heading, cns) in [
        ("### Fields of Identify Controller", Cns::CONTROLLER),
        ("### Fields of Identify Namespace", Cns::NAMESPACE),
        (
            "### Fields independent of the command set",
            Cns::NAMESPACE_INDEPENDENT,
        ),
        (
            "### Fields of Identify Controller for NVM",
            Cns::IO_COMMAND_SET_CONTROLLER,
        ),
    ] {
        let (rows, data) = (table(heading), rig.identify(cns, 1));
        let bytes: Vec<usize> = rows.iter().flat_map(|row| row.codes.clone()).collect();
        assert!(bytes.iter().copied().eq(0..4096), "{heading} has gaps");
        for row in &rows {
            let set = row.codes.iter().any(|&at| data[at] != 0);
            assert_eq!(set, row.claims(2), "{heading}: {:?}", row.cells);
        }
    }
}

#[test]
fn each_code_of_the_specification_has_a_row() {
    for (heading, defined) in DEFINED {
        let mut codes: Vec<usize> = table(heading)
            .into_iter()
            .flat_map(|row| row.codes)
            .collect();
        codes.sort_unstable();
        let defined = defined.iter().map(|&code| usize::from(code));
        assert_eq!(codes, defined.collect::<Vec<_>>(), "{heading}");
    }
}

#[test]
fn each_command_of_the_page_names_a_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut seen = 0;
    for (heading, _) in DEFINED {
        for row in table(heading).iter().filter(|row| row.claims(2)) {
            let name = row.cells.last().unwrap().trim_matches('`');
            let (folder, name) = match name.strip_prefix("end_to_end ") {
                Some(name) => ("tests/tests/end_to_end", name),
                None => ("nvme-proto/tests/controller", name),
            };
            let (module, function) = name.split_once("::").expect("MODULE::TEST");
            let path = match module {
                "io" => root.join("nvme-proto/src/io/tests.rs"),
                _ => root.join(folder).join(format!("{module}.rs")),
            };
            let source = fs::read_to_string(&path);
            let source = source.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let test = format!("#[test]\nfn {function}");
            assert!(source.contains(&test), "no test {name}: {:?}", row.cells);
            seen += 1;
        }
    }
    assert!(seen > 60, "only {seen} rows name a test");
}
