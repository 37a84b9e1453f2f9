//! Parameters of DH-HMAC-CHAP.

/// Hash functions of DH-HMAC-CHAP, the best first.
pub const DHCHAP_HASHES: [&str; 3] = ["sha512", "sha384", "sha256"];
/// Groups of DH-HMAC-CHAP, the best first.
pub const DHCHAP_GROUPS: [&str; 6] = [
    "ffdhe8192",
    "ffdhe6144",
    "ffdhe4096",
    "ffdhe3072",
    "ffdhe2048",
    "null",
];

/// Parameters of DH-HMAC-CHAP that a target accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DhchapPolicy {
    /// Hash functions, the best first: of [`DHCHAP_HASHES`], no two alike.
    pub hashes: Vec<&'static str>,
    /// Diffie-Hellman groups, the best first: of [`DHCHAP_GROUPS`], no two alike.
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
