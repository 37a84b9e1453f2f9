use crate::transfer::DataTransfer;
use crate::wire::fabrics::AuthenticationCommand;
use crate::wire::{FabricsType, Sqe, Status};

use super::Refusal;
use super::command::check_flags;
use super::refusal::byte;

/// Maximum data of an authentication command in bytes.
pub const AUTHENTICATION_BYTES_MAX: u32 = 4096;
/// Minimum message length in bytes (AUTH_Failure1 and AUTH_Failure2).
const BYTES_MIN: u32 = 8;

const SECP: u8 = 0xe9;
const SPSP: u8 = 0x01;

/// Command allowed before authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthenticationRequest {
    /// Authentication Send.
    Send {
        /// TL: length of the message in bytes.
        length: u32,
    },
    /// Authentication Receive.
    Receive {
        /// AL: length of the buffer in bytes.
        length: u32,
    },
}

impl AuthenticationRequest {
    /// True for an authentication command, even if invalid.
    #[must_use]
    pub fn is_one(sqe: &Sqe) -> bool {
        let own = [
            FabricsType::AUTHENTICATION_SEND,
            FabricsType::AUTHENTICATION_RECEIVE,
        ];
        sqe.is_fabrics() && own.contains(&sqe.fctype())
    }

    /// Parses a command sent before authentication, and locates its data.
    pub fn parse(sqe: &Sqe, in_capsule_bytes: u32) -> Result<(Self, DataTransfer), Refusal> {
        check_flags(sqe)?;
        let fctype = sqe.is_fabrics().then(|| sqe.fctype());
        let is_send = match fctype {
            Some(FabricsType::AUTHENTICATION_SEND) => true,
            Some(FabricsType::AUTHENTICATION_RECEIVE) => false,
            // Connect is valid once per connection (Base, 6.3).
            Some(FabricsType::CONNECT) => {
                return Err(Refusal::new(Status::COMMAND_SEQUENCE_ERROR));
            }
            _ => return Err(Refusal::new(Status::AUTHENTICATION_REQUIRED)),
        };
        let command = AuthenticationCommand::from(*sqe);
        if (command.secp, command.spsp0, command.spsp1) != (SECP, SPSP, SPSP) {
            return Err(Refusal::field(byte::CDW10));
        }
        let length = command.length.get();
        if !(BYTES_MIN..=AUTHENTICATION_BYTES_MAX).contains(&length) {
            return Err(Refusal::field(byte::CDW11));
        }
        let (request, located) = if is_send {
            let located = DataTransfer::from_host(sqe, length, in_capsule_bytes);
            (Self::Send { length }, located)
        } else {
            let located = DataTransfer::to_host(sqe, length);
            (Self::Receive { length }, located)
        };
        let transfer = located.map_err(|status| Refusal::new(status).at(byte::DPTR))?;
        Ok((request, transfer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{AdminOpcode, SglDescriptor};

    fn command(fctype: FabricsType, length: u32) -> Sqe {
        let mut command = AuthenticationCommand::from(Sqe::fabrics(1, fctype));
        (command.secp, command.spsp0, command.spsp1) = (SECP, SPSP, SPSP);
        command.length.set(length);
        command.sgl1 = SglDescriptor::keyed(0x1000, length, 7, false);
        command.into()
    }

    #[test]
    fn only_authentication_comes_before_authentication() {
        let status = |sqe: &Sqe| AuthenticationRequest::parse(sqe, 0).unwrap_err().status;
        let mut identify = command(FabricsType::CONNECT, 64);
        assert_eq!(status(&identify).code(), Status::COMMAND_SEQUENCE_ERROR);
        identify.opc = AdminOpcode::IDENTIFY.0;
        assert_eq!(
            status(&identify),
            Status::AUTHENTICATION_REQUIRED.with_dnr()
        );
        assert!(!AuthenticationRequest::is_one(&identify));
        let property = command(FabricsType::PROPERTY_GET, 64);
        assert!(!AuthenticationRequest::is_one(&property));
        assert_eq!(
            status(&property),
            Status::AUTHENTICATION_REQUIRED.with_dnr()
        );
    }

    #[test]
    fn lengths_and_the_protocol_are_checked() {
        let parse = |sqe: &Sqe| AuthenticationRequest::parse(sqe, 0).map(|(request, _)| request);
        for fctype in [
            FabricsType::AUTHENTICATION_SEND,
            FabricsType::AUTHENTICATION_RECEIVE,
        ] {
            let length = AUTHENTICATION_BYTES_MAX;
            let is_send = fctype == FabricsType::AUTHENTICATION_SEND;
            assert!(AuthenticationRequest::is_one(&command(fctype, length)));
            let expected = match is_send {
                true => AuthenticationRequest::Send { length },
                false => AuthenticationRequest::Receive { length },
            };
            assert_eq!(parse(&command(fctype, length)), Ok(expected));
            let field = |byte| Err(Refusal::field(byte));
            assert_eq!(parse(&command(fctype, BYTES_MIN - 1)), field(byte::CDW11));
            assert_eq!(parse(&command(fctype, length + 1)), field(byte::CDW11));
            let mut other = AuthenticationCommand::from(command(fctype, 64));
            other.secp = 0xea;
            assert_eq!(parse(&other.into()), field(byte::CDW10));
        }
    }

    #[test]
    fn no_sqe_panics() {
        proptest::proptest!(|(bytes: [u8; 64], in_capsule in 0_u32..8192)| {
            let sqe: Sqe = zerocopy::transmute!(bytes);
            let _ = AuthenticationRequest::parse(&sqe, in_capsule);
        });
    }
}
