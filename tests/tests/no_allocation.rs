//! Host, target and user-space RoCE must not allocate memory for I/O.
//!
//! A separate executable, because the test counts all allocations of its process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use cairn_initiator::{Buffer, Data, Host, IoQueue, command};
use cairn_roce::Soft;
use cairn_tests::harness::{METRICS, NQN, TestTarget, subsystem};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: all calls are forwarded unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller fulfils the conditions of the system allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const DEPTH: u32 = 32;
const WARM_UP: u32 = 2_000;
const COUNTED: u32 = 10_000;
const TRIES: u32 = 5;
const BLOCK: u32 = 512;
const BYTES: u32 = 16 * 1024;

fn submit(host: &mut Host, buffers: &mut Vec<Buffer>, in_capsule: &[u8], turn: u32) {
    let nsid = 1 + turn % 2;
    let slba = u64::from(turn % 100) * u64::from(BYTES / BLOCK);
    let mut keyed = || Data::whole(buffers.pop().expect("as many as commands"));
    let (sqe, data) = match turn % 5 {
        0 | 1 => (command::read(nsid, slba, BYTES / BLOCK), keyed()),
        2 => (command::write(nsid, slba, BYTES / BLOCK), keyed()),
        3 => {
            let blocks = in_capsule.len() as u32 / BLOCK;
            (
                command::write(nsid, slba, blocks),
                Data::InCapsule(in_capsule),
            )
        }
        _ => (command::flush(nsid), Data::None),
    };
    host.submit(sqe, data).expect("the queue holds as many");
}

fn run(host: &mut Host, buffers: &mut Vec<Buffer>, in_capsule: &[u8], count: u32) {
    (0..DEPTH).for_each(|turn| submit(host, buffers, in_capsule, turn));
    let (mut begun, mut over) = (DEPTH, 0);
    while over < begun {
        host.poll();
        while let Some((_, ended)) = host.reap(IoQueue::FIRST) {
            let response = ended.answer.expect("the connection holds");
            buffers.extend(ended.buffer);
            assert!(response.cqe.status().is_success(), "{response:?}");
            over += 1;
            if begun < count {
                submit(host, buffers, in_capsule, begun);
                begun += 1;
            }
        }
    }
}

fn allocations_of(target: &TestTarget) -> u64 {
    let mut host = target.connect("frugal");
    let buffer = host.buffer((DEPTH * BYTES) as usize).expect("memory");
    let mut buffers = buffer.split(BYTES as usize);
    let in_capsule = vec![0x5a; 4096];
    run(&mut host, &mut buffers, &in_capsule, WARM_UP);
    // A target that starts a thread for a slow disk allocates memory once; the smallest of several
    // counts excludes such allocations.
    let counts = (0..TRIES).map(|_| {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        run(&mut host, &mut buffers, &in_capsule, COUNTED);
        ALLOCATIONS.load(Ordering::Relaxed) - before
    });
    let mut least = u64::MAX;
    for count in counts {
        least = least.min(count);
        if least == 0 {
            break;
        }
    }
    host.shutdown().expect("an orderly end");
    least
}

#[test]
fn an_io_over_user_space_roce_allocates_nothing() {
    let file = cairn_tests::harness::Scratch::written("no-allocation", 4 << 20);
    let disks = subsystem(NQN, &["mem:4MiB block_size = 512", &file.export(BLOCK)]);
    let config = format!("{METRICS}{disks}");
    let target = TestTarget::start_on_soft(Soft::default(), &config);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    drop(Box::new(before));
    assert!(ALLOCATIONS.load(Ordering::Relaxed) > before);

    let count = allocations_of(&target);
    assert_eq!(count, 0, "allocations of {COUNTED} commands");
    target.stop();
}
