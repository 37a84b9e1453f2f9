//! Writes a pattern to every block of the first namespace and reads it back, with futures: 32 tasks
//! share a host. Destroys the data of the namespace.
//!
//! ```text
//! cargo run -p cairn-initiator --example verify -- 192.0.2.1:4420 nqn.2024-01.com.example:db
//! ```

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cairn_initiator::{
    AsyncHost, Data, HostError, HostOptions, Identity, Namespace, Nqn, Provider, Soft,
};
use tokio::task::JoinSet;

const TASKS: usize = 32;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(remote), Some(subnqn)) = (args.next(), args.next()) else {
        return Err("usage: verify ADDRESS:PORT SUBNQN".into());
    };
    let options = HostOptions::new(
        remote.parse()?,
        Nqn::parse(&subnqn)?,
        Identity::of_this_machine()?,
    );
    println!(
        "{} blocks verified",
        run(Arc::new(Soft::default()), options)?
    );
    Ok(())
}

pub(crate) fn run(
    provider: Arc<dyn Provider>,
    options: HostOptions,
) -> Result<u64, Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(async {
        let host = Arc::new(AsyncHost::connect(provider, options).await?);
        let disk = host.open_namespace(1).await?;
        let next = Arc::new(AtomicU64::new(0));
        let mut tasks = JoinSet::new();
        for _ in 0..TASKS {
            let (host, disk, next) = (Arc::clone(&host), disk.clone(), Arc::clone(&next));
            tasks.spawn(async move { verify_blocks(&host, &disk, &next).await });
        }
        let mut verified = 0;
        while let Some(done) = tasks.join_next().await {
            verified += done?.map_err(|error| error.to_string())?;
        }
        let host = Arc::into_inner(host).ok_or("a task still has the host")?;
        host.shutdown().await?;
        Ok(verified)
    })
}

async fn verify_blocks(
    host: &AsyncHost,
    disk: &Namespace,
    next: &AtomicU64,
) -> Result<u64, HostError> {
    let length = disk.block_bytes;
    let mut buffer = host.buffer(length as usize)?;
    let mut verified = 0;
    loop {
        let slba = next.fetch_add(1, Ordering::Relaxed);
        if slba >= disk.blocks {
            return Ok(verified);
        }
        let pattern: Vec<u8> = (0..u64::from(length) / 8)
            .flat_map(|word| (slba << 16 ^ word).to_le_bytes())
            .collect();
        buffer.write(0, &pattern);
        let written = host
            .run(disk.write_command(slba, 1), Data::whole(buffer))
            .await;
        buffer = written.into_buffer()?;
        buffer.write(0, &vec![0; length as usize]);
        let read = host
            .run(disk.read_command(slba, 1), Data::whole(buffer))
            .await;
        buffer = read.into_buffer()?;
        if buffer.bytes(0, length as usize) != pattern {
            return Err(HostError::Unsupported(format!(
                "block {slba} came back different"
            )));
        }
        verified += 1;
    }
}
