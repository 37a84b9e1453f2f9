//! Connects to a subsystem, writes a block of its first namespace, reads it back, and shuts down.
//! Destroys the data of the block.
//!
//! ```text
//! cargo run -p cairn-initiator --example hello -- 192.0.2.1:4420 nqn.2024-01.com.example:db
//! ```

use std::error::Error;

use cairn_initiator::{Data, Host, HostOptions, Identity, Nqn, Provider, Soft};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(remote), Some(subnqn)) = (args.next(), args.next()) else {
        return Err("usage: hello ADDRESS:PORT SUBNQN".into());
    };
    let options = HostOptions::new(
        remote.parse()?,
        Nqn::parse(&subnqn)?,
        Identity::of_this_machine()?,
    );
    println!("{}", run(&Soft::default(), options)?);
    Ok(())
}

pub(crate) fn run(provider: &dyn Provider, options: HostOptions) -> Result<String, Box<dyn Error>> {
    let mut host = Host::connect(provider, options)?;
    let namespaces = host.open_namespaces()?;
    let disk = namespaces.first().ok_or("there is no namespace")?;
    let length = disk.block_bytes;

    // The controller reads and writes this buffer by RDMA.
    let mut buffer = host.buffer(length as usize)?;
    let hello = b"hello over RDMA";
    buffer.write(0, hello);
    host.run(disk.write(0, 1), Data::start_of(&mut buffer, length))?;

    buffer.write(0, &[0; 15]);
    host.run(disk.read(0, 1), Data::start_of(&mut buffer, length))?;
    let came_back = String::from_utf8(buffer.bytes(0, hello.len()))?;

    host.shutdown()?;
    Ok(came_back)
}
