use nvme_proto::io::{BlockRange, DatasetRange};
use nvme_proto::wire::{IntoBytes, Status, U32, U64};

use crate::buffer::Data;
use crate::error::HostError;
use crate::host::{Host, SCRATCH_BYTES};
use crate::namespace::{Command, Namespace};
use crate::queue::IoQueue;

/// Blocking commands on the first I/O queue. They copy their data; [`Host::run`] with a
/// [`Buffer`](crate::Buffer) does not.
///
/// A command transfers at most 64 KiB, or the controller's maximum if smaller. A longer transfer
/// takes several commands and is not atomic.
impl Namespace {
    /// Reads `blocks` blocks from `slba`.
    pub fn read(&self, host: &mut Host, slba: u64, blocks: u32) -> Result<Vec<u8>, HostError> {
        let length = blocks as usize * self.block_bytes as usize;
        let mut bytes = Vec::with_capacity(length);
        for piece in self.pieces(host, slba, length) {
            let mut scratch = host.scratch.lend();
            let data = Data::start_of(&mut scratch, piece.bytes);
            host.run(self.read_command(piece.slba, piece.blocks), data)?;
            bytes.extend_from_slice(&scratch.bytes(0, piece.bytes as usize));
        }
        Ok(bytes)
    }

    /// Writes `bytes` to the blocks from `slba`. An error may leave a part written.
    ///
    /// # Panics
    /// If the length of `bytes` is not a multiple of the block size.
    pub fn write(&self, host: &mut Host, slba: u64, bytes: &[u8]) -> Result<(), HostError> {
        self.send(host, slba, bytes, Self::write_command)
    }

    /// Returns true if `bytes` equals the blocks from `slba`.
    ///
    /// # Panics
    /// If the length of `bytes` is not a multiple of the block size.
    pub fn compare(&self, host: &mut Host, slba: u64, bytes: &[u8]) -> Result<bool, HostError> {
        match self.send(host, slba, bytes, Self::compare_command) {
            Ok(()) => Ok(true),
            Err(HostError::Status { status, .. }) if status.code() == Status::COMPARE_FAILURE => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Writes `new` to the block at `slba` if the block equals `expected`. Returns false if not.
    /// No other command changes or compares the block in between.
    ///
    /// If the connection breaks, the outcome is unknown, and the commands are not sent again: read
    /// the block.
    ///
    /// # Panics
    /// If the length of `expected` or `new` is not the block size.
    pub fn compare_and_write(
        &self,
        host: &mut Host,
        slba: u64,
        expected: &[u8],
        new: &[u8],
    ) -> Result<bool, HostError> {
        let length = self.block_bytes as usize;
        assert_eq!((expected.len(), new.len()), (length, length), "one block");
        let mut scratch = host.scratch.lend();
        scratch.write(0, expected);
        let old = Data::part_of(scratch, 0, self.block_bytes);
        let mut scratch = host.scratch.lend();
        scratch.write(length, new);
        let new = Data::part_of(scratch, length, self.block_bytes);
        let compare = (self.compare_command(slba, 1), old);
        let write = (self.write_command(slba, 1), new);
        let pair = host
            .controller_mut()
            .submit_pair(IoQueue::FIRST, [compare, write])?;
        let [compare, write] = pair.map(|ticket| host.wait(ticket).answer);
        let (compare, write) = (compare?, write?);
        // On a reservation conflict, only the status of the Write names the cause.
        if write.cqe.status().code() == Status::RESERVATION_CONFLICT {
            write.require_success(|| "Write".to_owned())?;
        }
        if compare.cqe.status().code() == Status::COMPARE_FAILURE {
            return Ok(false);
        }
        compare.require_success(|| "Compare".to_owned())?;
        write.require_success(|| "Write".to_owned())?;
        Ok(true)
    }

    fn send(
        &self,
        host: &mut Host,
        slba: u64,
        bytes: &[u8],
        command: impl Fn(&Self, u64, u32) -> Command,
    ) -> Result<(), HostError> {
        let mut rest = bytes;
        for piece in self.pieces(host, slba, bytes.len()) {
            let (next, others) = rest.split_at(piece.bytes as usize);
            rest = others;
            let mut scratch = host.scratch.lend();
            scratch.write(0, next);
            let data = Data::start_of(&mut scratch, piece.bytes);
            host.run(command(self, piece.slba, piece.blocks), data)?;
        }
        Ok(())
    }

    /// Reads `blocks` blocks from `slba` in the controller, without a data transfer.
    pub fn verify(&self, host: &mut Host, slba: u64, blocks: u32) -> Result<(), HostError> {
        let verify = self.verify_command(slba, blocks);
        host.run(verify, Data::None).map(drop)
    }

    /// Writes zeroes to `blocks` blocks from `slba`. With `deallocate`, the controller may
    /// deallocate the blocks instead.
    pub fn write_zeroes(
        &self,
        host: &mut Host,
        slba: u64,
        blocks: u32,
        deallocate: bool,
    ) -> Result<(), HostError> {
        let zeroes = self.write_zeroes_command(slba, blocks, deallocate);
        host.run(zeroes, Data::None).map(drop)
    }

    /// Deallocates `blocks` blocks from `slba`.
    pub fn deallocate(&self, host: &mut Host, slba: u64, blocks: u32) -> Result<(), HostError> {
        let range = DatasetRange {
            context_attributes: U32::new(0),
            nlb: U32::new(blocks),
            slba: U64::new(slba),
        };
        let bytes = range.as_bytes();
        let mut scratch = host.scratch.lend();
        scratch.write(0, bytes);
        let data = Data::start_of(&mut scratch, bytes.len() as u32);
        host.run(self.deallocate_command(1), data).map(drop)
    }

    /// Copies `sources` in order to the blocks from `sdlba`, in the controller. An error may leave
    /// a part copied.
    ///
    /// # Panics
    /// If there are not 1 to 256 sources, or a source does not have 1 to 65,536 blocks.
    pub fn copy(
        &self,
        host: &mut Host,
        sources: &[BlockRange],
        sdlba: u64,
    ) -> Result<(), HostError> {
        let copy = self.copy_command(sdlba, sources.len() as u32);
        let bytes: Vec<u8> = sources.iter().flat_map(BlockRange::copy_entry).collect();
        let mut scratch = host.scratch.lend();
        scratch.write(0, &bytes);
        let data = Data::start_of(&mut scratch, bytes.len() as u32);
        host.run(copy, data).map(drop)
    }

    /// Makes completed writes durable.
    pub fn flush(&self, host: &mut Host) -> Result<(), HostError> {
        host.run(self.flush_command(), Data::None).map(drop)
    }

    fn pieces(&self, host: &Host, slba: u64, length: usize) -> impl Iterator<Item = Piece> + use<> {
        let block = self.block_bytes as usize;
        assert!(
            length.is_multiple_of(block),
            "{length} bytes are not whole blocks of {block} bytes"
        );
        let most = SCRATCH_BYTES.min(host.transfer_max() as usize) / block;
        let blocks = length / block;
        (0..blocks).step_by(most.max(1)).map(move |first| {
            let blocks = most.max(1).min(blocks - first);
            Piece {
                slba: slba + first as u64,
                blocks: blocks as u32,
                bytes: (blocks * block) as u32,
            }
        })
    }
}

struct Piece {
    slba: u64,
    blocks: u32,
    bytes: u32,
}
