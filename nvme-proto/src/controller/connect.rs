//! Connect command (Base, 6.3).

use crate::limits::Limits;
use crate::transfer::DataTransfer;
use crate::wire::cm::{RejectStatus, ReplyData, RequestData};
use crate::wire::fabrics::{
    CONNECT_DATA_BYTES, Cattr, ConnectCommand, ConnectData, ConnectInvalidParameter as Parameter,
    RECFMT,
};
use crate::wire::{FabricsType, Nqn, Sqe, Status};

use super::Refusal;
use super::command::check_flags;
use super::refusal::byte;

/// Checks an RDMA connection request; returns the reply's private data (RDMA, 7.2).
pub fn admit(request: &RequestData, limits: &Limits) -> Result<ReplyData, RejectStatus> {
    let (qid, hsqsize) = (request.qid.get(), request.hsqsize.get());
    if qid > limits.io_queues {
        return Err(RejectStatus::INVALID_QID);
    }
    // HSQSIZE is 0-based; a queue has 2 entries or more.
    if hsqsize == 0 || hsqsize >= limits.queue_entries(qid) {
        return Err(RejectStatus::INVALID_HSQSIZE);
    }
    // A queue of n entries has at most n - 1 commands in flight, each with a receive for its
    // response.
    if request.hrqsize.get() < hsqsize {
        return Err(RejectStatus::INVALID_HRQSIZE);
    }
    Ok(ReplyData::new(hsqsize + 1))
}

/// Valid Connect command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectRequest {
    /// Command identifier.
    pub cid: u16,
    /// QID; 0 is the admin queue, whose Connect creates a controller.
    pub qid: u16,
    /// Entries of the submission queue, 0-based.
    pub sqsize: u16,
    /// True if responses contain SQHD (CATTR.DISSQFC is 0).
    pub flow_control: bool,
    /// KATO in milliseconds; 0 disables keep alive.
    pub kato_ms: u32,
    /// HOSTID, not 0.
    pub hostid: [u8; 16],
    /// CNTLID of the requested controller.
    pub cntlid: u16,
    /// NQN of the requested subsystem.
    pub subnqn: Nqn,
    /// HOSTNQN claimed by the host.
    pub hostnqn: Nqn,
}

const CATTR_BITS: u8 = 0x0f;

impl ConnectRequest {
    /// Checks that a connection's first command is a valid Connect, and locates its data.
    pub fn locate(sqe: &Sqe, in_capsule_bytes: u32) -> Result<DataTransfer, Refusal> {
        check_command(sqe)?;
        DataTransfer::from_host(sqe, CONNECT_DATA_BYTES as u32, in_capsule_bytes)
            .map_err(|status| Refusal::new(status).at(byte::DPTR))
    }

    /// Parses a Connect command and its data.
    pub fn parse(sqe: &Sqe, data: &ConnectData) -> Result<Self, Refusal> {
        check_command(sqe)?;
        let command = ConnectCommand::from(*sqe);
        if data.hostid == [0; 16] {
            return Err(Refusal::connect(Parameter::HOSTID));
        }
        let subnqn = Nqn::decode(&data.subnqn).map_err(|_| Refusal::connect(Parameter::SUBNQN))?;
        let hostnqn =
            Nqn::decode(&data.hostnqn).map_err(|_| Refusal::connect(Parameter::HOSTNQN))?;
        Ok(Self {
            cid: command.cid.get(),
            qid: command.qid.get(),
            sqsize: command.sqsize.get(),
            flow_control: !Cattr(command.cattr).dissqfc(),
            kato_ms: command.kato.get(),
            hostid: data.hostid,
            cntlid: data.cntlid.get(),
            subnqn,
            hostnqn,
        })
    }

    /// Returns the error of a Connect to an unknown SUBNQN.
    #[must_use]
    pub fn unknown_subsystem() -> Refusal {
        Refusal::connect(Parameter::SUBNQN)
    }

    pub(crate) fn check_against(&self, cm: &RequestData) -> Result<(), Refusal> {
        if cm.qid.get() != self.qid {
            return Err(Refusal::connect(Parameter::QID));
        }
        if cm.hsqsize.get() != self.sqsize {
            return Err(Refusal::connect(Parameter::SQSIZE));
        }
        // Hosts of specifications before 2.0a send CNTLID 0.
        let cntlid = cm.cntlid.get();
        if self.qid != 0 && cntlid != 0 && cntlid != self.cntlid {
            return Err(Refusal::connect(Parameter::CNTLID));
        }
        Ok(())
    }
}

/// Error of a Fabrics command on a connected I/O queue: neither Disconnect nor reauthentication is
/// supported.
#[must_use]
pub fn refuse_on_io_queue(sqe: &Sqe) -> Refusal {
    let status = match sqe.fctype() {
        FabricsType::CONNECT => Status::COMMAND_SEQUENCE_ERROR,
        _ => Status::INVALID_OPCODE,
    };
    Refusal::new(status).at(byte::NSID)
}

fn check_command(sqe: &Sqe) -> Result<(), Refusal> {
    if !sqe.is_fabrics() || sqe.fctype() != FabricsType::CONNECT {
        let at = if sqe.is_fabrics() {
            byte::NSID
        } else {
            byte::OPC
        };
        return Err(Refusal::new(Status::COMMAND_SEQUENCE_ERROR).at(at));
    }
    check_flags(sqe)?;
    let command = ConnectCommand::from(*sqe);
    if command.recfmt.get() != RECFMT {
        let refusal = Refusal::new(Status::CONNECT_INCOMPATIBLE_FORMAT);
        return Err(refusal.at(Parameter::RECFMT.ipo() as u8));
    }
    if command.sqsize.get() == 0 {
        return Err(Refusal::connect(Parameter::SQSIZE));
    }
    if command.cattr & !CATTR_BITS != 0 {
        return Err(Refusal::connect(Parameter::CATTR));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{FromZeros, IntoBytes, U16, U32};

    fn command() -> ConnectCommand {
        let mut command = ConnectCommand::new_zeroed();
        command.opc = 0x7f;
        command.flags = Sqe::FLAGS_SGL;
        command.fctype = 1;
        command.sqsize = U16::new(31);
        command.kato = U32::new(5000);
        command
    }

    fn data() -> ConnectData {
        let mut data = ConnectData::new_zeroed();
        data.hostid = [7; 16];
        data.cntlid = U16::new(0xffff);
        data.subnqn = "nqn.2026-01.org.example:disk"
            .parse::<Nqn>()
            .unwrap()
            .encode();
        data.hostnqn = "nqn.2026-01.org.example:host"
            .parse::<Nqn>()
            .unwrap()
            .encode();
        data
    }

    fn refusal(command: ConnectCommand, data: &ConnectData) -> Refusal {
        ConnectRequest::parse(&command.into(), data).unwrap_err()
    }

    #[test]
    fn a_good_one_parses() {
        let request = ConnectRequest::parse(&command().into(), &data()).unwrap();
        assert_eq!(
            (request.qid, request.sqsize, request.kato_ms),
            (0, 31, 5000)
        );
        assert!(request.flow_control);
        assert_eq!(request.cntlid, 0xffff);
        let mut no_flow_control = command();
        no_flow_control.cattr = 0b100;
        let request = ConnectRequest::parse(&no_flow_control.into(), &data()).unwrap();
        assert!(!request.flow_control);
    }

    #[test]
    fn anything_else_first_is_out_of_sequence() {
        for (opc, fctype) in [
            (0x06, 0x01),
            (0x02, 0),
            (0x7f, 0x04),
            (0x7f, 0x00),
            (0x7f, 0x08),
        ] {
            let mut other = command();
            other.opc = opc;
            other.fctype = fctype;
            let refusal = refusal(other, &data());
            assert_eq!(refusal.status.code(), Status::COMMAND_SEQUENCE_ERROR);
        }
    }

    #[test]
    fn an_io_queue_takes_no_second_connect_and_no_property_command() {
        let refused = refuse_on_io_queue(&command().into());
        assert_eq!(refused.status.code(), Status::COMMAND_SEQUENCE_ERROR);
        let mut property_get = command();
        property_get.fctype = 4;
        let refused = refuse_on_io_queue(&property_get.into());
        assert_eq!(refused.status.code(), Status::INVALID_OPCODE);
    }

    #[test]
    fn each_bad_field_of_the_command_is_named() {
        let mut recfmt = command();
        recfmt.recfmt.set(1);
        let refused = refusal(recfmt, &data());
        assert_eq!(refused.status.code(), Status::CONNECT_INCOMPATIBLE_FORMAT);
        assert_eq!(refused.byte, Some(40));
        let mut sqsize = command();
        sqsize.sqsize.set(0);
        let refused = refusal(sqsize, &data());
        assert_eq!(refused.status.code(), Status::CONNECT_INVALID_PARAMETERS);
        assert_eq!((refused.result, refused.byte), (44, Some(44)));
        let mut cattr = command();
        cattr.cattr = 0x10;
        assert_eq!(refusal(cattr, &data()).result, 46);
        let mut prp = command();
        prp.flags = 0;
        assert_eq!(refusal(prp, &data()), Refusal::field(1));
    }

    #[test]
    fn each_bad_field_of_the_data_is_named() {
        let in_data = |offset: u32| 1 << 16 | offset;
        let mut bad = data();
        bad.hostid = [0; 16];
        assert_eq!(refusal(command(), &bad).result, in_data(0));
        let mut bad = data();
        bad.subnqn.fill(b'x');
        assert_eq!(refusal(command(), &bad).result, in_data(256));
        let mut bad = data();
        bad.hostnqn[0] = 0xff;
        assert_eq!(refusal(command(), &bad).result, in_data(512), "not UTF-8");
        let mut bad = data();
        bad.hostnqn[..224].fill(b'x');
        let refused = refusal(command(), &bad);
        assert_eq!((refused.result, refused.byte), (in_data(512), None));
        assert_eq!(
            refused.status,
            Status::CONNECT_INVALID_PARAMETERS.with_dnr()
        );
    }

    #[test]
    fn names_of_any_form_are_taken() {
        for (hostnqn, subnqn) in [("", "testnqn"), ("db 1", "a\nb"), ("nqn.", "")] {
            let mut other = data();
            other.hostnqn = hostnqn.parse::<Nqn>().unwrap().encode();
            other.subnqn = subnqn.parse::<Nqn>().unwrap().encode();
            let request = ConnectRequest::parse(&command().into(), &other).unwrap();
            assert_eq!(
                (request.hostnqn.raw(), request.subnqn.raw()),
                (hostnqn, subnqn)
            );
        }
    }

    #[test]
    fn the_command_must_agree_with_the_connection() {
        let mut request = ConnectRequest::parse(&command().into(), &data()).unwrap();
        assert_eq!(
            request.check_against(&RequestData::new(0, 32, 31, 0)),
            Ok(())
        );
        let result = |request: &ConnectRequest, cm: RequestData| {
            request.check_against(&cm).unwrap_err().result
        };
        assert_eq!(result(&request, RequestData::new(1, 32, 31, 0)), 42);
        assert_eq!(result(&request, RequestData::new(0, 32, 30, 0)), 44);
        (request.qid, request.cntlid) = (1, 5);
        assert_eq!(
            request.check_against(&RequestData::new(1, 32, 31, 0)),
            Ok(())
        );
        assert_eq!(
            request.check_against(&RequestData::new(1, 32, 31, 5)),
            Ok(())
        );
        assert_eq!(
            result(&request, RequestData::new(1, 32, 31, 6)),
            1 << 16 | 16
        );
    }

    #[test]
    fn connection_requests_are_admitted_within_limits() {
        let limits = Limits::default();
        let admit = |qid, hrqsize, hsqsize| {
            admit(&RequestData::new(qid, hrqsize, hsqsize, 0), &limits)
                .map(|reply| reply.crqsize.get())
        };
        assert_eq!(admit(0, 32, 31), Ok(32));
        assert_eq!(admit(1, 128, 127), Ok(128));
        assert_eq!(admit(128, 127, 127), Ok(128));
        assert_eq!(admit(129, 128, 127), Err(RejectStatus::INVALID_QID));
        assert_eq!(admit(1, 129, 128), Err(RejectStatus::INVALID_HSQSIZE));
        assert_eq!(admit(1, 1, 0), Err(RejectStatus::INVALID_HSQSIZE));
        assert_eq!(admit(1, 126, 127), Err(RejectStatus::INVALID_HRQSIZE));
        assert_eq!(
            admit(1, u16::MAX, u16::MAX),
            Err(RejectStatus::INVALID_HSQSIZE)
        );
    }

    #[test]
    fn no_sqe_panics() {
        proptest::proptest!(|(bytes: [u8; 64])| {
            let sqe: Sqe = zerocopy::transmute!(bytes);
            let mut data = data();
            data.as_mut_bytes()[..64].copy_from_slice(&bytes);
            let _ = ConnectRequest::parse(&sqe, &data);
            data.subnqn[..64].copy_from_slice(&bytes);
            let _ = ConnectRequest::parse(&command().into(), &data);
            data.hostnqn[192..].copy_from_slice(&bytes);
            let _ = ConnectRequest::parse(&command().into(), &data);
        });
    }
}
