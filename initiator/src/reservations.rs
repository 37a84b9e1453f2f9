//! Blocking reservation commands (Base 2.1, 8.1.22).

use nvme_proto::reservation::{HostId, Registrant, ReservationType};
use nvme_proto::wire::reservation::{
    AcquireCdw10, AcquireData, RegisterCdw10, RegisterData, RegisteredControllerExtended,
    ReleaseCdw10, ReportCdw11, ReservationStatusExtended,
};
use nvme_proto::wire::{FromBytes, IntoBytes, NvmOpcode, Sqe, U32, U64};

use crate::buffer::Data;
use crate::command::plain;
use crate::error::HostError;
use crate::host::Host;
use crate::namespace::Namespace;

/// Registrants for which the first request of a report has room. A second request has room for all.
const REGISTRANTS_AT_FIRST: usize = 63;

/// Holder and registrants of a namespace, from Reservation Report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReservationReport {
    /// GEN: number of changes of registrations.
    pub generation: u32,
    /// RTYPE, if a reservation is held.
    pub rtype: Option<ReservationType>,
    /// PTPLS: whether reservations persist through power loss.
    pub persistent: bool,
    /// Registered hosts with keys.
    pub registrants: Vec<Registrant>,
    /// CNTLID of each registrant; FFFFh for a dynamic controller.
    pub cntlids: Vec<u16>,
    /// Hosts that hold the reservation: one, all registrants, or none.
    pub holders: Vec<HostId>,
}

/// These methods use the first I/O queue.
impl Namespace {
    /// Reservation Register: registers, unregisters or replaces a key.
    pub fn register(
        &self,
        host: &mut Host,
        fields: RegisterCdw10,
        current: u64,
        new: u64,
    ) -> Result<(), HostError> {
        let data = RegisterData {
            crkey: U64::new(current),
            nrkey: U64::new(new),
        };
        let opcode = NvmOpcode::RESERVATION_REGISTER;
        self.send_keys(host, opcode, fields.0, data.as_bytes())
    }

    /// Reservation Acquire: acquires or preempts a reservation.
    pub fn acquire(
        &self,
        host: &mut Host,
        fields: AcquireCdw10,
        current: u64,
        preempted: u64,
    ) -> Result<(), HostError> {
        let data = AcquireData {
            crkey: U64::new(current),
            prkey: U64::new(preempted),
        };
        let opcode = NvmOpcode::RESERVATION_ACQUIRE;
        self.send_keys(host, opcode, fields.0, data.as_bytes())
    }

    /// Reservation Release: releases a reservation, or clears reservation and registrations.
    pub fn release(
        &self,
        host: &mut Host,
        fields: ReleaseCdw10,
        current: u64,
    ) -> Result<(), HostError> {
        let opcode = NvmOpcode::RESERVATION_RELEASE;
        self.send_keys(host, opcode, fields.0, &current.to_le_bytes())
    }

    /// Reservation Report: reads registrants and reservation.
    pub fn reservations(&self, host: &mut Host) -> Result<ReservationReport, HostError> {
        let (report, count) = self.report(host, REGISTRANTS_AT_FIRST)?;
        if count <= REGISTRANTS_AT_FIRST {
            return Ok(report);
        }
        Ok(self.report(host, count)?.0)
    }

    fn report(
        &self,
        host: &mut Host,
        room: usize,
    ) -> Result<(ReservationReport, usize), HostError> {
        let header = size_of::<ReservationStatusExtended>();
        let length = header + room * size_of::<RegisteredControllerExtended>();
        let mut sqe = plain(NvmOpcode::RESERVATION_REPORT.0, self.nsid);
        sqe.cdw10 = U32::new(length as u32 / 4 - 1);
        sqe.cdw11 = U32::new(ReportCdw11(0).with_eds(true).0);
        let mut buffer = host.scratch.lend();
        let data = Data::start_of(&mut buffer, length as u32);
        host.run(self.command(sqe), data)?;
        Ok(parse(&buffer.bytes(0, length)))
    }

    fn send_keys(
        &self,
        host: &mut Host,
        opcode: NvmOpcode,
        cdw10: u32,
        bytes: &[u8],
    ) -> Result<(), HostError> {
        let sqe = Sqe {
            cdw10: U32::new(cdw10),
            ..plain(opcode.0, self.nsid)
        };
        let mut scratch = host.scratch.lend();
        scratch.write(0, bytes);
        let data = Data::start_of(&mut scratch, bytes.len() as u32);
        host.run(self.command(sqe), data).map(drop)
    }
}

/// Returns the report, and the number of registrants at the controller. If `bytes` is too short,
/// the report has fewer registrants.
fn parse(bytes: &[u8]) -> (ReservationReport, usize) {
    let (header, rest) =
        ReservationStatusExtended::read_from_prefix(bytes).expect("a report has a header");
    let status = header.status;
    let count = usize::from(status.registrants.get());
    let entries = rest.chunks_exact(size_of::<RegisteredControllerExtended>());
    let entries = entries
        .take(count)
        .filter_map(|entry| RegisteredControllerExtended::read_from_bytes(entry).ok());
    let entries: Vec<_> = entries.collect();
    let holders = entries.iter().filter(|entry| entry.rcsts & 1 != 0);
    let report = ReservationReport {
        generation: status.generation.get(),
        rtype: ReservationType::from_code(status.rtype),
        persistent: status.ptpls == 1,
        cntlids: entries.iter().map(|entry| entry.cntlid.get()).collect(),
        holders: holders.map(|entry| entry.hostid).collect(),
        registrants: entries
            .iter()
            .map(|entry| Registrant {
                host: entry.hostid,
                key: entry.rkey.get(),
            })
            .collect(),
    };
    (report, count)
}
