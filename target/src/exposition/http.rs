//! The port that Prometheus reads: as much of HTTP/1.1 (RFC 9112) as it takes to
//! answer GET, one request a connection.
//!
//! Whoever connects may be an adversary: connections, the length of a request and
//! the time it takes are limited, and nothing of a request is looked at but its first
//! line. The server has a thread of its own, and one for all: whoever asks without
//! end takes the time of others who ask, and of nobody else. Where all places are
//! taken, the oldest connection loses its own: one that asks at once has long been
//! answered, and one that is slow on purpose keeps nobody out.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::Observed;
use super::page::{Buckets, Page};
use crate::panics::Part;

/// Connections at a time; one more ends the oldest.
const CONNECTIONS_MAX: usize = 64;
/// Bytes of a request, headers included.
const REQUEST_MAX_BYTES: usize = 8 << 10;
/// For a request to come.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// For an answer to be read.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// After a failed accept (no more descriptors, mostly).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Prometheus's text format.
const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";

/// A server that listens until it is dropped.
#[derive(Debug)]
pub(crate) struct MetricsServer {
    address: SocketAddr,
    /// Dropped, it has the thread end.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl MetricsServer {
    /// Listens at `address`, and tells what `observed` has.
    pub(crate) fn start(address: SocketAddr, observed: Arc<Observed>) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let listener = {
            let _context = runtime.enter();
            TcpListener::from_std(listener)?
        };
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("metrics".into())
            .spawn(move || {
                runtime.block_on(async {
                    tokio::select! {
                        () = serve(listener, observed) => {}
                        _ = stopped => {}
                    }
                });
            })?;
        // Cause: the configuration.
        tracing::info!(%address, "telling metrics");
        Ok(Self {
            address,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // It ends without a panic, or has said why.
            let _ = thread.join();
        }
    }
}

async fn serve(listener: TcpListener, observed: Arc<Observed>) {
    let mut open: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let observed = Arc::clone(&observed);
        open.retain(|connection| !connection.is_finished());
        if open.len() == CONNECTIONS_MAX
            && let Some(oldest) = open.pop_front()
        {
            oldest.abort();
        }
        let connection = tokio::spawn(async move { converse(&stream, &observed).await });
        open.push_back(connection.abort_handle());
    }
}

/// One request and its answer.
async fn converse(stream: &TcpStream, observed: &Observed) {
    let request = timeout(REQUEST_TIMEOUT, read_request(stream)).await;
    let answer = match request {
        Ok(Ok(request)) => {
            let answer = || answer(&request, observed);
            let answer = observed.panics.confine(Part::Metrics, answer);
            answer.unwrap_or_else(|| Answer::plain(500, "see the error in the target's log\n"))
        }
        Ok(Err(Unread::TooLong)) => Answer::plain(431, "the request is too long\n"),
        // Nobody is there to be answered.
        Ok(Err(Unread::Gone)) => return,
        Err(_) => Answer::plain(408, "the request took too long\n"),
    };
    observed.answers.add(answer.code);
    // Whoever does not read the answer does not want it.
    let _ = timeout(ANSWER_TIMEOUT, write_all(stream, &answer.into_bytes())).await;
}

/// Why there is no request.
#[derive(Debug, PartialEq, Eq)]
enum Unread {
    TooLong,
    Gone,
}

/// A request: its first line, after all of its headers have come.
async fn read_request(stream: &TcpStream) -> Result<String, Unread> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 1024];
    loop {
        stream.readable().await.map_err(|_| Unread::Gone)?;
        match stream.try_read(&mut chunk) {
            Ok(0) => return Err(Unread::Gone),
            Ok(count) => bytes.extend_from_slice(&chunk[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(_) => return Err(Unread::Gone),
        }
        let text = String::from_utf8_lossy(&bytes);
        if text.contains("\r\n\r\n") || text.contains("\n\n") {
            return Ok(text.lines().next().unwrap_or_default().to_owned());
        }
        if bytes.len() > REQUEST_MAX_BYTES {
            return Err(Unread::TooLong);
        }
    }
}

async fn write_all(stream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.writable().await?;
        match stream.try_write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// What a request is answered with.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    code: u16,
    content_type: &'static str,
    content: String,
    /// Whether the content is left out (HEAD).
    head_only: bool,
}

fn answer(request: &str, observed: &Observed) -> Answer {
    let mut words = request.split(' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    let (Some(method), Some(target), Some(version), None) = (method, target, version, words.next())
    else {
        return Answer::plain(400, "that is no HTTP request\n");
    };
    if !version.starts_with("HTTP/1.") {
        return Answer::plain(505, "HTTP/1.1 is spoken here\n");
    }
    if !matches!(method, "GET" | "HEAD") {
        return Answer::plain(405, "GET is all there is to do here\n");
    }
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let answer = match path {
        "/metrics" => metrics(query, observed),
        "/" => Answer::plain(200, "cairn-target: /metrics is for Prometheus\n"),
        _ => Answer::plain(404, "/metrics is all there is\n"),
    };
    Answer {
        head_only: method == "HEAD",
        ..answer
    }
}

fn metrics(query: &str, observed: &Observed) -> Answer {
    let is_fine = query.split('&').any(|part| part == "buckets=fine");
    let buckets = if is_fine {
        Buckets::Fine
    } else {
        Buckets::Coarse
    };
    let page = Page::new(buckets);
    observed.tell(&page);
    Answer {
        code: 200,
        content_type: TEXT_FORMAT,
        content: page.write(),
        head_only: false,
    }
}

impl Answer {
    fn plain(code: u16, content: &str) -> Self {
        Self {
            code,
            content_type: PLAIN,
            content: content.to_owned(),
            head_only: false,
        }
    }

    fn reason(&self) -> &'static str {
        match self.code {
            200 => "OK",
            400 => "Bad Request",
            404 => "Not Found",
            405 => "Method Not Allowed",
            408 => "Request Timeout",
            500 => "Internal Server Error",
            431 => "Request Header Fields Too Large",
            505 => "HTTP Version Not Supported",
            other => unreachable!("{other} is never answered"),
        }
    }

    fn into_bytes(self) -> Vec<u8> {
        let allow = if self.code == 405 {
            "Allow: GET, HEAD\r\n"
        } else {
            ""
        };
        let mut text = format!(
            "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{allow}\
             Cache-Control: no-store\r\nConnection: close\r\n\r\n",
            self.code,
            self.reason(),
            self.content_type,
            self.content.len()
        );
        if !self.head_only {
            text += &self.content;
        }
        text.into_bytes()
    }
}
