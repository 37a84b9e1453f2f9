//! Grouping of peer addresses for rate limits and counters.

use core::net::IpAddr;

/// Address or network that limits and counters treat as one peer.
///
/// A host is an address with a current or recent connection; any other address is a stranger. All
/// strangers in one IPv6 /64 are one peer, because one machine may own them all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Payer {
    first: IpAddr,
    is_host: bool,
}

impl Payer {
    /// Returns the payer whose only address is `address`.
    #[must_use]
    pub fn host(address: IpAddr) -> Self {
        let first = address.to_canonical();
        Self {
            first,
            is_host: true,
        }
    }

    /// Returns the payer of an IPv4 `address`, or of the /64 of an IPv6 `address`.
    #[must_use]
    pub fn stranger(address: IpAddr) -> Self {
        let first = prefix_of(address, 32, 64);
        Self {
            first,
            is_host: false,
        }
    }

    /// Returns [`Self::host`] if `is_host` is true, else [`Self::stranger`].
    #[must_use]
    pub fn of(address: IpAddr, is_host: bool) -> Self {
        match is_host {
            true => Self::host(address),
            false => Self::stranger(address),
        }
    }

    /// Returns the first and the last address of this payer.
    #[must_use]
    pub fn range(self) -> (IpAddr, IpAddr) {
        let last = match self.first {
            IpAddr::V6(first) if !self.is_host => {
                IpAddr::V6((first.to_bits() | u128::from(u64::MAX)).into())
            }
            first => first,
        };
        (self.first, last)
    }
}

/// Returns the first address of the prefix that contains `address`. The prefix length is
/// `bits_of_v4` (1 to 32) or `bits_of_v6` (1 to 128). IPv4-mapped IPv6 addresses count as IPv4.
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
    fn a_host_pays_alone_and_strangers_with_their_network() {
        for (address, own, network) in [
            ("192.0.2.77", "192.0.2.77", ["192.0.2.77", "192.0.2.77"]),
            (
                "::ffff:192.0.2.77",
                "192.0.2.77",
                ["192.0.2.77", "192.0.2.77"],
            ),
            (
                "2001:db8:1:2:3::4",
                "2001:db8:1:2:3::4",
                ["2001:db8:1:2::", "2001:db8:1:2:ffff:ffff:ffff:ffff"],
            ),
        ] {
            let [address, own, first, last] =
                [address, own, network[0], network[1]].map(|text| text.parse::<IpAddr>().unwrap());
            assert_eq!(Payer::of(address, true).range(), (own, own));
            assert_eq!(Payer::of(address, false).range(), (first, last));
            assert_ne!(Payer::host(address), Payer::stranger(address));
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
