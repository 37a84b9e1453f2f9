use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use cairn_base::Mapping;
use cairn_rdma::{
    Access, Completion, ConnectOptions, Endpoint, EndpointOptions, Event, ListenOptions, Listener,
    ListenerEvent, Operation, PKey, Provider, QpId, QpOptions, RecvWork, Region, RemoteBuffer,
    SendWork, Sge, WorkStatus, sleep_until_ready,
};
use cairn_roce::Soft;

use crate::cable::{Cable, TOS};

pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
const SIZE: usize = 1 << 20;
const MESSAGE: usize = 64 * 1024;
const ROUNDS: u64 = 20;
const LENGTHS: [usize; 10] = [1, 100, 1024, 1500, 4096, 4097, 4160, 4161, 40_000, MESSAGE];

pub(crate) fn run(cable: Cable) {
    let (ready_out, ready_in) = channel();
    let (echoed_out, echoed_in) = channel();
    cable.join(
        move || target(cable, &ready_out, &echoed_out),
        move || host(cable, &ready_in, &echoed_in),
    );
}

pub(crate) struct End {
    pub(crate) endpoint: Box<dyn Endpoint>,
    region: Region,
    events: Vec<Event>,
    completions: Vec<Completion>,
}

impl End {
    pub(crate) fn open(device: &Arc<dyn cairn_rdma::Device>) -> Self {
        let mapping = Arc::new(Mapping::anonymous(SIZE).unwrap());
        let rights = Access::REMOTE_READ | Access::REMOTE_WRITE;
        let region = device.register(mapping, rights).unwrap();
        let options = EndpointOptions {
            receives: 8,
            completions: 64,
            queue_pairs: 4,
        };
        let mut this = Self {
            endpoint: Arc::clone(device).open(&options).unwrap(),
            region,
            events: Vec::new(),
            completions: Vec::new(),
        };
        this.post_receive();
        this
    }

    pub(crate) fn sge(&self, offset: usize, length: usize) -> Sge {
        self.region.sge(offset, length as u32)
    }

    pub(crate) fn post_receive(&mut self) {
        let sges = self.sge(0, MESSAGE).into();
        self.endpoint
            .post_receives(&[RecvWork { id: 1000, sges }])
            .unwrap();
    }

    fn wait<T>(&mut self, what: &str, pick: impl FnMut(&mut Self) -> Option<T>) -> T {
        self.wait_napping(what, PATIENCE, pick)
    }

    fn wait_napping<T>(
        &mut self,
        what: &str,
        nap: Duration,
        mut pick: impl FnMut(&mut Self) -> Option<T>,
    ) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut out = [Completion::EMPTY; 16];
            let count = self.endpoint.poll(&mut out);
            self.completions.extend(&out[..count]);
            self.endpoint.poll_events(&mut self.events);
            if let Some(value) = pick(self) {
                return value;
            }
            assert!(Instant::now() < deadline, "{what}: {:?}", self.events);
            let latest = deadline.min(Instant::now() + nap);
            sleep_until_ready(&mut *self.endpoint, latest).unwrap();
        }
    }

    pub(crate) fn completion(&mut self, id: u64) -> Completion {
        self.wait(&format!("completion {id}"), |end| {
            let at = end.completions.iter().position(|done| done.id == id)?;
            Some(end.completions.remove(at))
        })
    }

    fn event(&mut self, what: &str, wanted: impl Fn(&Event) -> bool) -> Event {
        self.wait(what, |end| {
            let at = end.events.iter().position(&wanted)?;
            Some(end.events.remove(at))
        })
    }

    fn run(&mut self, qp: QpId, id: u64, op: Operation, offset: usize, length: usize) {
        let status = self.status(qp, id, op, offset, length);
        assert_eq!(status, WorkStatus::Success, "{op:?}");
    }

    pub(crate) fn status(
        &mut self,
        qp: QpId,
        id: u64,
        op: Operation,
        offset: usize,
        length: usize,
    ) -> WorkStatus {
        let sges = self.sge(offset, length).into();
        let work = SendWork {
            id,
            op,
            sges,
            signaled: true,
        };
        self.endpoint.post(qp, &[work]).unwrap();
        self.completion(id).status
    }

    pub(crate) fn accept(&mut self, requests: &Receiver<ListenerEvent>, cable: Cable) -> QpId {
        let Ok(ListenerEvent::Request(request)) = requests.recv_timeout(PATIENCE) else {
            panic!("no request came");
        };
        assert_eq!(request.peer.ip(), cable.address(1));
        let accepted = self.endpoint.accept(*request, &qp_options(), b"welcome");
        let qp = accepted.unwrap();
        self.established(qp);
        qp
    }

    pub(crate) fn connect(&mut self, remote: SocketAddr, qp: QpOptions) -> QpId {
        let options = ConnectOptions {
            remote,
            local: None,
            pkey: PKey::DEFAULT,
            qp,
            timeout: PATIENCE,
        };
        let qp = self.endpoint.connect(&options, b"hello").unwrap();
        self.established(qp);
        qp
    }

    fn established(&mut self, qp: QpId) {
        self.event(
            "Established",
            |event| matches!(event, Event::Established { qp: id, .. } if *id == qp),
        );
    }

    pub(crate) fn await_disconnect(&mut self, qp: QpId) {
        self.event("disconnect", |event| {
            matches!(event, Event::Disconnected { .. })
        });
        self.disconnect(qp);
    }

    pub(crate) fn disconnect(&mut self, qp: QpId) {
        self.endpoint.disconnect(qp);
        self.event("Closed", |event| matches!(event, Event::Closed { .. }));
    }

    pub(crate) fn packet_bytes(&mut self, qp: QpId) -> u32 {
        let trains = self.endpoint.trains(qp);
        trains.expect("the endpoint combines packets").packet_bytes
    }
}

fn pattern(round: u64, length: usize) -> Vec<u8> {
    (0..length as u64)
        .map(|i| (i * 7 + i / 251 + round * 13) as u8)
        .collect()
}

pub(crate) fn qp_options() -> QpOptions {
    QpOptions {
        traffic_class: Some(TOS),
        ..QpOptions::default()
    }
}

pub(crate) fn listen(
    provider: &Soft,
    cable: Cable,
) -> (Box<dyn Listener>, Receiver<ListenerEvent>) {
    let (sender, requests) = channel();
    let sink = Box::new(move |event| {
        let _ = sender.send(event);
    });
    let options = ListenOptions {
        address: cable.listener(0, 4420),
        backlog: 8,
        pkey: PKey::DEFAULT,
        roce: None,
    };
    (provider.listen(&options, sink).unwrap(), requests)
}

fn target(cable: Cable, ready: &Sender<(SocketAddr, RemoteBuffer)>, echoed: &Sender<()>) {
    let provider = cable.provider();
    let (listener, requests) = listen(&provider, cable);
    let device = provider.device_for(listener.local_addr(), None).unwrap();
    let mut end = End::open(&device);
    let remote = end.region.remote(MESSAGE).expect("it is for peers");
    ready.send((listener.local_addr(), remote)).unwrap();
    let qp = end.accept(&requests, cable);
    assert_eq!(end.packet_bytes(qp), cable.packet_bytes());
    for round in 0..ROUNDS {
        let landed = end.completion(1000);
        assert_eq!(landed.status, WorkStatus::Success);
        end.post_receive();
        end.run(qp, round, Operation::Send, 0, landed.byte_len as usize);
    }
    echoed.send(()).unwrap();
    end.await_disconnect(qp);
}

fn host(cable: Cable, ready: &Receiver<(SocketAddr, RemoteBuffer)>, echoed: &Receiver<()>) {
    let (address, there) = ready.recv_timeout(PATIENCE).unwrap();
    let address = cable.listener(1, address.port());
    let provider = cable.provider();
    let device = provider.device_for(address, None).unwrap();
    let mut end = End::open(&device);
    let qp = end.connect(address, qp_options());
    assert_eq!(end.packet_bytes(qp), cable.packet_bytes());
    let (ours, back) = (2 * MESSAGE, 5 * MESSAGE);
    for round in 0..ROUNDS {
        let length = LENGTHS[round as usize % LENGTHS.len()];
        let bytes = pattern(round, length);
        end.region.mapping().write(ours, &bytes);
        end.region.mapping().write(back, &vec![0; length]);
        end.run(qp, 1, Operation::Write(there), ours, length);
        end.run(qp, 2, Operation::Read(there), back, length);
        let mut read = vec![0; length];
        end.region.mapping().read(back, &mut read);
        assert!(
            read == bytes,
            "round {round}: {length} bytes came back mangled"
        );
        end.run(qp, 3, Operation::Send, ours, length);
        let landed = end.completion(1000);
        assert_eq!(landed.byte_len as usize, length);
        end.region.mapping().read(0, &mut read);
        assert!(read == bytes, "round {round}: the echo is mangled");
        end.post_receive();
    }
    let nap = Duration::from_millis(2);
    end.wait_napping("the last acknowledgement", nap, |_| echoed.try_recv().ok());
    end.disconnect(qp);
    end.endpoint.arm().unwrap();
    check_counters(&provider, cable);
}

fn check_counters(provider: &Soft, cable: Cable) {
    let counters = provider.counters();
    let [(name, counters)] = &counters[..] else {
        panic!("one device is open: {counters:?}");
    };
    assert_eq!(*name, format!("soft-{}", cable.traddr(1, 1)));
    assert!(counters.sent_pkts > ROUNDS * 3 && counters.rcvd_pkts > ROUNDS * 3);
    if cable.fault.is_none() {
        assert_eq!(counters.rx_icrc_encapsulated, 0, "{counters:?}");
        assert_eq!(counters.rx_malformed, 0, "{counters:?}");
    } else {
        let recovered = counters.packet_seq_err
            + counters.implied_nak_seq_err
            + counters.local_ack_timeout_err
            + counters.duplicate_request;
        assert!(
            recovered > 0 && counters.rx_icrc_encapsulated > 0,
            "{counters:?}"
        );
    }
}
