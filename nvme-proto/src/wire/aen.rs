//! Result of an Asynchronous Event Request (Base, 5.2.1).

bitfields! {
    /// DW0: the reported event.
    pub struct AsyncEvent(u32);
    fields {
        /// Event type (a `TYPE_` constant).
        aet with_aet: u8 = 0..=2;
        /// Event information, specific to the type.
        aei with_aei: u8 = 8..=15;
        /// LID of the log page with details. Reading the page re-arms the event.
        lid with_lid: u8 = 16..=23;
    }
}

impl AsyncEvent {
    /// Error status.
    pub const TYPE_ERROR: u8 = 0;
    /// SMART / Health status.
    pub const TYPE_SMART: u8 = 1;
    /// Notice.
    pub const TYPE_NOTICE: u8 = 2;
    /// I/O command specific status.
    pub const TYPE_IO_COMMAND_SET: u8 = 6;
    /// Vendor specific.
    pub const TYPE_VENDOR: u8 = 7;

    /// Error: diagnostic failure.
    pub const ERROR_DIAGNOSTIC_FAILURE: Self = Self::new(Self::TYPE_ERROR, 0x02, 0x01);
    /// Error: persistent internal error.
    pub const ERROR_PERSISTENT_INTERNAL: Self = Self::new(Self::TYPE_ERROR, 0x03, 0x01);
    /// Error: transient internal error.
    pub const ERROR_TRANSIENT_INTERNAL: Self = Self::new(Self::TYPE_ERROR, 0x04, 0x01);
    /// SMART: NVM subsystem reliability degraded.
    pub const SMART_RELIABILITY: Self = Self::new(Self::TYPE_SMART, 0x00, 0x02);
    /// SMART: a temperature threshold was crossed.
    pub const SMART_TEMPERATURE: Self = Self::new(Self::TYPE_SMART, 0x01, 0x02);
    /// SMART: spare capacity below its threshold.
    pub const SMART_SPARE: Self = Self::new(Self::TYPE_SMART, 0x02, 0x02);
    /// Notice: namespace attributes changed (log page 04h).
    pub const NOTICE_NAMESPACE_CHANGED: Self = Self::new(Self::TYPE_NOTICE, 0x00, 0x04);
    /// Notice: firmware activation starts.
    pub const NOTICE_FIRMWARE_ACTIVATION: Self = Self::new(Self::TYPE_NOTICE, 0x01, 0x03);
    /// Notice: asymmetric namespace access changed.
    pub const NOTICE_ANA_CHANGED: Self = Self::new(Self::TYPE_NOTICE, 0x03, 0x0c);
    /// Notice: a Cross-Controller Reset completed (log page 1Eh).
    pub const NOTICE_CROSS_CONTROLLER_RESET: Self = Self::new(Self::TYPE_NOTICE, 0xf4, 0x1e);
    /// Notice: the discovery log page changed.
    pub const NOTICE_DISCOVERY_CHANGED: Self = Self::new(Self::TYPE_NOTICE, 0xf0, 0x70);

    /// I/O command specific: the reservation log page (80h) is available.
    pub const RESERVATION_LOG_AVAILABLE: Self = Self::new(Self::TYPE_IO_COMMAND_SET, 0x00, 0x80);

    /// Creates an event.
    #[must_use]
    pub const fn new(aet: u8, aei: u8, lid: u8) -> Self {
        Self(0).with_aet(aet).with_aei(aei).with_lid(lid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dword_values() {
        assert_eq!(AsyncEvent::NOTICE_NAMESPACE_CHANGED.0, 0x0004_0002);
        assert_eq!(AsyncEvent::NOTICE_DISCOVERY_CHANGED.0, 0x0070_f002);
        assert_eq!(AsyncEvent(0x000c_0302), AsyncEvent::NOTICE_ANA_CHANGED);
        assert_eq!(AsyncEvent::RESERVATION_LOG_AVAILABLE.0, 0x0080_0006);
    }
}
