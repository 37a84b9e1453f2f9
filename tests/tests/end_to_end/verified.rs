use std::time::{Duration, Instant};

use cairn_initiator::{Buffer, Data, Event, Host, HostError, IoQueue, Notice, Response, command};
use cairn_sim::Random;
use nvme_proto::wire::Status;

pub(crate) struct Disk<'a> {
    pub(crate) host: &'a mut Host,
    pub(crate) queue: IoQueue,
    pub(crate) nsid: u32,
    pub(crate) block_bytes: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transfer {
    Keyed,
    KeyedOnce,
    InCapsule,
}

impl<'a> Disk<'a> {
    pub(crate) fn new(host: &'a mut Host, nsid: u32) -> Self {
        let format = host.namespace(nsid).unwrap().lba_format().unwrap();
        Self {
            host,
            queue: IoQueue::FIRST,
            nsid,
            block_bytes: 1 << format.lbads,
        }
    }

    pub(crate) fn blocks(&self, bytes: usize) -> u32 {
        assert_eq!(bytes % self.block_bytes as usize, 0);
        bytes as u32 / self.block_bytes
    }

    pub(crate) fn write(&mut self, slba: u64, bytes: &[u8], transfer: Transfer) -> Response {
        let sqe = command::write(self.nsid, slba, self.blocks(bytes.len()));
        self.send_data(sqe, bytes, transfer).unwrap()
    }

    pub(crate) fn send_data(
        &mut self,
        sqe: nvme_proto::wire::Sqe,
        bytes: &[u8],
        transfer: Transfer,
    ) -> Result<Response, HostError> {
        let length = bytes.len() as u32;
        if transfer == Transfer::InCapsule {
            return self.host.run_on(self.queue, sqe, Data::InCapsule(bytes));
        }
        let mut buffer = self.host.buffer(bytes.len()).unwrap();
        buffer.write(0, bytes);
        let response = self
            .host
            .run_on(self.queue, sqe, keyed(&mut buffer, length, transfer))?;
        check_key(&buffer, &response, transfer);
        Ok(response)
    }

    pub(crate) fn read(&mut self, slba: u64, length: usize, transfer: Transfer) -> Vec<u8> {
        let sqe = command::read(self.nsid, slba, self.blocks(length));
        let mut buffer = self.host.buffer(length).unwrap();
        buffer.write(0, &vec![0xee; length]);
        let data = keyed(&mut buffer, length as u32, transfer);
        let response = self.host.run_on(self.queue, sqe, data).unwrap();
        check_key(&buffer, &response, transfer);
        buffer.bytes(0, length)
    }

    pub(crate) fn run(&mut self, sqe: nvme_proto::wire::Sqe) -> Result<Response, HostError> {
        self.host.run_on(self.queue, sqe, Data::None)
    }
}

fn keyed(buffer: &mut Buffer, length: u32, transfer: Transfer) -> Data<'_, &mut Buffer> {
    match transfer {
        Transfer::Keyed => Data::start_of(buffer, length),
        Transfer::KeyedOnce => Data::once(buffer, length),
        Transfer::InCapsule => panic!("these data do not travel in a capsule"),
    }
}

fn check_key(buffer: &Buffer, response: &Response, transfer: Transfer) {
    let rkey = buffer.region().rkey();
    let expected = rkey.filter(|_| transfer == Transfer::KeyedOnce);
    assert_eq!(response.invalidated_rkey, expected);
}

pub(crate) fn next_notice(host: &mut Host) -> Notice {
    let event = host.wait_until("a notice", |host| host.take_event());
    match event.unwrap() {
        Event::Notice(notice) => notice,
        other => panic!("not a notice: {other:?}"),
    }
}

pub(crate) fn bytes(seed: u64, length: usize) -> Vec<u8> {
    Random::new(seed).bytes(length)
}

pub(crate) fn status<T: std::fmt::Debug>(result: Result<T, HostError>) -> Status {
    match result {
        Err(HostError::Status { status, .. }) => status,
        other => panic!("expected a status, got {other:?}"),
    }
}

pub(crate) fn wait_until(what: &str, mut reached: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !reached() {
        assert!(Instant::now() < end, "{what}: never");
        std::thread::sleep(Duration::from_millis(5));
    }
}
