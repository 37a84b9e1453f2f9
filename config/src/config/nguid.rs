use uuid::Uuid;

use super::Namespace;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nguid {
    Given([u8; 16]),
    FromUuid,
}

impl Nguid {
    pub(crate) const FROM_UUID: &str = "from-uuid";

    #[must_use]
    pub fn with(self, uuid: Uuid) -> [u8; 16] {
        match self {
            Self::Given(nguid) => nguid,
            Self::FromUuid => uuid.into_bytes(),
        }
    }
}

impl Namespace {
    /// Returns the configured NGUID; `None` without one, or if it derives from an unconfigured
    /// UUID.
    #[must_use]
    pub fn known_nguid(&self) -> Option<[u8; 16]> {
        match (self.nguid?, self.uuid) {
            (Nguid::FromUuid, None) => None,
            (nguid, uuid) => Some(nguid.with(uuid.unwrap_or_default())),
        }
    }
}
