//! Identify data of a drive (Base, figures 275 to 280; NVM, figures 97 and 100).

use uuid::Uuid;

use crate::backend::{Atomic, Names, Preferred};
use crate::nvme::{BLOCKS_MAX, Protection};

pub(super) const PAGE: usize = 4096;

pub(super) type Page = [u8; PAGE];

pub(super) const NAMESPACE: u8 = 0x00;
pub(super) const CONTROLLER: u8 = 0x01;
pub(super) const DESCRIPTORS: u8 = 0x03;
pub(super) const NAMESPACE_NVM: u8 = 0x05;
pub(super) const CONTROLLER_NVM: u8 = 0x06;

/// Log2 of the unit of a controller's limits: 2^(12 + MPSMIN) bytes, with MPSMIN 0.
const PAGE_SHIFT: u32 = 12;

/// With more metadata, the drive would transfer it also with PRACT.
const PROTECTION_BYTES: u16 = 8;

/// ELBAS bit of CTRATT.
const EXTENDED_FORMATS: u16 = 1 << 15;

const CSI_NVM: u8 = 0;
const CSI_ZONED: u8 = 2;

pub(super) struct Pages {
    pub(super) controller: Box<Page>,
    pub(super) namespace: Box<Page>,
    pub(super) descriptors: Option<Box<Page>>,
    pub(super) formats: Option<Box<Page>>,
    pub(super) limits: Option<Box<Page>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Identified {
    pub(super) blocks: u64,
    pub(super) block_shift: u32,
    pub(super) protection: Protection,
    pub(super) names: Names,
    pub(super) write_protected: bool,
    pub(super) preferred: Option<Preferred>,
    pub(super) boundary: u16,
    pub(super) atomic: Atomic,
    /// Maximum blocks of Write Zeroes, Verify and Write Uncorrectable; `None` if unsupported.
    pub(super) zeroes_max: Option<u32>,
    pub(super) verify_max: Option<u32>,
    pub(super) uncorrectable_max: Option<u32>,
    pub(super) can_compare: bool,
    pub(super) can_deallocate: bool,
    pub(super) zeroes_deallocate: bool,
    pub(super) reads_zeroes: bool,
}

pub(super) struct Layout {
    pub(super) blocks: u64,
    /// Log2 of the block size in bytes.
    pub(super) shift: u32,
    pub(super) protection: Protection,
}

fn format_index(namespace: &Page) -> usize {
    let (formats, flbas) = (namespace[25], namespace[26]);
    let high = if formats >= 16 { flbas >> 1 & 0x30 } else { 0 };
    usize::from(flbas & 0xf | high)
}

/// Returns the format, or why it is unusable, with a remedy.
pub(super) fn layout(namespace: &Page) -> Result<Layout, String> {
    let format = 128 + 4 * format_index(namespace);
    let (metadata, shift) = (le16(namespace, format), u32::from(namespace[format + 2]));
    let kind = namespace[29] & 0x7;
    let protection = match (metadata, kind) {
        (0, 0) => Some(Protection::default()),
        (PROTECTION_BYTES, kind) => Protection::of_type(kind),
        _ => None,
    };
    let Some(protection) = protection else {
        return Err(format!(
            "its blocks have {metadata} bytes of metadata and protection information of type \
             {kind}, and hosts receive neither: choose a format without metadata from `nvme id-ns \
             -H`, or with {PROTECTION_BYTES} bytes of it and protection information (`--pi=1`), \
             which the drive then inserts and checks, and set it with `nvme format --lbaf=` (which \
             erases the namespace)"
        ));
    };
    if shift != 9 && shift != 12 {
        return Err(format!(
            "its blocks have 2^{shift} bytes, and Cairn serves 512 and 4096: choose such a format \
             by `nvme id-ns -H`, and `nvme format --lbaf=` (which erases the namespace)"
        ));
    }
    Ok(Layout {
        blocks: le64(namespace, 0),
        shift,
        protection,
    })
}

/// Refuses storage tags, which take bits of the reference tag.
fn check_storage_tag(pages: &Pages) -> Result<(), String> {
    let has_formats = le16(&pages.controller[..], 96) & EXTENDED_FORMATS != 0;
    let formats = pages.formats.as_ref().filter(|_| has_formats);
    let at = 12 + 4 * format_index(&pages.namespace);
    match formats.map_or(0, |formats| formats[at] & 0x7f) {
        0 => Ok(()),
        bits => Err(format!(
            "its protection information has storage tags of {bits} bits, which Cairn does not \
             support: choose a format without them by `nvme nvm-id-ns`, and set it with `nvme \
             format --lbaf=` (which erases the namespace)"
        )),
    }
}

impl Identified {
    pub(super) fn parse(pages: &Pages) -> Result<Self, String> {
        let (controller, namespace) = (&*pages.controller, &*pages.namespace);
        let mut names = Names {
            nguid: id(namespace, 104),
            eui64: id(namespace, 120),
            uuid: None,
        };
        let csi = pages.descriptors.as_ref().map_or(CSI_NVM, |descriptors| {
            read_descriptors(&descriptors[..], &mut names)
        });
        check_command_set(csi)?;
        let Layout {
            blocks,
            shift: block_shift,
            protection,
        } = layout(namespace)?;
        if !protection.is_none() {
            check_storage_tag(pages)?;
        }
        let oncs = le16(controller, 520);
        let has = |bit: u32| oncs >> bit & 1 != 0;
        let limit = |at: usize| pages.limits.as_ref().map_or(0, |limits| limits[at]);
        let most = |shift: u8| most_blocks(shift, controller[77], block_shift);
        let dlfeat = namespace[33];
        Ok(Self {
            blocks,
            block_shift,
            protection,
            names,
            write_protected: namespace[99] & 1 != 0,
            preferred: (namespace[24] >> 4 & 1 != 0).then(|| preferred(namespace)),
            boundary: le16(namespace, 46),
            atomic: atomic(controller, namespace),
            zeroes_max: has(3).then(|| most(limit(1))),
            verify_max: has(7).then(|| most(limit(0))),
            uncorrectable_max: has(1).then(|| most(limit(2))),
            // Compare includes protection information.
            can_compare: has(0) && protection.is_none(),
            can_deallocate: has(2),
            zeroes_deallocate: has(3) && dlfeat >> 3 & 1 != 0,
            reads_zeroes: dlfeat & 0x7 == 1,
        })
    }
}

fn check_command_set(csi: u8) -> Result<(), String> {
    match csi {
        CSI_NVM => Ok(()),
        CSI_ZONED => Err(
            "zoned namespaces accept writes only in the order of their zones, and hosts write \
             anywhere: create a file system for zoned devices (btrfs, f2fs) on its block device, \
             and export a file of it"
                .to_owned(),
        ),
        other => Err(format!(
            "command set {other} is not supported: Cairn uses only the NVM command set (0)"
        )),
    }
}

/// Returns the maximum blocks of a command, at most [`BLOCKS_MAX`]: 2^`shift` pages, or 2^`mdts`
/// pages if `shift` is 0. If both are 0, the drive has no limit.
fn most_blocks(shift: u8, mdts: u8, block_shift: u32) -> u32 {
    let shift = u32::from(if shift == 0 { mdts } else { shift });
    if shift == 0 {
        return BLOCKS_MAX;
    }
    let pages = 1_u64.checked_shl(shift + PAGE_SHIFT - block_shift);
    pages.map_or(BLOCKS_MAX, |blocks| blocks.min(BLOCKS_MAX.into()) as u32)
}

fn preferred(namespace: &Page) -> Preferred {
    let blocks = |at| u32::from(le16(namespace, at)) + 1;
    Preferred {
        write: blocks(64),
        write_alignment: blocks(66),
        deallocate: blocks(68),
        deallocate_alignment: blocks(70),
        optimal_write: blocks(72),
    }
}

fn atomic(controller: &Page, namespace: &Page) -> Atomic {
    let blocks = |page, at| u32::from(le16(page, at)) + 1;
    if namespace[24] >> 1 & 1 == 0 {
        return Atomic {
            normal: blocks(controller, 526),
            power_fail: blocks(controller, 528),
            ..Atomic::BLOCK
        };
    }
    // 0 means no boundary; other values are 0-based.
    let boundary = |at| match le16(namespace, at) {
        0 => 0,
        most => u32::from(most) + 1,
    };
    Atomic {
        normal: blocks(namespace, 34),
        power_fail: blocks(namespace, 36),
        boundary: boundary(40),
        boundary_offset: le16(namespace, 42),
        boundary_power_fail: boundary(44),
    }
}

fn read_descriptors(mut list: &[u8], names: &mut Names) -> u8 {
    let mut csi = CSI_NVM;
    while let [kind, length, _, _, rest @ ..] = list
        && *kind > 0
    {
        let Some((value, rest)) = rest.split_at_checked(usize::from(*length)) else {
            break;
        };
        match (kind, value.len()) {
            (1, 8) => names.eui64 = id(value, 0),
            (2, 16) => names.nguid = id(value, 0),
            (3, 16) => names.uuid = id(value, 0).map(Uuid::from_bytes),
            (4, 1) => csi = value[0],
            _ => {}
        }
        list = rest;
    }
    csi
}

fn id<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    let id: [u8; N] = bytes[at..at + N].try_into().expect("N bytes");
    (id != [0; N]).then_some(id)
}

fn le16(page: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([page[at], page[at + 1]])
}

fn le64(page: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(page[at..at + 8].try_into().expect("8 bytes"))
}

#[cfg(test)]
mod tests {
    use nvme_proto::wire::identify::{
        IdentifyController, IdentifyNamespace, LbaFormat, NamespaceDescriptor,
    };
    use zerocopy::{FromBytes, FromZeros, IntoBytes};

    use super::*;

    fn page(bytes: &[u8]) -> Box<Page> {
        Box::new(bytes.try_into().expect("a page"))
    }

    fn namespace() -> IdentifyNamespace {
        let mut namespace = IdentifyNamespace::new_zeroed();
        namespace.nsze.set(1000);
        (namespace.nlbaf, namespace.flbas) = (1, 1);
        (namespace.lbaf[0].lbads, namespace.lbaf[1].lbads) = (9, 12);
        namespace
    }

    fn controller() -> IdentifyController {
        IdentifyController::read_from_bytes(&[0; PAGE]).unwrap()
    }

    fn parse(
        controller: &IdentifyController,
        namespace: &IdentifyNamespace,
        descriptors: &[NamespaceDescriptor<'_>],
    ) -> Result<Identified, String> {
        let mut list = [0; PAGE];
        let mut rest = &mut list[..];
        for descriptor in descriptors {
            rest = descriptor.write(rest).unwrap();
        }
        Identified::parse(&Pages {
            controller: page(controller.as_bytes()),
            namespace: page(namespace.as_bytes()),
            descriptors: Some(Box::new(list)),
            formats: None,
            limits: None,
        })
    }

    #[test]
    fn a_plain_drive_has_its_size_and_promises_one_block() {
        let drive = parse(&controller(), &namespace(), &[]).unwrap();
        assert_eq!((drive.blocks, drive.block_shift), (1000, 12));
        assert_eq!(drive.atomic, Atomic::BLOCK);
        assert_eq!((drive.preferred, drive.boundary), (None, 0));
        assert_eq!((drive.zeroes_max, drive.verify_max), (None, None));
        assert_eq!(drive.uncorrectable_max, None);
        assert!(
            !drive.can_compare
                && !drive.can_deallocate
                && !drive.zeroes_deallocate
                && !drive.write_protected
        );
        assert_eq!(drive.names, Names::default());
    }

    #[test]
    fn its_names_come_along() {
        let mut of_namespace = namespace();
        (of_namespace.nguid, of_namespace.eui64) = ([1; 16], [2; 8]);
        let drive = parse(&controller(), &of_namespace, &[]).unwrap();
        assert_eq!(drive.names.nguid, Some([1; 16]));
        assert_eq!(drive.names.eui64, Some([2; 8]));
        let descriptors = [
            NamespaceDescriptor::Eui64([3; 8]),
            NamespaceDescriptor::Nguid([4; 16]),
            NamespaceDescriptor::Uuid([5; 16]),
            NamespaceDescriptor::Csi(0),
        ];
        let drive = parse(&controller(), &namespace(), &descriptors).unwrap();
        let expected = Names {
            nguid: Some([4; 16]),
            eui64: Some([3; 8]),
            uuid: Some(Uuid::from_bytes([5; 16])),
        };
        assert_eq!(drive.names, expected);
    }

    #[test]
    fn what_cannot_be_served_says_why() {
        let with = |format: LbaFormat, dps: u8| {
            let mut namespace = namespace();
            namespace.lbaf[1] = format;
            namespace.dps = dps;
            parse(&controller(), &namespace, &[]).unwrap_err()
        };
        let format = |ms: u16, lbads| LbaFormat {
            ms: ms.into(),
            lbads,
            rp: 0,
        };
        let metadata = with(format(8, 12), 0);
        assert!(metadata.contains("8 bytes of metadata"), "{metadata}");
        for (bytes, kind) in [(0, 1), (16, 1), (8, 4)] {
            let refused = with(format(bytes, 12), kind);
            let expected =
                format!("{bytes} bytes of metadata and protection information of type {kind},");
            assert!(refused.contains(&expected), "{refused}");
        }
        let large = with(format(0, 14), 0);
        assert!(large.contains("2^14 bytes"), "{large}");
        let set = |csi| {
            let descriptors = [NamespaceDescriptor::Csi(csi)];
            parse(&controller(), &namespace(), &descriptors).unwrap_err()
        };
        assert!(set(2).contains("zoned namespace"), "{}", set(2));
        assert!(set(1).contains("command set 1"), "{}", set(1));
    }

    #[test]
    fn protection_information_of_a_16_bit_guard_is_the_drives() {
        let mut namespace = namespace();
        let mut controller = controller();
        controller.oncs.set(1);
        for shift in [9, 12] {
            (namespace.lbaf[1].ms, namespace.lbaf[1].lbads) = (8.into(), shift);
            for dps in [1, 2, 3, 1 << 3 | 1] {
                namespace.dps = dps;
                let drive = parse(&controller, &namespace, &[]).unwrap();
                assert_eq!(drive.block_shift, shift.into());
                assert_eq!(Some(drive.protection), Protection::of_type(dps & 7));
                assert!(!drive.can_compare, "the host has no protection information");
            }
        }
    }

    #[test]
    fn storage_tags_are_refused_if_the_controller_has_them() {
        let mut namespace = namespace();
        (namespace.lbaf[1].ms, namespace.dps) = (8.into(), 1);
        let mut formats = Box::new([0; PAGE]);
        formats[16] = 32;
        let mut pages = Pages {
            controller: page(controller().as_bytes()),
            namespace: page(namespace.as_bytes()),
            descriptors: None,
            formats: Some(formats),
            limits: None,
        };
        assert!(Identified::parse(&pages).is_ok());
        pages.controller[97] = 0x80;
        let refused = Identified::parse(&pages).unwrap_err();
        assert!(refused.contains("storage tags of 32 bits"), "{refused}");
        pages.formats.as_mut().unwrap()[16] = 0;
        assert!(Identified::parse(&pages).is_ok());
    }

    #[test]
    fn commands_are_those_that_the_drive_has() {
        let mut controller = controller();
        controller.oncs.set(1 | 1 << 1 | 1 << 2 | 1 << 3 | 1 << 7);
        controller.mdts = 5;
        let mut namespace = namespace();
        namespace.dlfeat = 0b1001;
        let drive = parse(&controller, &namespace, &[]).unwrap();
        assert_eq!((drive.zeroes_max, drive.verify_max), (Some(32), Some(32)));
        assert_eq!(drive.uncorrectable_max, Some(32));
        assert!(
            drive.can_compare
                && drive.can_deallocate
                && drive.zeroes_deallocate
                && drive.reads_zeroes
        );
        assert_eq!(most_blocks(0, 0, 9), BLOCKS_MAX);
        assert_eq!(most_blocks(3, 5, 9), 64, "a limit of its own");
        assert_eq!(most_blocks(0, 200, 9), BLOCKS_MAX);
    }

    #[test]
    fn sizes_and_promises_are_those_of_the_namespace_or_else_the_controllers() {
        let mut controller = controller();
        controller.awun.set(7);
        controller.awupf.set(3);
        let mut namespace = namespace();
        let drive = parse(&controller, &namespace, &[]).unwrap();
        let expected = Atomic {
            normal: 8,
            power_fail: 4,
            ..Atomic::BLOCK
        };
        assert_eq!(drive.atomic, expected);
        namespace.nsfeat = 1 << 1 | 1 << 4;
        namespace.nawun.set(15);
        namespace.nawupf.set(1);
        namespace.nabsn.set(31);
        namespace.nabo.set(4);
        namespace.nabspf.set(63);
        namespace.noiob.set(256);
        for (field, value) in [
            (&mut namespace.npwg, 3),
            (&mut namespace.npwa, 1),
            (&mut namespace.npdg, 7),
            (&mut namespace.npda, 5),
            (&mut namespace.nows, 63),
        ] {
            field.set(value);
        }
        let drive = parse(&controller, &namespace, &[]).unwrap();
        let expected = Atomic {
            normal: 16,
            power_fail: 2,
            boundary: 32,
            boundary_offset: 4,
            boundary_power_fail: 64,
        };
        assert_eq!((drive.atomic, drive.boundary), (expected, 256));
        let expected = Preferred {
            write: 4,
            write_alignment: 2,
            deallocate: 8,
            deallocate_alignment: 6,
            optimal_write: 64,
        };
        assert_eq!(drive.preferred, Some(expected));
    }
}
