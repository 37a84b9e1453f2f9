use nvme_proto::wire::Sqe;
use nvme_proto::wire::identify::{IdentifyNamespace, NamespaceDescriptor, namespace_descriptors};

use crate::command;
use crate::error::HostError;

/// Opened namespace: size, identifiers (equal on all paths), and constructors of commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespace {
    /// NSID in the subsystem.
    pub nsid: u32,
    /// Logical blocks (NSZE).
    pub blocks: u64,
    /// Logical block size in bytes.
    pub block_bytes: u32,
    /// UUID (NIDT 3h), unless zero.
    pub uuid: Option<[u8; 16]>,
    /// NGUID (NIDT 2h), unless zero.
    pub nguid: Option<[u8; 16]>,
    /// EUI-64 (NIDT 1h), unless zero.
    pub eui64: Option<[u8; 8]>,
    /// ANA group (ANAGRPID), or 0 for none.
    pub anagrpid: u32,
    /// True if several controllers may attach the namespace (NMIC bit 0).
    pub shared: bool,
    /// True if write protected (NSATTR).
    pub write_protected: bool,
}

/// I/O command for [`Controller::submit`](crate::Controller::submit).
#[derive(Debug, Clone, Copy)]
pub struct Command {
    pub(crate) sqe: Sqe,
    pub(crate) to: To,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum To {
    Disk(Disk),
    #[cfg(feature = "raw")]
    Anything,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Disk {
    pub(crate) identity: DiskIdentity,
    pub(crate) block_bytes: u32,
}

impl Command {
    /// Adds Force Unit Access ([`command::with_fua`]).
    #[must_use]
    pub fn with_fua(self) -> Self {
        let sqe = command::with_fua(self.sqe);
        Self { sqe, ..self }
    }
}

#[cfg(feature = "raw")]
impl From<Sqe> for Command {
    fn from(sqe: Sqe) -> Self {
        let to = To::Anything;
        Self { sqe, to }
    }
}

/// Identifiers of a disk, zero if missing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskIdentity {
    /// UUID (NIDT 3h).
    pub uuid: [u8; 16],
    /// NGUID (NIDT 2h).
    pub nguid: [u8; 16],
    /// EUI-64 (NIDT 1h).
    pub eui64: [u8; 8],
}

impl DiskIdentity {
    pub(crate) fn of_descriptors(list: &[u8]) -> Self {
        let mut identity = Self::default();
        for descriptor in namespace_descriptors(list) {
            match descriptor {
                NamespaceDescriptor::Eui64(eui64) => identity.eui64 = eui64,
                NamespaceDescriptor::Nguid(nguid) => identity.nguid = nguid,
                NamespaceDescriptor::Uuid(uuid) => identity.uuid = uuid,
                NamespaceDescriptor::Csi(_) | NamespaceDescriptor::Other { .. } => {}
            }
        }
        identity
    }

    /// Adds missing NGUID and EUI64 from Identify Namespace, where controllers before NVMe 1.3
    /// report them.
    pub(crate) fn completed_by(mut self, identify: &IdentifyNamespace) -> Self {
        if self.nguid == [0; 16] {
            self.nguid = identify.nguid;
        }
        if self.eui64 == [0; 8] {
            self.eui64 = identify.eui64;
        }
        self
    }
}

impl Namespace {
    /// Parses Identify Namespace and identification descriptors (CNS 03h), which may be empty.
    ///
    /// # Errors
    /// The namespace is inactive, its block size is not 512 bytes to 64 KiB, or it has metadata.
    pub fn parse(
        nsid: u32,
        identify: &IdentifyNamespace,
        descriptors: &[u8],
    ) -> Result<Self, HostError> {
        let unusable = |why: &str| HostError::Unsupported(format!("namespace {nsid} {why}"));
        if identify.nsze.get() == 0 {
            return Err(unusable("is not active; `list` shows those that are"));
        }
        let format = identify
            .lba_format()
            .filter(|f| (9..=16).contains(&f.lbads));
        let format = format.ok_or_else(|| unusable("has no LBA format of 512 B to 64 KiB"))?;
        if format.ms.get() != 0 {
            return Err(unusable(
                "has metadata, which this host does not transfer; format it without",
            ));
        }
        let identity = DiskIdentity::of_descriptors(descriptors).completed_by(identify);
        Ok(Self {
            nsid,
            blocks: identify.nsze.get(),
            block_bytes: 1 << format.lbads,
            uuid: some(identity.uuid),
            nguid: some(identity.nguid),
            eui64: some(identity.eui64),
            anagrpid: identify.anagrpid.get(),
            shared: identify.nmic & IdentifyNamespace::NMIC_SHARED != 0,
            write_protected: identify.nsattr & IdentifyNamespace::NSATTR_WRITE_PROTECTED != 0,
        })
    }

    pub(crate) fn disk(&self) -> Disk {
        Disk {
            identity: self.identity(),
            block_bytes: self.block_bytes,
        }
    }

    pub(crate) fn command(&self, sqe: Sqe) -> Command {
        let to = To::Disk(self.disk());
        Command { sqe, to }
    }

    fn identity(&self) -> DiskIdentity {
        DiskIdentity {
            uuid: self.uuid.unwrap_or_default(),
            nguid: self.nguid.unwrap_or_default(),
            eui64: self.eui64.unwrap_or_default(),
        }
    }

    /// Size in bytes.
    #[must_use]
    pub fn bytes(&self) -> u128 {
        u128::from(self.blocks) * u128::from(self.block_bytes)
    }

    /// True if both describe one namespace, possibly on different paths.
    ///
    /// Block sizes must be equal. If both have a UUID, the UUIDs must be equal. Otherwise the
    /// NGUIDs are compared or, if one is missing, the EUI64s.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let alike = match (self.uuid, other.uuid) {
            (Some(ours), Some(theirs)) => ours == theirs,
            _ => match (self.nguid, other.nguid) {
                (Some(ours), Some(theirs)) => ours == theirs,
                _ => self.eui64.is_some() && self.eui64 == other.eui64,
            },
        };
        alike && self.block_bytes == other.block_bytes
    }

    /// Builds a Read of `blocks` blocks from `slba`.
    #[must_use]
    pub fn read_command(&self, slba: u64, blocks: u32) -> Command {
        self.command(command::read(self.nsid, slba, blocks))
    }

    /// Builds a Write of `blocks` blocks from `slba`.
    #[must_use]
    pub fn write_command(&self, slba: u64, blocks: u32) -> Command {
        self.command(command::write(self.nsid, slba, blocks))
    }

    /// Builds a Compare of `blocks` blocks from `slba` with the command's data.
    #[must_use]
    pub fn compare_command(&self, slba: u64, blocks: u32) -> Command {
        self.command(command::compare(self.nsid, slba, blocks))
    }

    /// Builds a Verify of `blocks` blocks from `slba`.
    #[must_use]
    pub fn verify_command(&self, slba: u64, blocks: u32) -> Command {
        self.command(command::verify(self.nsid, slba, blocks))
    }

    /// Builds a Write Zeroes ([`command::write_zeroes`]).
    #[must_use]
    pub fn write_zeroes_command(&self, slba: u64, blocks: u32, deallocate: bool) -> Command {
        self.command(command::write_zeroes(self.nsid, slba, blocks, deallocate))
    }

    /// Builds a Flush of this namespace.
    #[must_use]
    pub fn flush_command(&self) -> Command {
        self.command(command::flush(self.nsid))
    }

    /// Builds a Dataset Management ([`command::deallocate`]).
    #[must_use]
    pub fn deallocate_command(&self, ranges: u32) -> Command {
        self.command(command::deallocate(self.nsid, ranges))
    }

    /// Builds a Copy of `ranges` source ranges, each a
    /// [`BlockRange::copy_entry`](nvme_proto::io::BlockRange::copy_entry), to the blocks from
    /// `sdlba`.
    #[must_use]
    pub fn copy_command(&self, sdlba: u64, ranges: u32) -> Command {
        self.command(command::copy(self.nsid, sdlba, ranges))
    }
}

fn some<const N: usize>(id: [u8; N]) -> Option<[u8; N]> {
    (id != [0; N]).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nvme_proto::wire::FromZeros;
    use nvme_proto::wire::identify::IDENTIFY_BYTES;

    fn identify(lbads: u8) -> IdentifyNamespace {
        let mut identify = IdentifyNamespace::new_zeroed();
        identify.nsze.set(1000);
        identify.lbaf[0].lbads = lbads;
        identify
    }

    fn descriptors(all: &[NamespaceDescriptor<'_>]) -> Vec<u8> {
        let mut bytes = vec![0; IDENTIFY_BYTES];
        let mut rest = &mut bytes[..];
        for descriptor in all {
            rest = descriptor.write(rest).unwrap();
        }
        bytes
    }

    #[test]
    fn names_come_from_the_descriptors() {
        let names = descriptors(&[
            NamespaceDescriptor::Uuid([3; 16]),
            NamespaceDescriptor::Eui64([0; 8]),
        ]);
        let found = Namespace::parse(7, &identify(12), &names).unwrap();
        assert_eq!(
            (found.uuid, found.nguid, found.eui64),
            (Some([3; 16]), None, None)
        );
        assert_eq!((found.block_bytes, found.bytes()), (4096, 4_096_000));
    }

    #[test]
    fn what_cannot_be_used_is_said() {
        let mut gone = identify(12);
        gone.nsze.set(0);
        let mut metadata = identify(12);
        metadata.lbaf[0].ms.set(8);
        for (identify, why) in [
            (gone, "not active"),
            (identify(3), "LBA format"),
            (identify(200), "LBA format"),
            (metadata, "metadata"),
        ] {
            let error = Namespace::parse(9, &identify, &[]).unwrap_err().to_string();
            assert!(
                error.contains("namespace 9") && error.contains(why),
                "{error}"
            );
        }
    }

    #[test]
    fn one_namespace_has_one_name() {
        let named = |id: u8| {
            let names = descriptors(&[NamespaceDescriptor::Nguid([id; 16])]);
            Namespace::parse(id.into(), &identify(9), &names).unwrap()
        };
        assert!(named(1).is_same(&named(1)) && !named(1).is_same(&named(2)));
        let nameless = Namespace::parse(1, &identify(9), &[]).unwrap();
        assert!(!nameless.is_same(&nameless));
        let other_format = Namespace {
            block_bytes: 4096,
            ..named(1)
        };
        assert!(!named(1).is_same(&other_format));
    }
}
