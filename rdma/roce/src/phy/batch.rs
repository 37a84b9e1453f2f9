//! Batch of outgoing packets, combined into super-packets.
//!
//! A super-packet is a message that the kernel splits into packets to one destination
//! ("segmentation offload", udp(7)). Only the last may be shorter. The kernel numbers them from 0 in
//! the IPv4 identification, which the ICRC covers. [`BatchPosition`] keeps each queue pair's packets
//! in order.

use std::net::SocketAddr;

use super::Version;
use super::send::Flow;
use cairn_roce_proto::wire::icrc::{self, Identity, Route};
use cairn_roce_proto::wire::packet::{ICRC_LEN, MAX_LEN};

const BYTES: usize = 256 << 10;
pub(super) const GROUPS: usize = 64;
pub(super) const PIECES: usize = 1024;
/// Maximum packets in a super-packet (`UDP_MAX_SEGMENTS` of older kernels).
const MAX_SEGMENTS: u16 = 64;
const MAX_BYTES: usize = 65_000;
/// Bytes after which complete super-packets are sent, while the CPU cache still contains them.
const ENOUGH: usize = 60_000;
/// Bytes of a RETH, which only the first packet of a WRITE has.
const FIRST_HAS_MORE: usize = 16;
const SPARE: usize = 3;

/// Position of a queue pair's last packet in the batch. Later packets of the queue pair must follow
/// that packet.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct BatchPosition {
    batch: u64,
    group: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sharing {
    Alone,
    Others,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Group {
    pub(super) flow: Flow,
    pub(super) segment: usize,
    pub(super) length: usize,
    pub(super) count: u16,
    /// True if the last packet was shorter than the others, so no packet may follow.
    closed: bool,
    route: Route,
    first: usize,
    last: usize,
}

#[derive(Debug, Clone, Copy)]
struct Piece {
    start: usize,
    length: usize,
    next: Option<usize>,
}

#[derive(Debug)]
pub(super) struct Batch {
    number: u64,
    bytes: Box<[u8]>,
    since: usize,
    used: usize,
    groups: Vec<Group>,
    pieces: Vec<Piece>,
}

impl Batch {
    pub(super) fn new() -> Self {
        Self {
            number: 1,
            bytes: vec![0; BYTES].into(),
            since: 0,
            used: 0,
            groups: Vec::with_capacity(GROUPS),
            pieces: Vec::with_capacity(PIECES),
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.used + SPARE * MAX_LEN > BYTES
            || self.groups.len() + SPARE > GROUPS
            || self.pieces.len() + SPARE > PIECES
    }

    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    pub(super) fn room(&mut self) -> &mut [u8] {
        &mut self.bytes[self.used..self.used + MAX_LEN]
    }

    pub(super) fn opcode(&self) -> u8 {
        self.bytes[self.used]
    }

    /// Adds a packet (the first `length` bytes of [`Self::room`]) and its ICRC. Returns true if the
    /// packet joined an earlier super-packet.
    pub(super) fn add(
        &mut self,
        flow: &Flow,
        version: Version,
        length: usize,
        place: &mut BatchPosition,
        joins: Option<Sharing>,
    ) -> bool {
        let sealed = length + ICRC_LEN;
        let group = self
            .find(flow, sealed, place, joins)
            .unwrap_or_else(|| self.begin(flow, version, sealed));
        let Group { count, route, .. } = &self.groups[group];
        let is_joined = *count > 0;
        let start = self.used;
        let room = &mut self.bytes[start..];
        icrc::seal(route, Identity::of_segment(*count), room, length);
        self.append(group, sealed);
        *place = BatchPosition {
            batch: self.number,
            group,
        };
        is_joined
    }

    /// Returns room for up to `limit` packets that join the super-packet of the queue pair's last
    /// packet, and the bytes of each with its ICRC. They must have the length of that packet.
    pub(super) fn train_room(
        &mut self,
        place: &BatchPosition,
        limit: usize,
    ) -> Option<(&mut [u8], usize)> {
        let is_current = place.batch == self.number;
        let group = self.groups.get(place.group).filter(|_| is_current)?;
        let stride = group.segment;
        let packets = usize::from(MAX_SEGMENTS - group.count);
        let bytes = MAX_BYTES.saturating_sub(group.length) / stride;
        let room = BYTES.saturating_sub(self.used + SPARE * MAX_LEN) / stride;
        let count = limit.min(packets).min(bytes).min(room);
        let fits = !group.closed && self.pieces.len() < PIECES;
        let room = &mut self.bytes[self.used..][..count * stride];
        (fits && count > 0).then_some((room, stride))
    }

    /// Adds `count` packets of [`Self::train_room`] and their ICRCs.
    pub(super) fn add_train(&mut self, count: usize, place: &BatchPosition) {
        for _ in 0..count {
            let Group {
                count,
                route,
                segment,
                ..
            } = &self.groups[place.group];
            let (room, segment) = (&mut self.bytes[self.used..], *segment);
            icrc::seal(
                route,
                Identity::of_segment(*count),
                room,
                segment - ICRC_LEN,
            );
            self.append(place.group, segment);
        }
    }

    /// True if the complete super-packets should be sent before this packet is added.
    pub(super) fn is_due(
        &self,
        flow: &Flow,
        length: usize,
        place: &BatchPosition,
        joins: Option<Sharing>,
    ) -> bool {
        let sealed = length + ICRC_LEN;
        let ends = |last: &Group| sealed < last.segment;
        let enough = self.used - self.since >= ENOUGH && !self.groups.last().is_some_and(ends);
        enough && self.find(flow, sealed, place, joins).is_none()
    }

    fn find(
        &self,
        flow: &Flow,
        sealed: usize,
        place: &BatchPosition,
        joins: Option<Sharing>,
    ) -> Option<usize> {
        let sharing = joins?;
        let from = if place.batch == self.number {
            place.group
        } else {
            0
        };
        let open = |group: &Group| {
            !group.closed
                && group.count < MAX_SEGMENTS
                && group.length + sealed <= MAX_BYTES
                && group.flow == *flow
        };
        let equal = |group: &Group| group.segment == sealed && open(group);
        let found = self.groups[from..].iter().position(equal);
        let found = found.map(|at| from + at);
        found.or_else(|| {
            let last = self.groups.last()?;
            // A shorter packet ends the super-packet. It is added only if no other queue pair
            // sends, or if the super-packet consists of first packets of WRITEs.
            let shorter = last.segment.checked_sub(sealed)?;
            let ends = sharing == Sharing::Alone || shorter == FIRST_HAS_MORE;
            (ends && open(last)).then_some(self.groups.len() - 1)
        })
    }

    fn begin(&mut self, flow: &Flow, version: Version, sealed: usize) -> usize {
        let source = SocketAddr::new(flow.local, flow.source_port);
        let piece = self.pieces.len();
        self.pieces.push(Piece {
            start: self.used,
            length: 0,
            next: None,
        });
        self.groups.push(Group {
            flow: *flow,
            segment: sealed,
            length: 0,
            count: 0,
            closed: false,
            route: version.route(source, flow.remote),
            first: piece,
            last: piece,
        });
        self.groups.len() - 1
    }

    fn append(&mut self, group: usize, sealed: usize) {
        let group = &mut self.groups[group];
        group.closed = sealed < group.segment;
        group.length += sealed;
        group.count += 1;
        let next = self.pieces.len();
        let last = &mut self.pieces[group.last];
        if last.start + last.length == self.used {
            last.length += sealed;
        } else {
            last.next = Some(next);
            group.last = next;
            self.pieces.push(Piece {
                start: self.used,
                length: sealed,
                next: None,
            });
        }
        self.used += sealed;
    }

    pub(super) fn groups(&self) -> &[Group] {
        &self.groups
    }

    pub(super) fn pieces(&self, group: &Group) -> impl Iterator<Item = &[u8]> {
        let first = Some(&self.pieces[group.first]);
        let pieces = std::iter::successors(first, |piece| piece.next.map(|at| &self.pieces[at]));
        pieces.map(|piece| &self.bytes[piece.start..][..piece.length])
    }

    pub(super) fn packets(&self) -> impl Iterator<Item = (&Group, u16, &[u8])> {
        self.groups.iter().flat_map(|group| {
            let pieces = self.pieces(group);
            let packets = pieces
                .flat_map(|piece| piece.chunks(group.segment))
                .zip(0..);
            packets.map(move |(packet, index)| (group, index, packet))
        })
    }

    pub(super) fn clear(&mut self) {
        self.number += 1;
        self.since = self.used;
        self.groups.clear();
        self.pieces.clear();
    }

    pub(super) fn rewind(&mut self) {
        if self.is_empty() {
            self.since = 0;
            self.used = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn flow(source_port: u16) -> Flow {
        Flow {
            fd: -1,
            source_port,
            local: Ipv4Addr::new(192, 0, 2, 1).into(),
            remote: Ipv4Addr::new(192, 0, 2, 2).into(),
            traffic_class: 0,
            is_of_class: true,
            hop_limit: 64,
        }
    }

    struct Sends {
        name: u8,
        flow: Flow,
        place: BatchPosition,
    }

    impl Sends {
        fn new(name: u8, source_port: u16) -> Self {
            let (flow, place) = (flow(source_port), BatchPosition::default());
            Self { name, flow, place }
        }

        fn send(&mut self, batch: &mut Batch, length: usize, sharing: Sharing) {
            batch.room()[..length].fill(self.name);
            batch.add(
                &self.flow,
                Version::V2,
                length,
                &mut self.place,
                Some(sharing),
            );
        }
    }

    fn seen(batch: &Batch) -> Vec<Vec<(u8, usize)>> {
        let mut groups = vec![Vec::new(); batch.groups().len()];
        let mut at = 0;
        for (_, index, packet) in batch.packets() {
            if index == 0 && !groups[at].is_empty() {
                at += 1;
            }
            groups[at].push((packet[0], packet.len() - ICRC_LEN));
        }
        groups
    }

    #[test]
    fn packets_of_one_size_travel_together() {
        let mut batch = Batch::new();
        let mut queue_pairs = [1, 2, 3].map(|name| Sends::new(name, 7));
        for queue_pair in &mut queue_pairs {
            queue_pair.send(&mut batch, 4096, Sharing::Others);
            queue_pair.send(&mut batch, 28, Sharing::Others);
        }
        let of_size = |size| [1, 2, 3].map(|name| (name, size)).to_vec();
        assert_eq!(seen(&batch), [of_size(4096), of_size(28)]);
        let group = &batch.groups()[0];
        assert_eq!(batch.pieces(group).count(), 3);
        assert_eq!(group.length, 3 * (4096 + ICRC_LEN));
    }

    #[test]
    fn a_lone_queue_pair_ends_a_super_packet_with_a_shorter_packet() {
        let mut batch = Batch::new();
        let mut queue_pair = Sends::new(1, 7);
        for length in [4096, 28, 28] {
            queue_pair.send(&mut batch, length, Sharing::Alone);
        }
        assert_eq!(seen(&batch), [vec![(1, 4096), (1, 28)], vec![(1, 28)]]);
    }

    #[test]
    fn a_message_of_several_packets_stays_together() {
        let mut batch = Batch::new();
        let mut queue_pairs = [1, 2].map(|name| Sends::new(name, 7));
        for queue_pair in &mut queue_pairs {
            queue_pair.send(&mut batch, 4096 + FIRST_HAS_MORE, Sharing::Others);
            queue_pair.send(&mut batch, 4096, Sharing::Others);
        }
        let of = |name| vec![(name, 4096 + FIRST_HAS_MORE), (name, 4096)];
        assert_eq!(seen(&batch), [of(1), of(2)]);
    }

    #[test]
    fn a_queue_pairs_packets_keep_their_order() {
        let mut batch = Batch::new();
        let (mut one, mut other) = (Sends::new(1, 7), Sends::new(2, 7));
        one.send(&mut batch, 100, Sharing::Others);
        one.send(&mut batch, 28, Sharing::Others);
        one.send(&mut batch, 100, Sharing::Others);
        other.send(&mut batch, 100, Sharing::Others);
        let expected = [vec![(1, 100), (2, 100)], vec![(1, 28)], vec![(1, 100)]];
        assert_eq!(seen(&batch), expected);
        batch.clear();
        one.send(&mut batch, 28, Sharing::Others);
        one.send(&mut batch, 100, Sharing::Others);
        assert_eq!(seen(&batch), [vec![(1, 28)], vec![(1, 100)]]);
    }

    #[test]
    fn flows_do_not_mix() {
        let mut batch = Batch::new();
        let (mut one, mut other) = (Sends::new(1, 7), Sends::new(2, 8));
        one.send(&mut batch, 100, Sharing::Others);
        other.send(&mut batch, 100, Sharing::Alone);
        other.send(&mut batch, 28, Sharing::Alone);
        assert_eq!(seen(&batch), [vec![(1, 100)], vec![(2, 100), (2, 28)]]);
    }

    #[test]
    fn a_super_packet_has_its_limits() {
        let mut batch = Batch::new();
        let mut queue_pair = Sends::new(1, 7);
        (0..2 * MAX_SEGMENTS).for_each(|_| queue_pair.send(&mut batch, 28, Sharing::Alone));
        (0..32).for_each(|_| queue_pair.send(&mut batch, 4096, Sharing::Alone));
        let counts: Vec<u16> = batch.groups().iter().map(|group| group.count).collect();
        assert_eq!(counts, [64, 64, 15, 15, 2]);
        assert!(batch.groups().iter().all(|group| group.length <= MAX_BYTES));
    }

    #[test]
    fn a_train_joins_the_packet_before_it() {
        let mut batch = Batch::new();
        let (mut one, other) = (Sends::new(1, 7), Sends::new(2, 7));
        assert!(batch.train_room(&other.place, 3).is_none());
        one.send(&mut batch, 4096, Sharing::Others);
        one.send(&mut batch, 28, Sharing::Others);
        one.send(&mut batch, 4096, Sharing::Others);
        let (room, stride) = batch.train_room(&one.place, 3).unwrap();
        assert_eq!((room.len(), stride), (3 * stride, 4096 + ICRC_LEN));
        room.fill(9);
        batch.add_train(2, &one.place);
        let full = [(1, 4096), (9, 4096), (9, 4096)].to_vec();
        assert_eq!(
            seen(&batch),
            [[(1, 4096)].to_vec(), [(1, 28)].to_vec(), full]
        );
        let (room, _) = batch.train_room(&one.place, 100).unwrap();
        assert_eq!(room.len() / stride, MAX_BYTES / stride - 3);
        one.send(&mut batch, 28, Sharing::Alone);
        assert!(batch.train_room(&one.place, 3).is_none());
        assert_sealed(&batch);
    }

    #[test]
    fn what_leaves_is_sealed_for_its_place() {
        let mut batch = Batch::new();
        let mut queue_pairs = [1, 2, 3].map(|name| Sends::new(name, 7));
        for queue_pair in &mut queue_pairs {
            queue_pair.send(&mut batch, 64, Sharing::Others);
            queue_pair.send(&mut batch, 28, Sharing::Others);
        }
        assert_sealed(&batch);
    }

    fn assert_sealed(batch: &Batch) {
        let flow = flow(7);
        let route = Version::V2.route(SocketAddr::new(flow.local, 7), flow.remote);
        for (_, index, packet) in batch.packets() {
            let identity = Identity::of_segment(index);
            assert!(icrc::open(&route, identity, packet).is_some(), "{index}");
        }
    }
}
