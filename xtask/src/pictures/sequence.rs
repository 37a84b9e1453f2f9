//! Sequence diagrams of a READ and a WRITE. Step numbers refer to docs/walk.md.

use super::canvas::Canvas;

const LANES: [(&str, &str); 4] = [
    ("host", ""),
    ("RDMA device", "an adapter, or user space"),
    ("reactor", "one thread"),
    ("disk", "io_uring"),
];
const HOST: usize = 0;
const DEVICE: usize = 1;
const REACTOR: usize = 2;
const DISK: usize = 3;

const LEFT: f64 = 90.0;
const GAP: f64 = 250.0;
const TOP: f64 = 96.0;
const STEP: f64 = 40.0;

enum Step {
    Move(usize, usize, &'static str),
    Work(usize, &'static str),
}
use Step::{Move, Work};

pub(super) fn read() -> String {
    draw(
        "One READ",
        "The host sends a capsule, the reactor reads the disk into a registered buffer, and sends \
         the data and the response back with one post.",
        &[
            Move(HOST, DEVICE, "SEND: command capsule"),
            Move(DEVICE, REACTOR, "1  receive: a completion"),
            Work(REACTOR, "queue pair, request, permit"),
            Work(REACTOR, "2  plan: SQE to Read"),
            Work(REACTOR, "3  buffers: one for the data"),
            Work(REACTOR, "4  fetch: nothing for a READ"),
            Move(REACTOR, DISK, "5  disk: READ_FIXED into the buffer"),
            Move(REACTOR, DEVICE, "post a receive again"),
            Move(DISK, REACTOR, "done: the data is in memory"),
            Move(REACTOR, DEVICE, "6  respond: WRITE and SEND"),
            Move(DEVICE, HOST, "RDMA WRITE: the data"),
            Move(DEVICE, HOST, "SEND: the response"),
            Move(DEVICE, REACTOR, "7  sent: the buffer is free"),
        ],
    )
}

pub(super) fn write() -> String {
    draw(
        "One WRITE",
        "The host sends a capsule, the reactor fetches the data by RDMA READ into a registered \
         buffer, writes it to the disk, and sends the response.",
        &[
            Move(HOST, DEVICE, "SEND: command capsule"),
            Move(DEVICE, REACTOR, "1  receive: a completion"),
            Work(REACTOR, "queue pair, request, permit"),
            Work(REACTOR, "2  plan: SQE to Write"),
            Work(REACTOR, "3  buffers: one for the data"),
            Move(REACTOR, DEVICE, "4  fetch: RDMA READ"),
            Move(REACTOR, DEVICE, "post a receive again"),
            Move(HOST, DEVICE, "the data, into the buffer"),
            Move(DEVICE, REACTOR, "completion: data is here"),
            Move(REACTOR, DISK, "5  disk: WRITE_FIXED from the buffer"),
            Move(DISK, REACTOR, "done: the buffer is free"),
            Move(REACTOR, DEVICE, "6  respond: SEND"),
            Move(DEVICE, HOST, "SEND: the response"),
            Move(DEVICE, REACTOR, "7  sent: the request is free"),
        ],
    )
}

fn draw(title: &str, description: &str, steps: &[Step]) -> String {
    let bottom = TOP + STEP * steps.len() as f64;
    let mut canvas = Canvas::new(960, bottom as u32 + 24, title, description);
    for (at, (name, what)) in LANES.iter().enumerate() {
        let middle = x(at);
        canvas.line("faint", (middle, 60.0), (middle, bottom + 8.0));
        let class = ["low", "box", "ours", "low"][at];
        canvas.rect(class, (middle - 80.0, 14.0), (160.0, 48.0));
        let base = if what.is_empty() { 43.0 } else { 34.0 };
        canvas.text("bold middle", (middle, base), name);
        canvas.text("small dim middle", (middle, 52.0), what);
    }
    for (at, step) in steps.iter().enumerate() {
        let y = TOP + STEP * at as f64;
        match *step {
            Move(from, to, label) => {
                let side = if from < to { 1.0 } else { -1.0 };
                canvas.arrow((x(from) + 4.0 * side, y), (x(to) - 4.0 * side, y));
                let middle = f64::midpoint(x(from), x(to));
                canvas.text("small middle", (middle, y - 7.0), label);
            }
            Work(lane, label) => {
                canvas.rect("ours", (x(lane) - 6.0, y - 16.0), (12.0, 26.0));
                canvas.text("small", (x(lane) + 14.0, y + 1.0), label);
            }
        }
    }
    canvas.finish()
}

fn x(lane: usize) -> f64 {
    LEFT + GAP * lane as f64
}
