use super::{Authentication, KeySource};
use nvme_proto::wire::Nqn;

/// Hash functions, strongest first.
pub const DHCHAP_HASHES: [&str; 3] = ["sha512", "sha384", "sha256"];
/// Diffie-Hellman groups, strongest first.
pub const DHCHAP_GROUPS: [&str; 6] = [
    "ffdhe8192",
    "ffdhe6144",
    "ffdhe4096",
    "ffdhe3072",
    "ffdhe2048",
    "null",
];

/// DH-HMAC-CHAP parameters that a target accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DhchapPolicy {
    /// Distinct members of [`DHCHAP_HASHES`], best first.
    pub hashes: Vec<&'static str>,
    /// Distinct members of [`DHCHAP_GROUPS`], best first.
    pub groups: Vec<&'static str>,
}

impl Default for DhchapPolicy {
    fn default() -> Self {
        Self {
            hashes: DHCHAP_HASHES.to_vec(),
            groups: DHCHAP_GROUPS.to_vec(),
        }
    }
}

impl Authentication {
    #[must_use]
    pub fn is_asked_of(&self, host: &Nqn) -> bool {
        let has_own = || self.hosts.iter().any(|(other, _)| other == host);
        self.is_required || self.others.is_some() || has_own()
    }

    /// True if this host must authenticate and cannot, because its key is missing or removed.
    #[must_use]
    pub fn lacks_key_of(&self, host: &Nqn) -> bool {
        let own = self.hosts.iter().find(|(other, _)| other == host);
        let keys = own.map(|(_, keys)| keys).or(self.others.as_ref());
        keys.map_or(self.is_required, |keys| keys.host.is_removed())
    }
}

impl KeySource {
    #[must_use]
    pub fn is_removed(&self) -> bool {
        matches!(self, Self::Named(key) if key.is_removed)
    }
}
