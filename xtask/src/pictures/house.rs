//! Picture of a target's components.

use super::canvas::Canvas;

const REACTOR: [&str; 4] = [
    "queue pairs, one shared receive queue",
    "requests and their permits",
    "arena: data buffers, registered once",
    "io_uring: disks, and where it sleeps",
];

pub(super) fn draw() -> String {
    let mut canvas = Canvas::new(
        960,
        520,
        "The parts of a Cairn target",
        "Hosts reach reactors over RDMA, one reactor on each core. Each reactor reads and writes \
         disks through its own io_uring. Below them are the registry, behind a mutex, and the \
         control plane, one thread.",
    );
    canvas.rect("frame", (150.0, 20.0), (660.0, 480.0));
    canvas.text("bold", (170.0, 46.0), "cairn-target");
    canvas.text(
        "dim small end",
        (790.0, 46.0),
        "data path: one reactor a core; an I/O shares nothing with other cores",
    );
    reactor(&mut canvas, 170.0, "reactor 0");
    reactor(&mut canvas, 490.0, "reactor 1 ...");
    outside(&mut canvas);
    canvas.arrow((250.0, 214.0), (250.0, 286.0));
    canvas.text("small", (258.0, 246.0), "connect, admin commands");
    canvas.text("small dim", (258.0, 263.0), "(mutex)");
    canvas.arrow((560.0, 286.0), (560.0, 214.0));
    canvas.text("small", (568.0, 246.0), "new queue pair, abort, reload");
    canvas.text("small dim", (568.0, 263.0), "(mailbox)");
    canvas.rect("box", (170.0, 290.0), (620.0, 70.0));
    canvas.text("bold", (190.0, 318.0), "registry");
    canvas.text(
        "small",
        (190.0, 342.0),
        "subsystems, their controllers, the tables of namespaces",
    );
    canvas.arrow((480.0, 416.0), (480.0, 364.0));
    canvas.rect("box", (170.0, 420.0), (620.0, 62.0));
    canvas.text("bold", (190.0, 446.0), "control plane");
    canvas.text("small dim", (306.0, 446.0), "one thread (tokio)");
    canvas.text(
        "small",
        (190.0, 468.0),
        "listeners, signals, reload, keep-alive timers, flush at shutdown",
    );
    canvas.finish()
}

fn reactor(canvas: &mut Canvas, x: f64, name: &str) {
    canvas.rect("ours", (x, 64.0), (300.0, 146.0));
    canvas.text("bold", (x + 16.0, 90.0), name);
    let mut y = 116.0;
    for line in REACTOR {
        canvas.text("small", (x + 16.0, y), line);
        y += 24.0;
    }
}

fn outside(canvas: &mut Canvas) {
    canvas.rect("low", (16.0, 100.0), (86.0, 64.0));
    canvas.text("bold middle", (59.0, 137.0), "hosts");
    canvas.arrows((106.0, 132.0), (166.0, 132.0));
    canvas.text("small middle", (128.0, 122.0), "RDMA");
    canvas.rect("low", (858.0, 100.0), (86.0, 64.0));
    canvas.text("bold middle", (901.0, 137.0), "disks");
    canvas.arrows((794.0, 132.0), (854.0, 132.0));
}
