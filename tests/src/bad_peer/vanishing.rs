use anyhow::Result;
use cairn_initiator::command;
use nvme_proto::wire::fabrics::{PropertySetCommand, PropertySize};
use nvme_proto::wire::property::{Cc, offset};
use nvme_proto::wire::{IntoBytes, Sqe};

use super::capsules::plain;
use super::peer::{ENTRIES, Peer};
use super::{BLOCK_BYTES, Setting};
use crate::case::suite;

suite! {
    disconnect_in_flight: "a host that disconnects with a queue full of commands is let go",
    vanish_in_flight: "a host that vanishes with a queue full of commands is noticed",
    admin_queue_leaves_first: "I/O queues of a host whose admin queue is gone are closed",
    reset_in_flight: "a controller that is reset with a queue full of commands loses its I/O queues",
    come_and_go: "50 hosts that come and go leave no trace",
}

fn disconnect_in_flight(setting: &Setting) -> Result<()> {
    for _ in 0..10 {
        let (mut peer, admin, io) = Peer::with_io_queue(setting)?;
        fill_queue(&mut peer, io)?;
        peer.hang_up(io)?;
        peer.hang_up(admin)?;
    }
    Ok(())
}

fn vanish_in_flight(setting: &Setting) -> Result<()> {
    for _ in 0..10 {
        let (mut peer, _, io) = Peer::with_io_queue(setting)?;
        fill_queue(&mut peer, io)?;
    }
    Ok(())
}

fn admin_queue_leaves_first(setting: &Setting) -> Result<()> {
    let (mut peer, admin, io) = Peer::with_io_queue(setting)?;
    fill_queue(&mut peer, io)?;
    peer.hang_up(admin)?;
    peer.expect_closed(io)
}

fn reset_in_flight(setting: &Setting) -> Result<()> {
    let (mut peer, admin, io) = Peer::with_io_queue(setting)?;
    fill_queue(&mut peer, io)?;
    let cc = Cc(0).with_iosqes(6).with_iocqes(4);
    let cid = peer.new_cid();
    let reset = PropertySetCommand::new(cid, PropertySize::Four, offset::CC, cc.0.into());
    peer.run(admin, reset.into())?;
    peer.expect_closed(io)?;
    peer.wait_ready(admin, false)?;
    peer.enable(admin)?;
    peer.connect_queue(1, ENTRIES)?;
    Ok(())
}

fn come_and_go(setting: &Setting) -> Result<()> {
    for round in 0..50 {
        let (mut peer, admin, io) = Peer::with_io_queue(setting)?;
        if round % 2 == 0 {
            peer.hang_up(io)?;
            peer.hang_up(admin)?;
        }
    }
    Ok(())
}

fn fill_queue(peer: &mut Peer, io: cairn_rdma::QpId) -> Result<()> {
    let nsid = peer.nsid;
    let capsules: Vec<Sqe> = (0..u64::from(ENTRIES - 1))
        .map(|n| {
            let sqe = if n % 2 == 0 {
                command::read(nsid, n * 8, 8)
            } else {
                command::write(nsid, n * 8, 8)
            };
            let mut sqe = plain(peer, sqe);
            sqe.dptr = peer.keyed(8 * BLOCK_BYTES);
            sqe
        })
        .collect();
    let capsules: Vec<&[u8]> = capsules.iter().map(IntoBytes::as_bytes).collect();
    peer.say_all(io, &capsules)
}
