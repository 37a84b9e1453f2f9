//! Cases in which a thread sleeps in poll(2) until work arrives. The peer runs on another thread,
//! so only file descriptors can wake the sleeping thread.

use std::net::SocketAddr;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use cairn_rdma::{Event, Operation, QpId, QpOptions, sleep_until_ready};
use crossbeam_channel::{Receiver, Sender};

use super::Setting;
use super::pair::{Door, PATIENCE, Patience, about, connect_options};
use crate::case::suite;
use crate::node::{DATA, Node};

suite! {
    message_wakes: "a message makes an armed endpoint's descriptor readable",
    own_completion_wakes: "so does the completion of the sleeper's own work",
    disconnect_wakes: "so does the peer's disconnect",
    arm_says_when_something_is_there: "arming says that there is something to poll already",
    idle_endpoint_sleeps: "an endpoint without events lets its thread sleep",
}

fn message_wakes(setting: &Setting) -> Result<()> {
    let mut bed = Bed::make(setting)?;
    bed.node.post_receives(0..200)?;
    for round in 0..50 {
        bed.order(Order::Send)?;
        bed.sleep_until("a message", |node| node.take_receive())
            .with_context(|| format!("round {round}"))?;
    }
    bed.finish()
}

fn own_completion_wakes(setting: &Setting) -> Result<()> {
    let mut bed = Bed::make(setting)?;
    for round in 0..50 {
        let there = bed.remote;
        bed.node
            .post_one(bed.qp, round, Operation::Read(there), DATA, 65_536)?;
        let done = bed.sleep_until("a READ", |node| node.take_completion(round))?;
        ensure!(done.status.is_success(), "{done:?}");
    }
    bed.finish()
}

fn disconnect_wakes(setting: &Setting) -> Result<()> {
    let mut bed = Bed::make(setting)?;
    let qp = bed.qp;
    bed.order(Order::Leave)?;
    let event = bed.sleep_until("an event", |node| node.take_event(about(qp)))?;
    ensure!(
        matches!(event, Event::Disconnected { .. }),
        "it was {event:?}"
    );
    bed.node.endpoint.disconnect(qp);
    bed.sleep_until("Closed", |node| node.is_closed(qp).then_some(()))?;
    bed.finish()
}

fn arm_says_when_something_is_there(setting: &Setting) -> Result<()> {
    let mut bed = Bed::make(setting)?;
    bed.node.post_receives(0..1)?;
    bed.order(Order::Send)?;
    let mut patience = Patience::new(PATIENCE);
    while !bed.node.endpoint.arm()? {
        ensure!(patience.step(false), "arm hides a message that has landed");
    }
    bed.node.pump()?;
    ensure!(
        bed.node.take_receive().is_some(),
        "arm saw what poll does not"
    );
    bed.finish()
}

fn idle_endpoint_sleeps(setting: &Setting) -> Result<()> {
    let mut bed = Bed::make(setting)?;
    let end = Instant::now() + Duration::from_millis(100);
    let mut wake_ups = 0;
    while Instant::now() < end {
        bed.node.pump()?;
        sleep_until_ready(&mut *bed.node.endpoint, end)?;
        wake_ups += 1;
    }
    ensure!(
        wake_ups < 30,
        "it woke {wake_ups} times in 100 ms for nothing"
    );
    bed.finish()
}

enum Order {
    Send,
    Leave,
}

struct Bed {
    node: Node,
    qp: QpId,
    remote: cairn_rdma::RemoteBuffer,
    orders: Sender<Order>,
    peer: JoinHandle<Result<()>>,
}

impl Bed {
    fn make(setting: &Setting) -> Result<Self> {
        let door = Door::open(setting)?;
        let device = setting.provider.device_for(door.address(), None)?;
        let mut node = Node::open(&device)?;
        let (orders, to_do) = crossbeam_channel::unbounded();
        let (key, keys) = crossbeam_channel::bounded(1);
        let address = door.address();
        let peer = thread::spawn(move || {
            let node = Node::open(&device)?;
            key.send(node.remote(DATA))?;
            Peer { node, to_do }.live(address)
        });
        let remote = keys.recv_timeout(PATIENCE)?;
        let mut patience = Patience::new(PATIENCE);
        let request = loop {
            if let Some(request) = door.try_request() {
                break request;
            }
            ensure!(patience.step(false), "the peer does not connect");
        };
        let qp = node.endpoint.accept(request, &QpOptions::default(), &[])?;
        let mut bed = Self {
            node,
            qp,
            remote,
            orders,
            peer,
        };
        let event = bed.sleep_until("Established", |node| node.take_event(about(qp)))?;
        ensure!(matches!(event, Event::Established { .. }), "got {event:?}");
        Ok(bed)
    }

    fn order(&self, order: Order) -> Result<()> {
        self.orders
            .send(order)
            .map_err(|_| anyhow!("the peer's thread has ended"))
    }

    fn sleep_until<T>(
        &mut self,
        what: &str,
        mut ready: impl FnMut(&mut Node) -> Option<T>,
    ) -> Result<T> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.node.pump()?;
            if let Some(value) = ready(&mut self.node) {
                return Ok(value);
            }
            ensure!(Instant::now() < deadline, "slept through {what}");
            sleep_until_ready(&mut *self.node.endpoint, deadline)?;
        }
    }

    fn finish(mut self) -> Result<()> {
        let qp = self.qp;
        self.node.endpoint.disconnect(qp);
        self.sleep_until("Closed", |node| node.is_closed(qp).then_some(()))?;
        self.peer
            .join()
            .map_err(|_| anyhow!("the peer's thread panicked"))?
            .context("on the peer's thread")
    }
}

struct Peer {
    node: Node,
    to_do: Receiver<Order>,
}

impl Peer {
    fn live(mut self, address: SocketAddr) -> Result<()> {
        let options = connect_options(address, &QpOptions::default());
        let qp = self.node.endpoint.connect(&options, &[])?;
        let mut patience = Patience::new(PATIENCE * 2);
        let mut is_established = false;
        while !self.node.is_closed(qp) {
            let progress = self.node.pump()?;
            match self.node.take_event(about(qp)) {
                Some(Event::Established { .. }) => is_established = true,
                Some(Event::Disconnected { .. }) => self.node.endpoint.disconnect(qp),
                _ => {}
            }
            let order = is_established.then(|| self.to_do.try_recv().ok()).flatten();
            match order {
                Some(Order::Send) => self.node.post_one(qp, 1, Operation::Send, DATA, 64)?,
                Some(Order::Leave) => self.node.endpoint.disconnect(qp),
                None => {}
            }
            ensure!(patience.step(progress), "the sleeper never let go");
        }
        Ok(())
    }
}
