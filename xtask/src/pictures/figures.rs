//! Chart of results in relation to other programs.

use super::canvas::Canvas;
use crate::results::{Results, Row};

struct Panel {
    group: &'static str,
    title: &'static str,
    below: &'static str,
    ratio: &'static str,
}

const PANELS: [Panel; 4] = [
    Panel {
        group: "soft mem",
        title: "RoCE in user space, beside SPDK NVMe/TCP",
        below: "one core on each side, memory disk, in turns",
        ratio: "of SPDK",
    },
    Panel {
        group: "vm verbs",
        title: "Verbs over rdma_rxe, beside nvmet-rdma",
        below: "Linux host, emulated processor, same boot",
        ratio: "of nvmet-rdma",
    },
    Panel {
        group: "vm soft",
        title: "RoCE in user space over a cable, beside nvmet-rdma over rdma_rxe",
        below: "Linux host, emulated processor, same boot",
        ratio: "of nvmet-rdma",
    },
    Panel {
        group: "disk",
        title: "The disk alone, beside fio's io_uring engine",
        below: "a file on ext4, a virtio disk, in turns",
        ratio: "of fio",
    },
];

const WIDTH: u32 = 960;
const LEFT: f64 = 200.0;
const ONE: f64 = 300.0;
const MOST: f64 = 1.65;
const ROW: f64 = 24.0;

struct Bar {
    low: f64,
    middle: f64,
    high: f64,
    figure: String,
}

impl Bar {
    fn of(row: &Row, ratio: &str) -> Option<Self> {
        let figures = ["IOPS", "bandwidth"];
        let metric = figures.iter().find_map(|name| row.metric(name))?;
        let figure = match metric.unit.as_str() {
            "1/s" if metric.median() >= 10_000.0 => {
                format!("{:.0} thousand/s", metric.median() / 1000.0)
            }
            "1/s" => format!("{:.0}/s", metric.median()),
            "MB/s" => format!("{:.1} GB/s", metric.median() / 1000.0),
            unit => format!("{:.0} {unit}", metric.median()),
        };
        let ratio = row.metric(ratio)?;
        Some(Self {
            low: ratio.min(),
            middle: ratio.median(),
            high: ratio.max(),
            figure,
        })
    }
}

pub(super) fn draw(results: &Results) -> String {
    let rows: usize = PANELS.iter().map(|p| results.group(p.group).count()).sum();
    let height = 78.0 + rows as f64 * ROW + PANELS.len() as f64 * 74.0;
    let mut canvas = Canvas::new(
        WIDTH,
        height as u32,
        "Cairn beside other programs",
        "For each workload, Cairn's rate divided by the other program's. The same numbers are in \
         the tables of docs/performance.md.",
    );
    canvas.text("bold", (20.0, 34.0), "Cairn beside other programs");
    canvas.text(
        "small dim",
        (20.0, 54.0),
        "ratio of rates, longer is better; dashed line: the other program; thin lines: least and most; \
         orange: below 0.95",
    );
    let mut y = 78.0;
    for panel in &PANELS {
        y = draw_panel(&mut canvas, panel, results, y);
    }
    canvas.finish()
}

fn draw_panel(canvas: &mut Canvas, panel: &Panel, results: &Results, top: f64) -> f64 {
    canvas.text("bold", (20.0, top + 16.0), panel.title);
    canvas.text("small dim", (20.0, top + 34.0), panel.below);
    let mut y = top + 46.0;
    for row in results.group(panel.group) {
        let middle = y + ROW / 2.0;
        canvas.text(
            "small end",
            (LEFT - 10.0, middle + 4.0),
            &workload(&row.name),
        );
        if let Some(bar) = Bar::of(row, panel.ratio) {
            let class = if bar.middle < 0.95 { "behind" } else { "bar" };
            canvas.bar(class, (LEFT, y + 4.0), (bar.middle * ONE, ROW - 8.0));
            let end = bar.high.min(MOST);
            canvas.line(
                "whisker",
                (LEFT + bar.low * ONE, middle),
                (LEFT + end * ONE, middle),
            );
            let right = LEFT + MOST * ONE + 20.0;
            let ratio = format!("{:.2}", bar.middle);
            canvas.text("small bold", (right, middle + 4.0), &ratio);
            canvas.text("small", (right + 50.0, middle + 4.0), &bar.figure);
        }
        y += ROW;
    }
    canvas.line("mark", (LEFT + ONE, top + 46.0), (LEFT + ONE, y));
    y + 28.0
}

fn workload(name: &str) -> String {
    name.replace("randread", "random read")
        .replace("randwrite", "random write")
        .replace(" qd", ", depth ")
}
