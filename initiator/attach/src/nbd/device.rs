//! Block device of the kernel's NBD client, by generic netlink (linux/nbd-netlink.h).

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use cairn_base::netlink::{Netlink, attribute, attributes, find, u16_at, u32_at};

use super::wire::transmission_flags;
use crate::error::Error;
use crate::request::Limits;

const NETLINK_GENERIC: i32 = 16;
const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const VERSION: u8 = 1;
const GENL_HEADER_BYTES: usize = 4;

const CMD_CONNECT: u8 = 1;
const CMD_DISCONNECT: u8 = 2;
const CMD_RECONFIGURE: u8 = 3;

const ATTR_INDEX: u16 = 1;
const ATTR_SIZE_BYTES: u16 = 2;
const ATTR_BLOCK_SIZE_BYTES: u16 = 3;
const ATTR_SERVER_FLAGS: u16 = 5;
const ATTR_SOCKETS: u16 = 7;
const ATTR_DEAD_CONN_TIMEOUT: u16 = 8;
const ATTR_BACKEND_IDENTIFIER: u16 = 10;
const SOCK_ITEM: u16 = 1;
const SOCK_FD: u16 = 1;
/// NLA_F_NESTED.
const NESTED: u16 = 1 << 15;

/// Milliseconds after which Linux looks for requests of a lost connection. It sends such a request
/// again if the device has another connection by then.
const IO_TIMEOUT_MS: &str = "5000";

/// Block device `/dev/nbdN` with one connection.
///
/// The device has no request timeout: Linux sends a request again only after the connection broke,
/// when a process with the same identifier [takes over](Self::take_over).
#[derive(Debug)]
pub struct Device {
    netlink: Netlink,
    family: u16,
    index: u32,
}

impl Device {
    /// Makes a block device whose requests arrive at the returned socket. `identifier` names the
    /// namespace. Without a connection, requests wait for `patience_s` seconds.
    ///
    /// # Errors
    /// The kernel has no NBD client, the process lacks CAP_SYS_ADMIN, or the device is in use.
    pub fn create(
        index: Option<u32>,
        limits: &Limits,
        identifier: &str,
        patience_s: u64,
    ) -> Result<(Self, UnixStream), Error> {
        let mut device = Self::open(index.unwrap_or(u32::MAX))?;
        let (ours, kernel) = socket_pair()?;
        let mut body = Vec::new();
        if let Some(index) = index {
            attribute(&mut body, ATTR_INDEX, &index.to_ne_bytes());
        }
        let numbers = [
            (ATTR_SIZE_BYTES, limits.bytes),
            (ATTR_BLOCK_SIZE_BYTES, limits.block_bytes.into()),
            (ATTR_SERVER_FLAGS, transmission_flags(limits, false).into()),
            (ATTR_DEAD_CONN_TIMEOUT, patience_s),
        ];
        for (kind, value) in numbers {
            attribute(&mut body, kind, &value.to_ne_bytes());
        }
        attribute(&mut body, ATTR_BACKEND_IDENTIFIER, &terminated(identifier));
        attribute(&mut body, ATTR_SOCKETS | NESTED, &sockets(&kernel));
        let made = device.call(CMD_CONNECT, 0, &body);
        let made = made.map_err(|error| {
            let what = match (index, error.raw_os_error()) {
                (Some(index), Some(libc::EBUSY | libc::EINVAL)) => format!(
                    "/dev/nbd{index} is in use: choose another --device, or remove it by \
                     cairn-initiator detach --device {index} --as nbd"
                ),
                (Some(index), _) => format!("making /dev/nbd{index}"),
                (None, _) => "making a device of NBD".to_owned(),
            };
            Error::os(what, error)
        })?;
        let index = made.iter().find_map(|body| {
            let found = attributes(body.get(GENL_HEADER_BYTES..)?);
            u32_at(find(&found, ATTR_INDEX)?, 0)
        });
        device.index = index.unwrap_or(device.index);
        device.set_io_timeout();
        Ok((device, ours))
    }

    /// Gives the device of an ended process a new connection, whose requests arrive at the returned
    /// socket.
    ///
    /// # Errors
    /// The device does not exist, still has a connection, or has another identifier.
    pub fn take_over(index: u32, identifier: &str) -> Result<(Self, UnixStream), Error> {
        let mut device = Self::open(index)?;
        let (ours, kernel) = socket_pair()?;
        let mut body = Vec::new();
        attribute(&mut body, ATTR_INDEX, &index.to_ne_bytes());
        attribute(&mut body, ATTR_BACKEND_IDENTIFIER, &terminated(identifier));
        attribute(&mut body, ATTR_SOCKETS | NESTED, &sockets(&kernel));
        let taken = device.call(CMD_RECONFIGURE, libc::NLM_F_ACK, &body);
        taken.map_err(|error| match error.raw_os_error() {
            // Linux found no broken connection.
            Some(libc::ENOSPC) => {
                Error::Unsupported(format!("/dev/nbd{index}: another process serves it"))
            }
            _ => Error::os(format!("taking over /dev/nbd{index}"), error),
        })?;
        Ok((device, ours))
    }

    /// Addresses an existing device, for [`Self::remove`].
    pub fn open(index: u32) -> Result<Self, Error> {
        let (netlink, family) = open()?;
        Ok(Self {
            netlink,
            family,
            index,
        })
    }

    /// True if `/dev/nbdN` exists with this identifier, so that [`Self::take_over`] may succeed.
    #[must_use]
    pub fn is_waiting(index: u32, identifier: &str) -> bool {
        let backend = fs::read_to_string(format!("/sys/block/nbd{index}/backend"));
        backend.is_ok_and(|backend| backend.trim_end() == identifier)
    }

    /// Path of the device.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        format!("/dev/nbd{}", self.index).into()
    }

    /// Removes the device's connection and size.
    pub fn remove(&mut self) -> Result<(), Error> {
        let mut body = Vec::new();
        attribute(&mut body, ATTR_INDEX, &self.index.to_ne_bytes());
        let removed = self.call(CMD_DISCONNECT, libc::NLM_F_ACK, &body);
        let what = || format!("disconnecting {}", self.path().display());
        removed.map(drop).map_err(|error| Error::os(what(), error))
    }

    fn set_io_timeout(&self) {
        let path = format!("/sys/block/nbd{}/queue/io_timeout", self.index);
        // Without the shorter timeout, a recovery takes up to 30 s.
        let _ = fs::write(path, IO_TIMEOUT_MS);
    }

    fn call(&mut self, command: u8, flags: i32, body: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        let message = [&[command, VERSION, 0, 0], body].concat();
        let answer = self.netlink.request(self.family, flags, &message)?;
        Ok(answer.into_iter().map(|message| message.body).collect())
    }
}

fn open() -> Result<(Netlink, u16), Error> {
    let opened = Netlink::open(NETLINK_GENERIC);
    let mut netlink = opened.map_err(|error| Error::os("generic netlink", error))?;
    let mut message = vec![CTRL_CMD_GETFAMILY, VERSION, 0, 0];
    attribute(&mut message, CTRL_ATTR_FAMILY_NAME, &terminated("nbd"));
    let answer = netlink.request(GENL_ID_CTRL, 0, &message);
    let answer = answer.map_err(|error| match error.raw_os_error() {
        Some(libc::ENOENT) => Error::Unsupported(
            "the kernel has neither ublk nor an NBD client: modprobe ublk_drv or nbd, or serve \
             another client by --socket PATH"
                .to_owned(),
        ),
        _ => Error::os("asking for the kernel's NBD client", error),
    })?;
    let family = answer.iter().find_map(|message| {
        let found = attributes(message.body.get(GENL_HEADER_BYTES..)?);
        u16_at(find(&found, CTRL_ATTR_FAMILY_ID)?, 0)
    });
    let family = family
        .ok_or_else(|| Error::Unsupported("the kernel did not name its NBD client".to_owned()))?;
    Ok((netlink, family))
}

fn socket_pair() -> Result<(UnixStream, UnixStream), Error> {
    UnixStream::pair().map_err(|error| Error::os("socketpair", error))
}

fn sockets(socket: &UnixStream) -> Vec<u8> {
    let (mut item, mut list) = (Vec::new(), Vec::new());
    attribute(&mut item, SOCK_FD, &socket.as_raw_fd().to_ne_bytes());
    attribute(&mut list, SOCK_ITEM | NESTED, &item);
    list
}

fn terminated(text: &str) -> Vec<u8> {
    [text.as_bytes(), &[0]].concat()
}
