//! Session over a socket.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use cairn_base::wake::{pollfd, readable};

use super::session::Session;

#[derive(Debug)]
pub(super) struct Connection {
    socket: UnixStream,
    pub(super) session: Session,
    is_broken: bool,
}

impl Connection {
    pub(super) fn new(socket: UnixStream, session: Session) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            session,
            is_broken: false,
        })
    }

    /// Entry of poll(2) for the events that let the session go on.
    pub(super) fn waits_for(&mut self) -> pollfd {
        let mut entry = readable(self.socket.as_raw_fd());
        let has_room = !self.is_broken && !self.session.room().is_empty();
        let has_output = !self.is_broken && !self.session.output().is_empty();
        entry.events = [(has_room, libc::POLLIN), (has_output, libc::POLLOUT)]
            .iter()
            .filter(|(is_wanted, _)| *is_wanted)
            .fold(0, |events, (_, event)| events | event);
        if entry.events == 0 {
            // poll(2) ignores the entry; otherwise a closed socket would end each wait.
            entry.fd = -1;
        }
        entry
    }

    pub(super) fn is_over(&mut self) -> bool {
        self.session.is_over(self.is_broken)
    }

    /// Receives the client's next bytes into the session's room. Returns true if the client has
    /// sent bytes or is gone.
    pub(super) fn receive(&mut self) -> bool {
        let room = self.session.room();
        if room.is_empty() || self.is_broken {
            return false;
        }
        match self.socket.read(room) {
            Ok(0) => {
                self.session.end();
                true
            }
            Ok(bytes) => {
                self.session.received(bytes);
                true
            }
            Err(error) => self.failed(&error),
        }
    }

    /// Sends output until the client's socket is full. Returns true if output was sent.
    pub(super) fn send(&mut self) -> bool {
        let mut progress = false;
        while !self.is_broken {
            let output = self.session.output();
            if output.is_empty() {
                break;
            }
            match self.socket.write(output) {
                Ok(bytes) => {
                    self.session.sent(bytes);
                    progress = true;
                }
                Err(error) => return self.failed(&error) || progress,
            }
        }
        progress
    }

    /// Returns true if the error ends the connection.
    fn failed(&mut self, error: &io::Error) -> bool {
        let is_passing = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted);
        if !is_passing {
            self.is_broken = true;
            self.session.end();
        }
        !is_passing
    }
}
