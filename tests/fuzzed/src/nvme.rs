//! Fuzz target for parsers of NVMe structures. The first input byte selects the parser.

use nvme_proto::controller::{AdminCommand, AuthenticationRequest, ConnectRequest, connect};
use nvme_proto::host::multipath::AnaLog;
use nvme_proto::io::{CopyRanges, IoCommand, IoLimits, NamespaceView, Operation};
use nvme_proto::limits::Limits;
use nvme_proto::transfer::{DataTransfer, Direction, SglList};
use nvme_proto::wire::cm::{RejectData, ReplyData, RequestData};
use nvme_proto::wire::fabrics::{ConnectCommand, ConnectData};
use nvme_proto::wire::identify::{
    IdentifyController, IdentifyNamespace, Oncs, Vwc, namespace_descriptors,
};
use nvme_proto::wire::log::{
    AnaGroup, AnaLogHeader, DiscoveryEntry, DiscoveryLogHeader, ErrorEntry, SmartLog,
};
use nvme_proto::wire::{Cqe, FromBytes, IntoBytes, Nqn, Sqe};

macro_rules! same_bytes {
    ($bytes:expr, $($name:ty),+) => {$(
        if let Ok((value, _)) = <$name>::read_from_prefix($bytes) {
            assert_eq!(value.as_bytes(), &$bytes[..size_of::<$name>()]);
        }
    )+};
}

pub(crate) fn run(bytes: &[u8]) {
    let Some((choice, bytes)) = bytes.split_first() else {
        return;
    };
    match choice % 6 {
        0 => command(bytes),
        1 => connecting(bytes),
        2 => ana_log(bytes),
        3 => requests(bytes),
        4 => name(bytes),
        _ => {
            same_bytes!(
                bytes,
                Cqe,
                IdentifyController,
                IdentifyNamespace,
                ErrorEntry,
                SmartLog
            );
            same_bytes!(
                bytes,
                AnaLogHeader,
                AnaGroup,
                DiscoveryLogHeader,
                DiscoveryEntry
            );
            if let Ok((page, _)) = <[u8; 4096]>::read_from_prefix(bytes) {
                let _ = namespace_descriptors(&page).count();
            }
        }
    }
}

fn command(bytes: &[u8]) {
    let Some((sqe, data)) = Sqe::split_capsule(bytes) else {
        assert!(bytes.len() < size_of::<Sqe>());
        return;
    };
    let in_capsule = data.len() as u32;
    if let Ok(sgl) = sqe.dptr.parse() {
        let _ = (sgl, sqe.dptr.invalidate_rkey());
    }
    if let Ok(Some(found)) = SglList::locate(sqe, in_capsule)
        && let Ok(list) = SglList::parse(&data[found.range()], Direction::of(sqe))
    {
        let length = list.as_one().parse().expect("a keyed descriptor").length();
        let pieces = list.pieces(length);
        assert!(pieces.map(|piece| piece.buffer.length).sum::<u32>() <= length);
    }
    if let Ok(command) = AdminCommand::parse(sqe, 1 << 20) {
        let _ = (command.transfer(), command.locate(sqe));
    }
    let _ = ConnectRequest::locate(sqe, in_capsule);
    let _ = AuthenticationRequest::parse(sqe, in_capsule);
    let limits = IoLimits {
        mdts_bytes: 1 << 20,
        wzsl_bytes: None,
        vsl_bytes: Some(1 << 20),
        wusl_bytes: None,
        oncs: Oncs(0xffff),
        vwc: Vwc(7),
    };
    for write_protected in [false, true] {
        let namespace = NamespaceView {
            nsze: 1 << 20,
            lbads: 9,
            write_protected,
            write_uncorrectable: true,
        };
        for namespace in [None, Some(&namespace)] {
            let parsed = IoCommand::parse(sqe, in_capsule, namespace, &limits);
            if let Ok(command) = parsed
                && let Operation::Copy(_) = command.operation
                && let DataTransfer::InCapsule(slice) = command.transfer
            {
                copied(
                    sqe,
                    &data[slice.range()],
                    namespace.expect("a Copy has one"),
                    &limits,
                );
            }
        }
    }
}

fn copied(sqe: &Sqe, data: &[u8], namespace: &NamespaceView, limits: &IoLimits) {
    let Ok(ranges) = CopyRanges::parse(sqe, data, namespace, limits) else {
        return;
    };
    let (mut done, mut last) = (0, 0);
    while let Some((index, rest)) = ranges.after(done) {
        assert!(index == last || index == last + 1);
        assert!(rest.slba + u64::from(rest.blocks) <= namespace.nsze);
        (done, last) = (done + rest.blocks, index);
    }
    assert_eq!(done, ranges.blocks());
    assert!(sqe.cdw10_11() + u64::from(done) <= namespace.nsze);
}

fn connecting(bytes: &[u8]) {
    let Ok((sqe, rest)) = Sqe::read_from_prefix(bytes) else {
        return;
    };
    assert_eq!(Sqe::from(ConnectCommand::from(sqe)), sqe);
    if let Ok((data, _)) = ConnectData::read_from_prefix(rest)
        && let Ok(request) = ConnectRequest::parse(&sqe, &data)
    {
        assert!(data.hostnqn.starts_with(request.hostnqn.raw().as_bytes()));
        assert!(data.subnqn.starts_with(request.subnqn.raw().as_bytes()));
    }
}

fn ana_log(bytes: &[u8]) {
    let Ok(log) = AnaLog::parse(bytes) else {
        return;
    };
    let mut nsids = 0;
    for group in log.groups() {
        nsids += group.nsids().count();
    }
    assert!(4 * nsids <= bytes.len());
    let _ = log.state_of(1);
}

fn requests(bytes: &[u8]) {
    same_bytes!(bytes, RequestData, ReplyData, RejectData);
    if let Ok(request) = RequestData::parse(bytes) {
        let limits = Limits::default();
        if let Ok(reply) = connect::admit(&request, &limits) {
            assert!(reply.crqsize.get() > 0);
        }
    }
}

fn name(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(nqn) = Nqn::parse(text)
    {
        assert_eq!(nqn.raw(), text);
        let shown = nqn.to_string();
        assert!(!shown.chars().any(char::is_control));
    }
}
