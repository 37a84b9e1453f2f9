//! Session captured at the host, with its expected contents.

use std::sync::Arc;

use cairn_initiator::{Buffer, Data, Ended, Host, command, discover};
use cairn_roce::Capture;
use cairn_roce::Network;
use cairn_roce::{Soft, SoftOptions};
use cairn_sim::Random;
use cairn_tests::harness::{NQN, Scratch, TestTarget, subsystem};
use nvme_proto::wire::Sqe;
use nvme_proto::wire::log::LogPage;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Command {
    pub(crate) cid: u16,
    pub(crate) opcode: u8,
    pub(crate) nsid: u32,
    /// First block and number of blocks; tshark 4.0 shows them only for Read and Write.
    pub(crate) blocks: Option<(u64, u32)>,
    pub(crate) status: (u8, u8),
}

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) capture: Scratch,
    pub(crate) commands: Vec<Command>,
    pub(crate) cntlid: u16,
}

pub(crate) fn record() -> Session {
    record_on(&Network::System, "v2")
}

pub(crate) fn record_on(network: &Network, name: &str) -> Session {
    let on_network = SoftOptions {
        network: network.clone(),
        ..SoftOptions::default()
    };
    let exports = subsystem(NQN, &["mem:1MiB block_size = 512"]);
    let target = TestTarget::start_on_soft(Soft::new(on_network.clone()), &exports);
    let capture = Scratch::new(&format!("tshark-{name}.pcapng"), 0);
    let file = Capture::create(capture.path(), 1 << 30).expect("the capture can be written");
    let options = SoftOptions {
        capture: Some(Arc::new(file)),
        ..on_network
    };
    let provider = Soft::new(options);
    discover(&provider, &target.options("a")).expect("discovery");
    let mut host = Host::connect(&provider, target.options("a")).expect("a connection");
    let cntlid = host.cntlid();
    read_effects_log(&mut host);
    let commands = exchange(&mut host);
    host.shutdown().expect("a shutdown");
    target.stop();
    drop(provider); // completes the capture file
    Session {
        capture,
        commands,
        cntlid,
    }
}

/// Reads the command effects log in one packet: tshark 4.0 cannot dissect a log in several packets.
fn read_effects_log(host: &mut Host) {
    let mut log = host.buffer(4096).expect("memory");
    let sqe = command::get_log_page(LogPage::COMMAND_EFFECTS, 0, 0, 4096, false);
    let read = host.run_admin(sqe, Data::start_of(&mut log, 4096));
    read.expect("the command effects log");
}

fn exchange(host: &mut Host) -> Vec<Command> {
    let memory = |host: &Host, length| host.buffer(length).expect("memory");
    let bytes = Random::new(3).bytes(64 << 10);
    let mut buffer = memory(host, 64 << 10);
    buffer.write(0, &bytes);
    let far = Data::whole(buffer);
    let near = Data::InCapsule(&bytes[..3584]);
    let (mut commands, _) = run_together(
        host,
        [
            (command::write(1, 5, 7), Some((5, 7)), near),
            (command::write(1, 100, 128), Some((100, 128)), far),
            (command::flush(1), None, Data::None),
        ],
    );
    let [far, near, past] = [64 << 10, 3584, 1024].map(|length| Data::whole(memory(host, length)));
    let (more, buffers) = run_together(
        host,
        [
            (command::read(1, 100, 128), Some((100, 128)), far),
            (command::read(1, 5, 7), Some((5, 7)), near),
            (command::write_zeroes(1, 7, 3, false), None, Data::None),
            (command::read(1, 2047, 2), Some((2047, 2)), past),
        ],
    );
    commands.extend(more);
    let far = buffers[0].as_ref().expect("a Read has a buffer");
    assert_eq!(far.bytes(0, 64 << 10), bytes);
    let once = Data::once(memory(host, 512), 512);
    let last = (command::read(1, 6, 1), Some((6, 1)), once);
    commands.extend(run_together(host, [last]).0);
    commands
}

type Wish<'a> = (Sqe, Option<(u64, u32)>, Data<'a>);

fn run_together<const N: usize>(
    host: &mut Host,
    wanted: [Wish<'_>; N],
) -> (Vec<Command>, Vec<Option<Buffer>>) {
    let submitted = wanted.map(|(sqe, blocks, data)| {
        let ticket = host.submit(sqe, data).expect("a place in the queue");
        (ticket, sqe, blocks)
    });
    let ended = submitted.map(|(ticket, sqe, blocks)| {
        let Ended { answer, buffer } = host.wait(ticket);
        let status = answer.expect("an answer").cqe.status();
        let command = Command {
            cid: ticket.cid(),
            opcode: sqe.opc,
            nsid: sqe.nsid.get(),
            blocks,
            status: (status.sct(), status.sc()),
        };
        (command, buffer)
    });
    ended.into_iter().unzip()
}
