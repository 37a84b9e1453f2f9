use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, HOST};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

const PATH: &str = "/metrics?buckets=fine";

const PATIENCE: Duration = Duration::from_secs(10);

/// Maximum bytes of a page, because the address may belong to any server.
const PAGE_BYTES_MAX: usize = 256 << 20;

pub(super) fn scrape(from: SocketAddr) -> Result<String, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("no runtime: {error}"))?;
    let page = runtime.block_on(async { timeout(PATIENCE, get(from)).await });
    match page {
        Ok(Ok(page)) => page,
        Ok(Err(error)) if is_no_http(&*error) => Err(strange(from)),
        Ok(Err(error)) => Err(no_answer(from, &error.to_string())),
        Err(_) => Err(no_answer(from, "no page in 10 s")),
    }
}

fn no_answer(from: SocketAddr, why: &str) -> String {
    format!(
        "{from} does not answer ({why}): is the target running, with `--metrics {from}`? \
         (--metrics names another address)"
    )
}

fn strange(from: SocketAddr) -> String {
    format!("{from} does not serve a target's metrics: the response is not text over HTTP")
}

fn is_no_http(error: &(dyn Error + 'static)) -> bool {
    let error = error.downcast_ref::<hyper::Error>();
    error.is_some_and(|error| error.is_parse() || error.is_incomplete_message())
}

async fn get(from: SocketAddr) -> Result<Result<String, String>, Box<dyn Error + Send + Sync>> {
    let stream = TcpStream::connect(from).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let _connection = tokio::spawn(connection);
    let request = Request::get(PATH)
        .header(HOST, from.to_string())
        .header(CONNECTION, "close")
        .body(Empty::<Bytes>::new())?;
    let answer = sender.send_request(request).await?;
    if answer.status() != StatusCode::OK {
        return Ok(Err(format!("{from} answered: {}", answer.status())));
    }
    let body = Limited::new(answer.into_body(), PAGE_BYTES_MAX);
    let bytes = body.collect().await?.to_bytes();
    Ok(String::from_utf8(bytes.into()).map_err(|_| strange(from)))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    fn answered(answer: &'static [u8]) -> Result<String, String> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let from = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            let length = stream.read(&mut request).unwrap();
            stream.write_all(answer).unwrap();
            String::from_utf8_lossy(&request[..length]).into_owned()
        });
        let page = scrape(from);
        let request = server.join().unwrap();
        assert!(
            request.starts_with("GET /metrics?buckets=fine HTTP/1.1\r\n"),
            "{request}"
        );
        page
    }

    #[test]
    fn only_a_200_is_a_page() {
        let good = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nup 1\n";
        assert_eq!(answered(good).unwrap(), "up 1\n");
        let chunked =
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nup 1\n\r\n0\r\n\r\n";
        assert_eq!(answered(chunked).unwrap(), "up 1\n");
        let error = answered(b"HTTP/1.1 404 Not Found\r\n\r\n").unwrap_err();
        assert!(error.contains("404 Not Found"), "{error}");
        for strange in [
            &b"SSH-2.0-OpenSSH\r\n\r\n"[..],
            b"",
            b"HTTP/1.1 200 OK\r\n\r\n\xff",
        ] {
            let error = answered(strange).unwrap_err();
            assert!(
                error.contains("does not serve a target's metrics"),
                "{error}"
            );
        }
    }

    #[test]
    fn an_address_without_a_server_is_reported_with_the_remedy() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let from = listener.local_addr().unwrap();
        drop(listener);
        let error = scrape(from).unwrap_err();
        assert!(error.contains("--metrics"), "{error}");
    }
}
