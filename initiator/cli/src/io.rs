//! Block commands: `flush`, `read`, `write`, `compare`, `write-zeroes`, `dsm`, `copy`.

use std::cmp::Ordering;
use std::fs::File;
use std::io::{Error as IoError, ErrorKind, Read, Seek as _, Write as _, stdin};
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use nvme_proto::io::{BlockRange, DatasetRange};
use nvme_proto::wire::{IntoBytes, Status, U32, U64};

use super::Result;
use super::address::Address;
use super::number::number;
use super::output::{print, print_bytes};
use super::session::{Session, namespace, text};
use cairn_bench::Format;
use cairn_initiator::{Command, Data, Host, HostError, Namespace};

/// Maximum data of a command in bytes, unless the controller's limit is lower.
const PIECE: u64 = 1 << 20;

/// Selection of the namespace.
#[derive(Debug, Args)]
pub(super) struct Target {
    #[command(flatten)]
    address: Address,
    /// Namespace; required only if there are several
    #[arg(short = 'N', long, value_name = "NSID", value_parser = number::<u32>)]
    namespace_id: Option<u32>,
}

pub(super) struct Disk {
    pub(super) host: Host,
    pub(super) namespace: Namespace,
    format: Format,
}

impl Target {
    pub(super) fn open(&self) -> Result<Disk> {
        let mut host = Session::new(&self.address)?.connect(1)?;
        let namespace = namespace(&mut host, self.namespace_id)?;
        let format = namespace.format(&host)?;
        Ok(Disk {
            host,
            namespace: namespace.disk()?,
            format,
        })
    }
}

/// Range of blocks.
#[derive(Debug, Args)]
pub(super) struct Blocks {
    /// First block
    #[arg(long, value_name = "LBA", visible_alias = "slba", default_value_t = 0, value_parser = number::<u64>)]
    start_block: u64,
    /// Number of blocks less one, as nvme-cli counts them
    #[arg(short = 'c', long, value_name = "N", value_parser = number::<u64>)]
    block_count: Option<u64>,
}

impl Blocks {
    pub(super) fn one(start_block: u64) -> Self {
        Self {
            start_block,
            block_count: None,
        }
    }
}

/// Permission to change data.
#[derive(Debug, Args)]
pub(super) struct Leave {
    /// Confirms that the data on this namespace may be destroyed
    #[arg(long)]
    destroy_data: bool,
}

impl Leave {
    pub(super) fn check(&self, what: &str) -> Result<()> {
        if self.destroy_data {
            return Ok(());
        }
        Err(format!(
            "{what} destroys what is there: say --destroy-data if that is meant"
        ))
    }
}

impl Disk {
    /// Checks that a range lies within the namespace. Returns its first block and number of blocks.
    /// If both `block_count` and `bytes` are given, they must agree.
    pub(super) fn stretch(&self, blocks: &Blocks, bytes: Option<u64>) -> Result<(u64, u64)> {
        let block = u64::from(self.format.block_bytes);
        let of_bytes = bytes.map(|bytes| bytes.div_ceil(block));
        let of_count = blocks.block_count.map(|count| count.saturating_add(1));
        let count = of_count.or(of_bytes).unwrap_or(1);
        if let Some(bytes) = bytes
            && of_bytes != Some(count)
        {
            return Err(format!(
                "-z {bytes} and -c {} disagree: a block has {block} bytes, and -c is the number of blocks less one",
                count - 1
            ));
        }
        if count == 0 {
            return Err("-z 0 is no block".to_owned());
        }
        let end = blocks.start_block.checked_add(count);
        if end.is_none_or(|end| end > self.format.blocks) {
            return Err(format!(
                "blocks {} and {} more are not all in the namespace, which has {}",
                blocks.start_block,
                count - 1,
                self.format.blocks
            ));
        }
        Ok((blocks.start_block, count))
    }

    /// Returns first block, number of blocks and byte offset in the data of each command.
    fn pieces(&self, slba: u64, count: u64) -> impl Iterator<Item = (u64, u32, usize)> + use<> {
        let block = u64::from(self.format.block_bytes);
        let most = (PIECE.min(self.format.transfer_max) / block).max(1);
        (0..count.div_ceil(most)).map(move |piece| {
            let first = piece * most;
            let blocks = most.min(count - first) as u32;
            (slba + first, blocks, (first * block) as usize)
        })
    }

    fn bytes(&self, count: u64) -> usize {
        (count * u64::from(self.format.block_bytes)) as usize
    }

    fn send(
        &mut self,
        make: fn(&Namespace, u64, u32) -> Command,
        source: &mut Source,
    ) -> std::result::Result<(), Refusal> {
        let block = self.format.block_bytes as usize;
        let mut buffer = self.host.buffer(PIECE as usize)?;
        let mut piece = vec![0; PIECE as usize];
        for (slba, blocks, _) in self.pieces(source.slba, source.blocks) {
            let piece = &mut piece[..blocks as usize * block];
            source.fill(piece).map_err(Refusal::Data)?;
            buffer.write(0, piece);
            let part = Data::start_of(&mut buffer, piece.len() as u32);
            let command = make(&self.namespace, slba, blocks);
            self.host.run(command, part)?;
        }
        Ok(())
    }

    pub(super) fn block(&self, option: &str, file: Option<&Path>) -> Result<Vec<u8>> {
        let block = u64::from(self.format.block_bytes);
        let (name, input) = open_input(option, file)?;
        let of_file = |error: IoError| format!("{name}: {error}");
        let kind = input.metadata().map_err(of_file)?.file_type();
        // One more byte is read to detect excess data. A character device has no end.
        let most = block + u64::from(!kind.is_char_device());
        let mut bytes = Vec::new();
        input.take(most).read_to_end(&mut bytes).map_err(of_file)?;
        match (bytes.len() as u64).cmp(&block) {
            Ordering::Equal => Ok(bytes),
            Ordering::Less => Err(format!(
                "{name}: it has {} bytes, and the block {block}",
                bytes.len()
            )),
            Ordering::Greater => Err(format!(
                "{name}: it has more bytes than the block, which has {block}"
            )),
        }
    }

    pub(super) fn close(self) -> Result<()> {
        self.host.shutdown().map_err(text)
    }
}

enum Refusal {
    Data(String),
    Host(HostError),
}

impl From<HostError> for Refusal {
    fn from(error: HostError) -> Self {
        Self::Host(error)
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Data(why) => f.write_str(why),
            Self::Host(error) => error.fmt(f),
        }
    }
}

struct Source {
    input: File,
    slba: u64,
    blocks: u64,
    wanted: u64,
    /// Bytes not yet read.
    left: u64,
    /// True for pipes and sockets without a given size. More than `wanted` bytes are then an error.
    ends: bool,
}

impl Source {
    /// Refuses a file that is too short, because a write would stop midway, or, without `size`, too
    /// long.
    fn open(disk: &Disk, blocks: &Blocks, file: Option<&Path>, size: Option<u64>) -> Result<Self> {
        let (slba, count) = disk.stretch(blocks, size)?;
        let wanted = disk.bytes(count) as u64;
        if let Some(size) = size.filter(|size| *size != wanted) {
            return Err(format!(
                "-z {size} is not a multiple of the block size, {} bytes: only whole blocks are written and compared",
                disk.format.block_bytes
            ));
        }
        let (name, mut input) = open_input("-d", file)?;
        let of_file = |error: IoError| format!("{name}: {error}");
        let metadata = input.metadata().map_err(of_file)?;
        if metadata.is_file() {
            let at = input.stream_position().map_err(of_file)?;
            let bytes = metadata.len().saturating_sub(at);
            if bytes < wanted {
                return Err(too_few(bytes, wanted));
            }
            if bytes > wanted && size.is_none() {
                return Err(too_many(wanted));
            }
        }
        let kind = metadata.file_type();
        Ok(Self {
            input,
            slba,
            blocks: count,
            wanted,
            left: wanted,
            ends: size.is_none() && (kind.is_fifo() || kind.is_socket()),
        })
    }

    fn fill(&mut self, piece: &mut [u8]) -> Result<()> {
        let mut filled = 0;
        while filled < piece.len() {
            match self.read(&mut piece[filled..])? {
                0 => return Err(too_few(self.wanted - self.left, self.wanted)),
                more => {
                    filled += more;
                    self.left -= more as u64;
                }
            }
        }
        if self.left == 0 && self.ends && self.read(&mut [0])? > 0 {
            return Err(too_many(self.wanted));
        }
        Ok(())
    }

    fn read(&mut self, bytes: &mut [u8]) -> Result<usize> {
        loop {
            match self.input.read(bytes) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => return read.map_err(|error| format!("reading the data: {error}")),
            }
        }
    }
}

/// Opens the file of an option, or stdin, and names it for error messages.
fn open_input(option: &str, file: Option<&Path>) -> Result<(String, File)> {
    let name = file.map_or("stdin".to_owned(), |path| {
        format!("{option} {}", path.display())
    });
    let opened = match file {
        Some(path) => File::open(path),
        None => stdin().as_fd().try_clone_to_owned().map(File::from),
    };
    match opened {
        Ok(input) => Ok((name, input)),
        Err(error) => Err(format!("{name}: {error}")),
    }
}

fn too_few(bytes: u64, wanted: u64) -> String {
    format!("there are {bytes} bytes of data for the {wanted} that were asked for")
}

fn too_many(wanted: u64) -> String {
    format!(
        "there are more than the {wanted} bytes of data that were asked for: -z {wanted} takes the first ones, -c or \
         -z also more"
    )
}

#[derive(Debug, Args)]
pub(super) struct Flush {
    #[command(flatten)]
    target: Target,
}

impl Flush {
    pub(super) fn run(&self) -> Result<()> {
        let mut disk = self.target.open()?;
        disk.namespace.flush(&mut disk.host).map_err(text)?;
        print(&format!(
            "flush: namespace {}: Success",
            disk.namespace.nsid
        ));
        disk.close()
    }
}

#[derive(Debug, Args)]
pub(super) struct ReadBlocks {
    #[command(flatten)]
    blocks: Blocks,
    /// Bytes to read, if the last block is not needed completely
    #[arg(short = 'z', long, value_name = "BYTES", value_parser = number::<u64>)]
    data_size: Option<u64>,
    /// File for the data [default: stdout]
    #[arg(short = 'd', long, value_name = "FILE")]
    data: Option<PathBuf>,
    #[command(flatten)]
    target: Target,
}

impl ReadBlocks {
    pub(super) fn run(&self) -> Result<()> {
        let mut disk = self.target.open()?;
        let (slba, count) = disk.stretch(&self.blocks, self.data_size)?;
        let mut left = self
            .data_size
            .map_or(disk.bytes(count), |size| size as usize);
        let mut file = match &self.data {
            Some(path) => {
                let file = cairn_doctor::cli::create(path, |_| Err(IoError::other(FULL)));
                Some(file.map_err(|e| format!("-d {}: {e}", path.display()))?)
            }
            None => None,
        };
        let mut buffer = disk.host.buffer(PIECE as usize).map_err(text)?;
        let block = disk.format.block_bytes;
        for (slba, blocks, _) in disk.pieces(slba, count) {
            let length = blocks * block;
            let read = disk.namespace.read_command(slba, blocks);
            disk.host
                .run(read, Data::start_of(&mut buffer, length))
                .map_err(text)?;
            let bytes = buffer.bytes(0, left.min(length as usize));
            left -= bytes.len();
            match &mut file {
                Some(file) => file.write_all(&bytes).map_err(text)?,
                None => print_bytes(&bytes)?,
            }
        }
        if let Some(file) = file {
            to_disk(&file).map_err(text)?;
            print(&format!("read: {count} blocks from {slba}: Success"));
        }
        disk.close()
    }
}

const FULL: &str = "it is not empty: name another file, or leave -d out and redirect stdout";

/// Syncs the file, because a full disk may report its error only at the sync.
fn to_disk(file: &File) -> std::io::Result<()> {
    match file.sync_all() {
        // Pipes and terminals cannot be synced.
        Err(error) if error.kind() == ErrorKind::InvalidInput => Ok(()),
        synced => synced,
    }
}

#[derive(Debug, Args)]
pub(super) struct Write {
    #[command(flatten)]
    blocks: Blocks,
    /// Bytes to write: whole blocks
    #[arg(short = 'z', long, value_name = "BYTES", value_parser = number::<u64>)]
    data_size: Option<u64>,
    /// File with the data [default: stdin]
    #[arg(short = 'd', long, value_name = "FILE")]
    data: Option<PathBuf>,
    #[command(flatten)]
    leave: Leave,
    #[command(flatten)]
    target: Target,
}

impl Write {
    pub(super) fn usage(&self) -> Result<()> {
        self.leave.check("write")
    }

    pub(super) fn run(&self) -> Result<()> {
        let mut disk = self.target.open()?;
        let file = self.data.as_deref();
        let mut source = Source::open(&disk, &self.blocks, file, self.data_size)?;
        disk.send(Namespace::write_command, &mut source)
            .map_err(text)?;
        let (count, slba) = (source.blocks, source.slba);
        print(&format!("write: {count} blocks from {slba}: Success"));
        disk.close()
    }
}

#[derive(Debug, Args)]
pub(super) struct Compare {
    #[command(flatten)]
    blocks: Blocks,
    /// Bytes to compare: whole blocks
    #[arg(short = 'z', long, value_name = "BYTES", value_parser = number::<u64>)]
    data_size: Option<u64>,
    /// File with the data [default: stdin]
    #[arg(short = 'd', long, value_name = "FILE")]
    data: Option<PathBuf>,
    #[command(flatten)]
    target: Target,
}

impl Compare {
    pub(super) fn run(&self) -> Result<ExitCode> {
        let mut disk = self.target.open()?;
        let file = self.data.as_deref();
        let mut source = Source::open(&disk, &self.blocks, file, self.data_size)?;
        let (count, slba) = (source.blocks, source.slba);
        let what = format!("compare: {count} blocks from {slba}");
        let code = match disk.send(Namespace::compare_command, &mut source) {
            Ok(()) => {
                print(&format!("{what}: they are the same"));
                ExitCode::SUCCESS
            }
            Err(Refusal::Host(HostError::Status { status, .. }))
                if same(status, Status::COMPARE_FAILURE) =>
            {
                print(&format!("{what}: they differ"));
                ExitCode::FAILURE
            }
            Err(error) => return Err(error.to_string()),
        };
        disk.close()?;
        Ok(code)
    }
}

fn same(a: Status, b: Status) -> bool {
    (a.sct(), a.sc()) == (b.sct(), b.sc())
}

#[derive(Debug, Args)]
pub(super) struct WriteZeroes {
    #[command(flatten)]
    blocks: Blocks,
    /// Permit the controller to deallocate the blocks
    #[arg(short = 'D', long)]
    deac: bool,
    #[command(flatten)]
    leave: Leave,
    #[command(flatten)]
    target: Target,
}

impl WriteZeroes {
    pub(super) fn usage(&self) -> Result<()> {
        self.leave.check("write-zeroes")
    }

    pub(super) fn run(&self) -> Result<()> {
        /// Maximum blocks of a Write Zeroes command: NLB is 16 bits, 0-based.
        const BLOCKS_MAX: u64 = 1 << 16;
        let mut disk = self.target.open()?;
        let (slba, count) = disk.stretch(&self.blocks, None)?;
        for first in (0..count).step_by(BLOCKS_MAX as usize) {
            let blocks = BLOCKS_MAX.min(count - first) as u32;
            let zeroes = disk
                .namespace
                .write_zeroes_command(slba + first, blocks, self.deac);
            disk.host.run(zeroes, Data::None).map_err(text)?;
        }
        print(&format!(
            "write-zeroes: {count} blocks from {slba}: Success"
        ));
        disk.close()
    }
}

#[derive(Debug, Args)]
pub(super) struct Dsm {
    /// First block of each range
    #[arg(long, value_name = "LBA,...", value_delimiter = ',', required = true, value_parser = number::<u64>)]
    slbs: Vec<u64>,
    /// Number of blocks of each range
    #[arg(
        short = 'b',
        long,
        value_name = "N,...",
        value_delimiter = ',',
        required = true, value_parser = number::<u32>)]
    blocks: Vec<u32>,
    /// Deallocate the blocks
    #[arg(short = 'd', long, required = true)]
    ad: bool,
    #[command(flatten)]
    leave: Leave,
    #[command(flatten)]
    target: Target,
}

fn check_counts(slbs: usize, blocks: usize) -> Result<()> {
    /// Maximum ranges of Dataset Management and Copy commands: NR is 8 bits, 0-based.
    const RANGES_MAX: usize = 256;
    if slbs != blocks || slbs > RANGES_MAX {
        return Err(format!(
            "--slbs and --blocks require the same count of numbers, up to {RANGES_MAX}"
        ));
    }
    Ok(())
}

impl Dsm {
    pub(super) fn usage(&self) -> Result<()> {
        self.leave.check("dsm --ad")?;
        check_counts(self.slbs.len(), self.blocks.len())
    }

    pub(super) fn run(&self) -> Result<()> {
        let mut data = Vec::new();
        for (&slba, &nlb) in self.slbs.iter().zip(&self.blocks) {
            let range = DatasetRange {
                context_attributes: U32::new(0),
                nlb: U32::new(nlb),
                slba: U64::new(slba),
            };
            data.extend(range.as_bytes());
        }
        let mut disk = self.target.open()?;
        let mut buffer = disk.host.buffer(data.len()).map_err(text)?;
        buffer.write(0, &data);
        let deallocate = disk.namespace.deallocate_command(self.slbs.len() as u32);
        let part = Data::start_of(&mut buffer, data.len() as u32);
        disk.host.run(deallocate, part).map_err(text)?;
        print(&format!("dsm: {} ranges: Success", self.slbs.len()));
        disk.close()
    }
}

#[derive(Debug, Args)]
pub(super) struct Copy {
    /// First block of the destination
    #[arg(short = 'd', long, value_name = "LBA", value_parser = number::<u64>)]
    sdlba: u64,
    /// First block of each source
    #[arg(long, value_name = "LBA,...", value_delimiter = ',', required = true, value_parser = number::<u64>)]
    slbs: Vec<u64>,
    /// Number of blocks of each source less one, as nvme-cli counts them
    #[arg(short = 'b', long, value_name = "N,...", value_delimiter = ',', required = true, value_parser = number::<u16>)]
    blocks: Vec<u16>,
    #[command(flatten)]
    leave: Leave,
    #[command(flatten)]
    target: Target,
}

impl Copy {
    pub(super) fn usage(&self) -> Result<()> {
        self.leave.check("copy")?;
        check_counts(self.slbs.len(), self.blocks.len())
    }

    pub(super) fn run(&self) -> Result<()> {
        let source = |(&slba, &nlb): (&u64, &u16)| BlockRange {
            slba,
            blocks: u32::from(nlb) + 1,
        };
        let sources: Vec<_> = self.slbs.iter().zip(&self.blocks).map(source).collect();
        let mut disk = self.target.open()?;
        let copied = disk.namespace.copy(&mut disk.host, &sources, self.sdlba);
        copied.map_err(text)?;
        let blocks: u32 = sources.iter().map(|source| source.blocks).sum();
        print(&format!("copy: {blocks} blocks to {}: Success", self.sdlba));
        disk.close()
    }
}
