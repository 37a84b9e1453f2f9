//! The example `rping` works at both ends of a connection.

use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc;
use std::thread;

#[allow(dead_code, reason = "the test calls both ends without main")]
#[path = "../examples/rping.rs"]
mod rping;

#[test]
fn the_client_compares_what_the_server_echoes() {
    let server = IpAddr::from([127, 83, 71, 74]);
    let (started, listening) = mpsc::channel::<SocketAddr>();
    let announce = move |at| started.send(at).expect("the test waits");
    thread::spawn(move || rping::serve(server, announce).expect("no one else has the address"));
    listening.recv().expect("it listens");
    rping::ping(server, 3, u16::MAX).expect("three equal echoes");
}
