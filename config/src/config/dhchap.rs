/// Hash functions, best first.
pub const DHCHAP_HASHES: [&str; 3] = ["sha512", "sha384", "sha256"];
/// Diffie-Hellman groups, best first.
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
