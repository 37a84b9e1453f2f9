//! Queries of ethtool by ioctl (linux/ethtool.h).

use std::collections::BTreeMap;
use std::io;

use super::sys;
use crate::source::{Driver, Pause, Rings};

const GDRVINFO: u32 = 0x3;
const GRINGPARAM: u32 = 0x10;
const GPAUSEPARAM: u32 = 0x12;
const GSTRINGS: u32 = 0x1b;
const GSTATS: u32 = 0x1d;
const GSSET_INFO: u32 = 0x37;

const SS_STATS: u32 = 1;
/// Bytes of a counter's name (ETH_GSTRING_LEN).
const STRING_BYTES: usize = 32;
const MAX_COUNTERS: u32 = 1 << 16;

pub(super) fn pause(netdev: &str) -> io::Result<Pause> {
    // `struct ethtool_pauseparam`: cmd, autoneg, rx_pause, tx_pause.
    let mut data = [GPAUSEPARAM, 0, 0, 0];
    sys::ethtool(netdev, &mut data)?;
    let [_, autonegotiated, rx, tx] = data.map(|flag| flag != 0);
    Ok(Pause {
        rx,
        tx,
        autonegotiated,
    })
}

pub(super) fn rings(netdev: &str) -> io::Result<Rings> {
    // `struct ethtool_ringparam`: cmd, four maxima (rx, mini, jumbo, tx), four values.
    let mut data = [0; 9];
    data[0] = GRINGPARAM;
    sys::ethtool(netdev, &mut data)?;
    Ok(Rings {
        rx: data[5],
        rx_max: data[1],
        tx: data[8],
        tx_max: data[4],
    })
}

pub(super) fn driver(netdev: &str) -> io::Result<Driver> {
    // `struct ethtool_drvinfo`, 196 bytes: cmd, driver[32], version[32], fw_version[32], ...
    let mut data = [0; 49];
    data[0] = GDRVINFO;
    sys::ethtool(netdev, &mut data)?;
    let bytes = bytes_of(&data);
    Ok(Driver {
        driver: string(&bytes[4..36]),
        firmware: string(&bytes[68..100]),
    })
}

pub(super) fn statistics(netdev: &str) -> io::Result<BTreeMap<String, u64>> {
    let count = counters(netdev)?.min(MAX_COUNTERS);
    // `struct ethtool_gstrings`: cmd, string_set, len, strings.
    let mut names = vec![0; 3 + count as usize * STRING_BYTES / 4];
    names[..3].copy_from_slice(&[GSTRINGS, SS_STATS, count]);
    sys::ethtool(netdev, &mut names)?;
    // `struct ethtool_stats`: cmd, n_stats, 64-bit values.
    let mut values = vec![0; 2 + count as usize * 2];
    values[..2].copy_from_slice(&[GSTATS, count]);
    sys::ethtool(netdev, &mut values)?;
    let names = bytes_of(&names[3..]);
    let values = bytes_of(&values[2..]);
    let numbers = values
        .as_chunks::<8>()
        .0
        .iter()
        .map(|bytes| u64::from_ne_bytes(*bytes));
    Ok(names
        .chunks(STRING_BYTES)
        .map(|name| string(name).trim().to_owned())
        .zip(numbers)
        .collect())
}

fn counters(netdev: &str) -> io::Result<u32> {
    // `struct ethtool_sset_info`: cmd, reserved, sset_mask (64 bits), one count per existing set.
    let mut data = [GSSET_INFO, 0, 1 << SS_STATS, 0, 0];
    sys::ethtool(netdev, &mut data)?;
    if data[2] & (1 << SS_STATS) == 0 {
        return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
    }
    Ok(data[4])
}

fn bytes_of(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn string(bytes: &[u8]) -> String {
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_netdev_that_is_not_there_is_an_error() {
        for netdev in ["no-such-dev", "a-name-that-is-too-long-for-a-netdev"] {
            assert!(pause(netdev).is_err());
            assert!(statistics(netdev).is_err());
        }
    }

    #[test]
    fn text_ends_at_its_zero() {
        assert_eq!(string(b"mlx5_core\0\0rest"), "mlx5_core");
        assert_eq!(string(b"full"), "full");
    }
}
