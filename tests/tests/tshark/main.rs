//! Captures of Cairn's endpoint, dissected by tshark without errors and as intended.

mod dissection;
mod frames;
mod marking;
mod partitions;
mod session;

use std::path::Path;

use cairn_roce::Network;
use cairn_tests::provider::can_open_packet_sockets;
use dissection::{Row, can_run, dissect};
use frames::{TRANSPORT_FIELDS, connection_message, transport_fields, transport_fields_of};
use nvme_proto::wire::cm::RequestData;
use session::Command;

const OPINION: &[&str] = &["frame.number", "_ws.expert.severity", "_ws.expert.message"];

#[test]
fn tshark_finds_nothing_wrong() {
    if !can_run() {
        return;
    }
    let session = session::record();
    assert_eq!(malformed(session.capture.path()), [""; 0]);
}

#[test]
fn roce_v1_is_as_good() {
    if !can_run() {
        return;
    }
    if !can_open_packet_sockets() {
        return;
    }
    let session = session::record_on(&Network::Ethernet { vlan: None }, "v1");
    assert_eq!(malformed(session.capture.path()), [""; 0]);
    let rows = dissect(session.capture.path(), &["eth.type", "infiniband.grh.dgid"]);
    assert!(rows.len() > 100, "{} frames", rows.len());
    for row in rows {
        assert_eq!(row.number("eth.type"), Some(0x8915), "{row:?}");
        let destination = row.text("infiniband.grh.dgid");
        assert!(destination.contains("ffff:127."), "{row:?}");
    }
}

#[test]
fn what_it_finds_wrong_would_be_seen() {
    if !can_run() {
        return;
    }
    let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("captures");
    let known = malformed(&captures.join("nvme-rdma-session-mtu1500.pcap"));
    assert_eq!(known.len(), 3, "{known:?}");
    assert!(known.iter().all(|report| report.contains("Malformed")));
}

#[test]
fn transport_headers_mean_to_tshark_what_they_mean_to_us() {
    if !can_run() {
        return;
    }
    let session = session::record();
    let ours = frames::read(session.capture.path());
    let theirs = dissect(session.capture.path(), TRANSPORT_FIELDS);
    assert_eq!(ours.len(), theirs.len());
    let mut opcodes = std::collections::BTreeSet::new();
    for (number, (frame, row)) in (1..).zip(ours.iter().zip(&theirs)) {
        let meant = transport_fields(frame);
        assert_eq!(transport_fields_of(row), meant, "frame {number}: {row:?}");
        opcodes.insert(meant[0].expect("every packet has an opcode"));
    }
    let all = [4, 6, 7, 8, 10, 12, 13, 14, 15, 16, 17, 23, 100];
    assert!(
        all.iter().all(|opcode| opcodes.contains(opcode)),
        "{opcodes:?}"
    );
}

const CONNECTION_FIELDS: &[&str] = &[
    "infiniband.cm.req.localqpn",
    "infiniband.cm.req.startpsn",
    "infiniband.cm.req.ip_cm.private",
    "infiniband.cm.req.serviceid.dport",
    "infiniband.cm.rep.localqpn",
    "infiniband.cm.rep.startpsn",
    "infiniband.cm.rep.private",
    "nvme-rdma.cm.rsp.crqsize",
];

#[test]
fn connections_are_made_as_meant() {
    if !can_run() {
        return;
    }
    let session = session::record();
    let ours = frames::read(session.capture.path());
    let theirs = dissect(session.capture.path(), CONNECTION_FIELDS);
    let mut asked = Vec::new();
    for (frame, row) in ours.iter().zip(&theirs) {
        let number = |field: &str| row.number(field);
        let Some((kind, qpn, psn, private)) = connection_message(frame) else {
            assert_eq!(number("infiniband.cm.req.localqpn"), None);
            assert_eq!(number("infiniband.cm.rep.localqpn"), None);
            continue;
        };
        let at = |field| format!("infiniband.cm.{kind}.{field}");
        assert_eq!(number(&at("localqpn")), Some(qpn.into()));
        assert_eq!(number(&at("startpsn")), Some(psn.into()));
        let shown = at(if kind == "req" {
            "ip_cm.private"
        } else {
            "private"
        });
        assert_eq!(row.text(&shown).replace(':', ""), hexadecimal(&private));
        if kind == "req" {
            assert_eq!(number("infiniband.cm.req.serviceid.dport"), Some(4420));
            asked.push(RequestData::parse(&private).expect("NVMe's private data"));
        } else {
            let request = asked.last().expect("a REQ comes before its REP");
            let entries = request.hrqsize.get().into();
            assert_eq!(number("nvme-rdma.cm.rsp.crqsize"), Some(entries));
        }
    }
    let admin = RequestData::new(0, 32, 31, 0);
    let io = RequestData::new(1, 128, 127, session.cntlid);
    assert_eq!(asked, [admin, admin, io]);
}

const COMMAND_FIELDS: &[&str] = &[
    "infiniband.bth.destqp",
    "infiniband.cm.req.localqpn",
    "infiniband.cm.req.ip_cm.private",
    "nvme-rdma.cmd.qid",
    "nvme.cmd.opc",
    "nvme.cmd.cid",
    "nvme.cmd.nsid",
    "nvme.cmd.slba",
    "nvme.cmd.nlb",
    "nvme.cqe.cid",
    "nvme.cqe.status.sct",
    "nvme.cqe.status.sc",
];

#[test]
fn commands_and_their_completions_are_as_meant() {
    if !can_run() {
        return;
    }
    let session = session::record();
    let rows = dissect(session.capture.path(), COMMAND_FIELDS);
    let seen = commands_of_queue_1(&rows);
    assert_eq!(seen, session.commands);
    let refused: Vec<_> = seen
        .iter()
        .filter(|command| command.status != (0, 0))
        .collect();
    assert!(
        matches!(
            refused[..],
            [Command {
                status: (0, 0x80),
                ..
            }]
        ),
        "{refused:?}"
    );
}

fn commands_of_queue_1(rows: &[Row]) -> Vec<Command> {
    let host_qpn = rows
        .iter()
        .find(|row| {
            row.text("infiniband.cm.req.ip_cm.private")
                .replace(':', "")
                .starts_with("00000100")
        })
        .and_then(|row| row.number("infiniband.cm.req.localqpn"));
    assert!(host_qpn.is_some(), "no host asked for queue 1");
    let mut open: Vec<usize> = Vec::new();
    let mut commands: Vec<Command> = Vec::new();
    for row in rows {
        let number = |field: &str| row.number(field);
        if let (Some(1), Some(opcode)) = (number("nvme-rdma.cmd.qid"), number("nvme.cmd.opc")) {
            let blocks = number("nvme.cmd.slba")
                .zip(number("nvme.cmd.nlb"))
                .map(|(slba, blocks)| (slba, blocks as u32));
            open.push(commands.len());
            commands.push(Command {
                cid: number("nvme.cmd.cid").expect("a CID") as u16,
                opcode: opcode as u8,
                nsid: number("nvme.cmd.nsid").expect("an NSID") as u32,
                blocks,
                status: (0xff, 0xff),
            });
        }
        let Some(cid) =
            number("nvme.cqe.cid").filter(|_| number("infiniband.bth.destqp") == host_qpn)
        else {
            continue;
        };
        if let Some(at) = open
            .iter()
            .position(|&at| u64::from(commands[at].cid) == cid)
        {
            let status = ["nvme.cqe.status.sct", "nvme.cqe.status.sc"].map(number);
            let [sct, sc] = status.map(|value| value.expect("a status") as u8);
            commands[open.remove(at)].status = (sct, sc);
        }
    }
    assert!(open.is_empty(), "without a completion: {open:?}");
    commands
}

fn malformed(capture: &Path) -> Vec<String> {
    dissect(capture, OPINION)
        .iter()
        .filter(|row| !row.text("_ws.expert.severity").is_empty())
        .map(|row| {
            format!(
                "frame {}: {}",
                row.text("frame.number"),
                row.text("_ws.expert.message")
            )
        })
        .collect()
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
