//! Disk used by one thread, as in a target's reactor.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_base::Mapping;
use cairn_disk::{
    Backend, BlockIo, BlockOp, Contention, Errno, FileSlot, Finished, Idle, Pause, Progress, Ring,
    Span,
};

pub(crate) struct BareDisk {
    ring: Ring,
    backend: Backend,
    file: Option<FileSlot>,
    buffers: Arc<Mapping>,
    buffer: u16,
    io_bytes: u32,
    poll_idle: Duration,
    under_way: Vec<UnderWay>,
}

impl std::fmt::Debug for BareDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BareDisk({:?})", self.backend)
    }
}

struct UnderWay {
    io: BlockIo,
    began: Instant,
}

impl BareDisk {
    pub(crate) fn new(
        backend: Backend,
        depth: u32,
        io_bytes: u32,
        poll_idle: Duration,
        poll_drives: bool,
    ) -> Result<Self, String> {
        let prepare = || {
            let mut ring = Ring::new(depth)?;
            if poll_drives {
                ring.poll_drives();
            }
            let buffers = Arc::new(Mapping::anonymous(depth as usize * io_bytes as usize)?);
            fill(&buffers);
            let buffer = ring.add_buffer(&buffers)?;
            let file = backend.add_to(&mut ring)?;
            Ok::<_, io::Error>((ring, buffers, buffer, file))
        };
        let (ring, buffers, buffer, file) = prepare().map_err(|error| error.to_string())?;
        Ok(Self {
            ring,
            backend,
            file,
            buffers,
            buffer,
            io_bytes,
            poll_idle,
            under_way: Vec::with_capacity(depth as usize),
        })
    }

    pub(crate) fn places(&self) -> u64 {
        let geometry = self.backend.geometry();
        geometry.blocks * u64::from(geometry.block_bytes) / u64::from(self.io_bytes)
    }

    pub(crate) fn run(
        &mut self,
        write: bool,
        mut next: impl FnMut() -> Option<u64>,
        mut done: impl FnMut(Duration),
    ) -> io::Result<()> {
        let (mut idle, mut contention) = (Idle::new(self.poll_idle), Contention::default());
        let mut left = 0;
        for slot in 0..self.under_way.capacity() {
            if let Some(place) = next() {
                self.under_way.push(self.operation(write, slot, place));
                self.begin(slot)?;
                left += 1;
            }
        }
        while left > 0 {
            let now = Instant::now();
            if contention.core_is_shared(now) {
                idle.core_is_shared(now);
            }
            let mut worked = false;
            while let Some(finished) = self.ring.pop() {
                worked = true;
                let Some(slot) = self.ended(finished)? else {
                    continue;
                };
                idle.serves(1);
                done(now.duration_since(self.under_way[slot].began));
                match next() {
                    Some(place) => {
                        self.under_way[slot] = self.operation(write, slot, place);
                        self.begin(slot)?;
                    }
                    None => left -= 1,
                }
            }
            self.ring.submit()?;
            if worked {
                idle.worked();
                continue;
            }
            let pause = idle.pause_for(now, self.ring.waits_for_threads());
            if pause != Pause::Sleep {
                contention.polls_on(now);
            }
            match pause {
                Pause::Spin => std::hint::spin_loop(),
                Pause::Yield => std::thread::yield_now(),
                Pause::Sleep if self.ring.must_poll() => std::thread::yield_now(),
                Pause::Sleep => {
                    self.ring.wait(None)?;
                    idle.slept(Instant::now());
                }
            }
        }
        self.under_way.clear();
        Ok(())
    }

    fn operation(&self, write: bool, slot: usize, place: u64) -> UnderWay {
        let op = match write {
            true => BlockOp::Write { durable: false },
            false => BlockOp::Read,
        };
        let span = Span {
            buffer: self.buffer,
            addr: self.buffers.addr() + slot as u64 * u64::from(self.io_bytes),
            length: self.io_bytes,
        };
        let bytes = u64::from(self.io_bytes);
        UnderWay {
            io: BlockIo::new(op, place * bytes, bytes, Some(span)),
            began: Instant::now(),
        }
    }

    fn begin(&mut self, slot: usize) -> io::Result<()> {
        let io = &mut self.under_way[slot].io;
        match self
            .backend
            .begin(io, &mut self.ring, self.file, slot as u64)
        {
            Progress::Pending | Progress::Later => Ok(()),
            Progress::Done(Ok(())) => unreachable!("a file takes its time"),
            Progress::Done(Err(Errno(errno))) => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    fn ended(&mut self, finished: Finished) -> io::Result<Option<usize>> {
        let Finished::Operation { tag, result } = finished else {
            unreachable!("nothing is watched here: {finished:?}")
        };
        let slot = tag as usize;
        let io = &mut self.under_way[slot].io;
        let progress = self
            .backend
            .resume(io, result, &mut self.ring, self.file, tag);
        match progress {
            Progress::Pending => Ok(None),
            Progress::Later => self.begin(slot).map(|()| None),
            Progress::Done(Ok(())) => Ok(Some(slot)),
            Progress::Done(Err(Errno(errno))) => Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

fn fill(buffers: &Mapping) {
    let mut random = fastrand::Rng::with_seed(0);
    for at in (0..buffers.len() - 7).step_by(8) {
        buffers.write(at, &random.u64(..).to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use cairn_disk::Claim;

    use super::*;

    fn open(path: &Path, depth: u32) -> BareDisk {
        let backend = crate::open_file(path, Claim::default()).unwrap();
        BareDisk::new(backend, depth, 4096, Duration::from_millis(1), false).unwrap()
    }

    #[test]
    fn every_operation_ends_once() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        for write in [true, false] {
            let mut disk = open(file.path(), 8);
            assert_eq!(disk.places(), 256);
            for rounds in [0, 3, 100] {
                let (mut begun, mut ended) = (0, 0);
                let next = || {
                    begun += 1;
                    (begun <= rounds).then_some(begun * 7 % 256)
                };
                disk.run(write, next, |_| ended += 1).unwrap();
                assert_eq!(ended, rounds);
            }
        }
    }

    #[test]
    fn a_file_that_was_cut_fails_its_reads() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        let mut disk = open(file.path(), 1);
        file.as_file().set_len(4096).unwrap();
        let mut places = [0, 5].into_iter();
        let error = disk.run(false, || places.next(), |_| ()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EIO));
    }
}
