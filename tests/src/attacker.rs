//! Attackers that other hosts of a target must not notice. Each does in a turn what its kind can do,
//! and never waits: programs that move a target along by hand give it its turns.

use std::fs::Permissions;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_initiator::{Buffer, Controller, Data, HostOptions, Recovery, command};
use cairn_rdma::{
    ConnectOptions, Device, Endpoint, EndpointOptions, Event, PKey, Provider, QpOptions,
};
use cairn_roce_proto::wire::Opcode;
use clap::ValueEnum;
use nvme_auth::{Secret, Secrets};
use nvme_proto::host::State;
use nvme_proto::wire::cm::RequestData;
use nvme_proto::wire::identify::{Cns, IDENTIFY_BYTES};
use nvme_proto::wire::{IntoBytes, Sqe};

use crate::harness::{NQN, Scratch, host_nqn, nqn, subsystem};

/// UDP port of RoCE v2.
const ROCE_PORT: u16 = 4791;
/// Connections of [`Attack::Silent`] at a time.
const SILENT: u16 = 600;
/// Controllers of the other kinds at a time.
const CONTROLLERS: usize = 4;
/// Connections that [`Attack::Silent`] asks for in a turn.
const REQUESTS: usize = 4;
/// Datagrams of a turn.
const DATAGRAMS: usize = 4;
/// Opcode of a packet of one SEND, and the numbers of the first reactor's queue pairs over RoCE in
/// user space: these bits are any, which guesses take in no order.
const SEND_ONLY: u8 = Opcode::SendOnly as u8;
const FIRST_REACTOR: u32 = 1 << NUMBER_BITS;
const NUMBER_BITS: u32 = 18;
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
/// Commands outstanding of [`Attack::Io`].
const IO_DEPTH: u16 = 512;
/// Bytes of each of them.
const IO_BYTES: u32 = 64 << 10;
/// What a turn leaves to the target's other threads where the attack needs them.
const COMPUTED: Duration = Duration::from_micros(100);
/// Patience with anything; simulated.
const PATIENCE: Duration = Duration::from_secs(5);

/// What an attacker does, turn by turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Attack {
    /// A stranger opens connections, sends nothing on them, and opens others for those that end
    Silent,
    /// A stranger sends packets to queue pairs of the target's first reactor whose numbers it guesses
    Garbage,
    /// A liar asks for a subsystem that does not exist, again and again
    WrongName,
    /// A liar proves that it has a key, and has another one, again and again
    WrongKey,
    /// A glutton connects, leaves without a word, and connects again
    Reconnect,
    /// A glutton keeps its admin queues full
    Admin,
    /// A glutton keeps a deep queue of large reads full
    Io,
}

/// The subsystem whose key the liar does not have.
const VAULT: &str = "nqn.2026-01.org.example:vault";

/// A file with that key.
///
/// # Panics
/// If it cannot be written.
#[must_use]
pub fn key_file() -> Scratch {
    let file = Scratch::new("liar.key", 0);
    let key = Secret::generate(32, None, &mut |key| key.fill(1));
    let written = std::fs::set_permissions(file.path(), Permissions::from_mode(0o600))
        .and_then(|()| std::fs::write(file.path(), key.to_text().as_bytes()));
    written.unwrap_or_else(|error| panic!("{}: {error}", file.path().display()));
    file
}

/// The glutton's limit at the subsystem before, and a subsystem with a key.
#[must_use]
pub fn tables(key: &Scratch, limits: &str) -> String {
    let (glutton, key) = (host_nqn("glutton"), key.path().display());
    let with_key = format!("allow_any_host = true\ndhchap_key = \"{key}\"\n");
    format!(
        "[[subsystem.limited_host]]\nnqn = \"{glutton}\"\nlimits = {{ {limits} }}\n{}",
        subsystem(VAULT, &["null:1GiB"]).replacen("allow_any_host = true\n", &with_key, 1)
    )
}

/// Who attacks.
pub struct Attacker {
    attack: Attack,
    device: Arc<dyn Device>,
    remote: SocketAddr,
    local: IpAddr,
    controllers: Vec<(Controller, Option<Buffer>)>,
    silent: Option<Box<dyn Endpoint>>,
    datagrams: Option<UdpSocket>,
    events: Vec<Event>,
    /// What it began: connections, commands, datagrams.
    pub begun: u64,
    /// What was answered, refused or ended of that.
    pub ended: u64,
}

impl std::fmt::Debug for Attacker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}: {} of {}", self.attack, self.ended, self.begun)
    }
}

impl Attacker {
    /// One of this kind at an address.
    ///
    /// # Panics
    /// If it cannot begin.
    #[must_use]
    pub fn new(attack: Attack, provider: &dyn Provider, remote: SocketAddr, local: IpAddr) -> Self {
        let device = provider
            .device_for(remote, Some(local))
            .expect("the attacker has a device");
        let silent = (attack == Attack::Silent).then(|| {
            let options = EndpointOptions {
                receives: 1,
                completions: 64,
                queue_pairs: SILENT,
            };
            Arc::clone(&device).open(&options).expect("an endpoint")
        });
        let datagrams = (attack == Attack::Garbage)
            .then(|| UdpSocket::bind((local, 0)).expect("a socket of the attacker's address"));
        Self {
            attack,
            device,
            remote,
            local,
            controllers: Vec::new(),
            silent,
            datagrams,
            events: Vec::new(),
            begun: 0,
            ended: 0,
        }
    }

    /// Whether the target has felt it: something was answered, or is on its way if this kind
    /// does not wait for answers.
    #[must_use]
    pub fn is_under_way(&self) -> bool {
        match self.attack {
            Attack::Silent | Attack::Garbage => self.begun > 0,
            _ => self.ended > 0,
        }
    }

    /// Does what it can at this moment.
    pub fn turn(&mut self, now: Instant) {
        match self.attack {
            Attack::Silent => self.open_connections(),
            Attack::Garbage => self.send_datagrams(),
            Attack::WrongName | Attack::Reconnect => self.connect(now),
            Attack::WrongKey => {
                self.connect(now);
                // The thread that computes what an authentication takes has no simulated clock.
                std::thread::sleep(COMPUTED);
            }
            Attack::Admin => self.fill(now, 0, IDENTIFY_BYTES as u32),
            Attack::Io => self.fill(now, 1, IO_BYTES),
        }
    }

    fn open_connections(&mut self) {
        let endpoint = self.silent.as_mut().expect("this kind has one");
        let options = ConnectOptions {
            remote: self.remote,
            local: Some(self.local),
            pkey: PKey::DEFAULT,
            qp: QpOptions::default(),
            timeout: PATIENCE,
        };
        let request = RequestData::new(0, 32, 31, 0);
        for _ in 0..REQUESTS {
            // With all of its own queue pairs in use it waits for one.
            let begun = endpoint.connect(&options, request.as_bytes()).is_ok();
            self.begun += u64::from(begun);
        }
        endpoint.poll_events(&mut self.events);
        for event in self.events.drain(..) {
            match event {
                Event::Rejected { .. } => self.ended += 1,
                Event::Disconnected { qp, .. } => {
                    self.ended += 1;
                    endpoint.disconnect(qp);
                }
                _ => {}
            }
        }
    }

    fn send_datagrams(&mut self) {
        let socket = self.datagrams.as_ref().expect("this kind has one");
        for _ in 0..DATAGRAMS {
            let guess =
                FIRST_REACTOR | (self.begun.wrapping_mul(STEP) >> (64 - NUMBER_BITS)) as u32;
            let mut datagram = [0xa5; 64];
            // Opcode, flags, partition, and the number.
            let [_, number @ ..] = guess.to_be_bytes();
            datagram[..5].copy_from_slice(&[SEND_ONLY, 0, 0xff, 0xff, 0]);
            datagram[5..8].copy_from_slice(&number);
            // One that the kernel drops was sent all the same.
            let _ = socket.send_to(&datagram, (self.remote.ip(), ROCE_PORT));
            self.begun += 1;
        }
    }

    fn connect(&mut self, now: Instant) {
        for (controller, _) in &mut self.controllers {
            controller.poll(now);
        }
        let before = self.controllers.len();
        self.controllers
            .retain(|(controller, _)| controller.state() == State::Connecting);
        self.ended += (before - self.controllers.len()) as u64;
        while self.controllers.len() < CONTROLLERS {
            self.begin(now);
            self.begun += 1;
        }
    }

    fn fill(&mut self, now: Instant, qid: u16, bytes: u32) {
        if self.controllers.len() < CONTROLLERS {
            self.begin(now);
        }
        for (controller, buffer) in &mut self.controllers {
            controller.poll(now);
            while let Some((_, answer)) = controller.reap(qid) {
                assert!(answer.is_ok(), "{answer:?}");
                self.ended += 1;
            }
            if !controller.is_live() {
                assert_eq!(controller.state(), State::Connecting);
                continue;
            }
            let buffer = buffer.get_or_insert_with(|| {
                let buffer = controller.buffer(bytes as usize);
                buffer.expect("memory for what it reads")
            });
            let data = || Data::start_of(buffer, bytes);
            while controller
                .submit(qid, self.attack.command(), data())
                .is_ok()
            {
                self.begun += 1;
            }
            controller.poll(now);
        }
    }

    fn begin(&mut self, now: Instant) {
        let (subsystem, host) = match self.attack {
            Attack::WrongName => (nqn("nqn.2026-01.org.example:none"), host_nqn("liar")),
            Attack::WrongKey => (nqn(VAULT), host_nqn("liar")),
            _ => (nqn(NQN), host_nqn("glutton")),
        };
        let wrong = || Secrets {
            host: Secret::generate(32, None, &mut |key| key.fill(7)),
            controller: None,
        };
        let options = HostOptions {
            local: Some(self.local),
            io_queues: 1,
            queue_entries: IO_DEPTH,
            recovery: Recovery::NONE,
            timeout: PATIENCE,
            authentication: (self.attack == Attack::WrongKey).then(wrong),
            ..HostOptions::new(self.remote, subsystem, host)
        };
        let controller = Controller::begin(&self.device, options, now);
        let controller = controller.expect("an attacker has memory");
        self.controllers.push((controller, None));
    }
}

impl Attack {
    fn command(self) -> Sqe {
        match self {
            Self::Io => command::read(1, 0, IO_BYTES / 512),
            _ => command::identify(Cns::CONTROLLER, 0),
        }
    }
}
