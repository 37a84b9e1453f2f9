use zerocopy::FromBytes;

use super::{Change, ReservationType};
use crate::io::IoLimits;
use crate::transfer::DataTransfer;
use crate::wire::reservation::{
    AcquireCdw10, AcquireData, RegisterCdw10, RegisterData, ReleaseCdw10, ReportCdw11,
};
use crate::wire::{NvmOpcode, Sqe, Status, U64};

const INVALID_FIELD: Status = Status::INVALID_FIELD.with_dnr();

/// Valid reservation command without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Reservation Register.
    Register(RegisterCdw10),
    /// Reservation Acquire.
    Acquire(AcquireCdw10, ReservationType),
    /// Reservation Release; RTYPE is not validated.
    Release(ReleaseCdw10),
    /// Reservation Report of this number of bytes.
    Report(u32),
}

impl Request {
    /// True for a reservation command.
    #[must_use]
    pub fn is_one(sqe: &Sqe) -> bool {
        matches!(
            NvmOpcode(sqe.opc),
            NvmOpcode::RESERVATION_REGISTER
                | NvmOpcode::RESERVATION_ACQUIRE
                | NvmOpcode::RESERVATION_RELEASE
                | NvmOpcode::RESERVATION_REPORT
        )
    }

    /// Parses a command for which [`Self::is_one`] is true.
    pub fn parse(sqe: &Sqe, limits: &IoLimits) -> Result<Self, Status> {
        sqe.check_flags()?;
        let cdw10 = sqe.cdw10.get();
        match NvmOpcode(sqe.opc) {
            NvmOpcode::RESERVATION_REGISTER => {
                let register = RegisterCdw10(cdw10);
                if register.rrega() > RegisterCdw10::REPLACE || register.cptpl() == 1 {
                    return Err(INVALID_FIELD);
                }
                Ok(Self::Register(register))
            }
            NvmOpcode::RESERVATION_ACQUIRE => {
                let acquire = AcquireCdw10(cdw10);
                let rtype = ReservationType::from_code(acquire.rtype());
                match rtype.filter(|_| !acquire.iekey()) {
                    Some(rtype) if acquire.racqa() <= AcquireCdw10::PREEMPT_AND_ABORT => {
                        Ok(Self::Acquire(acquire, rtype))
                    }
                    _ => Err(INVALID_FIELD),
                }
            }
            NvmOpcode::RESERVATION_RELEASE => {
                let release = ReleaseCdw10(cdw10);
                if release.iekey() || release.rrela() > ReleaseCdw10::CLEAR {
                    return Err(INVALID_FIELD);
                }
                Ok(Self::Release(release))
            }
            NvmOpcode::RESERVATION_REPORT => {
                // Host identifiers have 128 bits over Fabrics.
                if !ReportCdw11(sqe.cdw11.get()).eds() {
                    return Err(Status::HOST_IDENTIFIER_INCONSISTENT_FORMAT.with_dnr());
                }
                let length = (u64::from(cdw10) + 1) * 4;
                match u32::try_from(length) {
                    Ok(length) if length <= limits.mdts_bytes => Ok(Self::Report(length)),
                    _ => Err(INVALID_FIELD),
                }
            }
            _ => Err(Status::INVALID_OPCODE.with_dnr()),
        }
    }

    /// Locates the data. Except for Report, the SGL may describe more bytes: Linux always describes
    /// 16 for Release.
    pub fn locate(&self, sqe: &Sqe, in_capsule_bytes: u32) -> Result<DataTransfer, Status> {
        let length = match self {
            Self::Register(_) => size_of::<RegisterData>(),
            Self::Acquire(..) => size_of::<AcquireData>(),
            Self::Release(_) => size_of::<U64>(),
            Self::Report(length) => return DataTransfer::to_host(sqe, *length),
        };
        DataTransfer::from_host_at_least(sqe, length as u32, in_capsule_bytes)
    }

    /// Returns the change with the command's data; `None` for a report.
    ///
    /// # Panics
    /// If `data` does not have the length of [`Self::locate`].
    #[must_use]
    pub fn change(&self, data: &[u8]) -> Option<Change> {
        const LENGTH: &str = "the data has the length of the command";
        match *self {
            Self::Register(fields) => {
                let data = RegisterData::read_from_bytes(data).expect(LENGTH);
                let (current, new) = (data.crkey.get(), data.nrkey.get());
                Some(Change::Register {
                    fields,
                    current,
                    new,
                })
            }
            Self::Acquire(fields, rtype) => {
                let data = AcquireData::read_from_bytes(data).expect(LENGTH);
                Some(Change::Acquire {
                    action: fields.racqa(),
                    rtype,
                    current: data.crkey.get(),
                    preempted: data.prkey.get(),
                })
            }
            Self::Release(fields) => Some(Change::Release {
                fields,
                current: U64::read_from_bytes(data).expect(LENGTH).get(),
            }),
            Self::Report(_) => None,
        }
    }
}
