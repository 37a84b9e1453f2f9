//! Responder for rdma-core's `rping` and perftest's `ib_send_bw`, `ib_write_bw` and `ib_read_bw` (with `-R`), without
//! an RDMA device at this end.
//!
//! ```text
//! cargo run --release -p cairn-roce --example responder -- 192.0.2.1
//!
//! rping -c -a 192.0.2.1 -C 10 -v -V                (on another machine)
//! ib_write_bw -R -F 192.0.2.1
//! ```
//!
//! The responder listens on the tools' default ports, prints one line for each event, and runs until killed.

mod perftest;
mod rping;
mod station;

use std::collections::HashMap;
use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use cairn_rdma::{
    Completion, CompletionKind, ConnRequest, Event, ListenOptions, ListenerEvent, PKey, Provider,
    QpId, sleep_until_ready,
};
use cairn_roce::Soft;

use perftest::{ControlWindow, Traffic};
use rping::Rping;
use station::Station;

const RPING_PORT: u16 = 7174;
const PERFTEST_PORT: u16 = 18515;

const REQUESTS_SEEN_EVERY: Duration = Duration::from_millis(20);

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(ip), None) = (arguments.next(), arguments.next()) else {
        return Err("usage: responder ADDRESS, a local IP address to listen at".into());
    };
    let ip: IpAddr = ip
        .parse()
        .map_err(|_| format!("{ip:?} is not an IP address: give one of this machine"))?;

    let provider = Soft::default();
    let (sender, requests) = channel();
    let mut listeners = Vec::new();
    for port in [RPING_PORT, PERFTEST_PORT] {
        let sender = sender.clone();
        let options = ListenOptions {
            address: SocketAddr::new(ip, port),
            backlog: 4,
            pkey: PKey::DEFAULT,
            roce: None,
        };
        let sink = Box::new(move |event| {
            let _ = sender.send(event);
        });
        listeners.push(provider.listen(&options, sink)?);
        println!("listening on {}", options.address);
    }
    let device = provider.device_for(SocketAddr::new(ip, PERFTEST_PORT), Some(ip))?;
    let mut responder = Responder {
        station: Station::open(&device)?,
        conversations: HashMap::new(),
    };
    responder.serve(&requests)
}

#[derive(Debug)]
enum Conversation {
    Rping(Rping),
    Window(ControlWindow),
    Traffic(Traffic),
}

#[derive(Debug)]
struct Connection {
    peer: IpAddr,
    conversation: Conversation,
}

struct Responder {
    station: Station,
    conversations: HashMap<QpId, Connection>,
}

impl Responder {
    fn serve(&mut self, requests: &Receiver<ListenerEvent>) -> Result<(), Box<dyn Error>> {
        let mut completions = Vec::new();
        let mut events = Vec::new();
        loop {
            while let Ok(event) = requests.try_recv() {
                match event {
                    ListenerEvent::Request(request) => self.answer(*request),
                    other => println!("{other:?}"),
                }
            }
            self.station.poll(&mut completions, &mut events);
            let quiet = completions.is_empty() && events.is_empty();
            for completion in completions.drain(..) {
                self.completed(&completion)?;
            }
            for event in events.drain(..) {
                self.happened(event);
            }
            if quiet {
                let latest = Instant::now() + REQUESTS_SEEN_EVERY;
                sleep_until_ready(self.station.endpoint(), latest)?;
            }
        }
    }

    /// The port distinguishes rping from perftest, whose first connection is its control connection.
    fn answer(&mut self, request: ConnRequest) {
        let peer = request.peer.ip();
        let controlled = self.conversations.values().any(|known| {
            known.peer == peer && matches!(known.conversation, Conversation::Window(_))
        });
        let port = request.local.port();
        let qp = match self.station.accept(request) {
            Ok(qp) => qp,
            Err(error) => return println!("{peer} was not accepted: {error}"),
        };
        let conversation = if port == RPING_PORT {
            Conversation::Rping(Rping::new(Station::data_bytes()))
        } else if controlled {
            Conversation::Traffic(Traffic::default())
        } else {
            Conversation::Window(ControlWindow::new(self.station.window(), qp.slot() as u32))
        };
        let connection = Connection { peer, conversation };
        self.conversations.insert(qp, connection);
    }

    fn completed(&mut self, completion: &Completion) -> Result<(), Box<dyn Error>> {
        let qp = completion.qp;
        let message = match completion.kind {
            CompletionKind::Recv => Some(self.station.take_message(completion)?),
            _ => None,
        };
        let Some(connection) = self.conversations.get_mut(&qp) else {
            return Ok(()); // the work was flushed after a disconnect
        };
        if !completion.status.is_success() {
            println!("{}: {:?}", connection.peer, completion.status);
            self.station.disconnect(qp);
            return Ok(());
        }
        let step = match (&mut connection.conversation, message) {
            (Conversation::Rping(rping), Some(message)) => rping.receive(&message),
            (Conversation::Rping(rping), None) => rping.completed(completion.kind),
            (Conversation::Window(control), Some(message)) => Ok(control.receive(message)),
            (Conversation::Traffic(traffic), Some(message)) => Ok(traffic.receive(&message)),
            (_, None) => Ok(station::Step::Wait),
        };
        match step.map(|step| self.station.take(qp, step)) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => println!("{}: {error:?}", connection.peer),
            Err(error) => {
                println!("{}: {error}", connection.peer);
                self.station.disconnect(qp);
            }
        }
        Ok(())
    }

    fn happened(&mut self, event: Event) {
        match event {
            Event::Disconnected { qp, .. } => self.station.disconnect(qp),
            Event::Closed { qp } => {
                if let Some(gone) = self.conversations.remove(&qp) {
                    println!("{} left: {}", gone.peer, gone.conversation.summary());
                }
            }
            Event::ConnectFailed { reason, .. } => println!("{reason}"),
            Event::Notice { message } => println!("{message}"),
            Event::Established { .. } | Event::Rejected { .. } | Event::DeviceRemoved => {}
        }
    }
}

impl Conversation {
    fn summary(&self) -> String {
        match self {
            Self::Rping(rping) => rping.summary(),
            Self::Window(control) => control.summary(),
            Self::Traffic(traffic) => traffic.summary(),
        }
    }
}
