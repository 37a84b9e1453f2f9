//! Addresses of peers, as limits and counters group them.

use core::net::IpAddr;

/// The machine at an address: an IPv4 address, or the /64 network that one machine may have of
/// IPv6.
#[must_use]
pub fn host_of(address: IpAddr) -> IpAddr {
    prefix_of(address, 32, 64)
}

/// The first bits of an address, the others zero. An IPv4 address in an IPv6 one counts as IPv4.
///
/// # Panics
/// If no bit is asked for, or more than there are.
#[must_use]
pub fn prefix_of(address: IpAddr, bits_of_v4: u32, bits_of_v6: u32) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            let rest = 32 - bits_of_v4;
            IpAddr::V4((address.to_bits() >> rest << rest).into())
        }
        IpAddr::V6(address) => {
            let rest = 128 - bits_of_v6;
            IpAddr::V6((address.to_bits() >> rest << rest).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_an_address_or_an_ipv6_network() {
        for (address, host) in [
            ("192.0.2.77", "192.0.2.77"),
            ("::ffff:192.0.2.77", "192.0.2.77"),
            ("2001:db8:1:2:3::4", "2001:db8:1:2::"),
        ] {
            let address: IpAddr = address.parse().unwrap();
            assert_eq!(host_of(address).to_string(), host, "{address}");
        }
    }

    #[test]
    fn a_prefix_has_the_bits_that_were_asked_for() {
        for (address, prefix) in [
            ("192.0.2.77", "192.0.2.0"),
            ("2001:db8:1:2:3::4", "2001:db8:1::"),
        ] {
            let address: IpAddr = address.parse().unwrap();
            assert_eq!(prefix_of(address, 24, 48).to_string(), prefix, "{address}");
        }
    }
}
