use anyhow::{Result, bail, ensure};
use cairn_rdma::QpOptions;
use nvme_proto::wire::cm::{RejectStatus, RequestData};
use nvme_proto::wire::fabrics::{ConnectInvalidParameter, PropertyGetCommand, PropertySize};
use nvme_proto::wire::identify::Cns;
use nvme_proto::wire::property::offset;
use nvme_proto::wire::{IntoBytes, SglDescriptor, Sqe, Status, U16};

use cairn_initiator::command;

use super::peer::{Answer, ENTRIES, Peer, Refusal, host_qp};
use super::{Setting, host_nqn};
use crate::case::suite;

suite! {
    short_private_data: "a connection request without NVMe's private data is rejected",
    wrong_recfmt: "private data of an unknown format is rejected with Invalid RECFMT",
    qid_too_large: "a QID beyond the limit is rejected with Invalid QID",
    hsqsize_games: "HSQSIZE of 0 or beyond the limit is rejected with Invalid HSQSIZE",
    hrqsize_games: "HRQSIZE that cannot hold the answers is rejected with Invalid HRQSIZE",
    no_reads_answered: "a host that answers no RDMA READ is rejected with Invalid IRD",
    sqsize_disagrees: "SQSIZE that is not HSQSIZE fails with Connect Invalid Parameters, naming SQSIZE",
    qid_disagrees: "a QID that is not the connection's fails with Connect Invalid Parameters, naming QID",
    half_open: "a connection without a Connect is closed in time",
    many_half_open: "64 connections without a Connect do not keep others out",
    command_before_connect: "any command before Connect fails with Command Sequence Error, or closes the queue",
    io_queue_without_controller: "an I/O queue of a controller that is not there is refused",
    io_queue_before_enable: "an I/O queue of a controller that is not enabled is refused",
    duplicate_qid: "a second queue of the same QID fails, and the first goes on",
    foreign_io_queue: "an I/O queue for another host's controller is refused",
    connect_twice: "a second Connect on a queue fails with Command Sequence Error",
    unknown_subsystem: "a Connect to an unknown subsystem names SUBNQN",
    unterminated_names: "NQNs without an end are refused, each by name",
    zero_hostid: "a HOSTID of 0 is refused by name",
    unreadable_connect_data: "Connect data that cannot be fetched close the queue",
    connect_data_of_wrong_length: "Connect data of another length than 1024 fail with Data SGL Length Invalid",
}

fn short_private_data(setting: &Setting) -> Result<()> {
    let mut peer = Peer::open(setting)?;
    for length in [0, 1, 5] {
        let request = RequestData::new(0, ENTRIES, ENTRIES - 1, 0);
        // If a transport appends zeroes to the private data, the target reports a queue size of 0
        // instead of a wrong length.
        match peer.dial(&request.as_bytes()[..length], &host_qp())? {
            Err(Refusal::Status(
                RejectStatus::INVALID_LENGTH
                | RejectStatus::INVALID_HSQSIZE
                | RejectStatus::INVALID_HRQSIZE,
            )) => {}
            other => bail!("{length} bytes of private data: {other:?}"),
        }
    }
    Ok(())
}

fn wrong_recfmt(setting: &Setting) -> Result<()> {
    let mut request = RequestData::new(0, ENTRIES, ENTRIES - 1, 0);
    for recfmt in [1, 0xffff] {
        request.recfmt = U16::new(recfmt);
        expect_reject(setting, &request, &host_qp(), RejectStatus::INVALID_RECFMT)?;
    }
    Ok(())
}

fn qid_too_large(setting: &Setting) -> Result<()> {
    let request = RequestData::new(0xffff, ENTRIES, ENTRIES - 1, 0);
    expect_reject(setting, &request, &host_qp(), RejectStatus::INVALID_QID)
}

fn hsqsize_games(setting: &Setting) -> Result<()> {
    for (qid, hsqsize) in [(0, 0), (1, 0), (0, 0xffff), (1, 0xffff), (1, 1024)] {
        let request = RequestData::new(qid, 0xffff, hsqsize, 0);
        expect_reject(setting, &request, &host_qp(), RejectStatus::INVALID_HSQSIZE)?;
    }
    Ok(())
}

fn hrqsize_games(setting: &Setting) -> Result<()> {
    for hrqsize in [0, 1, ENTRIES - 2] {
        let request = RequestData::new(0, hrqsize, ENTRIES - 1, 0);
        expect_reject(setting, &request, &host_qp(), RejectStatus::INVALID_HRQSIZE)?;
    }
    Ok(())
}

fn no_reads_answered(setting: &Setting) -> Result<()> {
    let request = RequestData::new(0, ENTRIES, ENTRIES - 1, 0);
    let qp = QpOptions {
        responder_resources: 0,
        ..host_qp()
    };
    expect_reject(setting, &request, &qp, RejectStatus::INVALID_IRD)
}

fn sqsize_disagrees(setting: &Setting) -> Result<()> {
    for sqsize in [0, ENTRIES - 2, ENTRIES, 0xffff] {
        let mut peer = Peer::open(setting)?;
        let qp = peer.dial_queue(0, ENTRIES)?;
        let connect = peer.connect_command(0, sqsize);
        let data = peer.connect_data();
        let cqe = peer.run_connect(qp, connect, &data)?;
        refused_parameter(cqe, ConnectInvalidParameter::SQSIZE)?;
    }
    Ok(())
}

fn qid_disagrees(setting: &Setting) -> Result<()> {
    let (mut peer, _) = Peer::with_controller(setting)?;
    let qp = peer.dial_queue(1, ENTRIES)?;
    let connect = peer.connect_command(2, ENTRIES - 1);
    let data = peer.connect_data();
    let cqe = peer.run_connect(qp, connect, &data)?;
    refused_parameter(cqe, ConnectInvalidParameter::QID)
}

fn half_open(setting: &Setting) -> Result<()> {
    let (mut peer, _) = Peer::with_controller(setting)?;
    let admin = peer.dial_queue(0, ENTRIES)?;
    let io = peer.dial_queue(1, ENTRIES)?;
    peer.expect_closed(admin)?;
    peer.expect_closed(io)
}

fn many_half_open(setting: &Setting) -> Result<()> {
    let mut peer = Peer::open(setting)?;
    let mut queues = Vec::new();
    while queues.len() < 63 {
        queues.push(peer.dial_queue(0, ENTRIES)?);
    }
    let mut newcomer = Peer::open(setting)?;
    newcomer.connect_queue(0, ENTRIES)?;
    Ok(())
}

fn command_before_connect(setting: &Setting) -> Result<()> {
    for qid in [0, 1] {
        for nth in 0..3 {
            let mut peer = Peer::open(setting)?;
            let qp = peer.dial_queue(qid, ENTRIES)?;
            let mut sqe: Sqe = match nth {
                0 => PropertyGetCommand::new(0, PropertySize::Eight, offset::CAP).into(),
                1 => command::identify(Cns::CONTROLLER, 0),
                _ => command::read(setting.nsid, 0, 1),
            };
            sqe.flags = Sqe::FLAGS_SGL;
            sqe.cid = U16::new(peer.new_cid());
            sqe.dptr = peer.keyed(if nth == 1 { 4096 } else { 512 });
            peer.say(qp, sqe.as_bytes())?;
            match peer.receive(qp)? {
                Answer::Closed => {}
                Answer::Response(cqe) => ensure!(
                    cqe.status().code() == Status::COMMAND_SEQUENCE_ERROR,
                    "it ended in {}",
                    cqe.status()
                ),
            }
        }
    }
    Ok(())
}

fn io_queue_without_controller(setting: &Setting) -> Result<()> {
    let mut peer = Peer::open(setting)?;
    for in_request in [0, 0xabc] {
        peer.cntlid = 0xabc;
        let request = RequestData::new(1, ENTRIES, ENTRIES - 1, in_request);
        let qp = match peer.dial(request.as_bytes(), &host_qp())? {
            Ok(qp) => qp,
            Err(Refusal::Status(RejectStatus::INVALID_CNTLID)) => continue,
            Err(other) => bail!("it is rejected with {other:?}"),
        };
        let connect = peer.connect_command(1, ENTRIES - 1);
        let data = peer.connect_data();
        let cqe = peer.run_connect(qp, connect, &data)?;
        refused_parameter(cqe, ConnectInvalidParameter::CNTLID)?;
    }
    Ok(())
}

fn io_queue_before_enable(setting: &Setting) -> Result<()> {
    let mut peer = Peer::open(setting)?;
    let admin = peer.connect_queue(0, ENTRIES)?;
    let io = peer.dial_queue(1, ENTRIES)?;
    let connect = peer.connect_command(1, ENTRIES - 1);
    let data = peer.connect_data();
    let cqe = peer.run_connect(io, connect, &data)?;
    ensure!(!cqe.status().is_success(), "it was let in");
    peer.enable(admin)?;
    peer.connect_queue(1, ENTRIES)?;
    Ok(())
}

fn duplicate_qid(setting: &Setting) -> Result<()> {
    let (mut peer, _, first) = Peer::with_io_queue(setting)?;
    let second = peer.dial_queue(1, ENTRIES)?;
    let connect = peer.connect_command(1, ENTRIES - 1);
    let data = peer.connect_data();
    let cqe = peer.run_connect(second, connect, &data)?;
    ensure!(
        matches!(
            cqe.status().code(),
            Status::COMMAND_SEQUENCE_ERROR
                | Status::INVALID_QUEUE_IDENTIFIER
                | Status::CONNECT_INVALID_PARAMETERS
        ),
        "it ended in {}",
        cqe.status()
    );
    let mut flush = command::flush(setting.nsid);
    flush.flags = Sqe::FLAGS_SGL;
    flush.cid = U16::new(peer.new_cid());
    flush.dptr = SglDescriptor::none();
    peer.expect(first, flush, Status::SUCCESS)?;
    Ok(())
}

fn foreign_io_queue(setting: &Setting) -> Result<()> {
    let (victim, _) = Peer::with_controller(setting)?;
    let mut thief = Peer::open(setting)?;
    thief.cntlid = victim.cntlid;
    for disguise in 0..2 {
        let qp = thief.dial_queue(1, ENTRIES)?;
        let connect = thief.connect_command(1, ENTRIES - 1);
        let mut data = thief.connect_data();
        if disguise == 0 {
            data.hostnqn = host_nqn("thief").encode();
        } else {
            data.hostid = [0x99; 16];
        }
        let cqe = thief.run_connect(qp, connect, &data)?;
        ensure!(
            !cqe.status().is_success(),
            "another host's queue was let into a controller"
        );
    }
    Ok(())
}

fn connect_twice(setting: &Setting) -> Result<()> {
    let (mut peer, admin, io) = Peer::with_io_queue(setting)?;
    for (qp, qid) in [(admin, 0), (io, 1)] {
        let connect = peer.connect_command(qid, ENTRIES - 1);
        let data = peer.connect_data();
        let cqe = peer.run_connect(qp, connect, &data)?;
        ensure!(
            cqe.status().code() == Status::COMMAND_SEQUENCE_ERROR,
            "queue {qid}: it ended in {}",
            cqe.status()
        );
    }
    Ok(())
}

fn unknown_subsystem(setting: &Setting) -> Result<()> {
    let mut peer = Peer::open(setting)?;
    let qp = peer.dial_queue(0, ENTRIES)?;
    let connect = peer.connect_command(0, ENTRIES - 1);
    let mut data = peer.connect_data();
    data.subnqn = host_nqn("no-such-subsystem").encode();
    let cqe = peer.run_connect(qp, connect, &data)?;
    refused_parameter(cqe, ConnectInvalidParameter::SUBNQN)
}

fn unterminated_names(setting: &Setting) -> Result<()> {
    for host in [false, true] {
        let mut peer = Peer::open(setting)?;
        let qp = peer.dial_queue(0, ENTRIES)?;
        let connect = peer.connect_command(0, ENTRIES - 1);
        let mut data = peer.connect_data();
        let (field, parameter) = if host {
            (&mut data.hostnqn, ConnectInvalidParameter::HOSTNQN)
        } else {
            (&mut data.subnqn, ConnectInvalidParameter::SUBNQN)
        };
        let end = field.iter().position(|&byte| byte == 0).unwrap_or(0);
        field[end..].fill(b'x');
        let cqe = peer.run_connect(qp, connect, &data)?;
        refused_parameter(cqe, parameter)?;
    }
    Ok(())
}

fn zero_hostid(setting: &Setting) -> Result<()> {
    let mut peer = Peer::open(setting)?;
    let qp = peer.dial_queue(0, ENTRIES)?;
    let connect = peer.connect_command(0, ENTRIES - 1);
    let mut data = peer.connect_data();
    data.hostid = [0; 16];
    let cqe = peer.run_connect(qp, connect, &data)?;
    refused_parameter(cqe, ConnectInvalidParameter::HOSTID)
}

fn unreadable_connect_data(setting: &Setting) -> Result<()> {
    let mut peer = Peer::open(setting)?;
    let qp = peer.dial_queue(0, ENTRIES)?;
    let mut connect = peer.connect_command(0, ENTRIES - 1);
    connect.sgl1 = SglDescriptor::keyed(0x10_0000, 1024, 0x0bad_c0de, false);
    peer.say(qp, connect.as_bytes())?;
    peer.expect_closed(qp)
}

fn connect_data_of_wrong_length(setting: &Setting) -> Result<()> {
    for length in [0, 1, 1023, 1025, 0x00ff_ffff] {
        let mut peer = Peer::open(setting)?;
        let qp = peer.dial_queue(0, ENTRIES)?;
        let mut connect = peer.connect_command(0, ENTRIES - 1);
        connect.sgl1 = peer.keyed(length);
        peer.expect(qp, connect.into(), Status::DATA_SGL_LENGTH_INVALID)?;
    }
    Ok(())
}

fn expect_reject(
    setting: &Setting,
    request: &RequestData,
    qp: &QpOptions,
    status: RejectStatus,
) -> Result<()> {
    let mut peer = Peer::open(setting)?;
    let answer = peer.dial(request.as_bytes(), qp)?;
    ensure!(
        answer == Err(Refusal::Status(status)),
        "{request:?} is answered with {answer:?}, not with {status}"
    );
    Ok(())
}

fn refused_parameter(cqe: nvme_proto::wire::Cqe, parameter: ConnectInvalidParameter) -> Result<()> {
    ensure!(
        cqe.status().code() == Status::CONNECT_INVALID_PARAMETERS,
        "it ended in {}",
        cqe.status()
    );
    ensure!(
        cqe.dw0.get() == parameter.0,
        "it names parameter {:#x}, not {:#x}",
        cqe.dw0.get(),
        parameter.0
    );
    Ok(())
}
