//! Commands and responses in the format of the independent decoder.

use nvme_proto::wire::fabrics::{ConnectCommand, PropertyGetCommand, PropertySetCommand};
use nvme_proto::wire::feature::SetFeaturesCdw10;
use nvme_proto::wire::identify::{IdentifyCdw10, IdentifyCdw11};
use nvme_proto::wire::log::{GetLogCdw10, GetLogCdw11, get_log_bytes};
use nvme_proto::wire::{AdminOpcode, Cqe, FabricsType, FromBytes, NvmOpcode, Sgl, Sqe};

use super::capture::Capsule;

pub(crate) fn command(command: &Capsule) -> String {
    let (sqe, _) = Sqe::split_capsule(&command.capsule).unwrap();
    let body = if sqe.is_fabrics() {
        fabrics(sqe)
    } else {
        let body = if command.qid == 0 {
            admin(sqe)
        } else {
            io(sqe)
        };
        format!("nsid={:x} {body}", sqe.nsid.get())
    };
    let sgl = match sqe.dptr.parse().unwrap() {
        Sgl::Keyed {
            address,
            length,
            rkey,
            invalidate,
        } => {
            let subtype = if invalidate { "f" } else { "0" };
            format!("keyed(sub {subtype}) va={address:x} len={length} rkey={rkey:x}")
        }
        Sgl::InCapsule { offset, length } => {
            let first = command.first_packet_bytes - 64;
            format!("inline/offset(sub 1) off={offset} len={length} +{first}B in capsule")
        }
        other => format!("{other:?}"),
    };
    let (qid, cid) = (command.qid, sqe.cid.get());
    format!(
        "q{qid} CMD flags={:02x} cid={cid:04x} {body} | {sgl}",
        sqe.flags
    )
}

pub(crate) fn completion(completion: &Capsule) -> String {
    let cqe = Cqe::read_from_bytes(&completion.capsule).unwrap();
    let invalidated = match completion.invalidated {
        Some(rkey) => format!(" (SEND_INV rkey={rkey:08x})"),
        None => String::new(),
    };
    format!(
        "q{} CQE cid={:04x} res={:016x} sqhd={} status={:#x}{invalidated}",
        completion.qid,
        cqe.cid.get(),
        cqe.result(),
        cqe.sqhd.get(),
        cqe.status().bits()
    )
}

fn fabrics(&sqe: &Sqe) -> String {
    match sqe.fctype() {
        FabricsType::CONNECT => {
            let c = ConnectCommand::from(sqe);
            format!(
                "Connect recfmt={} qid={} sqsize={} cattr={:02x} kato={}",
                c.recfmt, c.qid, c.sqsize, c.cattr, c.kato
            )
        }
        FabricsType::PROPERTY_GET => {
            let c = PropertyGetCommand::from(sqe);
            format!("PropertyGet attrib={} ofst={:#x}", c.attrib, c.ofst.get())
        }
        FabricsType::PROPERTY_SET => {
            let c = PropertySetCommand::from(sqe);
            let (ofst, value) = (c.ofst.get(), c.value.get());
            format!(
                "PropertySet attrib={} ofst={ofst:#x} val={value:#x}",
                c.attrib
            )
        }
        other => other.to_string(),
    }
}

fn admin(sqe: &Sqe) -> String {
    let (cdw10, cdw11) = (sqe.cdw10.get(), sqe.cdw11.get());
    match AdminOpcode(sqe.opc) {
        AdminOpcode::IDENTIFY => {
            let (dw10, dw11) = (IdentifyCdw10(cdw10), IdentifyCdw11(cdw11));
            format!(
                "Identify cns={:#x} cntid={} csi={}",
                dw10.cns(),
                dw10.cntid(),
                dw11.csi()
            )
        }
        AdminOpcode::GET_LOG_PAGE => {
            let dw10 = GetLogCdw10(cdw10);
            format!(
                "GetLogPage lid={:#x} lsp={} rae={} numd={} lpo={}",
                dw10.lid(),
                dw10.lsp(),
                u8::from(dw10.rae()),
                get_log_bytes(dw10, GetLogCdw11(cdw11)) / 4 - 1,
                u64::from(sqe.cdw12.get()) | u64::from(sqe.cdw13.get()) << 32
            )
        }
        AdminOpcode::SET_FEATURES => {
            let dw10 = SetFeaturesCdw10(cdw10);
            let (fid, sv) = (dw10.fid(), u8::from(dw10.sv()));
            format!("SetFeatures fid={fid:#x} sv/sel={sv} cdw11={cdw11:#x}")
        }
        AdminOpcode::ASYNC_EVENT_REQUEST => "AsyncEventRequest".into(),
        AdminOpcode::KEEP_ALIVE => "KeepAlive".into(),
        other => other.to_string(),
    }
}

fn io(sqe: &Sqe) -> String {
    let name = match NvmOpcode(sqe.opc) {
        NvmOpcode::FLUSH => return "Flush".into(),
        NvmOpcode::DATASET_MANAGEMENT => {
            let (nr, attributes) = (sqe.cdw10.get() + 1, sqe.cdw11.get());
            return format!("DSM nr={nr} attr={attributes:#x}");
        }
        NvmOpcode::READ => "Read",
        NvmOpcode::WRITE => "Write",
        NvmOpcode::COMPARE => "Compare",
        NvmOpcode::WRITE_ZEROES => "WriteZeroes",
        other => return other.to_string(),
    };
    let (nlb, control) = ((sqe.cdw12.get() & 0xffff) + 1, sqe.cdw12.get() >> 16);
    format!("{name} slba={} nlb={nlb} ctl={control:#x}", sqe.cdw10_11())
}
