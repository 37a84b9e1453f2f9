//! Server of the control socket, with a task for each connection.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::os::unix::net::UnixListener as StdListener;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::budget::Budget;
use crate::frame::Frames;
use crate::message::{self, Call, Error, Request};

pub const CONNECTIONS_MAX: usize = 512;
/// Maximum connections of one user, except root and the target's user.
pub const CONNECTIONS_OF_USER_MAX: usize = 256;
/// Connections reserved for root and the target's user.
pub const CONNECTIONS_RESERVED: usize = 64;

const ANSWER_BYTES: usize = 1 << 20;
const SMALL_ANSWER_BYTES: usize = 4 << 10;
/// Maximum bytes that the parser needs for each byte of a request: `,0` in `[0,0,0]` becomes a
/// value of 32 bytes.
const PARSED_FACTOR: usize = 16;

const READ_BYTES: usize = 16 << 10;

/// Process at the other end of a connection, from `SO_PEERCRED`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    pub uid: u32,
    pub pid: Option<i32>,
}

#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Time limit for receiving a request after its first bytes, and for sending a response.
    pub request: Duration,
    /// Time limit between requests.
    pub idle: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            request: Duration::from_secs(10),
            idle: Duration::from_secs(600),
        }
    }
}

pub trait Handler: Send + Sync + 'static {
    fn call(
        &self,
        peer: Peer,
        request: Request,
    ) -> impl Future<Output = Result<Value, Error>> + Send;

    /// Returns whether results of `method` are small, so that the server reserves less memory.
    fn is_small(&self, method: &str) -> bool {
        let _ = method;
        false
    }

    /// Runs the task of one connection, which closes when the task ends. An implementation must
    /// catch panics here, unless they abort the process.
    fn confine(
        &self,
        conversation: impl Future<Output = ()> + Send,
    ) -> impl Future<Output = ()> + Send {
        conversation
    }
}

/// Serves connections until the future is dropped.
pub async fn serve<H: Handler>(
    listener: StdListener,
    handler: Arc<H>,
    patience: Patience,
) -> io::Result<()> {
    let listener = UnixListener::from_std(listener)?;
    let users = Arc::new(Users::default());
    let mut clients = tokio::task::JoinSet::new();
    loop {
        while clients.try_join_next().is_some() {}
        let Ok((stream, _)) = listener.accept().await else {
            sleep(Duration::from_millis(100)).await;
            continue;
        };
        let Ok(credentials) = stream.peer_cred() else {
            continue;
        };
        let peer = Peer {
            uid: credentials.uid(),
            pid: credentials.pid(),
        };
        let Some(seat) = users.admit(peer.uid) else {
            refuse(&stream);
            continue;
        };
        let handler = Arc::clone(&handler);
        clients.spawn(async move {
            let client = Client {
                stream,
                peer,
                patience,
                seat,
            };
            handler.confine(client.serve(&*handler)).await;
        });
    }
}

fn refuse(stream: &UnixStream) {
    let error = Error::errno(
        rustix::io::Errno::AGAIN,
        "too many connections to the control socket: close some, or try again later",
    );
    let _ = stream.try_write(line(&message::response(&Value::Null, Err(error))).as_bytes());
}

#[derive(Default)]
struct Users(Mutex<HashMap<u32, User>>);

#[derive(Default)]
struct User {
    connections: usize,
    budget: Arc<Budget>,
}

impl Users {
    fn admit(self: &Arc<Self>, uid: u32) -> Option<Seat> {
        let mut users = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = users.get(&uid).map_or(0, |user| user.connections);
        let all: usize = users.values().map(|user| user.connections).sum();
        let is_privileged = |uid: u32| uid == 0 || uid == rustix::process::geteuid().as_raw();
        let others = users.iter().filter(|(uid, _)| !is_privileged(**uid));
        let others: usize = others.map(|(_, user)| user.connections).sum();
        let is_full = all >= CONNECTIONS_MAX
            || !is_privileged(uid)
                && (own >= CONNECTIONS_OF_USER_MAX
                    || others >= CONNECTIONS_MAX - CONNECTIONS_RESERVED);
        if is_full {
            return None;
        }
        let user = users.entry(uid).or_default();
        user.connections += 1;
        Some(Seat {
            budget: Arc::clone(&user.budget),
            users: Arc::clone(self),
            uid,
        })
    }
}

struct Seat {
    budget: Arc<Budget>,
    users: Arc<Users>,
    uid: u32,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut users = self.users.0.lock().unwrap_or_else(PoisonError::into_inner);
        match users.get_mut(&self.uid) {
            Some(user) if user.connections > 1 => user.connections -= 1,
            _ => drop(users.remove(&self.uid)),
        }
    }
}

struct Client {
    stream: UnixStream,
    peer: Peer,
    patience: Patience,
    seat: Seat,
}

impl Client {
    async fn serve<H: Handler>(mut self, handler: &H) {
        let mut frames = Frames::default();
        let mut bytes = vec![0; READ_BYTES];
        let mut deadline = Instant::now() + self.patience.idle;
        loop {
            match frames.take() {
                Ok(Some(frame)) => {
                    if self.answer(handler, &frame).await.is_err() {
                        return;
                    }
                    deadline = Instant::now() + self.patience.idle;
                    continue;
                }
                Ok(None) => {}
                Err(error) => {
                    let error = Error::new(Error::PARSE, format!("Parse error: {error}"));
                    let _ = self
                        .send(&message::response(&Value::Null, Err(error)))
                        .await;
                    return;
                }
            }
            let was_within = frames.is_within();
            match timeout_at(deadline, self.stream.read(&mut bytes)).await {
                Ok(Ok(read)) if read > 0 => frames.push(&bytes[..read]),
                _ => return,
            }
            if !was_within {
                deadline = Instant::now() + self.patience.request;
            }
        }
    }

    async fn answer<H: Handler>(&mut self, handler: &H, frame: &[u8]) -> io::Result<()> {
        let parsed_bytes = frame.len() * PARSED_FACTOR;
        let budget = &self.seat.budget;
        let mut held = budget.reserve(parsed_bytes + ANSWER_BYTES).await;
        let calls = match message::parse(frame) {
            Ok(calls) => calls,
            Err(error) => {
                return self
                    .send(&message::response(&Value::Null, Err(error)))
                    .await;
            }
        };
        let is_small = |call: &Call| match &call.request {
            Ok(request) => handler.is_small(&request.method),
            Err(_) => true,
        };
        let expected = match calls.calls.iter().all(is_small) {
            true => parsed_bytes + SMALL_ANSWER_BYTES,
            false => parsed_bytes + ANSWER_BYTES,
        };
        let mut is_begun = false;
        for call in calls.calls {
            held.set(expected);
            let result = match call.request {
                Ok(request) => handler.call(self.peer, request).await,
                Err(error) => Err(error),
            };
            let Some(id) = call.id else { continue };
            let before = match (calls.is_batch, is_begun) {
                (false, _) => "",
                (true, false) => "[",
                (true, true) => ",",
            };
            let after = if calls.is_batch { "" } else { "\n" };
            let text = format!("{before}{}{after}", message::response(&id, result));
            is_begun = true;
            held.set(parsed_bytes + text.len());
            self.send_text(&text).await?;
        }
        match calls.is_batch && is_begun {
            true => self.send_text("]\n").await,
            false => Ok(()),
        }
    }

    async fn send(&mut self, response: &Value) -> io::Result<()> {
        self.send_text(&line(response)).await
    }

    async fn send_text(&mut self, text: &str) -> io::Result<()> {
        let sent = self.stream.write_all(text.as_bytes());
        timeout(self.patience.request, sent).await?
    }
}

fn line(response: &Value) -> String {
    format!("{response}\n")
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream as StdStream;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn users_of_the_group_leave_root_a_place() {
        let own = rustix::process::geteuid().as_raw();
        let members = [own + 1, own + 2, own + 3];
        let users = Arc::new(Users::default());
        let all = &users;
        let seats = |uid: u32| std::iter::from_fn(move || all.admit(uid)).take(600);
        let mut taken: Vec<Seat> = members.into_iter().flat_map(seats).collect();
        assert_eq!(taken.len(), CONNECTIONS_MAX - CONNECTIONS_RESERVED);
        let root: Vec<Seat> = seats(0).collect();
        assert_eq!(root.len(), CONNECTIONS_RESERVED);
        drop(taken.pop());
        assert!(
            users.admit(members[0]).is_none(),
            "it has as many as one user may"
        );
        assert!(users.admit(members[2]).is_some());
    }

    #[derive(Default)]
    struct Large(AtomicUsize);

    impl Handler for Large {
        async fn call(&self, _: Peer, _: Request) -> Result<Value, Error> {
            self.0.fetch_add(1, Ordering::SeqCst);
            Ok(Value::from("x".repeat(1 << 20)))
        }
    }

    #[test]
    fn a_batch_is_carried_out_as_its_answers_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = StdListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        let handler = Arc::new(Large::default());
        let serving = Arc::clone(&handler);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = { runtime }.enable_all().build().unwrap();
            runtime.block_on(serve(listener, serving, Patience::default()))
        });
        let mut client = StdStream::connect(&path).unwrap();
        client
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        let requests = vec![r#"{"id":1,"method":"m"}"#; 16].join(",");
        client
            .write_all(format!("[{requests}]").as_bytes())
            .unwrap();
        let mut first = [0];
        client.read_exact(&mut first).unwrap();
        let carried_out = handler.0.load(Ordering::SeqCst);
        assert!(carried_out <= 3, "{carried_out} before one is read");
        let mut text = first.to_vec();
        let mut bytes = vec![0; 1 << 20];
        while !text.ends_with(b"\n") {
            let read = client.read(&mut bytes).unwrap();
            assert!(read > 0);
            text.extend_from_slice(&bytes[..read]);
        }
        let answers: Vec<Value> = serde_json::from_slice(&text).unwrap();
        assert_eq!(answers.len(), 16);
    }
}
