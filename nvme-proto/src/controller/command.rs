//! Parser of admin commands.

use crate::transfer::DataTransfer;
use crate::wire::cross_reset::Instance;
use crate::wire::fabrics::{PropertyGetCommand, PropertySetCommand, PropertySize};
use crate::wire::feature::{Feature, GetFeaturesCdw10, HostIdentifier, Select, SetFeaturesCdw10};
use crate::wire::identify::{Cns, IDENTIFY_BYTES, IdentifyCdw10, IdentifyCdw11};
use crate::wire::log::{GetLogCdw10, GetLogCdw11, GetLogCdw14, LogPage, get_log_bytes};
use crate::wire::{AdminOpcode, FabricsType, Sqe, Status};

use super::Refusal;
use super::refusal::byte;

/// Parsed command of the admin queue.
///
/// Property Set of CC enables a controller:
///
/// ```
/// # use nvme_proto::ana::AnaStates;
/// # use nvme_proto::controller::ConnectRequest;
/// # use nvme_proto::subsystem::{Arrival, Settings, Subsystem};
/// # use nvme_proto::wire::Nqn;
/// # use nvme_proto::wire::fabrics::{CNTLID_DYNAMIC, ConnectCommand, ConnectData};
/// use core::time::Duration;
/// use nvme_proto::controller::{AdminCommand, Exchange, Outcome, SmartCounters};
/// use nvme_proto::wire::fabrics::{PropertySetCommand, PropertySize};
/// use nvme_proto::wire::property::{Cc, offset};
///
/// # let nqn: Nqn = "nqn.2026-01.org.example:disk".parse()?;
/// # let mut subsystem = Subsystem::new(Settings::new(nqn, "SN1"));
/// # let data = ConnectData::new([7; 16], CNTLID_DYNAMIC, &nqn, &nqn);
/// # let request = ConnectRequest::parse(&ConnectCommand::new(1, 0, 31).into(), &data).unwrap();
/// # let arrival = AnaStates::default();
/// # let arrival = Arrival::new(Duration::ZERO, None, &arrival);
/// # let cntlid = subsystem.connect(&request, &arrival).unwrap().cntlid;
/// assert!(!subsystem.controller(cntlid).unwrap().is_ready());
/// let cc = Cc(0).with_iosqes(6).with_iocqes(4).with_en(true);
/// let sqe = PropertySetCommand::new(2, PropertySize::Four, offset::CC, cc.0.into()).into();
///
/// let limits = &subsystem.settings().limits;
/// let command = AdminCommand::parse(&sqe, limits.transfer_bytes()).unwrap();
/// let exchange = Exchange {
///     now: Duration::from_millis(1),
///     smart: &SmartCounters::default(),
///     data_in: &[],
///     data_out: &mut [],
/// };
/// let mut actions = Vec::new();
/// let outcome = subsystem.execute(cntlid, 2, &command, exchange, &mut actions);
/// assert!(matches!(outcome, Outcome::Complete(completion) if completion.status.is_success()));
/// assert!(subsystem.controller(cntlid).unwrap().is_ready());
/// # Ok::<(), nvme_proto::wire::nqn::NqnError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AdminCommand {
    /// Reads a log page.
    GetLogPage(GetLogPage),
    /// Reads Identify data.
    Identify(Identify),
    /// Aborts a command.
    Abort {
        /// SQID of the command to abort.
        sqid: u16,
        /// CID of the command to abort.
        cid: u16,
    },
    /// Changes a feature.
    SetFeatures(SetFeatures),
    /// Reads a feature.
    GetFeatures(GetFeatures),
    /// Resets another [`Instance`].
    CrossControllerReset(Instance),
    /// Waits for an event.
    AsyncEventRequest,
    /// Restarts the keep alive timer.
    KeepAlive,
    /// Reads a property.
    PropertyGet {
        /// OFST: offset in bytes.
        ofst: u32,
        /// ATTRIB: length.
        size: PropertySize,
    },
    /// Writes a property.
    PropertySet {
        /// OFST: offset in bytes.
        ofst: u32,
        /// ATTRIB: length.
        size: PropertySize,
        /// New value.
        value: u64,
    },
}

/// Get Log Page (Base, 5.16).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetLogPage {
    /// LID of the page.
    pub lid: LogPage,
    /// Log specific field.
    pub lsp: u8,
    /// RAE: true if reading does not re-arm the page's event.
    pub rae: bool,
    /// Offset in bytes, a multiple of 4.
    pub lpo: u64,
    /// Length in bytes, from NUMD.
    pub length: u32,
    /// I/O command set.
    pub csi: u8,
    /// NSID, for pages of a namespace.
    pub nsid: u32,
}

/// Identify (Base, 5.17).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identify {
    /// CNS: requested structure.
    pub cns: Cns,
    /// CNTID, for CNS 1Ch.
    pub cntid: u16,
    /// I/O command set.
    pub csi: u8,
    /// NSID; a list starts with the next NSID.
    pub nsid: u32,
}

/// Get Features (Base, 5.15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetFeatures {
    /// Requested feature.
    pub fid: Feature,
    /// SEL: value to return.
    pub select: Select,
    /// CDW11, specific to the feature.
    pub cdw11: u32,
    /// NSID, for features of a namespace.
    pub nsid: u32,
}

/// Set Features (Base, 5.27).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetFeatures {
    /// Feature to change.
    pub fid: Feature,
    /// SV: save the value across resets.
    pub save: bool,
    /// CDW11, specific to the feature.
    pub cdw11: u32,
    /// NSID, for features of a namespace.
    pub nsid: u32,
}

/// Data transfer of an admin command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// No data.
    None,
    /// Data to the host.
    ToHost {
        /// Length in bytes.
        length: u32,
    },
    /// Data from the host, required before execution.
    FromHost {
        /// Length in bytes.
        length: u32,
    },
}

impl Transfer {
    pub(crate) fn assert_matches(self, data_in: &[u8], data_out: &[u8]) {
        let (from_host, to_host) = match self {
            Self::None => (0, 0),
            Self::ToHost { length } => (0, length as usize),
            Self::FromHost { length } => (length as usize, 0),
        };
        assert_eq!(
            (data_in.len(), data_out.len()),
            (from_host, to_host),
            "{self:?}"
        );
    }
}

impl AdminCommand {
    /// Parses a command of a connected admin queue. `transfer_bytes` is MDTS in bytes.
    pub fn parse(sqe: &Sqe, transfer_bytes: u32) -> Result<Self, Refusal> {
        // The opcode is checked first: hosts detect unsupported commands by Invalid Command Opcode.
        let command = Self::parse_by_opcode(sqe, transfer_bytes)?;
        check_flags(sqe)?;
        Ok(command)
    }

    fn parse_by_opcode(sqe: &Sqe, transfer_bytes: u32) -> Result<Self, Refusal> {
        match AdminOpcode(sqe.opc) {
            AdminOpcode::GET_LOG_PAGE => {
                GetLogPage::parse(sqe, transfer_bytes).map(Self::GetLogPage)
            }
            AdminOpcode::IDENTIFY => Identify::parse(sqe).map(Self::Identify),
            AdminOpcode::ABORT => {
                let cdw10 = sqe.cdw10.get();
                Ok(Self::Abort {
                    sqid: cdw10 as u16,
                    cid: (cdw10 >> 16) as u16,
                })
            }
            AdminOpcode::SET_FEATURES => Ok(Self::SetFeatures(SetFeatures::parse(sqe))),
            AdminOpcode::GET_FEATURES => GetFeatures::parse(sqe).map(Self::GetFeatures),
            AdminOpcode::CROSS_CONTROLLER_RESET => {
                Ok(Self::CrossControllerReset(Instance::of_command(sqe)))
            }
            AdminOpcode::ASYNC_EVENT_REQUEST => Ok(Self::AsyncEventRequest),
            AdminOpcode::KEEP_ALIVE => Ok(Self::KeepAlive),
            AdminOpcode::FABRICS => Self::parse_fabrics(sqe),
            _ => Err(Refusal::new(Status::INVALID_OPCODE).at(byte::OPC)),
        }
    }

    fn parse_fabrics(sqe: &Sqe) -> Result<Self, Refusal> {
        let size =
            |attrib| PropertySize::from_attrib(attrib).ok_or_else(|| Refusal::field(byte::ATTRIB));
        match sqe.fctype() {
            FabricsType::PROPERTY_GET => {
                let get = PropertyGetCommand::from(*sqe);
                Ok(Self::PropertyGet {
                    ofst: get.ofst.get(),
                    size: size(get.attrib)?,
                })
            }
            FabricsType::PROPERTY_SET => {
                let set = PropertySetCommand::from(*sqe);
                let (ofst, value) = (set.ofst.get(), set.value.get());
                Ok(Self::PropertySet {
                    ofst,
                    size: size(set.attrib)?,
                    value,
                })
            }
            FabricsType::CONNECT => {
                Err(Refusal::new(Status::COMMAND_SEQUENCE_ERROR).at(byte::NSID))
            }
            // Disconnect (OFCS) and reauthentication are not supported.
            _ => Err(Refusal::new(Status::INVALID_OPCODE).at(byte::NSID)),
        }
    }

    /// Direction and length of the data.
    #[must_use]
    pub fn transfer(&self) -> Transfer {
        match self {
            Self::GetLogPage(log) => Transfer::ToHost { length: log.length },
            Self::Identify(_) => Transfer::ToHost {
                length: IDENTIFY_BYTES as u32,
            },
            Self::SetFeatures(set) => match set.data_length() {
                0 => Transfer::None,
                length => Transfer::FromHost { length },
            },
            Self::GetFeatures(get) => match get.data_length() {
                0 => Transfer::None,
                length => Transfer::ToHost { length },
            },
            Self::Abort { .. }
            | Self::CrossControllerReset(_)
            | Self::AsyncEventRequest
            | Self::KeepAlive
            | Self::PropertyGet { .. }
            | Self::PropertySet { .. } => Transfer::None,
        }
    }

    /// Locates the data in host memory; in-capsule data is invalid on the admin queue.
    pub fn locate(&self, sqe: &Sqe) -> Result<DataTransfer, Refusal> {
        let located = match self.transfer() {
            // The host may describe a buffer that the command does not use.
            Transfer::None if matches!(self, Self::GetFeatures(_) | Self::SetFeatures(_)) => {
                Ok(DataTransfer::None)
            }
            Transfer::None => DataTransfer::none(sqe),
            Transfer::ToHost { length } => DataTransfer::to_host(sqe, length),
            Transfer::FromHost { length } => DataTransfer::from_host(sqe, length, 0),
        };
        located.map_err(|status| Refusal::new(status).at(byte::DPTR))
    }

    /// True for Property Get and Property Set, valid before the controller is enabled (Base,
    /// 3.5.2).
    #[must_use]
    pub fn is_fabrics(&self) -> bool {
        matches!(self, Self::PropertyGet { .. } | Self::PropertySet { .. })
    }
}

impl GetLogPage {
    fn parse(sqe: &Sqe, transfer_bytes: u32) -> Result<Self, Refusal> {
        let cdw10 = GetLogCdw10(sqe.cdw10.get());
        let cdw14 = GetLogCdw14(sqe.cdw14.get());
        let length = u32::try_from(get_log_bytes(cdw10, GetLogCdw11(sqe.cdw11.get())))
            .ok()
            .filter(|&length| length <= transfer_bytes)
            .ok_or_else(|| Refusal::field(byte::CDW10))?;
        let lpo = u64::from(sqe.cdw12.get()) | u64::from(sqe.cdw13.get()) << 32;
        if lpo % 4 != 0 {
            return Err(Refusal::field(byte::CDW12));
        }
        if cdw14.ot() || cdw14.uuid_index() != 0 {
            return Err(Refusal::field(byte::CDW14));
        }
        Ok(Self {
            lid: LogPage(cdw10.lid()),
            lsp: cdw10.lsp(),
            rae: cdw10.rae(),
            lpo,
            length,
            csi: cdw14.csi(),
            nsid: sqe.nsid.get(),
        })
    }
}

impl Identify {
    fn parse(sqe: &Sqe) -> Result<Self, Refusal> {
        let cdw10 = IdentifyCdw10(sqe.cdw10.get());
        let cdw11 = IdentifyCdw11(sqe.cdw11.get());
        Ok(Self {
            cns: Cns(cdw10.cns()),
            cntid: cdw10.cntid(),
            csi: cdw11.csi(),
            nsid: sqe.nsid.get(),
        })
    }
}

impl GetFeatures {
    fn parse(sqe: &Sqe) -> Result<Self, Refusal> {
        let cdw10 = GetFeaturesCdw10(sqe.cdw10.get());
        let select = Select(cdw10.sel());
        if select.name().is_none() {
            return Err(Refusal::field(byte::CDW10));
        }
        Ok(Self {
            fid: Feature(cdw10.fid()),
            select,
            cdw11: sqe.cdw11.get(),
            nsid: sqe.nsid.get(),
        })
    }

    fn data_length(&self) -> u32 {
        if self.select == Select::SUPPORTED_CAPABILITIES {
            return 0;
        }
        match self.fid {
            // Get Features for a 64-bit host identifier fails without data transfer.
            Feature::HOST_IDENTIFIER if !HostIdentifier(self.cdw11).exhid() => 0,
            fid => data_length(fid),
        }
    }
}

impl SetFeatures {
    fn parse(sqe: &Sqe) -> Self {
        let cdw10 = SetFeaturesCdw10(sqe.cdw10.get());
        Self {
            fid: Feature(cdw10.fid()),
            save: cdw10.sv(),
            cdw11: sqe.cdw11.get(),
            nsid: sqe.nsid.get(),
        }
    }

    fn data_length(&self) -> u32 {
        match self.fid {
            // Set Features for the host identifier fails without data transfer.
            Feature::HOST_IDENTIFIER => 0,
            fid => data_length(fid),
        }
    }
}

/// Length in bytes of a feature's data structure; 0 for a value in DW0 or CDW11.
fn data_length(fid: Feature) -> u32 {
    match fid {
        Feature::TIMESTAMP => 8,
        Feature::HOST_IDENTIFIER => 16,
        Feature::HOST_BEHAVIOR_SUPPORT => 512,
        _ => 0,
    }
}

/// Rejects PRPs and fused commands (Base, 3.3.3.1).
pub(super) fn check_flags(sqe: &Sqe) -> Result<(), Refusal> {
    sqe.check_flags()
        .map_err(|status| Refusal::new(status).at(byte::FLAGS))
}
