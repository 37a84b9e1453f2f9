//! Copies the first namespace of a subsystem to the second with several concurrent commands.
//! Destroys the data of the second namespace.
//!
//! ```text
//! cargo run -p cairn-initiator --example copy -- 192.0.2.1:4420 nqn.2024-01.com.example:db
//! ```

use std::error::Error;

use cairn_initiator::{
    Buffer, Data, Host, HostError, HostOptions, Identity, IoQueue, Namespace, Nqn, Provider, Soft,
    Ticket,
};

const DEPTH: usize = 8;
/// Maximum data of a command in bytes.
const PART: u32 = 128 * 1024;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(remote), Some(subnqn)) = (args.next(), args.next()) else {
        return Err("usage: copy ADDRESS:PORT SUBNQN".into());
    };
    let options = HostOptions::new(
        remote.parse()?,
        Nqn::parse(&subnqn)?,
        Identity::of_this_machine()?,
    );
    println!("{} blocks copied", run(&Soft::default(), options)?);
    Ok(())
}

pub(crate) fn run(provider: &dyn Provider, options: HostOptions) -> Result<u64, Box<dyn Error>> {
    let mut host = Host::connect(provider, options)?;
    let namespaces = host.open_namespaces()?;
    let [from, to, ..] = &namespaces[..] else {
        return Err("give two namespaces".into());
    };
    if from.block_bytes != to.block_bytes || from.blocks > to.blocks {
        return Err("the second namespace has other blocks, or fewer".into());
    }
    let part_bytes = PART.min(host.transfer_max());
    let lane_bytes = part_bytes / from.block_bytes * from.block_bytes;
    let buffers = host.buffer(DEPTH * lane_bytes as usize)?;
    let mut copy = Copy {
        part_blocks: lane_bytes / from.block_bytes,
        next: 0,
        parts: Vec::new(),
        from,
        to,
    };
    for buffer in buffers.split(lane_bytes as usize) {
        copy.read_next(&mut host, buffer)?;
    }
    copy.finish(&mut host)?;
    to.flush(&mut host)?;
    host.shutdown()?;
    Ok(from.blocks)
}

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
    part_blocks: u32,
    next: u64,
    parts: Vec<Part>,
}

impl Copy<'_> {
    fn finish(&mut self, host: &mut Host) -> Result<(), HostError> {
        while !self.parts.is_empty() {
            let (ticket, ended) = host.wait_until("an answer", |host| host.reap(IoQueue::FIRST))?;
            let buffer = ended.into_buffer()?;
            let mine = self.parts.iter().position(|part| part.ticket == ticket);
            let part = self
                .parts
                .swap_remove(mine.expect("a command of this copy"));
            if part.written {
                self.read_next(host, buffer)?;
            } else {
                self.write(host, part, buffer)?;
            }
        }
        Ok(())
    }

    fn read_next(&mut self, host: &mut Host, buffer: Buffer) -> Result<(), HostError> {
        let left = self.from.blocks - self.next;
        let blocks = left.min(self.part_blocks.into()) as u32;
        if blocks == 0 {
            return Ok(());
        }
        let slba = self.next;
        self.next += u64::from(blocks);
        let data = Data::start_of(buffer, blocks * self.from.block_bytes);
        let ticket = host.submit(self.from.read_command(slba, blocks), data)?;
        self.parts.push(Part {
            slba,
            blocks,
            written: false,
            ticket,
        });
        Ok(())
    }

    fn write(&mut self, host: &mut Host, part: Part, buffer: Buffer) -> Result<(), HostError> {
        let data = Data::start_of(buffer, part.blocks * self.to.block_bytes);
        let ticket = host.submit(self.to.write_command(part.slba, part.blocks), data)?;
        self.parts.push(Part {
            written: true,
            ticket,
            ..part
        });
        Ok(())
    }
}
