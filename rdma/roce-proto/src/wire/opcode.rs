//! Opcodes of the BTH (IBTA 9.2, table 38; annex A17 for CNP).

macro_rules! opcodes {
    ($($(#[$doc:meta])* $name:ident = $value:literal,)*) => {
        /// Opcode of a packet: the first byte of the BTH.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Opcode { $($(#[$doc])* $name = $value,)* }

        impl Opcode {
            /// Supported opcodes.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Returns the opcode with this code, or `None` if unsupported.
            #[must_use]
            pub fn from_code(code: u8) -> Option<Self> {
                match code { $($value => Some(Self::$name),)* _ => None }
            }
        }
    };
}

opcodes! {
    /// SEND, first packet.
    SendFirst = 0x00,
    /// SEND, middle packet.
    SendMiddle = 0x01,
    /// SEND, last packet.
    SendLast = 0x02,
    /// SEND, last packet, with immediate data.
    SendLastImm = 0x03,
    /// SEND, single packet.
    SendOnly = 0x04,
    /// SEND, single packet, with immediate data.
    SendOnlyImm = 0x05,
    /// WRITE, first packet.
    WriteFirst = 0x06,
    /// WRITE, middle packet.
    WriteMiddle = 0x07,
    /// WRITE, last packet.
    WriteLast = 0x08,
    /// WRITE, last packet, with immediate data.
    WriteLastImm = 0x09,
    /// WRITE, single packet.
    WriteOnly = 0x0a,
    /// WRITE, single packet, with immediate data.
    WriteOnlyImm = 0x0b,
    /// READ request.
    ReadRequest = 0x0c,
    /// READ response, first packet.
    ReadResponseFirst = 0x0d,
    /// READ response, middle packet.
    ReadResponseMiddle = 0x0e,
    /// READ response, last packet.
    ReadResponseLast = 0x0f,
    /// READ response, single packet.
    ReadResponseOnly = 0x10,
    /// Positive or negative acknowledgement.
    Acknowledge = 0x11,
    /// Response to an atomic.
    AtomicAcknowledge = 0x12,
    /// Compare and swap of 8 bytes.
    CompareSwap = 0x13,
    /// Fetch and add of 8 bytes.
    FetchAdd = 0x14,
    /// SEND, last packet, with a key to invalidate.
    SendLastInv = 0x16,
    /// SEND, single packet, with a key to invalidate.
    SendOnlyInv = 0x17,
    /// UD SEND, single packet, for management datagrams.
    UdSendOnly = 0x64,
    /// UD SEND, single packet, with immediate data.
    UdSendOnlyImm = 0x65,
    /// Congestion notification (RoCE v2, annex A17.9.3).
    Cnp = 0x81,
}

impl Opcode {
    /// Returns the code on the wire.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// True for packets from responder to requester.
    #[must_use]
    pub const fn is_response(self) -> bool {
        self.is_read_response() || matches!(self, Self::Acknowledge | Self::AtomicAcknowledge)
    }

    /// True for packets with READ data.
    #[must_use]
    pub const fn is_read_response(self) -> bool {
        matches!(
            self,
            Self::ReadResponseFirst
                | Self::ReadResponseMiddle
                | Self::ReadResponseLast
                | Self::ReadResponseOnly
        )
    }

    /// True for SEND packets of a reliable connection.
    #[must_use]
    pub const fn is_send(self) -> bool {
        matches!(
            self,
            Self::SendFirst
                | Self::SendMiddle
                | Self::SendLast
                | Self::SendLastImm
                | Self::SendOnly
                | Self::SendOnlyImm
                | Self::SendLastInv
                | Self::SendOnlyInv
        )
    }

    /// True for WRITE packets.
    #[must_use]
    pub const fn is_write(self) -> bool {
        matches!(
            self,
            Self::WriteFirst
                | Self::WriteMiddle
                | Self::WriteLast
                | Self::WriteLastImm
                | Self::WriteOnly
                | Self::WriteOnlyImm
        )
    }

    /// True for atomic requests.
    #[must_use]
    pub const fn is_atomic(self) -> bool {
        matches!(self, Self::CompareSwap | Self::FetchAdd)
    }

    /// True for single and first packets, and for all packets other than SEND and WRITE.
    #[must_use]
    pub const fn starts_message(self) -> bool {
        !matches!(
            self,
            Self::SendMiddle
                | Self::SendLast
                | Self::SendLastImm
                | Self::SendLastInv
                | Self::WriteMiddle
                | Self::WriteLast
                | Self::WriteLastImm
        )
    }

    /// True for single and last packets, and for all packets other than SEND and WRITE.
    #[must_use]
    pub const fn ends_message(self) -> bool {
        !matches!(
            self,
            Self::SendFirst | Self::SendMiddle | Self::WriteFirst | Self::WriteMiddle
        )
    }

    /// True for packets with no other header than the BTH.
    #[must_use]
    pub const fn is_bare(self) -> bool {
        matches!(
            self,
            Self::SendFirst
                | Self::SendMiddle
                | Self::SendLast
                | Self::SendOnly
                | Self::WriteMiddle
                | Self::WriteLast
                | Self::ReadResponseMiddle
                | Self::Cnp
        )
    }

    /// True for unreliable datagrams.
    #[must_use]
    pub const fn is_datagram(self) -> bool {
        matches!(self, Self::UdSendOnly | Self::UdSendOnlyImm)
    }

    /// True for packets with a [`Deth`](super::Deth).
    #[must_use]
    pub const fn has_deth(self) -> bool {
        self.is_datagram()
    }

    /// True for packets with a [`Reth`](super::Reth).
    #[must_use]
    pub const fn has_reth(self) -> bool {
        matches!(
            self,
            Self::WriteFirst | Self::WriteOnly | Self::WriteOnlyImm | Self::ReadRequest
        )
    }

    /// True for packets with an [`Aeth`](super::Aeth).
    #[must_use]
    pub const fn has_aeth(self) -> bool {
        self.is_response() && !matches!(self, Self::ReadResponseMiddle)
    }

    /// True for packets with an [`AtomicEth`](super::AtomicEth).
    #[must_use]
    pub const fn has_atomic_eth(self) -> bool {
        self.is_atomic()
    }

    /// True for the response to an atomic operation, which has an
    /// [`AtomicAckEth`](super::AtomicAckEth).
    #[must_use]
    pub const fn has_atomic_ack_eth(self) -> bool {
        matches!(self, Self::AtomicAcknowledge)
    }

    /// True for packets with immediate data ([`ImmDt`](super::ImmDt)).
    #[must_use]
    pub const fn has_immdt(self) -> bool {
        matches!(
            self,
            Self::SendLastImm
                | Self::SendOnlyImm
                | Self::WriteLastImm
                | Self::WriteOnlyImm
                | Self::UdSendOnlyImm
        )
    }

    /// True for packets with an [`Ieth`](super::Ieth).
    #[must_use]
    pub const fn has_ieth(self) -> bool {
        matches!(self, Self::SendLastInv | Self::SendOnlyInv)
    }
}

#[test]
fn bare_packets_have_no_other_header() {
    for &opcode in Opcode::ALL {
        let others = [
            opcode.has_deth(),
            opcode.has_reth(),
            opcode.has_aeth(),
            opcode.has_atomic_eth(),
            opcode.has_atomic_ack_eth(),
            opcode.has_immdt(),
            opcode.has_ieth(),
        ];
        assert_eq!(opcode.is_bare(), !others.contains(&true), "{opcode:?}");
    }
}
