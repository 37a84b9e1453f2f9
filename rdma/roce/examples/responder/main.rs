//! Responder for perftest's `ib_send_bw`, `ib_write_bw` and `ib_read_bw` (with `-R`), without a
//! local RDMA device.
//!
//! ```text
//! cargo run --release -p cairn-roce --example responder -- 192.0.2.1
//!
//! ib_write_bw -R -F 192.0.2.1               (on another machine)
//! ```

mod perftest;
mod station;

use std::collections::HashMap;
use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use cairn_roce::Soft;
use cairn_roce::rdma::{
    Completion, CompletionKind, ConnRequest, Event, ListenOptions, ListenerEvent, PKey, Provider,
    QpId, sleep_until_ready,
};

use perftest::{ControlWindow, Traffic};
use station::Station;

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
    let address = SocketAddr::new(ip, PERFTEST_PORT);
    let (sender, requests) = channel();
    let options = ListenOptions {
        address,
        backlog: 4,
        pkey: PKey::DEFAULT,
        roce: None,
    };
    let sink = Box::new(move |event| {
        let _ = sender.send(event);
    });
    let _listener = provider.listen(&options, sink)?;
    println!("listening on {address}");
    let mut responder = Responder {
        station: Station::open(&provider.device_for(address, Some(ip))?)?,
        conversations: HashMap::new(),
    };
    responder.serve(&requests)
}

#[derive(Debug)]
enum Conversation {
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

    fn answer(&mut self, request: ConnRequest) {
        let peer = request.peer.ip();
        let controlled = self.conversations.values().any(|known| {
            known.peer == peer && matches!(known.conversation, Conversation::Window(_))
        });
        let qp = match self.station.accept(request) {
            Ok(qp) => qp,
            Err(error) => return println!("{peer} was not accepted: {error}"),
        };
        let conversation = if controlled {
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
        let answer = message.and_then(|message| connection.conversation.receive(message));
        if let Some(answer) = answer
            && let Err(error) = self.station.say(qp, &answer)
        {
            println!("{}: {error:?}", connection.peer);
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
            Event::ConnectFailed { reason, .. } | Event::EndpointBroken { reason } => {
                println!("{reason}");
            }
            Event::Notice { message } => println!("{message}"),
            Event::Established { .. } | Event::Rejected { .. } | Event::DeviceRemoved => {}
        }
    }
}

impl Conversation {
    fn receive(&mut self, message: Vec<u8>) -> Option<Vec<u8>> {
        match self {
            Self::Window(control) => Some(control.receive(message)),
            Self::Traffic(traffic) => {
                traffic.receive(&message);
                None
            }
        }
    }

    fn summary(&self) -> String {
        match self {
            Self::Window(control) => control.summary(),
            Self::Traffic(traffic) => traffic.summary(),
        }
    }
}
