//! Attackers, which must not affect other hosts.
//!
//! [`Attacker::turn`] performs one step, so one thread can run both an attacker and the target.

use std::fs::Permissions;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_initiator::{
    Buffer, Controller, Data, HostOptions, Identity, IoQueue, Recovery, command,
};
use cairn_rdma::ROCE_PORT;
use cairn_rdma::{
    ConnectOptions, Device, Endpoint, EndpointOptions, Event, PKey, Provider, QpOptions,
};
use cairn_roce_proto::wire::Opcode;
use clap::ValueEnum;
use nvme_auth::{Secret, Secrets};
use nvme_proto::host::{ADMIN_ENTRIES, AssociationState};
use nvme_proto::wire::cm::RequestData;
use nvme_proto::wire::identify::{Cns, IDENTIFY_BYTES};
use nvme_proto::wire::{IntoBytes, Sqe};

use crate::harness::{NQN, Scratch, host_nqn, nqn, subsystem};

const SILENT: u16 = 600;
const CONTROLLERS: usize = 4;
const REQUESTS: usize = 4;
const DATAGRAMS: usize = 4;
const SEND_ONLY: u8 = Opcode::SendOnly as u8;
const FIRST_REACTOR: u32 = 1 << NUMBER_BITS;
const NUMBER_BITS: u32 = 18;
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
const IO_DEPTH: u16 = 512;
const IO_BYTES: u32 = 64 << 10;
const COMPUTED: Duration = Duration::from_micros(100);
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Attack {
    /// Open connections, send nothing on them, and replace connections that end
    Silent,
    /// Send packets to guessed queue pair numbers of the target's first reactor
    Garbage,
    /// Connect repeatedly to a subsystem that does not exist
    WrongName,
    /// Authenticate repeatedly with a wrong key
    WrongKey,
    /// Connect, disconnect without a shutdown, and connect again
    Reconnect,
    /// Keep admin queues full
    Admin,
    /// Keep deep I/O queues full of large reads
    Io,
}

const VAULT: &str = "nqn.2026-01.org.example:vault";

/// Creates a file with the key of the second subsystem in [`tables`].
#[must_use]
pub fn key_file() -> Scratch {
    let file = Scratch::new("liar.key", 0);
    let key = Secret::generate(32, None, &mut |key| key.fill(1));
    let written = std::fs::set_permissions(file.path(), Permissions::from_mode(0o600))
        .and_then(|()| std::fs::write(file.path(), key.to_text().as_bytes()));
    written.unwrap_or_else(|error| panic!("{}: {error}", file.path().display()));
    file
}

/// Returns TOML to append to a subsystem's table: limits of the attacking host, and a second
/// subsystem that requires a key.
#[must_use]
pub fn tables(key: &Scratch, limits: &str) -> String {
    let (glutton, key) = (host_nqn("glutton"), key.path().display());
    let with_key = format!("allow_any_host = true\ndhchap_key = \"{key}\"\n");
    format!(
        "[[subsystem.limited_host]]\nnqn = \"{glutton}\"\nlimits = {{ {limits} }}\n{}",
        subsystem(VAULT, &["null:1GiB"]).replacen("allow_any_host = true\n", &with_key, 1)
    )
}

pub struct Attacker {
    attack: Attack,
    device: Arc<dyn Device>,
    remote: SocketAddr,
    local: IpAddr,
    controllers: Vec<(Controller, Option<Vec<Buffer>>)>,
    silent: Option<Box<dyn Endpoint>>,
    datagrams: Option<UdpSocket>,
    events: Vec<Event>,
    /// Connections, commands or datagrams started so far.
    pub begun: u64,
    /// Operations ended so far, including rejected operations.
    pub ended: u64,
}

impl std::fmt::Debug for Attacker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}: {} of {}", self.attack, self.ended, self.begun)
    }
}

impl Attacker {
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

    /// True if an operation has ended, or, for attacks without responses, has started.
    #[must_use]
    pub fn is_under_way(&self) -> bool {
        match self.attack {
            Attack::Silent | Attack::Garbage => self.begun > 0,
            _ => self.ended > 0,
        }
    }

    pub fn turn(&mut self, now: Instant) {
        match self.attack {
            Attack::Silent => self.open_connections(),
            Attack::Garbage => self.send_datagrams(),
            Attack::WrongName | Attack::Reconnect => self.connect(now),
            Attack::WrongKey => {
                self.connect(now);
                // A thread of the target needs this time to compute the authentication.
                std::thread::sleep(COMPUTED);
            }
            Attack::Admin => self.fill(now, None, IDENTIFY_BYTES as u32),
            Attack::Io => self.fill(now, Some(IoQueue::FIRST), IO_BYTES),
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
            let [_, number @ ..] = guess.to_be_bytes();
            datagram[..5].copy_from_slice(&[SEND_ONLY, 0, 0xff, 0xff, 0]);
            datagram[5..8].copy_from_slice(&number);
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
            .retain(|(controller, _)| controller.state() == AssociationState::Connecting);
        self.ended += (before - self.controllers.len()) as u64;
        while self.controllers.len() < CONTROLLERS {
            self.begin(now);
            self.begun += 1;
        }
    }

    /// Keeps an I/O queue of each controller full, or the admin queues if `queue` is `None`.
    fn fill(&mut self, now: Instant, queue: Option<IoQueue>, bytes: u32) {
        if self.controllers.len() < CONTROLLERS {
            self.begin(now);
        }
        for (controller, buffers) in &mut self.controllers {
            controller.poll(now);
            let reap = |controller: &mut Controller| match queue {
                Some(queue) => controller.reap(queue),
                None => controller.reap_admin(),
            };
            while let Some((_, ended)) = reap(controller) {
                assert!(ended.answer.is_ok(), "{ended:?}");
                let idle = buffers.as_mut().expect("a command has a buffer");
                idle.extend(ended.buffer);
                self.ended += 1;
            }
            if !controller.is_live() {
                assert_eq!(controller.state(), AssociationState::Connecting);
                continue;
            }
            let idle = buffers.get_or_insert_with(|| {
                let depth = queue.map_or(ADMIN_ENTRIES, |queue| controller.depth(queue));
                let all = bytes as usize * usize::from(depth);
                let all = controller.buffer(all).expect("memory for the reads");
                all.split(bytes as usize)
            });
            while let Some(buffer) = idle.pop() {
                let data = Data::whole(buffer);
                let sqe = self.attack.command();
                let submitted = match queue {
                    Some(queue) => controller.submit_on(queue, sqe, data),
                    None => controller.submit_admin(sqe, data),
                };
                if let Err(unsent) = submitted {
                    idle.extend(unsent.buffer);
                    break;
                }
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
            kato_ms: 0,
            ..HostOptions::new(self.remote, subsystem, Identity::named(host))
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
