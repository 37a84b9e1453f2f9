//! Handling of all arrived connection messages on one endpoint's thread.
//!
//! The kernel may combine a message with packets for another endpoint (GRO), in whose socket it then
//! is. This endpoint therefore reads its own socket, and then all sockets not read lately.

use cairn_roce_proto::time::Instant;
use cairn_roce_proto::wire::bth;

use super::super::device::INDEX_SHIFT;
use super::super::manager::DATAGRAMS_MAX;
use super::SoftEndpoint;
use crate::phy::Inlet;
use crate::phy::receive::BATCH;

impl SoftEndpoint {
    pub(super) fn drain(&mut self) {
        let now = self.clock.now();
        self.memory.refresh();
        for _ in 0..=DATAGRAMS_MAX / BATCH {
            self.receive(now);
            if !self.may_have_more() {
                break;
            }
        }
        for inlet in self.device.unread_inlets(self.index, now) {
            self.read_for_others(&inlet, now);
        }
        self.wake_others();
        self.device.manager.drain();
        self.progress();
    }

    /// Reads the socket of another endpoint, and passes the packets to their endpoints.
    fn read_for_others(&mut self, inlet: &Inlet, now: Instant) {
        let mut receiver = self.receiver.take().expect("it is put back below");
        let mut handled = 0;
        while handled < DATAGRAMS_MAX {
            let count = match receiver.receive(inlet) {
                Ok(0) => break,
                Ok(count) => count,
                Err(_) => {
                    handled += 1;
                    continue;
                }
            };
            handled += count;
            for datagram in 0..count {
                for received in receiver.packets(datagram) {
                    let dest_qpn = bth::dest_qpn(received.bytes);
                    if dest_qpn.is_some_and(|number| number >> INDEX_SHIFT == self.index) {
                        self.handle(&received, now);
                    } else {
                        self.pass_on(&received);
                    }
                }
            }
        }
        self.receiver = Some(receiver);
    }
}
