//! Runs the system's fio with the engine against a target in this process, over the soft provider.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use cairn_base::Clock;
use cairn_disk::{Operation, SimulatedDisk};
use cairn_roce::Soft;
use cairn_tests::harness::{NQN, Scratch, TestTarget, own_loopback_address, subsystem};

/// Variable that makes a missing fio an error, set by `cargo xtask test`, which installs fio.
const REQUIRED: &str = "CAIRN_FIO";
/// Variable with the path of a prebuilt engine, set by `cargo xtask sanitize`.
const ENGINE: &str = "CAIRN_FIO_ENGINE";
/// Variable with a library to preload into fio, for a prebuilt engine.
const PRELOAD: &str = "CAIRN_FIO_PRELOAD";
/// Variable with the path of a fio program that replaces the system's.
const PROGRAM: &str = "CAIRN_FIO_PROGRAM";
const LAYOUTS: &str = include_str!("../layouts.txt");

fn can_run() -> bool {
    let version = match cairn_skips::version(&mut program(), "fio") {
        Ok(version) => version,
        Err(missing) => {
            assert!(std::env::var_os(REQUIRED).is_none(), "{missing}");
            cairn_skips::skip(missing);
            return false;
        }
    };
    let mut releases = LAYOUTS.lines().filter_map(|row| row.split(' ').next());
    if releases.any(|release| release == version.trim()) {
        return true;
    }
    cairn_skips::skip(format_args!("the engine is not made for {version}"));
    false
}

fn engine() -> &'static PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        if let Some(path) = std::env::var_os(ENGINE) {
            return path.into();
        }
        let program = std::env::current_exe().expect("this program has a path");
        let folder = program
            .ancestors()
            .nth(2)
            .expect("it is in build/PROFILE/deps");
        let mut build = Command::new(env!("CARGO"));
        build.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        build.args(["build", "--quiet", "--locked", "--lib", "--test", "words"]);
        if !cfg!(debug_assertions) {
            build.arg("--release");
        }
        assert!(
            build.status().is_ok_and(|status| status.success()),
            "{build:?}"
        );
        folder.join("libcairn_fio.so")
    })
}

fn target() -> (TestTarget, String) {
    target_with("")
}

fn target_with(lines: &str) -> (TestTarget, String) {
    let export = format!("mem:64MiB block_size = 512\n{lines}");
    serve(&subsystem(NQN, &[&export]))
}

fn serve(toml: &str) -> (TestTarget, String) {
    let target = TestTarget::start_on_soft(Soft::default(), toml);
    let remote = target.remote();
    let name = format!(
        "traddr={} trsvcid={} subnqn={} ns=1 provider=soft hostaddr={} \
         hostnqn=nqn.2026-01.org.example\\:fio",
        remote.ip(),
        remote.port(),
        NQN.replace(':', "\\:"),
        own_loopback_address(),
    );
    (target, name)
}

fn program() -> Command {
    let path = std::env::var_os(PROGRAM).unwrap_or_else(|| "fio".into());
    let mut fio = Command::new(path);
    if let Some(library) = std::env::var_os(PRELOAD) {
        fio.env("LD_PRELOAD", library);
    }
    fio
}

fn fio(filename: &str, words: &str) -> Output {
    let folder = tempfile::tempdir().expect("a folder for what fio leaves behind");
    command(folder.path(), filename, words)
        .output()
        .expect("fio runs")
}

fn command(folder: &Path, filename: &str, words: &str) -> Command {
    let mut fio = program();
    fio.current_dir(folder)
        .arg(format!("--ioengine=external:{}", engine().display()))
        .arg(format!("--filename={filename}"))
        .args(words.split_whitespace())
        .args(["--output-format=json", "--direct=1"]);
    fio
}

fn report(output: &Output) -> serde_json::Value {
    let (text, errors) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{text}\n{errors}");
    let json = text.find('{').expect("fio prints JSON");
    serde_json::from_str(&text[json..]).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn what_is_written_is_verified() {
    if !can_run() {
        return;
    }
    let (target, name) = target();
    let output = fio(
        &name,
        "--thread --name=verified --rw=randwrite --bsrange=512-256k --iodepth=16 \
         --size=32m --verify=crc32c --verify_fatal=1 --fsync=64",
    );
    let job = &report(&output)["jobs"][0];
    assert_eq!(job["error"], 0, "{job}");
    assert_eq!(job["write"]["io_bytes"], 32 << 20, "{job}");
    assert_eq!(job["read"]["io_bytes"], 32 << 20, "{job}");
    assert!(job["sync"]["total_ios"].as_u64() > Some(0), "{job}");
    target.stop();
}

#[test]
fn a_job_deeper_than_the_queue_verifies() {
    if !can_run() {
        return;
    }
    let queues = "[target]\nreactors = 1\nqueue_depth = 16\n";
    let (target, name) = serve(&format!("{queues}{}", subsystem(NQN, &["mem:16MiB"])));
    let output = fio(
        &name,
        "--thread --name=deep --rw=randwrite --bs=4k --iodepth=128 --size=8m --verify=crc32c \
         --verify_fatal=1",
    );
    let job = &report(&output)["jobs"][0];
    assert_eq!(job["error"], 0, "{job}");
    assert_eq!(job["read"]["io_bytes"], 8 << 20, "{job}");
    target.stop();
}

#[test]
fn a_signal_ends_a_job_without_answers() {
    if !can_run() {
        return;
    }
    let file = Scratch::in_memory("fio-held", 1 << 20);
    let clock = Clock::default();
    let disk = SimulatedDisk::register(file.path(), &clock, 1).unwrap();
    let (target, name) = serve(&subsystem(NQN, &[&file.export(4096)]));
    disk.hold(Operation::Write);
    let folder = tempfile::tempdir().expect("a folder");
    let words = "--thread --name=held --rw=write --bs=4k --iodepth=4 --size=1m";
    let mut fio = command(folder.path(), &name, words);
    let mut fio = fio.stdout(Stdio::null()).spawn().expect("fio runs");
    let end = Instant::now() + Duration::from_secs(60);
    while disk.waiting(Operation::Write) == 0 {
        assert!(Instant::now() < end, "no write arrives");
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut kill = Command::new("kill");
    assert!(
        kill.args(["-INT", &fio.id().to_string()])
            .status()
            .unwrap()
            .success()
    );
    // The signal must end the job before the command timeout of 30 s does.
    let end = Instant::now() + Duration::from_secs(25);
    let ended = loop {
        match fio.try_wait().unwrap() {
            Some(status) => break Some(status),
            None if Instant::now() >= end => break None,
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    disk.release(Operation::Write);
    if ended.is_none() {
        fio.kill().unwrap();
        fio.wait().unwrap();
    }
    assert!(ended.is_some(), "the signal is not heeded");
    target.stop();
}

#[test]
fn several_jobs_are_several_controllers() {
    if !can_run() {
        return;
    }
    let (target, name) = target();
    let output = fio(
        &name,
        "--thread --name=many --numjobs=3 --rw=randrw --bs=4k --iodepth=8 --size=4m \
         --offset_increment=8m --verify=crc32c --verify_fatal=1",
    );
    let report = report(&output);
    let jobs = report["jobs"].as_array().expect("a list of jobs");
    assert_eq!(jobs.len(), 3);
    for job in jobs {
        assert_eq!(job["error"], 0, "{job}");
        assert!(job["write"]["total_ios"].as_u64() > Some(0), "{job}");
    }
    target.stop();
}

#[test]
fn trims_deallocate() {
    if !can_run() {
        return;
    }
    let (target, name) = target();
    let output = fio(
        &name,
        "--thread --name=trim --rw=trim --bs=64k --iodepth=4 --size=16m",
    );
    let job = &report(&output)["jobs"][0];
    assert_eq!(job["error"], 0, "{job}");
    assert_eq!(job["trim"]["total_ios"], 256, "{job}");
    target.stop();
}

#[test]
fn a_limit_is_what_fio_measures() {
    if !can_run() {
        return;
    }
    for (limits, job, figure, limit) in [
        ("iops = 800", "--rw=randread --bs=4k", "iops", 800.0),
        (
            "total = \"8MiB\"",
            "--rw=randread --bs=16k",
            "bw_bytes",
            8.0 * f64::from(1 << 20),
        ),
    ] {
        let (target, name) = target_with(&format!("limits = {{ {limits} }}"));
        let words = format!("--thread --name=limited {job} --iodepth=16 --time_based --runtime=2");
        let measure = || {
            let report = report(&fio(&name, &words));
            let share = report["jobs"][0]["read"][figure].as_f64().expect("a rate") / limit;
            println!("{limits}: {share:.3} of it");
            assert!(share < 1.05, "{limits}: {share} of it");
            share
        };
        // On a busy machine, fio may not reach the limit, so one of ten runs is enough.
        assert!(
            (0..10).any(|_| measure() > 0.95),
            "{limits}: never all of it"
        );
        target.stop();
    }
}

#[test]
fn the_sample_job_file_runs() {
    if !can_run() {
        return;
    }
    let (target, name) = target();
    let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/sample.fio");
    let text = std::fs::read_to_string(sample).expect("the sample is there");
    let lines = text.lines().map(|line| match line.split_once('=') {
        Some(("filename", _)) => format!("filename={name}"),
        Some(("ioengine", _)) => format!("ioengine=external:{}", engine().display()),
        Some(("runtime", _)) => "runtime=1".to_owned(),
        _ => line.to_owned(),
    });
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("sample.fio");
    std::fs::write(&file, lines.collect::<Vec<_>>().join("\n")).expect("to write");
    let output = program()
        .current_dir(folder.path())
        .arg("--output-format=json")
        .arg(&file)
        .output()
        .expect("fio runs");
    let report = report(&output);
    for job in report["jobs"].as_array().expect("a list of jobs") {
        assert_eq!(job["error"], 0, "{job}");
    }
    target.stop();
}

#[test]
fn what_cannot_be_is_refused_with_a_reason() {
    if !can_run() {
        return;
    }
    let (target, name) = target();
    let job = "--name=job --rw=read --bs=4k --size=1m";
    let empty = own_loopback_address();
    for (filename, words, reason) in [
        (name.clone(), job.to_owned(), "add --thread"),
        (
            "/dev/null".to_owned(),
            format!("{job} --thread"),
            "not KEY=VALUE",
        ),
        (
            name.replace("ns=1", "ns=9"),
            format!("{job} --thread"),
            "namespace",
        ),
        (
            name.clone(),
            "--name=long --rw=read --bs=2m --size=4m --thread".to_owned(),
            "use bs=1048576 or less",
        ),
        (
            name.replace("disks", "nothing"),
            format!("{job} --thread"),
            "subsystem",
        ),
        (
            format!(
                "traddr={empty} subnqn={} provider=soft",
                NQN.replace(':', "\\:")
            ),
            format!("{job} --thread"),
            &empty.to_string(),
        ),
    ] {
        let output = fio(&filename, &words);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{filename}: {errors}");
        assert!(errors.contains(reason), "{filename}: {errors}");
    }
    target.stop();
}

#[test]
fn a_program_that_is_no_such_fio_gets_no_engine() {
    type GetEngine = unsafe extern "C" fn(*mut *mut std::ffi::c_void);
    // SAFETY: the initializers of a Rust library have no preconditions.
    let library = unsafe { libloading::Library::new(engine()) }.expect("the engine loads");
    // SAFETY: `GetEngine` is the type of `get_ioengine`.
    let get = unsafe { library.get::<GetEngine>(b"get_ioengine") }.expect("fio's entry");
    let mut ops = std::ptr::null_mut();
    // SAFETY: `ops` is valid for a write of a pointer.
    unsafe { get(&raw mut ops) };
    assert!(ops.is_null(), "this program is not fio");
}
