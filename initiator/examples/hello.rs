//! Connects to a subsystem, writes a block of its first namespace, reads it back, and shuts down.
//! Destroys the data of the block.
//!
//! ```text
//! cargo run -p cairn-initiator --example hello -- 192.0.2.1:4420 nqn.2024-01.com.example:db
//! ```

use cairn_initiator::{Host, HostOptions, Identity, Nqn, Provider, Soft};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
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

pub(crate) fn run(provider: &dyn Provider, options: HostOptions) -> Result<String> {
    let mut host = Host::connect(provider, options)?;
    let namespaces = host.open_namespaces()?;
    let disk = namespaces.first().ok_or("there is no namespace")?;

    let hello = b"hello over RDMA";
    let mut block = vec![0; disk.block_bytes as usize];
    block[..hello.len()].copy_from_slice(hello);
    disk.write(&mut host, 0, &block)?;

    let came_back = disk.read(&mut host, 0, 1)?;
    host.shutdown()?;
    Ok(String::from_utf8(came_back[..hello.len()].to_vec())?)
}
