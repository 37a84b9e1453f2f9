//! Responses (Base 2.0, section 8.13.5.5).

use alloc::vec::Vec;
use zeroize::Zeroizing;

use crate::{Hash, Secret};

#[derive(Clone, Copy)]
pub(crate) enum Role {
    Host,
    Controller,
}

impl Role {
    fn label(self) -> &'static [u8] {
        match self {
            Self::Host => b"HostHost",
            Self::Controller => b"Controller",
        }
    }
}

pub(crate) struct Asked<'a> {
    pub(crate) hash: Hash,
    pub(crate) role: Role,
    pub(crate) challenge: &'a [u8],
    pub(crate) common: Option<&'a [u8]>,
    pub(crate) seqnum: u32,
    pub(crate) transaction: u16,
    /// NQN of the responder; `other` is the NQN of its peer.
    pub(crate) own: &'a str,
    pub(crate) other: &'a str,
}

impl Asked<'_> {
    pub(crate) fn response(&self, secret: &Secret) -> Zeroizing<Vec<u8>> {
        let augmented = self.common.map(|common| {
            let key = self.hash.digest(common);
            self.hash.hmac(&key, &[self.challenge])
        });
        let challenge = augmented.as_ref().map_or(self.challenge, |bytes| bytes);
        let parts: [&[u8]; 8] = [
            challenge,
            &self.seqnum.to_le_bytes(),
            &self.transaction.to_le_bytes(),
            // SC_C is 0 (no secure channel).
            &[0],
            self.role.label(),
            self.own.as_bytes(),
            &[0],
            self.other.as_bytes(),
        ];
        self.hash.hmac(&secret.transformed(self.own), &parts)
    }
}
