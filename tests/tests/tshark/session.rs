//! A host's session, captured at the host's end, and what was said in it.

use std::sync::Arc;

use cairn_initiator::{Data, Host, command, discover};
use cairn_roce::capture::Capture;
use cairn_roce::phy::Network;
use cairn_roce::{Soft, SoftOptions};
use cairn_sim::Random;
use cairn_tests::harness::{NQN, Scratch, TestTarget, subsystem};
use nvme_proto::wire::Sqe;
use nvme_proto::wire::log::LogPage;

/// A command of a host, and how it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Command {
    pub(crate) cid: u16,
    pub(crate) opcode: u8,
    pub(crate) nsid: u32,
    /// SLBA and the number of blocks, of Read and Write: tshark 4.0 shows it of no other.
    pub(crate) blocks: Option<(u64, u32)>,
    /// SCT and SC.
    pub(crate) status: (u8, u8),
}

/// What was captured, and what it must show.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) capture: Scratch,
    /// All commands of queue 1 after its Connect, in order.
    pub(crate) commands: Vec<Command>,
    /// The controller.
    pub(crate) cntlid: u16,
}

/// A host discovers, connects, writes, reads, is refused, and disconnects.
pub(crate) fn record() -> Session {
    record_on(&Network::System, "v2")
}

/// The same, with what RoCE the network has; its name is the file's, too.
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
    // Not the target's provider: a capture of both ends would have each packet twice.
    let provider = Soft::new(options);
    discover(&provider, &target.options("a")).expect("discovery");
    let mut host = Host::connect(&provider, target.options("a")).expect("a connection");
    let cntlid = host.cntlid();
    read_effects_log(&mut host);
    let commands = exchange(&mut host);
    host.shutdown().expect("a shutdown");
    target.stop();
    drop(provider); // and with it the capture, to the last byte
    Session {
        capture,
        commands,
        cntlid,
    }
}

/// The page at which tshark stumbles when it comes in several packets. This one is one packet.
fn read_effects_log(host: &mut Host) {
    let log = host.buffer(4096).expect("memory");
    let sqe = command::get_log_page(LogPage::COMMAND_EFFECTS, 0, 0, 4096, false);
    let read = host.run(0, sqe, Data::start_of(&log, 4096));
    read.expect("the command effects log");
}

/// Data of every kind: in the capsule, by one packet, by many, with the key taken out of use; and a
/// command that is refused. Several are under way at a time, so that their CIDs differ.
fn exchange(host: &mut Host) -> Vec<Command> {
    let buffer = host.buffer(128 << 10).expect("memory");
    let bytes = Random::new(3).bytes(64 << 10);
    buffer.write(0, &bytes);
    let far = Data::start_of(&buffer, 64 << 10);
    // A capsule of two packets is one that tshark 4.0 does not look into.
    let near = Data::InCapsule(&bytes[..3584]);
    let mut commands = run_together(
        host,
        &[
            (command::write(1, 5, 7), Some((5, 7)), near),
            (command::write(1, 100, 128), Some((100, 128)), far),
            (command::flush(1), None, Data::None),
        ],
    );
    let part = |offset, length| Data::part_of(&buffer, offset, length);
    commands.extend(run_together(
        host,
        &[
            (
                command::read(1, 100, 128),
                Some((100, 128)),
                part(64 << 10, 64 << 10),
            ),
            (command::read(1, 5, 7), Some((5, 7)), part(0, 3584)),
            (command::write_zeroes(1, 7, 3, false), None, Data::None),
            // The namespace has 2048 blocks.
            (command::read(1, 2047, 2), Some((2047, 2)), part(8192, 1024)),
        ],
    ));
    assert_eq!(buffer.bytes(64 << 10, 64 << 10), bytes);
    // Last, for it takes the buffer's key out of use.
    let once = Data::once(&buffer, 512);
    commands.extend(run_together(
        host,
        &[(command::read(1, 6, 1), Some((6, 1)), once)],
    ));
    commands
}

/// A command, its SLBA and number of blocks if tshark shows them, and its data.
type Wish<'a> = (Sqe, Option<(u64, u32)>, Data<'a>);

/// Submits all, and waits for all.
fn run_together(host: &mut Host, wanted: &[Wish<'_>]) -> Vec<Command> {
    let mut submit = |&(sqe, _, data): &Wish<'_>| host.submit(1, sqe, data);
    let tickets: Vec<_> = wanted
        .iter()
        .map(|wish| submit(wish).expect("a place in the queue"))
        .collect();
    let answered = tickets
        .into_iter()
        .zip(wanted)
        .map(|(ticket, (sqe, blocks, _))| {
            let response = host.wait(ticket).expect("an answer");
            let status = response.cqe.status();
            Command {
                cid: ticket.cid(),
                opcode: sqe.opc,
                nsid: sqe.nsid.get(),
                blocks: *blocks,
                status: (status.sct(), status.sc()),
            }
        });
    answered.collect()
}
