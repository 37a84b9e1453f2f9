//! RDMA connections without NVMe, for `ping` and `link`.
//!
//! All measurements except the connection time require a peer that echoes each message:
//! `link --listen` or Cairn's example `responder`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_base::Mapping;
use cairn_rdma::{
    Access, Completion, ConnectOptions, Device, Endpoint, EndpointOptions, Event, Operation, PKey,
    QpId, QpOptions, RecvWork, Region, RemoteBuffer, SendWork, Sge, sleep_until_ready,
};
use cairn_trouble as trouble;
use nvme_proto::wire::IntoBytes;
use nvme_proto::wire::cm::RequestData;

use super::session::text;
use super::{CALLER, Result};

const PATIENCE: Duration = Duration::from_secs(5);
const SPIN: Duration = Duration::from_micros(50);
pub(super) const MESSAGE_BYTES: usize = 4096;
const RECEIVES: usize = 4;
const DATA: usize = (RECEIVES + 1) * MESSAGE_BYTES;
pub(super) const DATA_BYTES: u32 = 128 << 10;
pub(super) const DEPTH: usize = 8;
/// Bytes of perftest's message with key and address of the sender's memory.
pub(super) const DESTINATION_BYTES: usize = 56;
pub(super) const RKEY: std::ops::Range<usize> = 16..20;
pub(super) const ADDR: std::ops::Range<usize> = 24..32;
const RECEIVE: u64 = 1 << 63;

pub(super) struct Link {
    remote: SocketAddr,
    endpoint: Box<dyn Endpoint>,
    region: Region,
    qp: QpId,
    window: RemoteBuffer,
}

pub(super) fn connection_time(
    device: &Arc<dyn Device>,
    remote: SocketAddr,
    pkey: PKey,
) -> Result<Duration> {
    let request = RequestData::new(0, 32, 31, 0);
    let begun = Instant::now();
    let mut link = Link::connect(device, remote, pkey, request.as_bytes())?;
    let time = begun.elapsed();
    link.disconnect()?;
    Ok(time)
}

impl Link {
    /// Connects to a responder in the default partition, and obtains key and address of its memory.
    pub(super) fn to_responder(device: &Arc<dyn Device>, remote: SocketAddr) -> Result<Self> {
        let mut link = Self::connect(device, remote, PKey::DEFAULT, &[])?;
        let reply = link.echo(&[0; DESTINATION_BYTES])?;
        let number = |range: std::ops::Range<usize>| {
            reply[range]
                .iter()
                .fold(0u64, |all, &byte| all << 8 | u64::from(byte))
        };
        if reply.len() != DESTINATION_BYTES || number(ADDR) == 0 {
            return Err(format!(
                "{remote} answers, but not as Cairn's responder does"
            ));
        }
        link.window = RemoteBuffer {
            addr: number(ADDR),
            rkey: number(RKEY) as u32,
        };
        Ok(link)
    }

    fn connect(
        device: &Arc<dyn Device>,
        remote: SocketAddr,
        pkey: PKey,
        private: &[u8],
    ) -> Result<Self> {
        let options = EndpointOptions {
            receives: RECEIVES as u32,
            completions: (RECEIVES + 2 * DEPTH) as u32,
            queue_pairs: 1,
        };
        let mut endpoint = Arc::clone(device).open(&options).map_err(text)?;
        let mapping = Mapping::anonymous(DATA + DEPTH * DATA_BYTES as usize).map_err(text)?;
        let region = device
            .register(Arc::new(mapping), Access::LOCAL_WRITE)
            .map_err(text)?;
        let connect = ConnectOptions {
            remote,
            local: None,
            pkey,
            qp: QpOptions {
                send_work: 2 * DEPTH as u32,
                ..QpOptions::default()
            },
            timeout: PATIENCE,
        };
        let qp = endpoint.connect(&connect, private).map_err(text)?;
        let mut link = Self {
            remote,
            endpoint,
            region,
            qp,
            window: RemoteBuffer { addr: 0, rkey: 0 },
        };
        (0..RECEIVES).try_for_each(|slot| link.post_receive(slot))?;
        link.wait_event(|event| match event {
            Event::Established { .. } => Some(Ok(())),
            Event::Rejected { reason, .. } => Some(Err(format!(
                "{remote} rejects the connection: {}",
                trouble::of_reject(*reason).line(CALLER, remote.ip())
            ))),
            Event::ConnectFailed { reason, .. } => Some(Err(reason.clone())),
            _ => None,
        })??;
        Ok(link)
    }

    pub(super) fn disconnect(&mut self) -> Result<()> {
        self.endpoint.disconnect(self.qp);
        self.wait_event(|event| matches!(event, Event::Closed { .. }).then_some(()))
    }

    pub(super) fn echo(&mut self, message: &[u8]) -> Result<Vec<u8>> {
        let at = RECEIVES * MESSAGE_BYTES;
        self.region.mapping().write(at, message);
        let sge = self.sge(at, message.len() as u32);
        self.post(Operation::Send, sge)?;
        let (mut sent, mut reply) = (false, None);
        while !sent || reply.is_none() {
            let completion = self.wait_completion()?;
            if completion.id & RECEIVE == 0 {
                sent = true;
                continue;
            }
            let slot = (completion.id & !RECEIVE) as usize;
            let mut bytes = vec![0; completion.byte_len as usize];
            self.region.mapping().read(slot * MESSAGE_BYTES, &mut bytes);
            self.post_receive(slot)?;
            reply = Some(bytes);
        }
        Ok(reply.expect("the loop ends with one"))
    }

    pub(super) fn write(&mut self, bytes: u32) -> Result<()> {
        self.post(Operation::Write(self.window), self.sge(DATA, bytes))?;
        self.wait_completion().map(drop)
    }

    pub(super) fn read(&mut self, bytes: u32) -> Result<()> {
        self.post(Operation::Read(self.window), self.sge(DATA, bytes))?;
        self.wait_completion().map(drop)
    }

    /// Returns bytes per second of concurrent large READs or WRITEs.
    pub(super) fn bandwidth(&mut self, read: bool, time: Duration) -> Result<f64> {
        let operation = if read {
            Operation::Read(self.window)
        } else {
            Operation::Write(self.window)
        };
        let begun = Instant::now();
        let (mut posted, mut done) = (0u64, 0u64);
        loop {
            let more = begun.elapsed() < time;
            while more && posted - done < DEPTH as u64 {
                let at = DATA + (posted as usize % DEPTH) * DATA_BYTES as usize;
                self.post(operation, self.sge(at, DATA_BYTES))?;
                posted += 1;
            }
            if done == posted {
                return Ok((done * u64::from(DATA_BYTES)) as f64 / begun.elapsed().as_secs_f64());
            }
            self.wait_completion()?;
            done += 1;
        }
    }

    fn post(&mut self, op: Operation, sge: Sge) -> Result<()> {
        let work = SendWork {
            id: 0,
            op,
            sges: sge.into(),
            signaled: true,
        };
        self.endpoint
            .post(self.qp, &[work])
            .map_err(|error| format!("the connection takes no more work: {error}"))
    }

    fn post_receive(&mut self, slot: usize) -> Result<()> {
        let work = RecvWork {
            id: RECEIVE | slot as u64,
            sges: self.sge(slot * MESSAGE_BYTES, MESSAGE_BYTES as u32).into(),
        };
        self.endpoint
            .post_receives(&[work])
            .map_err(|error| format!("the endpoint takes no receive: {error}"))
    }

    fn sge(&self, at: usize, length: u32) -> Sge {
        self.region.sge(at, length)
    }

    fn wait_completion(&mut self) -> Result<Completion> {
        let completion = self.wait("an answer", |endpoint| {
            let mut one = [Completion::EMPTY];
            (endpoint.poll(&mut one) == 1).then_some(one[0])
        })?;
        if completion.status.is_success() {
            Ok(completion)
        } else {
            let trouble = trouble::of_completion(completion.status.code());
            Err(trouble.line(CALLER, self.remote.ip()))
        }
    }

    fn wait_event<T>(&mut self, pick: impl Fn(&Event) -> Option<T>) -> Result<T> {
        let mut events = Vec::new();
        self.wait("the connection manager", |endpoint| {
            let mut flushed = [Completion::EMPTY; RECEIVES];
            endpoint.poll(&mut flushed);
            events.clear();
            endpoint.poll_events(&mut events);
            events.iter().find_map(&pick)
        })
    }

    fn wait<T>(
        &mut self,
        what: &str,
        mut ready: impl FnMut(&mut dyn Endpoint) -> Option<T>,
    ) -> Result<T> {
        let begun = Instant::now();
        loop {
            if let Some(value) = ready(&mut *self.endpoint) {
                return Ok(value);
            }
            let waited = begun.elapsed();
            if waited > PATIENCE {
                return Err(format!("{what} did not answer within {PATIENCE:?}"));
            }
            if waited > SPIN {
                sleep_until_ready(&mut *self.endpoint, begun + PATIENCE).map_err(text)?;
            }
        }
    }
}
