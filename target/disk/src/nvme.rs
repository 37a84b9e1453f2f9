//! NVMe commands in the encoding of Linux's passthrough (`linux/nvme_ioctl.h`).

/// `NVME_URING_CMD_IO`: `_IOWR('N', 0x80, struct nvme_uring_cmd)`.
pub(crate) const URING_CMD_IO: u32 = 0xc048_4e80;

/// `NVME_IOCTL_ADMIN_CMD`: `_IOWR('N', 0x41, struct nvme_passthru_cmd)`.
pub(crate) const ADMIN_CMD: libc::c_ulong = 0xc048_4e41;

/// `NVME_IOCTL_ID`: `_IO('N', 0x40)`, which returns the NSID.
pub(crate) const GET_NSID: libc::c_ulong = 0x4e40;

pub(crate) const COMMAND_BYTES: usize = 72;

pub(crate) const RANGE_BYTES: usize = 16;

/// Maximum blocks of a command (NLB has 16 bits, 0-based).
pub(crate) const BLOCKS_MAX: u32 = 1 << 16;

/// Offset of error numbers that represent an NVMe status; above all errnos.
pub(crate) const STATUS: i32 = 1 << 16;

/// Opcodes (NVM, figure 16; Base, figure 138).
const FLUSH: u8 = 0x00;
const WRITE: u8 = 0x01;
const READ: u8 = 0x02;
const WRITE_UNCORRECTABLE: u8 = 0x04;
const COMPARE: u8 = 0x05;
const WRITE_ZEROES: u8 = 0x08;
const DATASET_MANAGEMENT: u8 = 0x09;
const VERIFY: u8 = 0x0c;
const IDENTIFY: u8 = 0x06;

/// FUA bit in dword 12 (force unit access).
const FUA: u32 = 1 << 30;

/// LR bit in dword 12 (limited retry).
const LR: u32 = 1 << 31;

/// DEAC bit in dword 12 of Write Zeroes (deallocate).
const DEAC: u32 = 1 << 25;

/// PRACT bit in dword 12: the drive inserts or removes protection information.
const PRACT: u32 = 1 << 29;

/// PRCHK bits in dword 12 for the guard and the reference tag.
const CHECK_GUARD: u32 = 1 << 28;
const CHECK_REFERENCE: u32 = 1 << 26;

/// AD bit in dword 11 of Dataset Management (deallocate).
const DEALLOCATE: u32 = 1 << 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Blocks {
    pub(crate) first: u64,
    pub(crate) count: u32,
}

/// Hints of a host about a command, used by NVMe drives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Hints {
    /// FUA bit of a command that does not write: the drive must read from the medium.
    pub fua: bool,
    /// LR bit of a command: the drive should limit its retries.
    pub limited_retry: bool,
    /// DSM field of a Read or Write (NVM, figure 43). Dataset Management (NVM, 3.2.3) uses only
    /// bits 1:0, IDW and IDR.
    pub attributes: u8,
}

/// Fields for protection information, all 0 without. As in Linux, the application tag is 0 and not
/// checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Protection {
    action: u32,
    checks: u32,
    /// Bits of the first block in ILBRT (dword 14).
    reference: u32,
}

impl Protection {
    pub(crate) fn of_type(number: u8) -> Option<Self> {
        let (checks, reference) = match number {
            1 | 2 => (CHECK_GUARD | CHECK_REFERENCE, u32::MAX),
            3 => (CHECK_GUARD, 0),
            _ => return None,
        };
        Some(Self {
            action: PRACT,
            checks,
            reference,
        })
    }

    pub(crate) fn is_none(self) -> bool {
        self == Self::default()
    }
}

/// Dwords 10 to 14 of a command.
type Dwords = [u32; 5];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Command {
    opcode: u8,
    nsid: u32,
    dwords: Dwords,
}

impl Command {
    pub(crate) fn flush(nsid: u32) -> Self {
        Self {
            opcode: FLUSH,
            nsid,
            dwords: [0; 5],
        }
    }

    pub(crate) fn read(nsid: u32, blocks: Blocks) -> Self {
        Self::on_blocks(READ, nsid, blocks, 0)
    }

    pub(crate) fn write(nsid: u32, blocks: Blocks, durable: bool) -> Self {
        Self::on_blocks(WRITE, nsid, blocks, fua(durable))
    }

    pub(crate) fn compare(nsid: u32, blocks: Blocks) -> Self {
        Self::on_blocks(COMPARE, nsid, blocks, 0)
    }

    pub(crate) fn write_zeroes(nsid: u32, blocks: Blocks, deallocate: bool, durable: bool) -> Self {
        let deallocate = if deallocate { DEAC } else { 0 };
        Self::on_blocks(WRITE_ZEROES, nsid, blocks, fua(durable) | deallocate)
    }

    pub(crate) fn write_uncorrectable(nsid: u32, blocks: Blocks) -> Self {
        Self::on_blocks(WRITE_UNCORRECTABLE, nsid, blocks, 0)
    }

    pub(crate) fn verify(nsid: u32, blocks: Blocks) -> Self {
        Self::on_blocks(VERIFY, nsid, blocks, 0)
    }

    pub(crate) fn with(mut self, hints: Hints) -> Self {
        let limited = if hints.limited_retry { LR } else { 0 };
        self.dwords[2] |= fua(hints.fua) | limited;
        self.dwords[3] |= u32::from(hints.attributes);
        self
    }

    /// Adds the fields of a Read or Write.
    pub(crate) fn moving(self, protection: Protection) -> Self {
        self.protected(protection.action | protection.checks, protection)
    }

    /// Adds the fields of Write Zeroes, which must not check.
    pub(crate) fn inserting(self, protection: Protection) -> Self {
        self.protected(protection.action, protection)
    }

    /// Adds the fields of Verify, for which PRACT is invalid.
    pub(crate) fn checking(self, protection: Protection) -> Self {
        self.protected(protection.checks, protection)
    }

    fn protected(mut self, control: u32, protection: Protection) -> Self {
        self.dwords[2] |= control;
        self.dwords[4] = self.dwords[0] & protection.reference;
        self
    }

    pub(crate) fn deallocate(nsid: u32) -> Self {
        Self {
            opcode: DATASET_MANAGEMENT,
            nsid,
            dwords: [0, DEALLOCATE, 0, 0, 0],
        }
    }

    /// Returns a Dataset Management command that only passes hints, with `bytes` bytes of ranges.
    pub(crate) fn advise(nsid: u32, bytes: u32, hints: Hints) -> Self {
        let ranges = bytes / RANGE_BYTES as u32;
        Self {
            opcode: DATASET_MANAGEMENT,
            nsid,
            dwords: [
                ranges - 1,
                u32::from(hints.attributes) & !DEALLOCATE,
                0,
                0,
                0,
            ],
        }
    }

    pub(crate) fn identify(nsid: u32, cns: u8) -> Self {
        Self {
            opcode: IDENTIFY,
            nsid,
            dwords: [cns.into(), 0, 0, 0, 0],
        }
    }

    fn on_blocks(opcode: u8, nsid: u32, blocks: Blocks, flags: u32) -> Self {
        assert!((1..=BLOCKS_MAX).contains(&blocks.count), "{blocks:?}");
        let (low, high) = (blocks.first as u32, (blocks.first >> 32) as u32);
        Self {
            opcode,
            nsid,
            dwords: [low, high, (blocks.count - 1) | flags, 0, 0],
        }
    }

    pub(crate) fn encode(&self, addr: u64, length: u32) -> [u8; COMMAND_BYTES] {
        let mut bytes = [0; COMMAND_BYTES];
        bytes[0] = self.opcode;
        bytes[4..8].copy_from_slice(&self.nsid.to_ne_bytes());
        bytes[24..32].copy_from_slice(&addr.to_ne_bytes());
        bytes[36..40].copy_from_slice(&length.to_ne_bytes());
        for (place, dword) in bytes[40..60].chunks_exact_mut(4).zip(self.dwords) {
            place.copy_from_slice(&dword.to_ne_bytes());
        }
        bytes
    }
}

fn fua(durable: bool) -> u32 {
    if durable { FUA } else { 0 }
}

pub(crate) fn range(blocks: Blocks) -> [u8; RANGE_BYTES] {
    let mut bytes = [0; RANGE_BYTES];
    bytes[4..8].copy_from_slice(&blocks.count.to_le_bytes());
    bytes[8..].copy_from_slice(&blocks.first.to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCKS: Blocks = Blocks {
        first: 0x0102_0304_0506_0708,
        count: 0x1_0000,
    };

    const HINTS: Hints = Hints {
        fua: true,
        limited_retry: true,
        attributes: 0x3a,
    };

    fn with_attributes(mut bytes: [u8; COMMAND_BYTES]) -> [u8; COMMAND_BYTES] {
        bytes[52] = HINTS.attributes;
        bytes
    }

    fn golden(opcode: u8, nsid: u8, dwords: [[u8; 4]; 3]) -> [u8; COMMAND_BYTES] {
        let mut bytes = [0; COMMAND_BYTES];
        (bytes[0], bytes[4]) = (opcode, nsid);
        bytes[24..32].copy_from_slice(&[0x00, 0x10, 0xff, 0xee, 0xdd, 0x7f, 0, 0]);
        bytes[36..40].copy_from_slice(&[0x00, 0x00, 0x02, 0x00]);
        bytes[40..52].copy_from_slice(dwords.as_flattened());
        bytes
    }

    #[test]
    fn requests_have_the_numbers_of_the_header() {
        let iowr =
            |number: u64| 3 << 30 | (COMMAND_BYTES as u64) << 16 | u64::from(b'N') << 8 | number;
        assert_eq!(u64::from(URING_CMD_IO), iowr(0x80));
        assert_eq!(ADMIN_CMD, iowr(0x41));
        assert_eq!(GET_NSID, u64::from(b'N') << 8 | 0x40);
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn commands_are_the_bytes_that_the_kernel_takes() {
        let first = [[8, 7, 6, 5], [4, 3, 2, 1]];
        let blocks = |flags: u8| [first[0], first[1], [0xff, 0xff, 0, flags]];
        let none = [[0; 4]; 3];
        let cases = [
            (Command::flush(3), golden(0x00, 3, none)),
            (Command::read(3, BLOCKS), golden(0x02, 3, blocks(0))),
            (Command::write(3, BLOCKS, false), golden(0x01, 3, blocks(0))),
            (
                Command::write(3, BLOCKS, true),
                golden(0x01, 3, blocks(0x40)),
            ),
            (
                Command::read(3, BLOCKS).with(HINTS),
                with_attributes(golden(0x02, 3, blocks(0xc0))),
            ),
            (Command::compare(3, BLOCKS), golden(0x05, 3, blocks(0))),
            (Command::verify(3, BLOCKS), golden(0x0c, 3, blocks(0))),
            (
                Command::write_uncorrectable(3, BLOCKS),
                golden(0x04, 3, blocks(0)),
            ),
            (
                Command::write_zeroes(3, BLOCKS, false, false),
                golden(0x08, 3, blocks(0)),
            ),
            (
                Command::write_zeroes(3, BLOCKS, true, true),
                golden(0x08, 3, blocks(0x42)),
            ),
            (
                Command::deallocate(3),
                golden(0x09, 3, [[0; 4], [4, 0, 0, 0], [0; 4]]),
            ),
            (
                Command::advise(3, 32, HINTS),
                golden(0x09, 3, [[1, 0, 0, 0], [0x3a, 0, 0, 0], [0; 4]]),
            ),
            (
                Command::identify(3, 3),
                golden(0x06, 3, [[3, 0, 0, 0], [0; 4], [0; 4]]),
            ),
        ];
        for (command, expected) in cases {
            let encoded = command.encode(0x0000_7fdd_eeff_1000, 0x2_0000);
            assert_eq!(encoded, expected, "{command:?}");
        }
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn protected_commands_have_checks_and_the_reference_tag() {
        let (read, verify) = (Command::read(3, BLOCKS), Command::verify(3, BLOCKS));
        let zeroes = Command::write_zeroes(3, BLOCKS, true, false);
        let low = [8, 7, 6, 5];
        // Type, highest byte of dword 12 for Read, Write Zeroes and Verify, dword 14.
        for (number, control, reference) in [
            (1, [0x34, 0x22, 0x14], low),
            (2, [0x34, 0x22, 0x14], low),
            (3, [0x30, 0x22, 0x10], [0; 4]),
        ] {
            let protection = Protection::of_type(number).expect("a defined type");
            let commands = [
                read.moving(protection),
                zeroes.inserting(protection),
                verify.checking(protection),
            ];
            for (command, control) in commands.into_iter().zip(control) {
                let bytes = command.encode(0, 0);
                assert_eq!(bytes[51], control, "type {number}: {command:?}");
                assert_eq!(bytes[56..60], reference, "type {number}: {command:?}");
                assert_eq!(bytes[60..], [0; 12], "type {number}: {command:?}");
                assert_eq!(bytes[16..24], [0; 8], "metadata");
            }
            let hinted = read.with(HINTS).moving(protection).encode(0, 0);
            assert_eq!(hinted[51], control[0] | 0xc0, "type {number}");
        }
        for number in [0, 4, 7] {
            assert_eq!(Protection::of_type(number), None);
        }
    }

    #[test]
    fn commands_without_protection_stay_as_they_are() {
        let none = Protection::default();
        assert!(none.is_none());
        let read = Command::read(3, BLOCKS).with(HINTS);
        for command in [read.moving(none), read.inserting(none), read.checking(none)] {
            assert_eq!(command, read);
        }
    }

    #[test]
    fn a_range_is_attributes_length_and_start() {
        let bytes = range(Blocks {
            first: 0x0102_0304_0506_0708,
            count: 0x1122_3344,
        });
        let expected = [0, 0, 0, 0, 0x44, 0x33, 0x22, 0x11, 8, 7, 6, 5, 4, 3, 2, 1];
        assert_eq!(bytes, expected);
    }
}
