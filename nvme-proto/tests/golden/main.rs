//! Captured sessions of a Linux host and target, parsed and encoded again.
//!
//! `tests/captures` has two sessions of Linux 6.12, as packets and as text of an independent
//! decoder. The text reveals fields parsed at a wrong offset.

mod capture;
mod decoded;
mod host;
mod payload;
mod replay;

use capture::Session;
use nvme_proto::io::{IoCommand, IoLimits, NamespaceView};
use nvme_proto::wire::cm::{ReplyData, RequestData};
use nvme_proto::wire::fabrics::{
    ConnectCommand, ConnectData, PropertyGetCommand, PropertySetCommand, PropertySize,
};
use nvme_proto::wire::identify::{Cns, IdentifyCdw10, IdentifyNamespace, Oncs, Vwc};
use nvme_proto::wire::{
    AdminOpcode, Cqe, FabricsType, FromBytes, IntoBytes, Nqn, Sgl, SglDescriptor, Sqe, Status,
};

/// Captures, with their numbers of commands, responses and connections.
const SESSIONS: [(&str, usize, usize, usize); 2] = [
    ("nvme-rdma-session-mtu1500", 73, 71, 4),
    ("nvme-rdma-session-mtu4200", 72, 70, 4),
];

fn sessions() -> impl Iterator<Item = Session> {
    SESSIONS
        .iter()
        .map(|&(name, commands, completions, connections)| {
            let session = Session::load(name);
            assert_eq!(session.commands.len(), commands, "{name}");
            assert_eq!(session.completions.len(), completions, "{name}");
            assert_eq!(session.requests.len(), connections, "{name}");
            assert_eq!(session.replies.len(), connections, "{name}");
            session
        })
}

#[test]
fn commands_read_as_another_decoder_reads_them() {
    for session in sessions() {
        let ours: Vec<_> = session.commands.iter().map(decoded::command).collect();
        assert_eq!(ours, session.decoded_lines(" CMD "));
    }
}

#[test]
fn completions_read_as_another_decoder_reads_them() {
    for session in sessions() {
        let ours: Vec<_> = session
            .completions
            .iter()
            .map(decoded::completion)
            .collect();
        assert_eq!(ours, session.decoded_lines(" CQE "));
    }
}

#[test]
fn sgl_descriptors_are_emitted_as_they_were_read() {
    for command in sessions().flat_map(|session| session.commands) {
        let (sqe, data) = Sqe::split_capsule(&command.capsule).unwrap();
        assert_eq!([sqe.as_bytes(), data].concat(), command.capsule);
        let sgl = sqe.dptr.parse().unwrap();
        assert_eq!(
            SglDescriptor::from(sgl),
            sqe.dptr,
            "frame {}",
            command.frame
        );
        if let Sgl::InCapsule { offset, length } = sgl {
            assert_eq!(
                (offset, length as usize),
                (0, data.len()),
                "frame {}",
                command.frame
            );
        }
    }
}

#[test]
fn fabrics_commands_are_emitted_as_they_were_read() {
    let mut seen = [0usize; 3];
    for command in sessions().flat_map(|session| session.commands) {
        let (&sqe, _) = Sqe::split_capsule(&command.capsule).unwrap();
        if !sqe.is_fabrics() {
            continue;
        }
        match sqe.fctype() {
            FabricsType::CONNECT => {
                assert_eq!(Sqe::from(ConnectCommand::from(sqe)), sqe);
                seen[0] += 1;
            }
            FabricsType::PROPERTY_GET => {
                let read = PropertyGetCommand::from(sqe);
                let size = PropertySize::from_attrib(read.attrib).unwrap();
                let built = PropertyGetCommand::new(read.cid.get(), size, read.ofst.get());
                assert_eq!(built.as_bytes(), sqe.as_bytes());
                seen[1] += 1;
            }
            FabricsType::PROPERTY_SET => {
                let read = PropertySetCommand::from(sqe);
                let size = PropertySize::from_attrib(read.attrib).unwrap();
                let (ofst, value) = (read.ofst.get(), read.value.get());
                let built = PropertySetCommand::new(read.cid.get(), size, ofst, value);
                assert_eq!(built.as_bytes(), sqe.as_bytes());
                seen[2] += 1;
            }
            other => panic!("frame {}: {other}", command.frame),
        }
    }
    assert_eq!(seen, [8, 20, 12]);
}

#[test]
fn completions_are_emitted_as_they_were_read() {
    for completion in sessions().flat_map(|session| session.completions) {
        let read = Cqe::read_from_bytes(&completion.capsule).unwrap();
        // The Linux target sets the reserved SQID.
        assert_eq!(
            read.sqid.get(),
            completion.qid,
            "frame {}",
            completion.frame
        );
        let fresh = Cqe::new(
            read.cid.get(),
            read.sqhd.get(),
            read.status(),
            read.result(),
        );
        let built = Cqe {
            sqid: read.sqid,
            ..fresh
        };
        assert_eq!(
            built.as_bytes(),
            completion.capsule,
            "frame {}",
            completion.frame
        );
    }
}

#[test]
fn responses_invalidate_the_key_that_the_command_named() {
    for session in sessions() {
        for completion in &session.completions {
            let read = Cqe::read_from_bytes(&completion.capsule).unwrap();
            let command = session.command_of(completion);
            let (sqe, _) = Sqe::split_capsule(&command.capsule).unwrap();
            assert_eq!(sqe.cid, read.cid);
            assert_eq!(
                sqe.dptr.invalidate_rkey(),
                completion.invalidated,
                "frame {}",
                completion.frame
            );
        }
    }
}

#[test]
fn connection_private_data() {
    for session in sessions() {
        let requests = session.requests.iter().map(|(frame, private_data)| {
            let read = RequestData::parse(private_data).unwrap();
            let built = RequestData::new(
                read.qid.get(),
                read.hrqsize.get(),
                read.hsqsize.get(),
                read.cntlid.get(),
            );
            assert_eq!(built.as_bytes(), &private_data[..32], "frame {frame}");
            assert!(private_data[32..].iter().all(|&b| b == 0), "frame {frame}");
            (
                read.qid.get(),
                read.hrqsize.get(),
                read.hsqsize.get(),
                read.cntlid.get(),
            )
        });
        let expected = [
            (0, 32, 31, 0),
            (0, 32, 31, 0),
            (1, 128, 127, 1),
            (2, 128, 127, 1),
        ];
        assert_eq!(requests.collect::<Vec<_>>(), expected);

        let replies = session.replies.iter().map(|(frame, private_data)| {
            let read = ReplyData::parse(private_data).unwrap();
            let built = ReplyData::new(read.crqsize.get());
            assert_eq!(built.as_bytes(), &private_data[..32], "frame {frame}");
            read.crqsize.get()
        });
        assert_eq!(replies.collect::<Vec<_>>(), [32, 32, 128, 128]);
    }
}

#[test]
fn connect_data() {
    let mut connects = 0;
    for session in sessions() {
        for command in &session.commands {
            let (sqe, in_capsule) = Sqe::split_capsule(&command.capsule).unwrap();
            if !sqe.is_fabrics() || sqe.fctype() != FabricsType::CONNECT {
                continue;
            }
            connects += 1;
            let bytes = match sqe.dptr.parse().unwrap() {
                Sgl::InCapsule { .. } => in_capsule,
                Sgl::Keyed { address, rkey, .. } => session.read_by_target(rkey, address),
                other => panic!("frame {}: {other:?}", command.frame),
            };
            let data = ConnectData::read_from_bytes(bytes).unwrap();
            let host = Nqn::decode(&data.hostnqn).unwrap();
            assert!(
                host.raw().starts_with("nqn.2014-08.org.nvmexpress:uuid:"),
                "{host}"
            );
            let subsystem = Nqn::decode(&data.subnqn).unwrap();
            assert_eq!(subsystem.is_discovery(), connects % 4 == 1, "{subsystem}");
            assert_ne!(data.hostid, [0; 16]);
            let expected = if command.qid == 0 { 0xffff } else { 1 };
            assert_eq!(data.cntlid.get(), expected);
            let built = ConnectData {
                subnqn: subsystem.encode(),
                hostnqn: host.encode(),
                reserved18: [0; 238],
                reserved768: [0; 256],
                ..data
            };
            assert_eq!(built.as_bytes(), bytes, "frame {}", command.frame);
        }
    }
    assert_eq!(connects, 8);
}

#[test]
fn io_commands_of_a_linux_host_are_accepted() {
    let limits = IoLimits {
        mdts_bytes: 1 << 20,
        wzsl_bytes: None,
        vsl_bytes: None,
        wusl_bytes: None,
        oncs: Oncs(0)
            .with_compare(true)
            .with_write_zeroes(true)
            .with_dataset_management(true),
        vwc: Vwc(0).with_present(true).with_flush_all(Vwc::FLUSH_ALL_YES),
    };
    let mut outcomes = [0usize; 2];
    for session in sessions() {
        for command in &session.commands {
            let (sqe, data) = Sqe::split_capsule(&command.capsule).unwrap();
            if command.qid == 0 || sqe.is_fabrics() {
                continue;
            }
            let namespace = namespace_of(&session, sqe.nsid.get());
            let parsed = IoCommand::parse(sqe, data.len() as u32, Some(&namespace), &limits);
            if sqe.cdw10_11() == 99_999_999 {
                assert_eq!(parsed, Err(Status::LBA_OUT_OF_RANGE.with_dnr()));
                outcomes[1] += 1;
                continue;
            }
            let parsed = parsed.unwrap_or_else(|e| panic!("frame {}: {e}", command.frame));
            let (Sgl::Keyed { length, .. } | Sgl::InCapsule { length, .. }) =
                sqe.dptr.parse().unwrap()
            else {
                panic!("frame {}", command.frame);
            };
            assert_eq!(parsed.transfer.length(), length, "frame {}", command.frame);
            outcomes[0] += 1;
        }
    }
    assert_eq!(outcomes, [28, 2]);
}

fn namespace_of(session: &Session, nsid: u32) -> NamespaceView {
    let identify = session.payloads().find_map(|(sqe, bytes)| {
        let wanted = AdminOpcode(sqe.opc) == AdminOpcode::IDENTIFY
            && IdentifyCdw10(sqe.cdw10.get()).cns() == Cns::NAMESPACE.0
            && sqe.nsid.get() == nsid;
        wanted.then(|| IdentifyNamespace::read_from_bytes(bytes).unwrap())
    });
    let identify = identify.unwrap_or_else(|| panic!("namespace {nsid} was never identified"));
    NamespaceView {
        nsze: identify.nsze.get(),
        lbads: identify.lba_format().unwrap().lbads,
        write_protected: false,
        write_uncorrectable: false,
    }
}
