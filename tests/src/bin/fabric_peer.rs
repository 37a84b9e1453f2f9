//! `cairn-fabric-peer`: one end of a connection, which prints a line for each event.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use cairn_base::Mapping;
use cairn_rdma::{
    Access, Completion, CompletionKind, ConnRequest, ConnectOptions, Device, Endpoint,
    EndpointOptions, Event, ListenOptions, ListenerEvent, Operation, PKey, QpId, QpOptions,
    RecvWork, Region, SendWork, SgeList,
};
use cairn_tests::provider::ProviderName;
use clap::{Parser, Subcommand};
use crossbeam_channel::Receiver;
use tracing_subscriber::EnvFilter;

const MESSAGE: usize = 64;
const SLOTS: usize = 64;

/// One end of an RDMA connection.
#[derive(Debug, Parser)]
struct Arguments {
    #[arg(long, value_enum, default_value = "verbs")]
    provider: ProviderName,
    #[arg(long)]
    traffic_class: Option<u8>,
    #[arg(long)]
    hop_limit: Option<u8>,
    #[arg(long, default_value_t = PKey::DEFAULT)]
    pkey: PKey,
    #[command(subcommand)]
    role: Role,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// Accept every host, and send each message back
    Answer {
        at: SocketAddr,
        /// Respond by SEND with invalidate of this key, which belongs to no memory region
        #[arg(long)]
        invalidate: Option<u32>,
        /// Panic in the listener's thread at this connection request, counted from 1
        #[arg(long)]
        panic_at: Option<u32>,
    },
    /// Connect, send messages, and expect each back
    Ask {
        whom: SocketAddr,
        #[arg(long)]
        from: Option<std::net::IpAddr>,
        #[arg(long, default_value_t = 1)]
        count: u32,
        #[arg(long)]
        hold: bool,
    },
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    let provider = arguments.provider.open()?;
    let qp = QpOptions {
        traffic_class: arguments.traffic_class,
        hop_limit: arguments.hop_limit,
        ..QpOptions::default()
    };
    match arguments.role {
        Role::Answer {
            at,
            invalidate,
            panic_at,
        } => {
            let (sender, events) = crossbeam_channel::unbounded();
            let options = ListenOptions {
                address: at,
                backlog: 8,
                pkey: arguments.pkey,
                roce: None,
            };
            let requests = AtomicU32::new(0);
            let sink = Box::new(move |event| {
                if matches!(event, ListenerEvent::Request(_)) {
                    let number = requests.fetch_add(1, Ordering::Relaxed) + 1;
                    assert!(panic_at != Some(number), "on purpose");
                }
                drop(sender.send(event));
            });
            let listener = provider.listen(&options, sink)?;
            println!("listening {}", listener.local_addr());
            answer(&events, &qp, invalidate)
        }
        Role::Ask {
            whom,
            from,
            count,
            hold,
        } => {
            let device = provider.device_for(whom, from)?;
            let mut end = End::open(device)?;
            let options = ConnectOptions {
                remote: whom,
                local: from,
                pkey: arguments.pkey,
                qp,
                timeout: Duration::from_secs(5),
            };
            let qp = end.endpoint.connect(&options, b"cairn-fabric-peer")?;
            ask(&mut end, qp, count, hold)
        }
    }
}

fn answer(
    events: &Receiver<ListenerEvent>,
    options: &QpOptions,
    invalidate: Option<u32>,
) -> Result<ExitCode> {
    let mut end: Option<End> = None;
    loop {
        match events.recv_timeout(Duration::from_millis(1)) {
            Ok(ListenerEvent::Request(request)) => {
                if let Err(error) = accept(&mut end, *request, options) {
                    println!("not accepted: {error:#}");
                }
            }
            Ok(ListenerEvent::Down { reason }) => println!("listener down: {reason}"),
            Ok(ListenerEvent::Up) => println!("listener up"),
            Err(_) => {}
        }
        let Some(open) = &mut end else { continue };
        for landed in open.receives() {
            let op = match invalidate {
                Some(rkey) => Operation::SendWithInvalidate { rkey },
                None => Operation::Send,
            };
            open.send(landed.qp, op)?;
        }
        let mut removed = false;
        for event in open.events() {
            match event {
                Event::Disconnected { qp, .. } => open.endpoint.disconnect(qp),
                Event::DeviceRemoved => removed = true,
                _ => {}
            }
        }
        if removed {
            end = None;
        }
    }
}

fn accept(end: &mut Option<End>, request: ConnRequest, options: &QpOptions) -> Result<()> {
    let open = match end {
        Some(open) => open,
        None => end.insert(End::open(Arc::clone(&request.device))?),
    };
    open.endpoint.accept(request, options, b"welcome")?;
    Ok(())
}

fn ask(end: &mut End, qp: QpId, count: u32, hold: bool) -> Result<ExitCode> {
    let (mut asked, mut answered) = (0, 0);
    loop {
        answered += end.receives().len() as u32;
        for event in end.events() {
            match event {
                Event::Established { .. } => {
                    asked = 1;
                    end.send(qp, Operation::Send)?;
                }
                Event::Closed { .. } if answered >= count => return Ok(ExitCode::SUCCESS),
                Event::Closed { .. } => bail!("{answered} of {count} answers came"),
                Event::Disconnected { .. } => end.endpoint.disconnect(qp),
                Event::DeviceRemoved => bail!("the device has gone"),
                _ => {}
            }
        }
        if answered == asked && asked > 0 && answered < count {
            asked += 1;
            end.send(qp, Operation::Send)?;
        } else if answered == count && asked == count {
            println!("answered {count}");
            asked = u32::MAX;
            if !hold {
                end.endpoint.disconnect(qp);
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

struct End {
    endpoint: Box<dyn Endpoint>,
    region: Region,
}

impl End {
    fn open(device: Arc<dyn Device>) -> Result<Self> {
        let mapping = Arc::new(Mapping::anonymous((SLOTS + 1) * MESSAGE)?);
        let region = device
            .register(mapping, Access::LOCAL_WRITE)
            .context("memory")?;
        let mut endpoint = device.open(&EndpointOptions {
            receives: SLOTS as u32,
            completions: 4 * SLOTS as u32,
            queue_pairs: 16,
        })?;
        for slot in 0..SLOTS {
            endpoint.post_receives(&[receive(&region, slot)])?;
        }
        Ok(Self { endpoint, region })
    }

    fn send(&mut self, qp: QpId, op: Operation) -> Result<()> {
        let work = SendWork {
            id: 0,
            op,
            sges: message(&self.region, SLOTS),
            signaled: true,
        };
        if let Err(error) = self.endpoint.post(qp, &[work]) {
            println!("not sent: {error}");
        }
        Ok(())
    }

    fn receives(&mut self) -> Vec<Completion> {
        let mut out = [Completion::EMPTY; 16];
        let count = self.endpoint.poll(&mut out);
        let mut landed = Vec::new();
        for done in &out[..count] {
            if !done.status.is_success() {
                println!("failed {:?}: {:?}", done.kind, done.status);
            }
            if done.kind == CompletionKind::Recv {
                let again = receive(&self.region, done.id as usize);
                if let Err(error) = self.endpoint.post_receives(&[again]) {
                    println!("receive not posted: {error}");
                }
                landed.extend(done.status.is_success().then_some(*done));
            }
        }
        landed
    }

    fn events(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        self.endpoint.poll_events(&mut events);
        for event in &events {
            match event {
                Event::Established { .. } => println!("established"),
                Event::Disconnected { reason, .. } => println!("disconnected {reason:?}"),
                Event::Closed { .. } => println!("closed"),
                Event::DeviceRemoved => println!("device removed"),
                Event::EndpointBroken { reason } => println!("endpoint broken: {reason}"),
                Event::Rejected { reason, .. } => println!("rejected, reason {reason}"),
                Event::ConnectFailed { reason, .. } => println!("connect failed: {reason}"),
                Event::Notice { message } => println!("notice: {message}"),
            }
        }
        events
    }
}

fn receive(region: &Region, slot: usize) -> RecvWork {
    RecvWork {
        id: slot as u64,
        sges: message(region, slot),
    }
}

fn message(region: &Region, slot: usize) -> SgeList {
    region.sge(slot * MESSAGE, MESSAGE as u32).into()
}
