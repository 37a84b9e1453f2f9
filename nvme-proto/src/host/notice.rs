//! Asynchronous events received by a host (Base, 5.2.1).

use crate::wire::aen::AsyncEvent;
use crate::wire::feature::AsyncEventConfig;

/// Asynchronous event reported by the controller.
///
/// Another event of the same type follows only after the host has read the event's log page without
/// RAE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// Namespaces changed (log page 04h).
    NamespacesChanged,
    /// ANA states changed (log page 0Ch).
    AnaChanged,
    /// A Cross-Controller Reset completed (log page 1Eh).
    CrossControllerReset,
    /// The discovery log changed (log page 70h).
    DiscoveryChanged,
    /// The controller activates firmware and may pause (log page 03h).
    FirmwareActivation,
    /// Error of the controller; the event names the log page.
    Error(AsyncEvent),
    /// Changed health of the NVM subsystem; the event names the log page.
    Health(AsyncEvent),
    /// Event of another type.
    Other(AsyncEvent),
}

/// Events enabled by this host: those of Linux, and Cross-Controller Reset.
#[must_use]
pub fn all_notices() -> AsyncEventConfig {
    AsyncEventConfig(0)
        .with_namespace_attribute(true)
        .with_firmware_activation(true)
        .with_ana_change(true)
        .with_cross_controller_reset(true)
        .with_discovery_change(true)
}

impl From<AsyncEvent> for Notice {
    fn from(event: AsyncEvent) -> Self {
        match (event.aet(), event.aei()) {
            (AsyncEvent::TYPE_ERROR, _) => Self::Error(event),
            (AsyncEvent::TYPE_SMART, _) => Self::Health(event),
            (AsyncEvent::TYPE_NOTICE, 0x00) => Self::NamespacesChanged,
            (AsyncEvent::TYPE_NOTICE, 0x01) => Self::FirmwareActivation,
            (AsyncEvent::TYPE_NOTICE, 0x03) => Self::AnaChanged,
            (AsyncEvent::TYPE_NOTICE, 0xf4) => Self::CrossControllerReset,
            (AsyncEvent::TYPE_NOTICE, 0xf0) => Self::DiscoveryChanged,
            _ => Self::Other(event),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_distinguished() {
        let of = Notice::from;
        assert_eq!(
            of(AsyncEvent::NOTICE_NAMESPACE_CHANGED),
            Notice::NamespacesChanged
        );
        assert_eq!(of(AsyncEvent::NOTICE_ANA_CHANGED), Notice::AnaChanged);
        assert_eq!(
            of(AsyncEvent::NOTICE_DISCOVERY_CHANGED),
            Notice::DiscoveryChanged
        );
        let spare = AsyncEvent::SMART_SPARE;
        assert_eq!(of(spare), Notice::Health(spare));
        let unknown = AsyncEvent::new(AsyncEvent::TYPE_NOTICE, 0x55, 0);
        assert_eq!(of(unknown), Notice::Other(unknown));
    }

    #[test]
    fn the_mask_has_the_events_of_linux() {
        assert_eq!(all_notices().0, 0x8010_0b00);
    }
}
