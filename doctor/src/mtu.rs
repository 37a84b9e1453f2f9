//! RoCE MTUs that fit an Ethernet MTU.

/// Path MTUs of InfiniBand and RoCE in bytes of payload (IBTA 1.5, 9.5.2).
pub const ROCE_MTUS: [u32; 5] = [256, 512, 1024, 2048, 4096];

/// Upper bound of the headers in bytes: IP, UDP, BTH, longest extended headers, ICRC. Drivers
/// assume 80 to 96 bytes.
const HEADER_BYTES: u32 = 96;

/// Recommended netdev MTU for RoCE in bytes: the largest path MTU plus headers, rounded up.
pub const ADVISED_NETDEV_MTU: u32 = 4200;

/// Minimum netdev MTU in bytes: below it, the kernel disables IPv6 on the netdev (RFC 8200, 5).
pub const NETDEV_MTU_MIN: u32 = 1280;

#[must_use]
pub fn set(netdev: &str, mtu: u32) -> String {
    format!("ip link set {netdev} mtu {}", mtu.max(NETDEV_MTU_MIN))
}

/// Returns the largest RoCE MTU that fits a netdev MTU, if any.
#[must_use]
pub fn fitting(netdev_mtu: u32) -> Option<u32> {
    let room = netdev_mtu.saturating_sub(HEADER_BYTES);
    ROCE_MTUS.into_iter().rev().find(|mtu| *mtu <= room)
}

/// Bytes on the wire besides the payload in RoCE v2 over IPv4: Ethernet with preamble, FCS and gap,
/// IP, UDP, BTH, ICRC.
pub const WIRE_OVERHEAD_BYTES: u32 = 38 + 20 + 8 + 12 + 4;

/// Returns the payload's share of the link rate, in percent.
#[must_use]
pub fn efficiency_percent(roce_mtu: u32) -> f64 {
    100.0 * f64::from(roce_mtu) / f64::from(roce_mtu + WIRE_OVERHEAD_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_that_fits_is_chosen() {
        for (netdev, roce) in [
            (1500, 1024),
            (4200, 4096),
            (9000, 4096),
            (2200, 2048),
            (576, 256),
        ] {
            assert_eq!(fitting(netdev), Some(roce), "netdev MTU {netdev}");
        }
        assert_eq!(fitting(300), None);
        assert_eq!(fitting(0), None);
        assert_eq!(fitting(ADVISED_NETDEV_MTU), Some(4096));
    }

    #[test]
    fn larger_packets_leave_more_for_data() {
        assert!((efficiency_percent(1024) - 92.6).abs() < 0.1);
        assert!((efficiency_percent(4096) - 98.0).abs() < 0.1);
    }
}
