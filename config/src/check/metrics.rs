//! Checks of the `[metrics]` table.

use std::net::SocketAddr;

use super::Check;
use crate::config::{METRICS_PORT_DEFAULT, Metrics};
use crate::file::MetricsTable;
use crate::flags::parse_listen;
use crate::key_path::KeyPath;

pub(super) fn check(check: &mut Check<'_>, place: &KeyPath, table: &MetricsTable) -> Metrics {
    let listen = table.listen.as_deref().and_then(|text| {
        let parsed = parse_listen(text, METRICS_PORT_DEFAULT);
        if parsed.is_none() {
            check
                .wrong(
                    &place.key("listen"),
                    format!("\"{text}\" is not an IP address"),
                )
                .help("write ADDR or ADDR:PORT, such as 127.0.0.1:9464 or [::1]:9464");
        }
        parsed.map(|(address, port)| SocketAddr::new(address, port))
    });
    Metrics { listen }
}
