//! Serves clients, each for itself.

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

use crate::frame::Frames;
use crate::message::{self, Error, Request};

/// Clients at a time.
pub const CONNECTIONS_MAX: usize = 512;
/// Of which one user that is not root may have so many: root can always come in.
pub const CONNECTIONS_OF_USER_MAX: usize = 256;

/// Bytes read at a time.
const READ_BYTES: usize = 16 << 10;

/// Who is at the other end, as the kernel says (SO_PEERCRED).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// User.
    pub uid: u32,
    /// Process, if it is known.
    pub pid: Option<i32>,
}

/// How long a client may take.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// For the rest of a request that has begun, and to read a response.
    pub request: Duration,
    /// Between requests.
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

/// Carries out requests.
pub trait Handler: Send + Sync + 'static {
    /// Carries out one.
    fn call(
        &self,
        peer: Peer,
        request: Request,
    ) -> impl Future<Output = Result<Value, Error>> + Send;

    /// Runs a client's conversation. A panic in it must end that client alone, if the
    /// program goes on after panics: the connection closes when this returns.
    fn confine(
        &self,
        conversation: impl Future<Output = ()> + Send,
    ) -> impl Future<Output = ()> + Send {
        conversation
    }
}

/// Serves until it is dropped.
///
/// # Errors
/// The runtime cannot take the socket.
pub async fn serve<H: Handler>(
    listener: StdListener,
    handler: Arc<H>,
    patience: Patience,
) -> io::Result<()> {
    let listener = UnixListener::from_std(listener)?;
    let users = Arc::new(Users::default());
    // Dropped with this future, it ends its tasks.
    let mut clients = tokio::task::JoinSet::new();
    loop {
        while clients.try_join_next().is_some() {}
        let Ok((stream, _)) = listener.accept().await else {
            // Too many files are open: others may close some.
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
                _seat: seat,
            };
            handler.confine(client.serve(&*handler)).await;
        });
    }
}

/// Says why, as far as the socket takes it at once.
fn refuse(stream: &UnixStream) {
    let error = Error::errno(
        rustix::io::Errno::AGAIN,
        "too many connections to the control socket: close some, or try again later",
    );
    let _ = stream.try_write(line(&message::response(&Value::Null, Err(error))).as_bytes());
}

/// How many connections each user has.
#[derive(Default)]
struct Users(Mutex<HashMap<u32, usize>>);

impl Users {
    fn admit(self: &Arc<Self>, uid: u32) -> Option<Seat> {
        let mut users = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = users.get(&uid).copied().unwrap_or(0);
        let most = if uid == 0 {
            CONNECTIONS_MAX
        } else {
            CONNECTIONS_OF_USER_MAX
        };
        if own >= most || users.values().sum::<usize>() >= CONNECTIONS_MAX {
            return None;
        }
        users.insert(uid, own + 1);
        Some(Seat {
            users: Arc::clone(self),
            uid,
        })
    }
}

/// One connection's place among them.
struct Seat {
    users: Arc<Users>,
    uid: u32,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut users = self.users.0.lock().unwrap_or_else(PoisonError::into_inner);
        match users.get_mut(&self.uid) {
            Some(own) if *own > 1 => *own -= 1,
            _ => drop(users.remove(&self.uid)),
        }
    }
}

struct Client {
    stream: UnixStream,
    peer: Peer,
    patience: Patience,
    _seat: Seat,
}

impl Client {
    async fn serve<H: Handler>(mut self, handler: &H) {
        let mut frames = Frames::default();
        let mut bytes = vec![0; READ_BYTES];
        // Until when the next request, or the rest of one, has to come.
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
                    // What follows cannot be understood.
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
        let calls = match message::parse(frame) {
            Ok(calls) => calls,
            Err(error) => {
                return self
                    .send(&message::response(&Value::Null, Err(error)))
                    .await;
            }
        };
        let mut responses = Vec::new();
        for call in calls.calls {
            let result = match call.request {
                Ok(request) => handler.call(self.peer, request).await,
                Err(error) => Err(error),
            };
            responses.extend(call.id.map(|id| message::response(&id, result)));
        }
        match (calls.is_batch, responses.pop()) {
            (_, None) => Ok(()),
            (false, Some(response)) => self.send(&response).await,
            (true, Some(last)) => {
                responses.push(last);
                self.send(&Value::Array(responses)).await
            }
        }
    }

    async fn send(&mut self, response: &Value) -> io::Result<()> {
        let line = line(response);
        let sent = self.stream.write_all(line.as_bytes());
        // To a client that does not read: closed.
        timeout(self.patience.request, sent).await?
    }
}

fn line(response: &Value) -> String {
    format!("{response}\n")
}
