//! Connections of NBD clients to one namespace.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};

use cairn_base::slab::{Key, Reuse, Slab};
use cairn_base::wake::{pollfd, readable};
use cairn_initiator::{Buffer, HostError};

use super::connection::Connection;
use super::session::{Session, Tag};
use super::{CONNECTIONS_MAX, PAYLOAD_BYTES_MAX, PAYLOADS};
use crate::disk::Disk;
use crate::error::Error;
use crate::front::Front;
use crate::request::Done;

/// NBD server. A client that does not read its replies delays no other client, because connections
/// share no memory.
#[derive(Debug)]
pub struct Nbd {
    listener: Option<UnixListener>,
    connections: Slab<Connection>,
}

impl Nbd {
    /// Serves clients at a bound socket.
    pub fn listening(listener: UnixListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self {
            listener: Some(listener),
            ..Self::default()
        })
    }

    /// Adds a connection whose client begins without a handshake, such as the kernel.
    pub fn connect(
        &mut self,
        socket: UnixStream,
        disk: &Disk<<Self as Front>::Tag>,
    ) -> Result<(), Error> {
        let session = Session::without_handshake(disk.limits(), memory(disk)?);
        let connection = Connection::new(socket, session);
        let connection =
            connection.map_err(|source| Error::os("making a socket non-blocking", source))?;
        self.connections.insert(connection);
        Ok(())
    }

    fn accept(&mut self, disk: &Disk<Tag<Key>>) -> Result<bool, Error> {
        let mut progress = false;
        while let Some(listener) = &self.listener
            && self.connections.vacant().is_some()
        {
            // Without a client, or without file descriptors for it, the other clients go on.
            let Ok((socket, _)) = listener.accept() else {
                break;
            };
            let session = Session::with_handshake(disk.limits(), memory(disk)?);
            if let Ok(connection) = Connection::new(socket, session) {
                self.connections.insert(connection);
                progress = true;
            }
        }
        Ok(progress)
    }
}

impl Default for Nbd {
    fn default() -> Self {
        Self {
            listener: None,
            connections: Slab::with_limit(CONNECTIONS_MAX, Reuse::Latest),
        }
    }
}

fn memory(disk: &Disk<Tag<Key>>) -> Result<Vec<Buffer>, HostError> {
    disk.memory(PAYLOADS * disk.limits().pieces(PAYLOAD_BYTES_MAX.into()))
}

impl Front for Nbd {
    type Tag = Tag<Key>;

    fn poll(&mut self, disk: &mut Disk<Self::Tag>) -> Result<bool, Error> {
        let mut progress = self.accept(disk)?;
        for index in 0..self.connections.slots() as u32 {
            let Some((key, connection)) = self.connections.at_mut(index) else {
                continue;
            };
            progress |= connection.receive();
            while let Some(request) = connection.session.next(key) {
                disk.begin(request);
                progress = true;
            }
            progress |= connection.send();
            if connection.is_over() {
                self.connections.remove(key);
                progress = true;
            }
        }
        Ok(progress)
    }

    fn done(&mut self, done: Done<Self::Tag>) {
        if let Some(connection) = self.connections.get_mut(done.tag.connection) {
            connection.session.done(done);
        }
    }

    fn waits_for(&mut self, fds: &mut Vec<pollfd>) {
        let has_room = self.connections.vacant().is_some();
        let listener = self.listener.as_ref().filter(|_| has_room);
        fds.extend(listener.map(|listener| readable(listener.as_raw_fd())));
        fds.extend(self.connections.values_mut().map(Connection::waits_for));
    }

    fn is_over(&self) -> bool {
        self.listener.is_none() && self.connections.is_empty()
    }
}
