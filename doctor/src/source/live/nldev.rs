//! Queue pairs, which sysfs lacks, read by netlink (rdma/rdma_netlink.h) like
//! `rdma resource show qp`.
//!
//! ```text
//! request   nlmsghdr, DEV_INDEX
//! answers   nlmsghdr, DEV_INDEX, DEV_NAME, RES_QP
//!                                            RES_QP_ENTRY
//!                                              PORT_INDEX, RES_LQPN, RES_TYPE, RES_STATE, ...
//!                                            RES_QP_ENTRY
//!                                              ...
//! ```
//!
//! Unknown attributes and entries without type or state are skipped.

use std::collections::BTreeMap;
use std::io;

use cairn_base::netlink::{attribute, attributes, find, u32_at};

use super::netlink::request_of;
use crate::source::QueuePairs;

/// Protocol number (linux/netlink.h).
const NETLINK_RDMA: i32 = 20;
/// Client number RDMA_NL_NLDEV, shifted as in RDMA_NL_GET_TYPE.
const NLDEV: u16 = 5 << 10;
const CMD_GET: u16 = NLDEV | 1;
const CMD_RES_QP_GET: u16 = NLDEV | 10;

const ATTR_DEV_INDEX: u16 = 1;
const ATTR_DEV_NAME: u16 = 2;
const ATTR_PORT_INDEX: u16 = 3;
const ATTR_RES_QP: u16 = 19;
const ATTR_RES_QP_ENTRY: u16 = 20;
const ATTR_RES_TYPE: u16 = 26;
const ATTR_RES_STATE: u16 = 27;

const TYPES: [(u8, &str); 10] = [
    (0, "SMI"),
    (1, "GSI"),
    (2, "RC"),
    (3, "UC"),
    (4, "UD"),
    (5, "RAW_IPV6"),
    (6, "RAW_ETHERTYPE"),
    (8, "RAW_PACKET"),
    (9, "XRC_INI"),
    (10, "XRC_TGT"),
];
const STATES: [(u8, &str); 7] = [
    (0, "RESET"),
    (1, "INIT"),
    (2, "RTR"),
    (3, "RTS"),
    (4, "SQD"),
    (5, "SQE"),
    (6, "ERR"),
];

pub(super) fn queue_pairs(device: &str) -> io::Result<Vec<QueuePairs>> {
    let devices = dump(CMD_GET, &[])?;
    let index = devices.iter().find_map(|body| index_of(body, device));
    let index = index.ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))?;
    let mut body = Vec::new();
    attribute(&mut body, ATTR_DEV_INDEX, &index.to_ne_bytes());
    Ok(count(&dump(CMD_RES_QP_GET, &body)?))
}

fn dump(command: u16, body: &[u8]) -> io::Result<Vec<Vec<u8>>> {
    request_of(NETLINK_RDMA, command, libc::NLM_F_DUMP, body)
}

fn index_of(body: &[u8], device: &str) -> Option<u32> {
    let attributes = attributes(body);
    let name = find(&attributes, ATTR_DEV_NAME)?;
    let is_it = name.strip_suffix(b"\0").unwrap_or(name) == device.as_bytes();
    let index = find(&attributes, ATTR_DEV_INDEX)?;
    u32_at(index, 0).filter(|_| is_it)
}

fn count(answers: &[Vec<u8>]) -> Vec<QueuePairs> {
    let mut counts = BTreeMap::new();
    for entry in answers
        .iter()
        .flat_map(|body| attributes(body))
        .filter_map(|table| nested(table, ATTR_RES_QP))
        .flatten()
        .filter_map(|entry| nested(entry, ATTR_RES_QP_ENTRY))
    {
        let byte = |wanted| find(&entry, wanted)?.first().copied();
        let port = find(&entry, ATTR_PORT_INDEX).and_then(|port| u32_at(port, 0));
        if let (Some(kind), Some(state)) = (byte(ATTR_RES_TYPE), byte(ATTR_RES_STATE)) {
            *counts.entry((port, kind, state)).or_insert(0) += 1;
        }
    }
    let group = |((port, kind, state), count)| QueuePairs {
        port,
        kind: name(&TYPES, kind),
        state: name(&STATES, state),
        count,
    };
    counts.into_iter().map(group).collect()
}

fn nested((kind, value): (u16, &[u8]), wanted: u16) -> Option<Vec<(u16, &[u8])>> {
    (kind == wanted).then(|| attributes(value))
}

fn name(names: &[(u8, &str)], value: u8) -> String {
    let known = names.iter().find(|(own, _)| *own == value);
    known.map_or_else(|| value.to_string(), |(_, name)| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use cairn_base::netlink::collect;

    /// Answer captured from Linux about the device rxe0, whose GSI queue pair is in state ERR.
    #[rustfmt::skip]
    const ANSWER: &[u8] = &[
        // `struct nlmsghdr`: length 212, type 5 << 10 | 10, flags MULTI, sequence, port.
        212, 0, 0, 0, 10, 20, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        8, 0, 1, 0, 0, 0, 0, 0, // DEV_INDEX 0
        9, 0, 2, 0, b'r', b'x', b'e', b'0', 0, 0, 0, 0, // DEV_NAME "rxe0", padded
        176, 0, 19, 0, // RES_QP
            56, 0, 20, 0, // RES_QP_ENTRY
                8, 0, 3, 0, 1, 0, 0, 0, // PORT_INDEX 1
                8, 0, 21, 0, 1, 0, 0, 0, // RES_LQPN 1
                8, 0, 24, 0, 0, 0, 0, 0, // RES_SQ_PSN 0
                5, 0, 26, 0, 1, 0, 0, 0, // RES_TYPE GSI
                5, 0, 27, 0, 6, 0, 0, 0, // RES_STATE ERR
                12, 0, 29, 0, b'i', b'b', b'_', b'c', b'o', b'r', b'e', 0, // RES_KERN_NAME
            56, 0, 20, 0,
                8, 0, 3, 0, 1, 0, 0, 0,
                8, 0, 21, 0, 17, 0, 0, 0,
                8, 0, 22, 0, 18, 0, 0, 0, // RES_RQPN 18
                5, 0, 25, 0, 0, 0, 0, 0, // RES_PATH_MIG_STATE MIGRATED
                5, 0, 26, 0, 2, 0, 0, 0, // RC
                5, 0, 27, 0, 3, 0, 0, 0, // RTS
                4, 0, 99, 0, // future attribute without a value
            28, 0, 20, 0,
                8, 0, 3, 0, 1, 0, 0, 0,
                5, 0, 26, 0, 2, 0, 0, 0,
                5, 0, 27, 0, 3, 0, 0, 0,
            20, 0, 20, 0, // no port yet
                5, 0, 26, 0, 2, 0, 0, 0,
                5, 0, 27, 0, 0, 0, 0, 0, // RESET
            12, 0, 20, 0, // skipped: no state
                5, 0, 26, 0, 2, 0, 0, 0,
        20, 0, 0, 0, 3, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];

    fn group(port: Option<u32>, kind: &str, state: &str, count: u32) -> QueuePairs {
        QueuePairs {
            port,
            kind: kind.to_owned(),
            state: state.to_owned(),
            count,
        }
    }

    fn messages(answer: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        let mut messages = Vec::new();
        collect(answer, &mut messages)?;
        Ok(messages.into_iter().map(|message| message.body).collect())
    }

    #[test]
    fn queue_pairs_are_counted_by_port_type_and_state() {
        let messages = messages(ANSWER).unwrap();
        let found = count(&messages);
        let expected = [
            group(None, "RC", "RESET", 1),
            group(Some(1), "GSI", "ERR", 1),
            group(Some(1), "RC", "RTS", 2),
        ];
        assert_eq!(found, expected);
        let broken: Vec<bool> = found.iter().map(QueuePairs::is_broken_gsi).collect();
        assert_eq!(broken, [false, true, false]);
        assert_eq!(index_of(&messages[0], "rxe0"), Some(0));
        assert_eq!(index_of(&messages[0], "rxe"), None);
    }

    #[test]
    fn an_answer_that_is_cut_off_says_nothing() {
        const HEADER: usize = 16;
        for end in HEADER..usize::from(ANSWER[0]) {
            assert!(messages(&ANSWER[..end]).is_err(), "{end}");
            assert!(count(&[ANSWER[HEADER..end].to_owned()]).is_empty(), "{end}");
        }
    }

    #[test]
    fn any_byte_may_be_wrong() {
        for at in 0..ANSWER.len() {
            for value in [0, 1, 3, 4, 0x7f, 0xff] {
                let mut answer = ANSWER.to_owned();
                answer[at] = value;
                for message in messages(&answer).unwrap_or_default() {
                    index_of(&message, "rxe0");
                    count(&[message]);
                }
            }
        }
    }

    #[test]
    fn what_has_no_name_keeps_its_number() {
        assert_eq!(name(&TYPES, 1), "GSI");
        assert_eq!(name(&TYPES, 7), "7");
        assert_eq!(name(&STATES, 255), "255");
    }

    #[test]
    fn a_device_that_is_not_there_is_an_error() {
        assert!(queue_pairs("no-such-device").is_err());
    }
}
