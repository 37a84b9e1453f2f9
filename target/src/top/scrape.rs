//! One page from the target, by HTTP.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// With fine buckets, for the quantiles' sake.
const PATH: &str = "/metrics?buckets=fine";

/// A target answers at once; one that does not answer for this long hangs.
const PATIENCE: Duration = Duration::from_secs(5);

/// Much more than 1,000 hosts make. It may be anything that answers at that port.
const PAGE_BYTES_MAX: u64 = 256 << 20;

/// The text of the target's metrics.
pub(super) fn scrape(from: SocketAddr) -> Result<String, String> {
    let no_answer = |error: std::io::Error| {
        format!(
            "{from} does not answer ({error}): is the target running, with `--metrics {from}`? \
             (--metrics names another address)"
        )
    };
    let mut stream = TcpStream::connect_timeout(&from, PATIENCE).map_err(no_answer)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(no_answer)?;
    stream
        .set_write_timeout(Some(PATIENCE))
        .map_err(no_answer)?;
    let request = format!("GET {PATH} HTTP/1.0\r\nHost: {from}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).map_err(no_answer)?;
    let mut answer = Vec::new();
    stream
        .take(PAGE_BYTES_MAX)
        .read_to_end(&mut answer)
        .map_err(no_answer)?;
    body(&answer, from)
}

/// What follows the header of an answer that says 200.
fn body(answer: &[u8], from: SocketAddr) -> Result<String, String> {
    let strange = || format!("{from} is not a target's metrics: the answer is no text by HTTP");
    let answer = str::from_utf8(answer).map_err(|_| strange())?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(strange)?;
    let status = head.lines().next().unwrap_or_default();
    match status.split_whitespace().nth(1) {
        Some("200") if status.starts_with("HTTP/1.") => Ok(body.to_owned()),
        Some(_) if status.starts_with("HTTP/1.") => Err(format!("{from} answered: {status}")),
        _ => Err(strange()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_200_is_a_page() {
        let from: SocketAddr = "127.0.0.1:9464".parse().unwrap();
        let good = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nup 1\n";
        assert_eq!(body(good, from).unwrap(), "up 1\n");
        let error = body(b"HTTP/1.1 404 Not Found\r\n\r\n", from).unwrap_err();
        assert!(error.contains("404 Not Found"), "{error}");
        for strange in [&b"SSH-2.0-OpenSSH\r\n\r\n"[..], b"", b"\xff\r\n\r\n"] {
            let error = body(strange, from).unwrap_err();
            assert!(error.contains("not a target's metrics"), "{error}");
        }
    }

    #[test]
    fn nobody_there_is_said_with_the_remedy() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let from = listener.local_addr().unwrap();
        drop(listener);
        let error = scrape(from).unwrap_err();
        assert!(error.contains("--metrics"), "{error}");
    }
}
