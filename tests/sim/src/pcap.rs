//! Reader of capture files, in the formats of tcpdump (pcap) and of the option `--pcap` (pcapng).

const PCAP: [u8; 4] = [0xd4, 0xc3, 0xb2, 0xa1];
const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
const ENHANCED_PACKET: u32 = 6;
const BLOCK_HEADER: usize = 8;
const PACKET_HEADER: usize = 20;

#[must_use]
pub fn frames(file: &[u8]) -> Vec<&[u8]> {
    match file.first_chunk::<4>() {
        Some(&PCAP) => classic(&file[24..]),
        Some(&PCAPNG) => blocks(file),
        _ => panic!("no little-endian pcap or pcapng file"),
    }
}

fn classic(mut rest: &[u8]) -> Vec<&[u8]> {
    let mut frames = Vec::new();
    while let Some((header, tail)) = rest.split_at_checked(16) {
        let (frame, tail) = tail.split_at(word(header, 8));
        frames.push(frame);
        rest = tail;
    }
    frames
}

fn blocks(mut rest: &[u8]) -> Vec<&[u8]> {
    let mut frames = Vec::new();
    while !rest.is_empty() {
        let (block, tail) = rest.split_at(word(rest, 4));
        if word(block, 0) == ENHANCED_PACKET as usize {
            let length = word(block, BLOCK_HEADER + 12);
            frames.push(&block[BLOCK_HEADER + PACKET_HEADER..][..length]);
        }
        rest = tail;
    }
    frames
}

fn word(bytes: &[u8], at: usize) -> usize {
    let bytes = bytes[at..at + 4].try_into().expect("4 bytes");
    u32::from_le_bytes(bytes) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_are_read() {
        let mut classic = vec![0; 24];
        classic[..4].copy_from_slice(&PCAP);
        let mut blocks = Vec::from(PCAPNG);
        blocks.extend(12_u32.to_le_bytes());
        blocks.extend(12_u32.to_le_bytes());
        for frame in [&b"one"[..], b"three"] {
            let length = (frame.len() as u32).to_le_bytes();
            classic.extend([0; 8]);
            classic.extend([length, length].concat());
            classic.extend(frame);
            let padded = frame.len().next_multiple_of(4);
            let block = (BLOCK_HEADER + PACKET_HEADER + padded + 4) as u32;
            blocks.extend(ENHANCED_PACKET.to_le_bytes());
            blocks.extend(block.to_le_bytes());
            blocks.extend([0; 12]);
            blocks.extend([length, length].concat());
            blocks.extend(frame);
            blocks.extend(vec![0; padded - frame.len()]);
            blocks.extend(block.to_le_bytes());
        }
        for file in [classic, blocks] {
            assert_eq!(frames(&file), [&b"one"[..], b"three"]);
        }
    }
}
