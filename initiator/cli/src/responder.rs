//! Responder of link measurements, which echoes messages. Like perftest's server, it answers a
//! message of 56 bytes with key and address of its memory.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cairn_base::Mapping;
use cairn_base::wake::Wake;
use cairn_doctor::cli::print_message;
use cairn_rdma::{
    Access, Completion, ConnRequest, Device, Endpoint, EndpointOptions, Event, FabricError,
    ListenOptions, Listener, ListenerEvent, Operation, PKey, QpId, QpOptions, RecvWork, Region,
    SendWork, Sge, sleep_until_ready_or_woken,
};
use std::sync::mpsc::{Receiver, Sender, channel};

use super::Result;
use super::raw::{ADDR, DATA_BYTES, DEPTH, DESTINATION_BYTES, MESSAGE_BYTES, RKEY};
use super::session::text;
use cairn_initiator::providers::{self, RdmaOptions};

const SLOTS: usize = 64;
const WINDOW: usize = SLOTS * MESSAGE_BYTES;
const PEERS: u16 = 8;
/// Idle time before the responder sleeps. A shorter time would increase measured latencies.
const SPIN: Duration = Duration::from_millis(2);
const NAP: Duration = Duration::from_millis(100);
const RECEIVE: u64 = 1 << 63;

pub(super) struct Responder {
    listener: Box<dyn Listener>,
    requests: Receiver<ConnRequest>,
    wake: Arc<Wake>,
}

impl Responder {
    pub(super) fn open(rdma: RdmaOptions, address: SocketAddr) -> Result<Self> {
        let wake = Arc::new(Wake::new().map_err(|error| text(FabricError::os("eventfd")(error)))?);
        let (sender, requests) = channel();
        let listener = providers::listen(rdma, |provider| {
            let (sender, wake): (Sender<ConnRequest>, _) = (sender.clone(), Arc::clone(&wake));
            let options = ListenOptions {
                address,
                backlog: u32::from(PEERS),
                pkey: PKey::DEFAULT,
                roce: None,
            };
            let sink = Box::new(move |event| {
                if let ListenerEvent::Request(request) = event {
                    let _ = sender.send(*request);
                    wake.wake();
                }
            });
            provider.listen(&options, sink)
        })?;
        Ok(Self {
            listener,
            requests,
            wake,
        })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    /// Serves peers until SIGINT or SIGTERM, or with `once`, until the first peer disconnects.
    pub(super) fn run(&self, once: bool) -> Result<()> {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(text)?;
        }
        let mut station: Option<Station> = None;
        let mut busy_until = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            self.wake.clear();
            while let Ok(request) = self.requests.try_recv() {
                station = Some(match station.take() {
                    Some(station) if station.is_on(&request.device) => station,
                    _ => Station::open(&request.device)?,
                });
                station
                    .as_mut()
                    .expect("it was just put there")
                    .accept(request);
            }
            let Some(here) = &mut station else {
                cairn_base::wake::wait_readable([self.wake.fd()], Some(NAP));
                continue;
            };
            let now = Instant::now();
            match here.turn() {
                Turn::Busy => busy_until = now + SPIN,
                Turn::PeerLeft if once => return Ok(()),
                Turn::DeviceGone => station = None,
                Turn::Idle | Turn::PeerLeft if now < busy_until => std::hint::spin_loop(),
                Turn::Idle | Turn::PeerLeft => {
                    let endpoint = &mut *here.endpoint;
                    if sleep_until_ready_or_woken(endpoint, &self.wake, now + NAP).is_err() {
                        station = None;
                    }
                }
            }
        }
        Ok(())
    }
}

enum Turn {
    Busy,
    Idle,
    PeerLeft,
    DeviceGone,
}

struct Station {
    endpoint: Box<dyn Endpoint>,
    messages: Region,
    window: Region,
}

impl Station {
    fn open(device: &Arc<dyn Device>) -> Result<Self> {
        let options = EndpointOptions {
            receives: SLOTS as u32,
            completions: 4 * SLOTS as u32,
            queue_pairs: PEERS,
        };
        let endpoint = Arc::clone(device).open(&options).map_err(text)?;
        let mapping = Mapping::anonymous(WINDOW + DEPTH * DATA_BYTES as usize).map_err(text)?;
        let mapping = Arc::new(mapping);
        let peers = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        let register = |access| device.register(Arc::clone(&mapping), access).map_err(text);
        let mut station = Self {
            endpoint,
            messages: register(Access::LOCAL_WRITE)?,
            window: register(peers)?,
        };
        (0..SLOTS as u64).for_each(|slot| station.post_receive(slot));
        Ok(station)
    }

    fn is_on(&self, device: &Arc<dyn Device>) -> bool {
        self.endpoint.device().id() == device.id()
    }

    fn accept(&mut self, request: ConnRequest) {
        let peer = request.peer;
        let options = QpOptions {
            send_work: SLOTS as u32,
            rnr_retry_count: 7,
            ..QpOptions::default()
        };
        match self.endpoint.accept(request, &options, &[]) {
            Ok(_) => print_message(format_args!("{peer}: connected")),
            Err(error) => print_message(format_args!("{peer}: refused: {error}")),
        }
    }

    fn turn(&mut self) -> Turn {
        let mut batch = [Completion::EMPTY; 16];
        let count = self.endpoint.poll(&mut batch);
        for completion in &batch[..count] {
            self.completed(completion);
        }
        let mut events = Vec::new();
        self.endpoint.poll_events(&mut events);
        let mut turn = match count + events.len() {
            0 => Turn::Idle,
            _ => Turn::Busy,
        };
        for event in events {
            match event {
                Event::Disconnected { qp, .. }
                | Event::Rejected { qp, .. }
                | Event::ConnectFailed { qp, .. } => self.endpoint.disconnect(qp),
                Event::Closed { .. } => {
                    print_message("a peer has left");
                    turn = Turn::PeerLeft;
                }
                Event::DeviceRemoved | Event::EndpointBroken { .. } => return Turn::DeviceGone,
                Event::Established { .. } | Event::Notice { .. } => {}
            }
        }
        turn
    }

    fn completed(&mut self, completion: &Completion) {
        let slot = completion.id & !RECEIVE;
        let came = completion.id & RECEIVE != 0 && completion.status.is_success();
        let answered = came && self.answer(completion.qp, slot, completion.byte_len);
        if !answered {
            self.post_receive(slot);
        }
    }

    /// Sends the message in a slot back. A message of `DESTINATION_BYTES` is sent with the window's
    /// rkey and address. Returns false if the peer has disconnected.
    fn answer(&mut self, qp: QpId, slot: u64, length: u32) -> bool {
        let at = slot as usize * MESSAGE_BYTES;
        if length as usize == DESTINATION_BYTES {
            let mapping = self.messages.mapping();
            let place = mapping.addr() + WINDOW as u64;
            let rkey = self.window.rkey().expect("the window is for peers");
            mapping.write(at + RKEY.start, &rkey.to_be_bytes());
            mapping.write(at + ADDR.start, &place.to_be_bytes());
        }
        let work = SendWork {
            id: slot,
            op: Operation::Send,
            sges: self.sge(slot, length).into(),
            signaled: true,
        };
        self.endpoint.post(qp, &[work]).is_ok()
    }

    fn post_receive(&mut self, slot: u64) {
        let receive = RecvWork {
            id: RECEIVE | slot,
            sges: self.sge(slot, MESSAGE_BYTES as u32).into(),
        };
        // Posting fails if the device is removed, which the next event reports.
        let _ = self.endpoint.post_receives(&[receive]);
    }

    fn sge(&self, slot: u64, length: u32) -> Sge {
        self.messages.sge(slot as usize * MESSAGE_BYTES, length)
    }
}
