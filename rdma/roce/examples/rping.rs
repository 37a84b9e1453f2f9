//! Client and server of rdma-core's `rping`: an echo by RDMA READ and WRITE.
//!
//! ```text
//! cargo run -p cairn-roce --example rping -- server 192.0.2.1
//! rping -c -a 192.0.2.1 -C 10 -V             (on another machine, with an RDMA device)
//!
//! rping -s -a 192.0.2.2 -S 65535             (on another machine)
//! cargo run -p cairn-roce --example rping -- client 192.0.2.2 10 65535
//! ```
//!
//! The server READs the client's data, and then WRITEs the echo.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use cairn_roce::Soft;
use cairn_roce::rdma::{
    Access, Completion, CompletionKind, ConnRequest, ConnectOptions, Device, Endpoint,
    EndpointOptions, Event, ListenOptions, ListenerEvent, Mapping, Operation, PKey, Provider, QpId,
    QpOptions, RecvWork, Region, RemoteBuffer, SendWork, WorkStatus, sleep_until_ready,
};

pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const PORT: u16 = 7174;

const RECEIVED: usize = 0;
const SENT: usize = 64;
const SOURCE: usize = 4 << 10;
const SINK: usize = 68 << 10;
const REGION_BYTES: usize = 132 << 10;

fn main() -> Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let words: Vec<_> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["server", address] => serve(address.parse()?, |at| println!("listening on {at}")),
        ["client", address, count, bytes] => ping(address.parse()?, count.parse()?, bytes.parse()?),
        _ => Err("usage: rping server ADDRESS, or rping client ADDRESS COUNT BYTES".into()),
    }
}

pub(crate) fn serve(ip: IpAddr, listening: impl FnOnce(SocketAddr)) -> Result<()> {
    let (address, provider) = (SocketAddr::new(ip, PORT), Soft::default());
    let device = provider.device_for(address, Some(ip))?;
    let mut end = End::open(&device, Access::LOCAL_WRITE)?;
    let options = ListenOptions {
        address,
        backlog: 4,
        pkey: PKey::DEFAULT,
        roce: None,
    };
    let (sender, requests) = mpsc::channel();
    let sink = move |event| sender.send(event).unwrap_or_default();
    let _listener = provider.listen(&options, Box::new(sink))?;
    listening(address);
    for event in requests {
        match event {
            ListenerEvent::Request(request) => match (request.peer, end.answer(*request)) {
                (peer, Ok((pings, bytes))) => println!("{peer}: {pings} pings, {bytes} bytes"),
                (peer, Err(error)) => println!("{peer}: {error}"),
            },
            other => println!("{other:?}"),
        }
    }
    Ok(())
}

pub(crate) fn ping(ip: IpAddr, count: u32, bytes: u16) -> Result<()> {
    let (remote, provider) = (SocketAddr::new(ip, PORT), Soft::default());
    let access = Access::REMOTE_READ | Access::REMOTE_WRITE;
    let mut end = End::open(&provider.device_for(remote, None)?, access)?;
    let options = ConnectOptions {
        remote,
        local: None,
        pkey: PKey::DEFAULT,
        qp: QpOptions::default(),
        timeout: Duration::from_secs(5),
    };
    end.qp = end.endpoint.connect(&options, &[])?;
    end.wait(Progress::Established)?;
    for ping in 0..count {
        let letter = |at| b'A' + ((u32::from(at) + ping) % 58) as u8;
        let mut data: Vec<_> = (0..bytes).map(letter).collect();
        if let Some(last) = data.last_mut() {
            *last = 0;
        }
        end.region.mapping().write(SOURCE, &data);
        for place in [SOURCE, SINK] {
            let buffer = end.region.remote(place).ok_or("peers have no access")?;
            let keys = u128::from(buffer.rkey) << 32 | u128::from(bytes);
            end.send((u128::from(buffer.addr) << 64 | keys).to_be_bytes())?;
            end.receive()?.ok_or("the server has disconnected")?;
        }
        let mut echo = vec![0; data.len()];
        end.region.mapping().read(SINK, &mut echo);
        if echo != data {
            return Err(format!("echo {ping} differs from its data").into());
        }
    }
    println!("{remote}: {count} pings of {bytes} bytes");
    end.close();
    Ok(())
}

#[derive(Clone, Copy, PartialEq)]
enum Progress {
    Established,
    Done(CompletionKind),
    Disconnected,
    Closed,
}

struct End {
    endpoint: Box<dyn Endpoint>,
    region: Region,
    qp: QpId,
    events: Vec<Event>,
}

impl End {
    fn open(device: &Arc<dyn Device>, access: Access) -> Result<Self> {
        let options = EndpointOptions {
            receives: 1,
            completions: 8,
            queue_pairs: 1,
        };
        let mut end = Self {
            endpoint: Arc::clone(device).open(&options)?,
            region: device.register(Arc::new(Mapping::anonymous(REGION_BYTES)?), access)?,
            qp: QpId::new(0, 0),
            events: Vec::new(),
        };
        end.post_receive()?;
        Ok(end)
    }

    fn answer(&mut self, request: ConnRequest) -> Result<(u32, u64)> {
        self.qp = self.endpoint.accept(request, &QpOptions::default(), &[])?;
        let served = self.echo();
        self.close();
        served
    }

    fn echo(&mut self) -> Result<(u32, u64)> {
        let (mut pings, mut bytes) = (0, 0);
        while let Some((source, length)) = self.receive()? {
            self.post(Operation::Read(source), SOURCE, length)?;
            self.wait(Progress::Done(CompletionKind::Read))?;
            self.send([0; 16])?;
            let Some((sink, _)) = self.receive()? else {
                break;
            };
            // Work executes in order, so the data arrives before the confirmation.
            self.post(Operation::Write(sink), SOURCE, length)?;
            self.send([0; 16])?;
            (pings, bytes) = (pings + 1, bytes + u64::from(length));
        }
        Ok((pings, bytes))
    }

    fn post_receive(&mut self) -> Result<()> {
        let sges = self.region.sge(RECEIVED, 16).into();
        Ok(self.endpoint.post_receives(&[RecvWork { id: 0, sges }])?)
    }

    fn post(&mut self, op: Operation, offset: usize, length: u32) -> Result<()> {
        let work = SendWork {
            id: 0,
            op,
            sges: self.region.sge(offset, length).into(),
            signaled: true,
        };
        Ok(self.endpoint.post(self.qp, &[work])?)
    }

    fn send(&mut self, message: [u8; 16]) -> Result<()> {
        self.region.mapping().write(SENT, &message);
        self.post(Operation::Send, SENT, 16)
    }

    fn receive(&mut self) -> Result<Option<(RemoteBuffer, u32)>> {
        if !self.wait(Progress::Done(CompletionKind::Recv))? {
            return Ok(None);
        }
        let mut message = [0; 16];
        self.region.mapping().read(RECEIVED, &mut message);
        self.post_receive()?;
        let message = u128::from_be_bytes(message);
        let (addr, rkey) = ((message >> 64) as u64, (message >> 32) as u32);
        Ok(Some((RemoteBuffer { addr, rkey }, message as u32)))
    }

    fn wait(&mut self, wanted: Progress) -> Result<bool> {
        loop {
            match self.next()? {
                progress if progress == wanted => return Ok(true),
                Progress::Disconnected => return Ok(false),
                _ => {}
            }
        }
    }

    fn next(&mut self) -> Result<Progress> {
        loop {
            let mut done = [Completion::EMPTY];
            if self.endpoint.poll(&mut done) > 0 {
                match done[0].status {
                    WorkStatus::Success => return Ok(Progress::Done(done[0].kind)),
                    WorkStatus::Flushed => {} // an event reports the reason
                    status => return Err(format!("{:?}: {status:?}", done[0].kind).into()),
                }
            } else if let Some(event) = self.events.pop() {
                match event {
                    Event::Established { .. } => return Ok(Progress::Established),
                    Event::Disconnected { .. } => return Ok(Progress::Disconnected),
                    Event::Closed { .. } => return Ok(Progress::Closed),
                    Event::Notice { message } => println!("{message}"),
                    failure => return Err(format!("{failure:?}").into()),
                }
            } else {
                self.endpoint.poll_events(&mut self.events);
                self.events.reverse();
                if self.events.is_empty() {
                    let latest = Instant::now() + Duration::from_secs(1);
                    sleep_until_ready(&mut *self.endpoint, latest)?;
                }
            }
        }
    }

    fn close(&mut self) {
        self.endpoint.disconnect(self.qp);
        while !matches!(self.next(), Ok(Progress::Closed)) {}
    }
}
