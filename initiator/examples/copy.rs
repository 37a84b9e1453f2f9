//! Copies the first namespace of a subsystem to the second with several concurrent commands.
//!
//! ```text
//! cargo run -p cairn-initiator --example copy -- 192.0.2.1:4420 nqn.2024-01.com.example:db
//! ```

use std::error::Error;

use cairn_initiator::{Buffer, Data, Host, HostError, HostOptions, Namespace, Ticket};
use cairn_rdma::Provider;
use cairn_roce::Soft;
use nvme_proto::wire::Nqn;

const DEPTH: usize = 8;
/// Maximum bytes of a command.
const PART: u32 = 128 * 1024;
const QUEUE: u16 = 1;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(remote), Some(subnqn)) = (args.next(), args.next()) else {
        return Err("usage: copy ADDRESS:PORT SUBNQN".into());
    };
    let hostnqn = Nqn::parse("nqn.2026-01.org.example:copy")?;
    let options = HostOptions::new(remote.parse()?, Nqn::parse(&subnqn)?, hostnqn);
    println!("{} blocks copied", run(&Soft::default(), options)?);
    Ok(())
}

/// Copies and returns the number of blocks.
pub(crate) fn run(provider: &dyn Provider, options: HostOptions) -> Result<u64, Box<dyn Error>> {
    let mut host = Host::connect(provider, options)?;
    let namespaces = host.open_namespaces()?;
    let [from, to, ..] = &namespaces[..] else {
        return Err("it takes two namespaces".into());
    };
    if from.block_bytes != to.block_bytes || from.blocks > to.blocks {
        return Err("the second namespace has other blocks, or fewer".into());
    }
    let part_bytes = PART.min(host.transfer_max());
    let mut copy = Copy {
        buffer: host.buffer(DEPTH * part_bytes as usize)?,
        part_blocks: part_bytes / from.block_bytes,
        next: 0,
        lanes: [None; DEPTH],
        from,
        to,
    };
    copy.all(&mut host)?;
    host.run(QUEUE, to.flush(), Data::None)?;
    host.shutdown()?;
    Ok(from.blocks)
}

/// Part in flight: first read, then written.
#[derive(Clone, Copy)]
struct Part {
    slba: u64,
    blocks: u32,
    written: bool,
    ticket: Ticket,
}

struct Copy<'a> {
    from: &'a Namespace,
    to: &'a Namespace,
    buffer: Buffer,
    part_blocks: u32,
    /// First block not yet started.
    next: u64,
    lanes: [Option<Part>; DEPTH],
}

impl Copy<'_> {
    fn all(&mut self, host: &mut Host) -> Result<(), HostError> {
        for lane in 0..DEPTH {
            self.read_next(host, lane)?;
        }
        while self.lanes.iter().any(Option::is_some) {
            let (ticket, answer) = host.wait_until("an answer", |host| host.reap(QUEUE))?;
            let status = answer?.cqe.status();
            let mine = |part: &Option<Part>| part.is_some_and(|part| part.ticket == ticket);
            let Some(lane) = self.lanes.iter().position(mine) else {
                continue;
            };
            let part = self.lanes[lane].take();
            if !status.is_success() {
                return Err(HostError::Status {
                    command: "a part of the copy".to_owned(),
                    status,
                    result: 0,
                });
            }
            match part {
                Some(part) if !part.written => self.write(host, lane, part)?,
                _ => self.read_next(host, lane)?,
            }
        }
        Ok(())
    }

    fn read_next(&mut self, host: &mut Host, lane: usize) -> Result<(), HostError> {
        let left = self.from.blocks - self.next;
        let blocks = left.min(self.part_blocks.into()) as u32;
        if blocks == 0 {
            return Ok(());
        }
        let slba = self.next;
        self.next += u64::from(blocks);
        let ticket = host.submit(QUEUE, self.from.read(slba, blocks), self.data(lane, blocks))?;
        self.lanes[lane] = Some(Part {
            slba,
            blocks,
            written: false,
            ticket,
        });
        Ok(())
    }

    /// Writes from the memory into which the part was read.
    fn write(&mut self, host: &mut Host, lane: usize, part: Part) -> Result<(), HostError> {
        let write = self.to.write(part.slba, part.blocks);
        let ticket = host.submit(QUEUE, write, self.data(lane, part.blocks))?;
        self.lanes[lane] = Some(Part {
            written: true,
            ticket,
            ..part
        });
        Ok(())
    }

    fn data(&self, lane: usize, blocks: u32) -> Data<'_> {
        let lane_bytes = self.part_blocks * self.from.block_bytes;
        let length = blocks * self.from.block_bytes;
        Data::part_of(&self.buffer, lane * lane_bytes as usize, length)
    }
}
