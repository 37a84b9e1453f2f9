use std::net::SocketAddr;

use cairn_base::Trid;

use super::Check;
use crate::config::{METRICS_PORT_DEFAULT, Metrics};
use crate::file::MetricsTable;
use crate::key_path::KeyPath;

pub(super) fn check(check: &mut Check<'_>, place: &KeyPath, table: &MetricsTable) -> Metrics {
    let listen = table.listen.as_deref().and_then(|text| {
        let parsed = address(text);
        if parsed.is_none() {
            check
                .wrong(
                    &place.key("listen"),
                    format!("\"{text}\" is not an IP address"),
                )
                .help("write ADDR or ADDR:PORT, such as 127.0.0.1:9464 or [::1]:9464");
        }
        parsed
    });
    Metrics { listen }
}

fn address(text: &str) -> Option<SocketAddr> {
    Trid::parse(text, METRICS_PORT_DEFAULT).ok()?.unscoped()
}
