//! Random data over the whole disk, and a checksum of every part to tell
//! whether it comes back as it went.

use std::time::Instant;

use anyhow::{Result, ensure};
use cairn_initiator::{Data, Host, command};

use crate::progress::Progress;
use crate::random::Random;
use crate::{Disk, IO_QUEUE};

/// Bytes written or read by one command.
const PART: u32 = 131_072;

/// What the disk should hold: a CRC-32 for each part.
#[derive(Debug)]
pub(crate) struct Checksums(Vec<u32>);

/// Writes the whole disk, and flushes.
pub(crate) fn write(host: &mut Host, disk: &Disk) -> Result<Checksums> {
    let mut progress = Progress::new("writing random data");
    let buffer = host.buffer(PART as usize)?;
    let mut random = Random::new();
    let mut data = vec![0; PART as usize];
    let mut checksums = Vec::new();
    let (parts, blocks) = parts_of(disk);
    for part in 0..parts {
        random.fill(&mut data);
        checksums.push(crc32fast::hash(&data));
        buffer.write(0, &data);
        let sqe = command::write(disk.nsid, part * u64::from(blocks), blocks);
        host.run(IO_QUEUE, sqe, Data::start_of(&buffer, PART))?;
        progress.show(part as f64 / parts as f64, Instant::now());
    }
    host.run(IO_QUEUE, command::flush(disk.nsid), Data::None)?;
    Ok(Checksums(checksums))
}

impl Checksums {
    /// Reads the whole disk, and compares. Gives the bytes that were right: all.
    pub(crate) fn verify(&self, host: &mut Host, disk: &Disk) -> Result<u64> {
        let mut progress = Progress::new("reading it back");
        let buffer = host.buffer(PART as usize)?;
        let mut data = vec![0; PART as usize];
        let (parts, blocks) = parts_of(disk);
        for (part, expected) in (0..parts).zip(&self.0) {
            let slba = part * u64::from(blocks);
            // Left over from the part before, it must not pass for this one.
            buffer.write(0, &[0; 512]);
            let sqe = command::read(disk.nsid, slba, blocks);
            host.run(IO_QUEUE, sqe, Data::start_of(&buffer, PART))?;
            buffer.read(0, &mut data);
            let found = crc32fast::hash(&data);
            ensure!(
                found == *expected,
                "blocks {slba} to {} came back different: CRC-32 {found:#010x}, \
                 not {expected:#010x}. This is a bug in Cairn: please report it",
                slba + u64::from(blocks) - 1
            );
            progress.show(part as f64 / parts as f64, Instant::now());
        }
        Ok(self.0.len() as u64 * u64::from(PART))
    }
}

/// How many parts the disk has, and the blocks of each.
fn parts_of(disk: &Disk) -> (u64, u32) {
    (disk.bytes() / u64::from(PART), PART / disk.block_bytes)
}
