use super::rates::Rates;
use super::tables::{self, MIB};
use crate::nouns::count;

const INDENT: &str = "  ";

pub(super) fn text(rates: &Rates, from: &str) -> String {
    let mut text = heading(rates, from) + "\n";
    for line in refused(rates) {
        text += &format!("{line}\n");
    }
    for table in tables::all(rates) {
        let titles: Vec<&str> = table.columns.iter().map(|column| column.title).collect();
        let mut aligned = cairn_doctor::cli::Table::new(&titles);
        for row in table.rows {
            aligned.row(row.into_iter().map(|cell| cell.text).collect());
        }
        text += &format!("\n{}", aligned.text(INDENT));
    }
    text
}

pub(super) fn heading(rates: &Rates, from: &str) -> String {
    format!(
        "cairn-target {} at {from}: {}, {}, {:.0} MiB resident; last {:.1} s",
        rates.version,
        count(rates.hosts.len() as u64, "host"),
        count(rates.namespaces.len() as u64, "namespace"),
        rates.resident_bytes / MIB,
        rates.seconds,
    )
}

pub(super) fn refused(rates: &Rates) -> impl Iterator<Item = String> {
    let refused = rates.refused_per_s.iter();
    refused.map(|(reason, rate)| format!("connections refused, {rate:.1} a second: {reason}"))
}
