//! Clients of the control socket that send invalid data, no data, or too much.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};

use crate::target::{PATIENCE, Steered};

fn stream(target: &Steered) -> UnixStream {
    let stream = UnixStream::connect(target.socket()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn rest(mut stream: UnixStream) -> String {
    let mut text = String::new();
    let _ = stream.read_to_string(&mut text);
    text
}

fn lines(target: &Steered, sent: &str, count: usize) -> Vec<Value> {
    let mut stream = stream(target);
    stream.write_all(sent.as_bytes()).unwrap();
    let mut text = String::new();
    let mut bytes = [0; 4096];
    while text.matches('\n').count() < count {
        let read = stream.read(&mut bytes).unwrap();
        assert!(read > 0, "closed after {text}");
        text.push_str(std::str::from_utf8(&bytes[..read]).unwrap());
    }
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn requests_may_follow_each_other_in_any_framing() {
    let target = Steered::start();
    let one = |id: u32| {
        format!("{{\"jsonrpc\": \"2.0\",\n \"method\": \"rpc_get_methods\", \"id\": {id}}}")
    };
    let answers = lines(
        &target,
        &format!("{}{}\n\n {}\n", one(1), one(2), one(3)),
        3,
    );
    let ids: Vec<_> = answers
        .iter()
        .map(|answer| answer["id"].as_u64().unwrap())
        .collect();
    assert_eq!(ids, [1, 2, 3]);
    let answers = lines(
        &target,
        &format!("[{},{},{{\"method\":\"none\"}}]", one(1), one(2)),
        1,
    );
    assert_eq!(answers[0].as_array().unwrap().len(), 2);
}

#[test]
fn strangers_cost_other_clients_nothing() {
    let target = Steered::start();
    for nonsense in [
        "GET / HTTP/1.1\r\n\r\n".to_owned(),
        "}".to_owned(),
        "[".repeat(2 << 20),
        format!("{{\"method\": \"{}\"}}", "x".repeat(2 << 20)),
    ] {
        let mut stream = stream(&target);
        let _ = stream.write_all(nonsense.as_bytes());
        let answer = rest(stream);
        assert!(answer.is_empty() || answer.contains("-32700"), "{answer}");
    }
    let deep = format!(
        "{{\"method\":\"m\",\"params\":{}{}}}",
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    let answers = lines(&target, &deep, 1);
    assert_eq!(answers[0]["error"]["code"], -32700);
    let silent: Vec<_> = (0..100).map(|_| stream(&target)).collect();
    let mut halves: Vec<_> = (0..50).map(|_| stream(&target)).collect();
    for half in &mut halves {
        half.write_all(b"{\"method\": \"cairn_sta").unwrap();
    }
    let mut slow = stream(&target);
    slow.set_write_timeout(Some(std::time::Duration::from_millis(200)))
        .unwrap();
    let request = json!({"id": 1, "method": "rpc_get_methods"}).to_string();
    while slow.write_all(request.as_bytes()).is_ok() {}
    assert_eq!(target.done("cairn_status", json!({}))["namespaces"], 1);
    for half in halves {
        assert_eq!(rest(half), "");
    }
    drop(silent);
}

#[test]
fn there_is_a_seat_once_others_have_left() {
    let target = Steered::start();
    let many: Vec<_> = (0..cairn_control::CONNECTIONS_MAX)
        .map(|_| stream(&target))
        .collect();
    let late = rest(stream(&target));
    assert!(late.contains("too many connections"), "{late}");
    drop(many);
    let deadline = std::time::Instant::now() + PATIENCE;
    while target.call("cairn_status", json!({})).is_err() {
        assert!(std::time::Instant::now() < deadline, "no seat");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}
