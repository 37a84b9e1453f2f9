use core::fmt;
use core::str::FromStr;

use alloc::vec;
use alloc::vec::Vec;
use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, Odd};
use zeroize::Zeroizing;

use crate::Random;
use crate::primes::{FFDHE2048, FFDHE3072, FFDHE4096, FFDHE6144, FFDHE8192};

/// Private key length in bits: at least twice the security strength of the largest group (RFC 7919,
/// 5.2).
const EXPONENT_BITS: u32 = 512;

/// Diffie-Hellman group (figure 448; RFC 7919).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Group {
    /// Plain HMAC-CHAP without key exchange.
    Null = 0,
    /// 2048 bits.
    Ffdhe2048 = 1,
    /// 3072 bits.
    Ffdhe3072 = 2,
    /// 4096 bits.
    Ffdhe4096 = 3,
    /// 6144 bits.
    Ffdhe6144 = 4,
    /// 8192 bits.
    Ffdhe8192 = 5,
}

impl Group {
    /// Groups, weakest first.
    pub const ALL: [Self; 6] = [
        Self::Null,
        Self::Ffdhe2048,
        Self::Ffdhe3072,
        Self::Ffdhe4096,
        Self::Ffdhe6144,
        Self::Ffdhe8192,
    ];

    /// Group with DHGID `id`; `None` if unknown.
    #[must_use]
    pub fn of(id: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|group| *group as u8 == id)
    }

    /// Length of a public key in bytes; 0 for [`Group::Null`].
    #[must_use]
    pub fn key_len(self) -> usize {
        self.prime().map_or(0, |prime| prime.len() / 2)
    }

    fn prime(self) -> Option<&'static str> {
        match self {
            Self::Null => None,
            Self::Ffdhe2048 => Some(FFDHE2048),
            Self::Ffdhe3072 => Some(FFDHE3072),
            Self::Ffdhe4096 => Some(FFDHE4096),
            Self::Ffdhe6144 => Some(FFDHE6144),
            Self::Ffdhe8192 => Some(FFDHE8192),
        }
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            group => write!(f, "ffdhe{}", group.key_len() * 8),
        }
    }
}

impl FromStr for Group {
    type Err = &'static str;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "null" => Ok(Self::Null),
            "ffdhe2048" => Ok(Self::Ffdhe2048),
            "ffdhe3072" => Ok(Self::Ffdhe3072),
            "ffdhe4096" => Ok(Self::Ffdhe4096),
            "ffdhe6144" => Ok(Self::Ffdhe6144),
            "ffdhe8192" => Ok(Self::Ffdhe8192),
            _ => Err("a group is null, ffdhe2048, ffdhe3072, ffdhe4096, ffdhe6144 or ffdhe8192"),
        }
    }
}

pub(crate) struct Exchange {
    field: BoxedMontyParams,
    prime: BoxedUint,
    exponent: Zeroizing<BoxedUint>,
}

impl Exchange {
    pub(crate) fn new(group: Group, random: Random<'_>) -> Option<Self> {
        group.prime()?;
        let mut bytes = Zeroizing::new(vec![0; EXPONENT_BITS as usize / 8]);
        random(&mut bytes);
        // A private key must not be small, so its top bit is always set.
        bytes[0] |= 0x80;
        Self::of(group, &bytes)
    }

    fn of(group: Group, exponent: &[u8]) -> Option<Self> {
        let digits = group.prime()?;
        let bits = digits.len() as u32 * 4;
        let prime = BoxedUint::from_be_hex(digits, bits).expect("a table has digits");
        let odd = Odd::new(prime.clone()).expect("a table has primes");
        let exponent = BoxedUint::from_be_slice(exponent, EXPONENT_BITS);
        Some(Self {
            field: BoxedMontyParams::new_vartime(odd),
            prime,
            exponent: Zeroizing::new(exponent.expect("a private key has 512 bits")),
        })
    }

    fn power(&self, base: BoxedUint) -> BoxedUint {
        let base = BoxedMontyForm::new(base, self.field.clone());
        base.pow_bounded_exp(&self.exponent, EXPONENT_BITS)
            .retrieve()
    }

    /// Returns the public key, padded to the length of the prime.
    pub(crate) fn public_key(&self) -> Vec<u8> {
        let two = BoxedUint::from(2u8).widen(self.prime.bits_precision());
        self.power(two).to_be_bytes().into_vec()
    }

    /// Returns the shared secret, padded to the length of the prime; `None` if the public key is
    /// not in 2 to p - 2, because the secret would be predictable.
    pub(crate) fn common(&self, public_key: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let bits = self.prime.bits_precision();
        if public_key.len() * 8 > bits as usize {
            return None;
        }
        let key = BoxedUint::from_be_slice(public_key, bits).ok()?;
        let one = BoxedUint::one_with_precision(bits);
        let last = self.prime.wrapping_sub(&one);
        // Public keys are not secret: no constant time is required.
        if key <= one || key >= last {
            return None;
        }
        Some(Zeroizing::new(self.power(key).to_be_bytes().into_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn names_survive_the_round_trip() {
        for group in Group::ALL {
            assert_eq!(group.to_string().parse(), Ok(group));
            assert_eq!(Group::of(group as u8), Some(group));
        }
        assert_eq!(Group::Ffdhe8192.key_len(), 1024);
        assert!("ffdhe1024".parse::<Group>().is_err());
        assert_eq!(Group::of(6), None);
    }

    #[test]
    fn both_ends_have_the_same_in_common() {
        let mut seed = 1u8;
        let mut random = |bytes: &mut [u8]| {
            for byte in bytes {
                seed = seed.wrapping_mul(29).wrapping_add(7);
                *byte = seed;
            }
        };
        for group in Group::ALL {
            let Some(one) = Exchange::new(group, &mut random) else {
                assert_eq!(group, Group::Null);
                continue;
            };
            let other = Exchange::new(group, &mut random).unwrap();
            let (first, second) = (one.public_key(), other.public_key());
            assert_ne!(first, second);
            assert_eq!(first.len(), group.key_len());
            let common = one.common(&second).unwrap();
            assert_eq!(*common, *other.common(&first).unwrap());
            assert_eq!(common.len(), group.key_len());
        }
    }

    #[test]
    fn keys_without_a_secret_are_refused() {
        let exchange = Exchange::of(Group::Ffdhe2048, &[0x81; 64]).unwrap();
        let prime = exchange.prime.to_be_bytes();
        let mut minus_one = prime.clone();
        minus_one[255] -= 1;
        let mut minus_two = prime.clone();
        minus_two[255] -= 2;
        for bad in [&[][..], &[0], &[1], &prime, &minus_one, &[7; 257]] {
            assert!(exchange.common(bad).is_none(), "{bad:?}");
        }
        for good in [&[2][..], &minus_two] {
            assert!(exchange.common(good).is_some());
        }
    }
}
