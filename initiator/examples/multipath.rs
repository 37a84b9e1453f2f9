//! Writes a pattern to every block of namespace 1 over several paths and reads it back, even if a
//! path fails. Destroys the data of the namespace.
//!
//! ```text
//! cargo run -p cairn-initiator --example multipath -- nqn.2024-01.com.example:db 192.0.2.1:4420 198.51.100.1:4420
//! ```

use std::error::Error;

use cairn_initiator::multipath::{Multipath, MultipathOptions};
use cairn_initiator::{Data, HostOptions, Identity, Nqn, Provider, Soft, command};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let subnqn = args.next();
    let subnqn = subnqn.ok_or("usage: multipath SUBNQN ADDRESS:PORT ADDRESS:PORT...")?;
    let (subnqn, host) = (Nqn::parse(&subnqn)?, Identity::of_this_machine()?);
    let paths = args.map(|remote| Ok(HostOptions::new(remote.parse()?, subnqn, host)));
    let paths = paths.collect::<Result<Vec<_>, Box<dyn Error>>>()?;
    let (blocks, commands) = run(&Soft::default(), paths)?;
    println!("{blocks} blocks verified; commands by path: {commands:?}");
    Ok(())
}

pub(crate) fn run(
    provider: &dyn Provider,
    paths: Vec<HostOptions>,
) -> Result<(u64, Vec<u64>), Box<dyn Error>> {
    if paths.is_empty() {
        return Err("give the address of each path".into());
    }
    let mut disk = Multipath::connect(provider, paths, MultipathOptions::new(1))?;
    let namespace = *disk.namespace().ok_or("no path leads to the namespace")?;
    let block_bytes = namespace.block_bytes as usize;
    let mut buffer = disk.buffer(block_bytes)?;
    for slba in 0..namespace.blocks {
        buffer.write(0, &pattern(slba, block_bytes));
        let write = command::write(namespace.nsid, slba, 1);
        disk.run(write, Data::whole(&mut buffer))?;
    }
    disk.run(command::flush(namespace.nsid), Data::None)?;
    for slba in 0..namespace.blocks {
        let read = command::read(namespace.nsid, slba, 1);
        disk.run(read, Data::whole(&mut buffer))?;
        if buffer.bytes(0, block_bytes) != pattern(slba, block_bytes) {
            return Err(format!("block {slba} came back different").into());
        }
    }
    let commands = disk.paths().map(|path| path.commands).collect();
    disk.close()?;
    Ok((namespace.blocks, commands))
}

fn pattern(slba: u64, bytes: usize) -> Vec<u8> {
    let words = (0..bytes as u64 / 8).flat_map(|word| (slba << 16 ^ word).to_le_bytes());
    words.collect()
}
