//! HTTP/1.1 server of the metrics port, on hyper. Clients may be hostile, so connections, request
//! sizes and times are limited, and each connection serves one request.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::ready;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderValue, VARY};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::Observed;
use super::page::{Buckets, Format, Page};
use crate::panics::{Part, confine_future};

/// Maximum connections. A further connection closes the oldest one.
const CONNECTIONS_MAX: usize = 64;
/// Maximum bytes of a request with headers; the smallest limit that hyper accepts.
const REQUEST_MAX_BYTES: usize = 8 << 10;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// Pause after a failed accept, usually for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const HEALTH_TIMEOUT: Duration = Duration::from_secs(1);

const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";
const OPEN_FORMAT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";

#[derive(Debug)]
pub(crate) struct MetricsServer {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl MetricsServer {
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
        // Logged when the configuration is applied.
        tracing::info!(%address, "serving metrics");
        Ok(Self {
            address,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
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
        let connection = confine_future(Part::Metrics, converse(stream, observed));
        let connection = tokio::spawn(connection);
        open.push_back(connection.abort_handle());
    }
}

async fn converse(stream: TcpStream, observed: Arc<Observed>) {
    let service = service_fn(|request: Request<Incoming>| {
        let answer = || answer(&request, &observed);
        let answer = observed.panics.confine(Part::Metrics, answer);
        let answer = answer.unwrap_or_else(|| {
            let text = "see the error in the target's log\n";
            plain(StatusCode::INTERNAL_SERVER_ERROR, text)
        });
        observed.answers.add(answer.status().as_u16());
        ready(Ok::<_, Infallible>(answer))
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_TIMEOUT)
        .max_buf_size(REQUEST_MAX_BYTES)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    if let Ok(Err(error)) = timeout(REQUEST_TIMEOUT + ANSWER_TIMEOUT, connection).await {
        if error.is_parse_too_large() {
            let code = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
            observed.answers.add(code.as_u16());
        } else if error.is_parse() {
            observed.answers.add(StatusCode::BAD_REQUEST.as_u16());
        }
    }
}

type Answer = Response<Full<Bytes>>;

fn answer<B>(request: &Request<B>, observed: &Observed) -> Answer {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let text = "this port answers GET and HEAD\n";
        let mut answer = plain(StatusCode::METHOD_NOT_ALLOWED, text);
        let methods = HeaderValue::from_static("GET, HEAD");
        answer.headers_mut().insert(ALLOW, methods);
        return answer;
    }
    match request.uri().path() {
        "/metrics" => {
            let query = request.uri().query().unwrap_or("");
            metrics(query, wanted(request.headers()), observed)
        }
        "/healthz" if observed.is_alive(HEALTH_TIMEOUT) => plain(StatusCode::OK, "ok\n"),
        "/healthz" => {
            let text = "a reactor makes no rounds: see the target's log\n";
            plain(StatusCode::SERVICE_UNAVAILABLE, text)
        }
        "/readyz" => ready_to_serve(observed),
        "/" => plain(
            StatusCode::OK,
            "cairn-target: /metrics is for Prometheus, /healthz and /readyz for probes\n",
        ),
        _ => plain(
            StatusCode::NOT_FOUND,
            "this port has /metrics, /healthz and /readyz only\n",
        ),
    }
}

fn ready_to_serve(observed: &Observed) -> Answer {
    let health = Arc::clone(&observed.health.borrow());
    let code = if health.addresses.is_empty() {
        StatusCode::SERVICE_UNAVAILABLE
    } else {
        StatusCode::OK
    };
    with(code, PLAIN, format!("{health}\n").into())
}

fn wanted(headers: &HeaderMap) -> Format {
    let accepted = headers.get_all(ACCEPT).iter();
    let accepted = accepted.filter_map(|value| value.to_str().ok());
    let mut types = accepted.flat_map(|value| value.split(','));
    let is_open = |one: &str| {
        let mut parts = one.split(';').map(str::trim);
        let name = parts.next().unwrap_or("");
        name.eq_ignore_ascii_case("application/openmetrics-text")
            && parts.all(|part| !matches!(part, "q=0" | "q=0.0"))
    };
    if types.any(is_open) {
        Format::OpenMetrics
    } else {
        Format::Text
    }
}

fn metrics(query: &str, format: Format, observed: &Observed) -> Answer {
    let is_fine = query.split('&').any(|part| part == "buckets=fine");
    let buckets = if is_fine {
        Buckets::Fine
    } else {
        Buckets::Coarse
    };
    let page = Page::new(buckets);
    observed.report(&page);
    let content_type = match format {
        Format::Text => TEXT_FORMAT,
        Format::OpenMetrics => OPEN_FORMAT,
    };
    let mut answer = with(StatusCode::OK, content_type, page.write(format).into());
    let vary = HeaderValue::from_static("Accept");
    answer.headers_mut().insert(VARY, vary);
    answer
}

fn plain(code: StatusCode, text: &'static str) -> Answer {
    with(code, PLAIN, Bytes::from_static(text.as_bytes()))
}

fn with(code: StatusCode, content_type: &'static str, content: Bytes) -> Answer {
    let mut answer = Response::new(Full::new(content));
    *answer.status_mut() = code;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openmetrics_is_for_clients_that_accept_it() {
        let wanted = |accept: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            if let Some(accept) = accept {
                headers.insert(ACCEPT, HeaderValue::from_static(accept));
            }
            wanted(&headers)
        };
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
        assert_eq!(wanted(Some(prometheus)), Format::OpenMetrics);
        assert_eq!(
            wanted(Some("text/plain, application/openmetrics-text")),
            Format::OpenMetrics
        );
        for other in [
            None,
            Some("*/*"),
            Some("text/plain"),
            Some("application/openmetrics-text; q=0"),
        ] {
            assert_eq!(wanted(other), Format::Text, "{other:?}");
        }
    }
}
