//! Complete runs on a memory lane with injected faults.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::lane::{Direction, Done, Format, Lane, Lanes, Operation};
use super::run::{Audience, BenchResult, Glimpse, run};
use super::{Job, JobError, report};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    Lost,
    Misplaced,
    Flipped,
    Fails,
}

struct Memory {
    disk: Arc<Mutex<Vec<u8>>>,
    fault: Fault,
    writes: Arc<AtomicU64>,
}

impl Memory {
    fn new(fault: Fault) -> Self {
        Self {
            disk: Arc::new(Mutex::new(vec![0; 1 << 20])),
            fault,
            writes: Arc::default(),
        }
    }
}

impl Lanes for Memory {
    fn format(&self) -> Format {
        Format {
            block_bytes: 512,
            blocks: 2048,
            transfer_max: 131_072,
        }
    }

    fn open(&self, depth: u16, slot_bytes: usize) -> Result<Box<dyn Lane>, String> {
        Ok(Box::new(MemoryLane {
            disk: Arc::clone(&self.disk),
            fault: self.fault,
            writes: Arc::clone(&self.writes),
            slots: vec![vec![0; slot_bytes]; usize::from(depth)],
            pending: Vec::new(),
        }))
    }
}

struct MemoryLane {
    disk: Arc<Mutex<Vec<u8>>>,
    fault: Fault,
    writes: Arc<AtomicU64>,
    slots: Vec<Vec<u8>>,
    pending: Vec<(usize, Result<(), String>)>,
}

impl Lane for MemoryLane {
    fn load(&mut self, slot: usize, at: usize, bytes: &[u8]) {
        self.slots[slot][at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn unload(&self, slot: usize, at: usize, out: &mut [u8]) {
        out.copy_from_slice(&self.slots[slot][at..at + out.len()]);
    }

    fn submit(&mut self, slot: usize, operation: Operation) -> Result<(), String> {
        let mut disk = self.disk.lock().unwrap();
        let from = operation.offset as usize;
        let length = operation.length as usize;
        let mut result = Ok(());
        match operation.direction {
            Direction::Read => {
                self.slots[slot][..length].copy_from_slice(&disk[from..from + length]);
            }
            Direction::Write => {
                let fifth = self.writes.fetch_add(1, Relaxed) == 4;
                let fault = if fifth { self.fault } else { Fault::None };
                let data = &self.slots[slot][..length];
                match fault {
                    Fault::None => disk[from..from + length].copy_from_slice(data),
                    Fault::Lost => {}
                    Fault::Misplaced => {
                        disk[from + length..from + 2 * length].copy_from_slice(data);
                    }
                    Fault::Flipped => {
                        disk[from..from + length].copy_from_slice(data);
                        disk[from + 100] ^= 4;
                    }
                    Fault::Fails => result = Err("write fault".to_owned()),
                }
            }
        }
        self.pending.push((slot, result));
        Ok(())
    }

    fn reap(&mut self, _: Instant, done: &mut Vec<Done>) -> Result<(), String> {
        let half = self.pending.len() / 2;
        for (slot, result) in self.pending.drain(half..).rev() {
            done.push(Done {
                slot,
                at: Instant::now(),
                result,
            });
        }
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<(), String> {
        Ok(())
    }
}

struct Stopper<'a>(&'a AtomicBool);

impl Audience for Stopper<'_> {
    fn glimpse(&mut self, _: &Glimpse) {
        self.0.store(true, Relaxed);
    }
}

fn bench_on(memory: &Memory, keys: &[(&str, &str)]) -> BenchResult {
    let job = Job::with(keys).unwrap();
    run(&job, memory, &AtomicBool::new(false), &mut ()).unwrap()
}

const VERIFIED: [(&str, &str); 6] = [
    ("rw", "randrw"),
    ("bsrange", "512-8k"),
    ("iodepth", "16"),
    ("size", "256k"),
    ("loops", "4"),
    ("verify", "crc32c"),
];

fn mismatch(fault: Fault) -> String {
    let keys = [
        ("rw", "write"),
        ("bs", "4k"),
        ("size", "64k"),
        ("verify", "crc32c"),
    ];
    let result = bench_on(&Memory::new(fault), &keys);
    let [job] = &result.jobs[..] else {
        panic!("one job")
    };
    assert!(
        matches!(job.error, Some(JobError::Verify(_))),
        "{:?}",
        job.error
    );
    job.mismatches.join("\n")
}

#[test]
fn what_is_right_is_found_right() {
    let result = bench_on(&Memory::new(Fault::None), &VERIFIED);
    let job = &result.jobs[0];
    assert_eq!((job.error.as_ref(), &job.mismatches), (None, &vec![]));
    assert!(job.stats.verified >= 256, "{}", job.stats.verified);
    let bytes: u64 = Direction::ALL.iter().map(|&d| job.stats.of(d).bytes).sum();
    assert!(bytes >= 4 * (256 << 10));
    assert_eq!(
        job.stats.of(Direction::Write).clat_histogram.len(),
        job.stats.of(Direction::Write).ios
    );
}

#[test]
fn each_kind_of_damage_is_found_and_named() {
    assert!(mismatch(Fault::Lost).contains("offset 16384: expected generation 1"));
    assert!(mismatch(Fault::Lost).contains("got zeroes"));
    assert!(mismatch(Fault::Flipped).contains("first wrong byte 100"));
    assert!(mismatch(Fault::Misplaced).contains("offset 16384"));
}

#[test]
fn a_stale_block_is_distinguished_from_a_missing_one() {
    let stale_after = |loops| {
        let keys = [
            ("rw", "write"),
            ("bs", "4k"),
            ("size", "8k"),
            ("loops", loops),
            ("verify", "crc32c"),
        ];
        bench_on(&Memory::new(Fault::Lost), &keys)
    };
    // `Fault::Lost` drops write 5, which is generation 3 of block 0. Write 7 writes generation 4.
    assert!(stale_after("4").is_success());
    let result = stale_after("3");
    assert!(result.jobs[0].mismatches[0].contains("expected generation 3"));
    assert!(result.jobs[0].mismatches[0].contains("got a stale block"));
}

#[test]
fn a_later_run_finds_what_an_earlier_one_wrote() {
    let memory = Memory::new(Fault::None);
    let write = [
        ("rw", "randwrite"),
        ("bs", "4k"),
        ("size", "64k"),
        ("verify", "crc32c"),
        ("do_verify", "0"),
        ("randseed", "5"),
    ];
    assert_eq!(bench_on(&memory, &write).jobs[0].stats.verified, 0);
    let read = [
        ("rw", "randread"),
        ("bs", "4k"),
        ("size", "64k"),
        ("verify", "crc32c"),
    ];
    assert_eq!(bench_on(&memory, &read).jobs[0].stats.verified, 16);
    let mut of_run = read.to_vec();
    of_run.push(("randseed", "5"));
    assert_eq!(bench_on(&memory, &of_run).jobs[0].stats.verified, 16);
    of_run[4] = ("randseed", "6");
    assert!(bench_on(&memory, &of_run).jobs[0].mismatches[0].contains("another run"));
    memory.disk.lock().unwrap()[5000] ^= 1;
    assert_eq!(bench_on(&memory, &read).jobs[0].stats.bad_blocks, 1);
}

#[test]
fn a_failing_command_ends_its_job_and_is_named() {
    let result = bench_on(
        &Memory::new(Fault::Fails),
        &[("rw", "write"), ("size", "64k")],
    );
    let error = result.jobs[0].error.as_ref().unwrap();
    assert_eq!(
        error.to_string(),
        "a write of 4096 bytes at offset 16384: write fault"
    );
    assert_eq!(error.errno(), 5);
    assert!(!result.is_success());
}

fn write_rates(json: &serde_json::Value) -> (f64, u64) {
    let write = &json["jobs"][0]["write"];
    let iops = write["iops"].as_f64().unwrap();
    (iops, write["bw_bytes"].as_u64().unwrap())
}

#[test]
fn a_failed_job_reports_what_it_measured_as_incomplete() {
    let memory = Memory::new(Fault::Fails);
    for grouped in ["0", "1"] {
        memory.writes.store(0, Relaxed);
        let keys = [
            ("rw", "write"),
            ("size", "64k"),
            ("numjobs", "2"),
            ("group_reporting", grouped),
        ];
        let result = bench_on(&memory, &keys);
        let json: serde_json::Value = serde_json::from_str(&report::json(&result)).unwrap();
        let jobs = json["jobs"].as_array().unwrap();
        let why = jobs.iter().filter_map(|job| job["incomplete"].as_str());
        let why: Vec<&str> = why.collect();
        assert!(
            matches!(why[..], [why] if why.ends_with("write fault")),
            "{why:?}"
        );
        let text = report::text(&result);
        assert_eq!(text.matches("INCOMPLETE").count(), 2, "{text}");
        assert!(!text.contains("=inf") && !text.contains("=NaN"), "{text}");
    }
    memory.writes.store(0, Relaxed);
    let result = bench_on(&memory, &[("rw", "write"), ("size", "64k")]);
    let stats = result.jobs[0].stats.of(Direction::Write);
    assert_eq!(stats.ios, 4);
    let json = serde_json::from_str(&report::json(&result)).unwrap();
    let (iops, bandwidth) = write_rates(&json);
    assert!(iops > 0.0 && bandwidth > 0, "{json}");
    memory.writes.store(4, Relaxed);
    let result = bench_on(&memory, &[("rw", "write"), ("size", "64k")]);
    let json = serde_json::from_str(&report::json(&result)).unwrap();
    assert_eq!(write_rates(&json), (0.0, 0));
    assert!(json["jobs"][0]["incomplete"].is_string());
}

#[test]
fn a_time_based_job_ends_by_stop_with_a_full_report() {
    let stop = AtomicBool::new(false);
    let keys = [
        ("rw", "randread"),
        ("runtime", "1h"),
        ("time_based", "1"),
        ("rate_iops", "500"),
    ];
    let memory = Memory::new(Fault::None);
    let job = Job::with(&keys).unwrap();
    let result = run(&job, &memory, &stop, &mut Stopper(&stop)).unwrap();
    assert!(result.interrupted && result.is_success());
    let stats = result.jobs[0].stats.of(Direction::Read);
    assert!(
        stats.ios > 0 && stats.iops() <= 510.0,
        "{} IOPS",
        stats.iops()
    );
    let text = report::text(&result);
    assert!(
        text.contains("   READ: bw=") && text.contains("INCOMPLETE"),
        "{text}"
    );
}

#[test]
fn ramp_time_does_not_count() {
    let keys = [
        ("rw", "randread"),
        ("runtime", "200ms"),
        ("time_based", "1"),
        ("ramp_time", "200ms"),
    ];
    let result = bench_on(&Memory::new(Fault::None), &keys);
    let stats = result.jobs[0].stats.of(Direction::Read);
    assert!(stats.runtime >= Duration::from_millis(200));
    assert!(result.jobs[0].elapsed >= Duration::from_millis(400));
    assert_eq!(stats.clat_ns.count, stats.ios);
}

#[test]
fn copies_are_reported_as_one_if_asked() {
    let keys = [
        ("rw", "read"),
        ("size", "64k"),
        ("numjobs", "3"),
        ("group_reporting", "1"),
    ];
    let result = bench_on(&Memory::new(Fault::None), &keys);
    assert_eq!(result.jobs.len(), 3);
    let text = report::text(&result);
    assert_eq!(text.matches("groupid=").count(), 1);
    assert!(
        text.contains("jobs=3") && text.contains("io=192KiB (197kB)"),
        "{text}"
    );
}

fn paths(value: &serde_json::Value, at: &str, out: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(map) => {
            for (key, value) in map {
                let path = format!("{at}/{key}");
                out.push(path.clone());
                if key != "job options" {
                    paths(value, &path, out);
                }
            }
        }
        serde_json::Value::Array(list) => {
            list.first().into_iter().for_each(|v| paths(v, at, out));
        }
        _ => {}
    }
}

#[test]
fn the_json_report_has_the_keys_of_fio() {
    let keys = [("rw", "randrw"), ("size", "64k")];
    let result = bench_on(&Memory::new(Fault::None), &keys);
    let ours: serde_json::Value = serde_json::from_str(&report::json(&result)).unwrap();
    let fios: serde_json::Value = serde_json::from_str(include_str!("fio-3.33.json")).unwrap();
    let (mut our_paths, mut fio_paths) = (Vec::new(), Vec::new());
    paths(&ours, "", &mut our_paths);
    paths(&fios, "", &mut fio_paths);
    fio_paths.retain(|path| !path.starts_with("/disk_util"));
    our_paths.sort();
    fio_paths.sort();
    assert_eq!(our_paths, fio_paths);
    assert_eq!(ours["jobs"][0]["job options"]["rw"], "randrw");
    let moved = |direction: &str| ours["jobs"][0][direction]["io_bytes"].as_u64().unwrap();
    assert_eq!(moved("read") + moved("write"), 65_536);
}
