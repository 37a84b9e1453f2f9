use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::results::{Metric, Results, bars, markdown};

pub(super) fn write(results: &Results, folder: &Path) -> Result<()> {
    let json = serde_json::to_string_pretty(results)? + "\n";
    for (name, text) in [("report.json", json), ("report.md", markdown(results))] {
        let file = folder.join(name);
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    let rows: Vec<(String, &Metric)> = results
        .rows
        .iter()
        .filter_map(|row| Some((format!("{} {}", row.group, row.name), row.metric("IOPS")?)))
        .collect();
    if rows.is_empty() {
        return Ok(());
    }
    bars(&folder.join("report.svg"), &results.name, "IOPS", &rows)
}
