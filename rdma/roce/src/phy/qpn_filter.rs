//! Kernel filters that pass only packets with certain destination queue pair numbers, so that other
//! packets cause no wake-up.
//!
//! A filter is a binary search tree with lists as leaves.

use std::io;
use std::os::fd::RawFd;

use super::socket::{NOTHING, attach, statement};

const LEAF: usize = 16;

/// Replaces a socket's filter by `narrow`. If memory is scarce, attaches the smaller `wide`,
/// then tries `narrow` again.
pub(super) fn exchange(
    fd: RawFd,
    narrow: &[libc::sock_filter],
    wide: &[libc::sock_filter],
) -> io::Result<()> {
    if attach(fd, libc::SO_ATTACH_FILTER, narrow).is_err() {
        attach(fd, libc::SO_ATTACH_FILTER, wide)?;
        let _ = attach(fd, libc::SO_ATTACH_FILTER, narrow);
    }
    Ok(())
}

pub(super) fn by_number(at: u32, numbers: &[u32]) -> Vec<libc::sock_filter> {
    debug_assert!(numbers.is_sorted());
    let mut program = vec![
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at),
        statement(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0x00ff_ffff),
    ];
    program.extend(tree(numbers));
    program
}

fn tree(numbers: &[u32]) -> Vec<libc::sock_filter> {
    if numbers.len() <= LEAF {
        return leaf(numbers);
    }
    let (low, high) = numbers.split_at(numbers.len() / 2);
    let left = tree(low);
    // A conditional jump can skip at most 255 statements, so a long jump is needed.
    let over = statement(libc::BPF_JMP | libc::BPF_JA, left.len() as u32);
    let mut program = vec![compare(libc::BPF_JGE, high[0], 0, 1), over];
    program.extend(left);
    program.extend(tree(high));
    program
}

fn leaf(numbers: &[u32]) -> Vec<libc::sock_filter> {
    let tests = numbers.iter().rev().zip(1..);
    let mut program: Vec<_> = tests
        .map(|(&number, further)| compare(libc::BPF_JEQ, number, further, 0))
        .collect();
    program.reverse();
    program.extend(NOTHING);
    program.push(PASS);
    program
}

pub(super) const PASS: libc::sock_filter = statement(libc::BPF_RET | libc::BPF_K, u32::MAX);

pub(super) fn compare(what: u32, k: u32, if_so: u8, if_not: u8) -> libc::sock_filter {
    libc::sock_filter {
        jt: if_so,
        jf: if_not,
        ..statement(libc::BPF_JMP | what | libc::BPF_K, k)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

    use super::super::socket::Socket;
    use super::*;

    fn pass(receiver: &Socket, sender: &UdpSocket, sent: &[u32]) -> Vec<u32> {
        let to = receiver.local_addr().unwrap();
        let mut passed = Vec::new();
        for number in sent {
            let mut packet = [0xff; 16];
            packet[5..8].copy_from_slice(&number.to_be_bytes()[1..]);
            sender.send_to(&packet, to).unwrap();
            let mut bytes = [0_u8; 64];
            let (room, length) = (bytes.as_mut_ptr().cast(), bytes.len());
            // SAFETY: the buffer has `length` bytes.
            let received = unsafe { libc::recv(receiver.raw(), room, length, 0) };
            if received > 0 {
                assert_eq!((received, bytes[..16].to_vec()), (16, packet.to_vec()));
                passed.push(*number);
            }
        }
        passed
    }

    #[test]
    fn what_is_for_others_does_not_arrive() {
        let mut random = fastrand::Rng::with_seed(7);
        for address in [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()] {
            let any_port = SocketAddr::new(address, 0);
            let receiver = Socket::bind_receiver(any_port, false).unwrap();
            let sender = UdpSocket::bind(any_port).unwrap();
            for count in [0, 1, 2, LEAF, LEAF + 1, 100, 1024, 1200] {
                let mut numbers: Vec<u32> = (0..count).map(|_| random.u32(..1 << 24)).collect();
                numbers.sort_unstable();
                numbers.dedup();
                receiver.admit(&numbers, &[]).unwrap();
                assert_eq!(pass(&receiver, &sender, &numbers), numbers);
                let near = numbers
                    .iter()
                    .flat_map(|number| [number ^ 1, number ^ (1 << 23)]);
                let mut others: Vec<u32> = near.chain([0, 1, 0x00ff_ffff]).collect();
                others.retain(|other| numbers.binary_search(other).is_err());
                assert_eq!(
                    pass(&receiver, &sender, &others),
                    [0_u32; 0],
                    "{address}, {count}"
                );
            }
        }
    }

    #[test]
    fn a_filter_of_all_queue_pairs_fits() {
        let numbers: Vec<u32> = (0..1200).collect();
        assert!(by_number(12, &numbers).len() < 4096 / 2);
    }
}
