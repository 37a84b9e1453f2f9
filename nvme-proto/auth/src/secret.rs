//! Shared secrets and their text form `DHHC-1:HH:BASE64:`.

use core::fmt;
use core::str::FromStr;

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use crate::{Hash, Random};

const PREFIX: &str = "DHHC-1:";
/// Constant hashed into each derived key (section 8.13.5.7).
const LABEL: &[u8] = b"NVMe-over-Fabrics";
const FINGERPRINT_LABEL: &[u8] = b"Cairn fingerprint of a secret";
const LENGTHS: [usize; 3] = [32, 48, 64];
const CRC_BYTES: usize = 4;

/// Shared secret (Base 2.0, section 8.13.5.8).
#[derive(Clone)]
pub struct Secret {
    key: Zeroizing<Vec<u8>>,
    transformation: Option<Hash>,
}

/// Error in a secret's text, without bytes of the secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// The prefix `DHHC-1:` or the next colon is missing.
    #[error("a secret begins with DHHC-1: and looks like DHHC-1:01:BASE64:")]
    Form,
    /// Invalid number of the transformation.
    #[error(
        "the two digits behind DHHC-1: are 00 (none), 01 (SHA-256), 02 (SHA-384) or 03 (SHA-512)"
    )]
    Transformation,
    /// The third part is not base64.
    #[error("the third part of the secret is not base64")]
    Base64,
    /// Invalid length in bytes, with the CRC-32.
    #[error(
        "the secret has {0} bytes; a valid one has 32, 48 or 64, and 4 of a CRC-32: check \
             that it was copied completely"
    )]
    Length(usize),
    /// Wrong CRC-32.
    #[error(
        "the secret's CRC-32 does not match: check that it was copied completely and without \
             an error"
    )]
    Crc,
}

impl Secret {
    /// Generates a secret of 32, 48 or 64 bytes: the smallest that is at least `bytes`, else 64.
    ///
    /// Without a transformation, the secret itself is the key of every NQN.
    #[must_use]
    pub fn generate(bytes: usize, transformation: Option<Hash>, random: Random<'_>) -> Self {
        let length = LENGTHS.into_iter().find(|length| bytes <= *length);
        let mut key = Zeroizing::new(vec![0; length.unwrap_or(64)]);
        random(&mut key);
        Self {
            key,
            transformation,
        }
    }

    /// Returns the secret as text, which must be kept secret too.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        let crc = crc32fast::hash(&self.key).to_le_bytes();
        let bytes = Zeroizing::new([&self.key[..], &crc].concat());
        let id = self.transformation.map_or(0, |hash| hash as u8);
        let base64 = Zeroizing::new(STANDARD.encode(&*bytes));
        Zeroizing::new(format!("{PREFIX}{id:02}:{}:", *base64))
    }

    /// Length of the secret in bytes.
    #[must_use]
    pub fn key_len(&self) -> usize {
        self.key.len()
    }

    /// Hash that derives a key for each NQN, if any.
    #[must_use]
    pub fn transformation(&self) -> Option<Hash> {
        self.transformation
    }

    /// Returns 8 hexadecimal digits of a hash, which identify the secret without revealing it.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let id = self.transformation.map_or(0, |hash| hash as u8);
        let bytes = Zeroizing::new([FINGERPRINT_LABEL, &[id], &self.key].concat());
        let digest = Hash::Sha256.digest(&bytes);
        digest[..4]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }

    /// Returns the key of the host or subsystem with this NQN (section 8.13.5.7).
    pub(crate) fn transformed(&self, nqn: &str) -> Zeroizing<Vec<u8>> {
        match self.transformation {
            None => self.key.clone(),
            Some(hash) => hash.hmac(&self.key, &[nqn.as_bytes(), LABEL]),
        }
    }
}

impl FromStr for Secret {
    type Err = SecretError;

    fn from_str(text: &str) -> Result<Self, SecretError> {
        let rest = text.trim().strip_prefix(PREFIX).ok_or(SecretError::Form)?;
        let (digits, rest) = rest.split_once(':').ok_or(SecretError::Form)?;
        let transformation = match digits {
            "00" => None,
            "01" => Some(Hash::Sha256),
            "02" => Some(Hash::Sha384),
            "03" => Some(Hash::Sha512),
            _ => return Err(SecretError::Transformation),
        };
        let base64 = rest.strip_suffix(':').unwrap_or(rest);
        let bytes = STANDARD.decode(base64).map(Zeroizing::new);
        let bytes = bytes.map_err(|_| SecretError::Base64)?;
        let length = bytes.len().saturating_sub(CRC_BYTES);
        if !LENGTHS.contains(&length) {
            return Err(SecretError::Length(bytes.len()));
        }
        let (key, crc) = bytes.split_at(length);
        if crc32fast::hash(key).to_le_bytes() != crc {
            return Err(SecretError::Crc);
        }
        Ok(Self {
            key: Zeroizing::new(key.to_vec()),
            transformation,
        })
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hash = self.transformation.map(|hash| hash.to_string());
        let hash = hash.as_deref().unwrap_or("none");
        write!(f, "Secret({} bytes, transformation {hash})", self.key.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes 0 to 31, encoded by Python's base64 and zlib.
    const TEXT: &str = "DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";

    #[test]
    fn a_secret_is_read_and_written() {
        let secret: Secret = TEXT.parse().unwrap();
        assert_eq!(secret.key[..], (0..32).collect::<Vec<u8>>());
        assert_eq!(secret.transformation(), Some(Hash::Sha256));
        assert_eq!(*secret.to_text(), TEXT);
        let padded = format!(" {}\n", TEXT.trim_end_matches(':'));
        assert_eq!(padded.parse::<Secret>().unwrap().key, secret.key);
    }

    /// Fingerprints from Python's hashlib.
    #[test]
    fn secrets_have_fingerprints() {
        let of = |text: &str| text.parse::<Secret>().unwrap().fingerprint();
        assert_eq!(of(TEXT), "52b1d6cc");
        assert_eq!(of(&TEXT.replace(":01:", ":00:")), "c30c6fd9");
    }

    #[test]
    fn what_is_wrong_is_said_without_the_secret() {
        let error = |text: &str| text.parse::<Secret>().unwrap_err();
        assert_eq!(error(""), SecretError::Form);
        assert_eq!(error("DHHC-1:01"), SecretError::Form);
        assert_eq!(
            error(&TEXT.replace(":01:", ":04:")),
            SecretError::Transformation
        );
        assert_eq!(error(&TEXT.replace("AAEC", "AA C")), SecretError::Base64);
        assert_eq!(error("DHHC-1:00:AAEC:"), SecretError::Length(3));
        assert_eq!(error(&TEXT.replace("AAEC", "BAEC")), SecretError::Crc);
        let shown = format!("{:?}", TEXT.parse::<Secret>().unwrap());
        assert_eq!(shown, "Secret(32 bytes, transformation sha256)");
    }

    #[test]
    fn generated_ones_have_the_lengths_of_hashes() {
        for (bytes, length) in [(0, 32), (32, 32), (33, 48), (64, 64), (100, 64)] {
            let secret = Secret::generate(bytes, None, &mut |bytes| bytes.fill(7));
            assert_eq!(secret.key_len(), length);
            assert_eq!(secret.to_text().parse::<Secret>().unwrap().key, secret.key);
        }
    }
}
