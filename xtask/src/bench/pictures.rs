use std::path::Path;

use anyhow::Result;

use super::item::Item;
use crate::results::{Curve, Metric, Point, Results, bars, curves};

pub(super) fn draw(results: &Results, items: &[Item], folder: &Path) -> Result<()> {
    for group in results.groups() {
        let file = |what: &str| folder.join(format!("{}-{what}.svg", group.replace(' ', "-")));
        let of_metric = |name: &str| -> Vec<(String, &Metric)> {
            let rows = results.group(group);
            rows.filter_map(|row| Some((row.name.clone(), row.metric(name)?)))
                .collect()
        };
        for (name, what, unit) in [
            ("IOPS", "iops", "IOPS"),
            ("bandwidth", "bandwidth", "MB/s"),
            ("p50", "latency", "median latency, us"),
        ] {
            let rows = of_metric(name);
            if !rows.is_empty() {
                bars(&file(what), group, unit, &rows)?;
            }
        }
        let by_depth = by_depth(results, items, group);
        if !by_depth.is_empty() {
            curves(&file("depth"), group, ("queue depth", "IOPS"), &by_depth)?;
        }
    }
    Ok(())
}

fn by_depth(results: &Results, items: &[Item], group: &str) -> Vec<Curve> {
    let mut curves: Vec<Curve> = Vec::new();
    let cells = items.iter().filter_map(Item::cell);
    let cells = cells.filter(|cell| cell.group() == group && cell.queue_pairs.0 == 1);
    for cell in cells {
        let row = results.row(group, &cell.name());
        let Some(metric) = row.and_then(|row| row.metric("IOPS")) else {
            continue;
        };
        let name = format!("{} {}", cell.workload, cell.size);
        let point = Point::at(cell.depth.0.into(), metric);
        match curves.iter_mut().find(|curve| curve.name == name) {
            Some(curve) => curve.points.push(point),
            None => curves.push(Curve {
                name,
                points: vec![point],
            }),
        }
    }
    curves.retain(|curve| curve.points.len() > 1);
    curves
}
