//! Copies a subsystem's first namespace to its second, whose data is lost. Several tasks share a
//! host by futures.
//!
//! ```text
//! cargo run -p cairn-initiator --example async_copy -- 192.0.2.1:4420 nqn.2024-01.com.example:db
//! ```

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cairn_initiator::{
    AsyncHost, Data, HostError, HostOptions, Identity, Namespace, Nqn, Provider, Soft,
};
use tokio::task::JoinSet;

const TASKS: usize = 8;
const PART_BYTES: u32 = 64 * 1024;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(remote), Some(subnqn)) = (args.next(), args.next()) else {
        return Err("usage: async_copy ADDRESS:PORT SUBNQN".into());
    };
    let options = HostOptions::new(
        remote.parse()?,
        Nqn::parse(&subnqn)?,
        Identity::of_this_machine()?,
    );
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let copied = runtime.block_on(run(Arc::new(Soft::default()), options))?;
    println!("{copied} blocks copied");
    Ok(())
}

pub(crate) async fn run(
    provider: Arc<dyn Provider>,
    options: HostOptions,
) -> Result<u64, Box<dyn Error>> {
    let host = Arc::new(AsyncHost::connect(provider, options).await?);
    let (from, to) = (host.open_namespace(1).await?, host.open_namespace(2).await?);
    if from.block_bytes != to.block_bytes || from.blocks > to.blocks {
        return Err("the second namespace has other blocks, or fewer".into());
    }
    let next = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let (host, next) = (Arc::clone(&host), Arc::clone(&next));
        let (from, to) = (from.clone(), to.clone());
        tasks.spawn(async move { copy_parts(&host, &from, &to, &next).await });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    host.run(to.flush_command(), Data::None).await.answer?;
    let host = Arc::into_inner(host).ok_or("a task still has the host")?;
    host.shutdown().await?;
    Ok(from.blocks)
}

async fn copy_parts(
    host: &AsyncHost,
    from: &Namespace,
    to: &Namespace,
    next: &AtomicU64,
) -> Result<(), HostError> {
    let part_blocks = PART_BYTES / from.block_bytes;
    let mut buffer = host.buffer(PART_BYTES as usize)?;
    loop {
        let slba = next.fetch_add(part_blocks.into(), Ordering::Relaxed);
        let blocks = from.blocks.saturating_sub(slba).min(part_blocks.into()) as u32;
        if blocks == 0 {
            return Ok(());
        }
        let length = blocks * from.block_bytes;
        let read = from.read_command(slba, blocks);
        let read = host.run(read, Data::start_of(buffer, length)).await;
        let write = to.write_command(slba, blocks);
        let data = Data::start_of(read.into_buffer()?, length);
        buffer = host.run(write, data).await.into_buffer()?;
    }
}
