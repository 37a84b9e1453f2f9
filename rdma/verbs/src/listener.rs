//! Listening address, with a thread that handles its events.

use std::cell::RefCell;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cairn_base::address::Payer;
use cairn_base::log::Topic;
use cairn_base::{PeerLimit, peer_detail, peer_line};
use cairn_rdma::{ConnRequest, FabricError, ListenOptions, Listener, ListenerEvent, PKey, Sink};

use crate::cm::{Channel, CmEvent, Id, LISTENING};
use crate::device::VerbsDevice;
use crate::devices::Devices;
use crate::explain;
use crate::request::VerbsRequest;
use crate::sys;
use cairn_base::panics::{Part, confine_part};
use cairn_base::wake::{Wake, wait_readable};

const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_LAST: Duration = Duration::from_secs(5);

pub(crate) struct VerbsListener {
    address: SocketAddr,
    stop: Arc<Wake>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for VerbsListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VerbsListener({})", self.address)
    }
}

impl VerbsListener {
    pub(crate) fn start(
        devices: Arc<Devices>,
        options: &ListenOptions,
        sink: Sink,
    ) -> Result<Self, FabricError> {
        let channel = Channel::new(devices.library())?;
        let stop = Arc::new(Wake::new().map_err(FabricError::os("eventfd"))?);
        let mut state = ListenerThread {
            devices,
            channel,
            address: options.address,
            backlog: options.backlog,
            pkey: options.pkey,
            waiting: Arc::default(),
            peer_limit: RefCell::default(),
            sink,
        };
        let first = state.listen()?;
        // If the configured port is 0, later attempts must use the port chosen first.
        state.address.set_port(first.0.local_addr().port());
        let address = state.address;
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name(format!("verbs {address}"))
            .spawn(move || state.serve(first, &stopped))
            .map_err(|error| explain::os("pthread_create", error))?;
        Ok(Self {
            address,
            stop,
            thread: Some(thread),
        })
    }
}

impl Listener for VerbsListener {
    fn local_addr(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for VerbsListener {
    fn drop(&mut self) {
        self.stop.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn listen(channel: &Arc<Channel>, address: SocketAddr, backlog: u32) -> Result<Id, FabricError> {
    let mut id = Id::new(channel, LISTENING)?;
    id.bind(address)?;
    id.listen(backlog)
        .map_err(|error| match error.raw_os_error() {
            Some(libc::EADDRINUSE) => FabricError::AddressInUse { address },
            _ => explain::os("rdma_listen", error),
        })?;
    Ok(id)
}

struct ListenerThread {
    devices: Arc<Devices>,
    channel: Arc<Channel>,
    address: SocketAddr,
    backlog: u32,
    pkey: PKey,
    waiting: Arc<AtomicU32>,
    peer_limit: RefCell<PeerLimit>,
    sink: Sink,
}

type Listening = (Id, Option<Arc<VerbsDevice>>);

impl ListenerThread {
    fn listen(&self) -> Result<Listening, FabricError> {
        let id = listen(&self.channel, self.address, self.backlog)?;
        let device = id.device().is_some().then(|| self.devices.of(&id));
        let device = device.transpose()?;
        if let Some(device) = &device {
            device.pkey_index(&id, self.pkey)?;
        }
        Ok((id, device))
    }

    /// After a panic, listens with a new identifier, because the old identifier may be
    /// inconsistent.
    fn serve(&self, first: Listening, stop: &Wake) {
        let mut listening = Some(first);
        let mut retry = RETRY_FIRST;
        loop {
            let turn = || self.turn(&mut listening, &mut retry, stop);
            match confine_part(Part::Device, turn) {
                Some(true) => return,
                Some(false) => {}
                None => {
                    let suspect = listening.take();
                    confine_part(Part::Device, || {
                        drop(suspect);
                        let reason = "the listener's thread panicked, and listens again".to_owned();
                        (self.sink)(ListenerEvent::Down { reason });
                    });
                }
            }
        }
    }

    fn turn(&self, listening: &mut Option<Listening>, retry: &mut Duration, stop: &Wake) -> bool {
        let timeout = listening.is_none().then_some(*retry);
        let [stopped, _] = wait_readable([stop.fd(), self.channel.fd()], timeout);
        if stopped {
            return true;
        }
        while let Ok(Some(event)) = self.channel.next_event() {
            let Some(reason) = self.take(event) else {
                continue;
            };
            if listening.take().is_some() {
                *retry = RETRY_FIRST;
                (self.sink)(ListenerEvent::Down { reason });
            }
        }
        if listening.is_none() {
            match self.listen() {
                Ok(again) => {
                    *listening = Some(again);
                    (self.sink)(ListenerEvent::Up);
                }
                Err(error) => {
                    peer_detail!(address = %self.address, %error, "not listening yet");
                    *retry = (*retry * 2).min(RETRY_LAST);
                }
            }
        }
        false
    }

    fn take(&self, mut event: CmEvent) -> Option<String> {
        if let Some(id) = event.request.take() {
            self.request(id, &event);
            return None;
        }
        if event.tag != LISTENING {
            return None;
        }
        match event.kind {
            sys::RDMA_CM_EVENT_DEVICE_REMOVAL => {
                Some("its RDMA device is being removed".to_owned())
            }
            sys::RDMA_CM_EVENT_ADDR_CHANGE => {
                Some("the address has moved to another RDMA device".to_owned())
            }
            _ => None,
        }
    }

    fn log_refused(&self, peer: SocketAddr, reason: &str) {
        let payer = Payer::stranger(peer.ip());
        let mut limit = self.peer_limit.borrow_mut();
        let admitted = limit.admit(Topic::Refused, payer, Instant::now());
        if let Some(line) = admitted {
            peer_line!(warn, line, %peer, reason, "connection request refused");
        }
    }

    fn request(&self, id: Id, event: &CmEvent) {
        let local = id.local_addr();
        let peer = id.peer_addr();
        let mut handle = VerbsRequest {
            id: Some(id),
            pkey_index: None,
            waiting: Arc::clone(&self.waiting),
        };
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= self.backlog {
            self.log_refused(
                peer,
                &format!(
                    "{} connection requests wait for an answer already, which is the backlog; \
                     hosts try again by themselves; if it lasts, raise the listener's backlog",
                    self.backlog
                ),
            );
            return;
        }
        let device = self.devices.of(handle.id()).and_then(|device| {
            // A listener on 0.0.0.0 or [::] uses all devices, and the P_Key's index may differ
            // between devices.
            handle.pkey_index = device.pkey_index(handle.id(), self.pkey)?;
            Ok(device)
        });
        let device = match device {
            Ok(device) => device,
            Err(error) => {
                self.log_refused(peer, &error.to_string());
                return;
            }
        };
        (self.sink)(ListenerEvent::Request(Box::new(ConnRequest {
            local,
            peer,
            private_data: event.private_data,
            peer_responder_resources: event.initiator_depth,
            peer_initiator_depth: event.responder_resources,
            device,
            handle: Box::new(handle),
        })));
    }
}
