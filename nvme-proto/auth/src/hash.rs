use core::fmt;
use core::str::FromStr;

use alloc::vec::Vec;
use hmac::digest::core_api::BlockSizeUser;
use hmac::digest::{Digest, FixedOutput, KeyInit};
use hmac::{Mac, SimpleHmac};
use sha2::{Sha256, Sha384, Sha512};
use zeroize::Zeroizing;

/// Hash function of the HMAC (figure 447).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Hash {
    /// SHA-256.
    Sha256 = 1,
    /// SHA-384.
    Sha384 = 2,
    /// SHA-512.
    Sha512 = 3,
}

impl Hash {
    /// Hash functions, weakest first.
    pub const ALL: [Self; 3] = [Self::Sha256, Self::Sha384, Self::Sha512];

    /// Hash function with HASHID `id`; `None` if unknown.
    #[must_use]
    pub fn of(id: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|hash| *hash as u8 == id)
    }

    /// Length of the digest in bytes.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }

    pub(crate) fn digest(self, data: &[u8]) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(match self {
            Self::Sha256 => Sha256::digest(data).to_vec(),
            Self::Sha384 => Sha384::digest(data).to_vec(),
            Self::Sha512 => Sha512::digest(data).to_vec(),
        })
    }

    pub(crate) fn hmac(self, key: &[u8], parts: &[&[u8]]) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(match self {
            Self::Sha256 => hmac::<Sha256>(key, parts),
            Self::Sha384 => hmac::<Sha384>(key, parts),
            Self::Sha512 => hmac::<Sha512>(key, parts),
        })
    }
}

fn hmac<D: Digest + BlockSizeUser + FixedOutput + Clone>(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let mac = <SimpleHmac<D> as KeyInit>::new_from_slice(key);
    let mut mac = mac.expect("HMAC takes keys of any length");
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().to_vec()
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sha256 => "sha256",
            Self::Sha384 => "sha384",
            Self::Sha512 => "sha512",
        })
    }
}

impl FromStr for Hash {
    type Err = &'static str;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let unhyphened = name.strip_prefix("sha-").unwrap_or(name);
        let digits = unhyphened.strip_prefix("sha").unwrap_or(unhyphened);
        match digits {
            "256" => Ok(Self::Sha256),
            "384" => Ok(Self::Sha384),
            "512" => Ok(Self::Sha512),
            _ => Err("a hash is sha256, sha384 or sha512"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use std::string::ToString;

    #[test]
    fn hmacs_are_those_of_the_rfc() {
        let hex = |bytes: &[u8]| {
            bytes
                .iter()
                .map(|b| format!("{b:02x}"))
                .collect::<Vec<_>>()
                .concat()
        };
        let parts: [&[u8]; 2] = [b"what do ya want ", b"for nothing?"];
        let of = |hash: Hash| hex(&hash.hmac(b"Jefe", &parts));
        assert_eq!(
            of(Hash::Sha256),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        assert_eq!(
            of(Hash::Sha384),
            "af45d2e376484031617f78d2b58a6b1b9c7ef464f5a01b47e42ec3736322445e\
             8e2240ca5e69e2c78b3239ecfab21649"
        );
        assert!(of(Hash::Sha512).starts_with("164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd6"));
    }

    #[test]
    fn names_survive_the_round_trip() {
        for hash in Hash::ALL {
            assert_eq!(hash.to_string().parse(), Ok(hash));
            assert_eq!(Hash::of(hash as u8), Some(hash));
            assert_eq!(hash.digest(b"").len(), hash.bytes());
        }
        assert_eq!("SHA-384".to_lowercase().parse(), Ok(Hash::Sha384));
        assert!("md5".parse::<Hash>().is_err());
    }
}
