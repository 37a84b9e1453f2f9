//! Data center bridging (linux/dcbnl.h): PFC, and the map from DSCP to priority.

use std::io;

use cairn_base::netlink::{attribute, attributes, u16_at};

use super::netlink::request;
use crate::source::Dcb;

const CMD_IEEE_GET: u8 = 21;
const ATTR_IFNAME: u16 = 1;
const ATTR_IEEE: u16 = 13;
const ATTR_IEEE_PFC: u16 = 2;
const ATTR_IEEE_APP_TABLE: u16 = 3;
/// Selector of DSCP entries in the application table (IEEE 802.1Qcd).
const SELECTOR_DSCP: u8 = 5;

pub(super) fn ask(netdev: &str) -> io::Result<Dcb> {
    // `struct dcbmsg`: family, cmd, padding.
    let mut body = vec![0, CMD_IEEE_GET, 0, 0];
    attribute(&mut body, ATTR_IFNAME, format!("{netdev}\0").as_bytes());
    let messages = request(libc::RTM_GETDCB, 0, &body)?;
    let unsupported = || io::Error::from_raw_os_error(libc::EOPNOTSUPP);
    let answer = messages.first().ok_or_else(unsupported)?;
    Ok(parse(answer.get(4..).unwrap_or_default()))
}

fn parse(answer: &[u8]) -> Dcb {
    let mut dcb = Dcb::default();
    let nested = |wanted: u16| {
        attributes(answer)
            .into_iter()
            .filter(move |(kind, _)| *kind == wanted)
            .flat_map(|(_, value)| attributes(value))
    };
    for (kind, value) in nested(ATTR_IEEE) {
        match kind {
            // `struct ieee_pfc`: pfc_cap, pfc_en, ...
            ATTR_IEEE_PFC => {
                let enabled = value.get(1).copied().unwrap_or_default();
                dcb.pfc = (0..8).filter(|bit| enabled & (1 << bit) != 0).collect();
            }
            // `struct dcb_app`: selector, priority, protocol.
            ATTR_IEEE_APP_TABLE => {
                let entries = attributes(value);
                dcb.dscp = entries
                    .iter()
                    .filter(|(_, app)| app.first() == Some(&SELECTOR_DSCP))
                    .filter_map(|(_, app)| Some((u16_at(app, 2)? as u8, *app.get(1)?)))
                    .collect();
            }
            _ => {}
        }
    }
    dcb
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pfc_and_the_dscp_map_are_found_in_an_answer() {
        let mut pfc = vec![8, 0b0000_1000, 0, 0];
        pfc.resize(136, 0);
        let mut table = Vec::new();
        attribute(&mut table, 1, &[5, 3, 24, 0]);
        attribute(&mut table, 1, &[1, 6, 0x15, 0x89]);
        let mut ieee = Vec::new();
        attribute(&mut ieee, ATTR_IEEE_PFC, &pfc);
        attribute(&mut ieee, ATTR_IEEE_APP_TABLE, &table);
        let mut answer = Vec::new();
        attribute(&mut answer, ATTR_IFNAME, b"eth2\0");
        attribute(&mut answer, ATTR_IEEE, &ieee);
        let expected = Dcb {
            pfc: vec![3],
            dscp: [(24, 3)].into(),
        };
        assert_eq!(parse(&answer), expected);
        assert_eq!(parse(&answer[..3]), Dcb::default());
    }
}
