//! `cairn-initiator` on the command line: examples, commands of the guide, and errors.
//!
//! If the environment variable [`PROGRAM`] is set, this executable runs as initiator or target.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_config::{Config, Flags};
use cairn_roce::Soft;
use cairn_target::Target;
use cairn_tests::harness::own_loopback_address;
use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value;

#[path = "initiator_cli/attach.rs"]
mod attach;
#[path = "initiator_cli/closed.rs"]
mod closed;
#[path = "initiator_cli/completion.rs"]
mod completion;
#[path = "initiator_cli/files.rs"]
mod files;
#[path = "initiator_cli/grammar.rs"]
mod grammar;
#[path = "initiator_cli/guest.rs"]
mod guest;
#[path = "initiator_cli/output.rs"]
mod output;
#[path = "initiator_cli/pages.rs"]
mod pages;
#[path = "initiator_cli/reservations.rs"]
mod reservations;
#[path = "initiator_cli/sizes.rs"]
mod sizes;
#[path = "initiator_cli/vhost_user.rs"]
mod vhost_user;

const PROGRAM: &str = "CAIRN_TEST_PROGRAM";
const EXAMPLE_ADDRESS: &str = "192.0.2.1";
const NQN: &str = "nqn.2024-01.com.example:disk";

type Test = fn() -> Result<(), Failed>;

fn main() -> ExitCode {
    match std::env::var(PROGRAM).as_deref() {
        Ok("cairn-initiator") => return cairn_initiator_cli::main(),
        Ok("cairn-target") => return cairn_target::cli::main(),
        _ => {}
    }
    let mut trials: Vec<Trial> = helps()
        .map(|(name, help)| Trial::test(format!("example::{name}"), move || examples(&name, &help)))
        .collect();
    let others: [(&str, Test); 24] = [
        ("the_guides_first_commands", guide),
        ("an_interrupted_benchmark_reports", interrupt),
        ("one_of_two_paths_dies_under_a_benchmark", two_paths),
        ("damage_is_found_and_named", damage),
        ("a_benchmark_reports_in_json", json_report),
        ("options_of_fio_alone_name_its_engine", fio_itself),
        ("what_destroys_data_asks_first", asks_first),
        ("members_of_a_partition_get_in", partition),
        ("a_list_of_nothing_says_why", nothing_listed),
        ("bash_loads_the_completions", completion::loads),
        ("bash_completes_below_a_command", completion::below),
        (
            "a_result_that_cannot_be_written_is_no_success",
            output::full,
        ),
        ("lists_have_the_shape_of_nvme_clis", output::shapes),
        ("hosts_reserve_a_disk_and_fence", reservations::fence),
        ("sizes_that_do_not_fit_are_refused", sizes::refused),
        ("files_and_devices_with_data_stay", files::read),
        (
            "a_block_is_written_if_it_is_as_expected",
            files::compare_and_write,
        ),
        ("fio_verifies_an_attached_namespace", attach::verified),
        ("a_guest_reads_what_it_wrote", vhost_user::requests),
        (
            "a_killed_process_loses_no_request_of_a_guest",
            vhost_user::killed,
        ),
        ("a_guest_that_lies_stops_its_queue", vhost_user::liars),
        ("a_closed_stdout_is_no_error", closed::commands),
        ("a_closed_stdout_is_no_error_of_the_target", closed::target),
        ("each_help_ends_quietly_without_a_reader", closed::helps),
    ];
    trials.extend(others.map(|(name, test)| Trial::test(name, test)));
    let rules = grammar::TESTS.iter().map(|&(name, test)| {
        let test = move || {
            test();
            Ok(())
        };
        Trial::test(format!("grammar::{name}"), test)
    });
    trials.extend(rules);
    trials.extend(pages::TESTS.iter().map(|&(name, test)| {
        let test = move || {
            test();
            Ok(())
        };
        Trial::test(format!("pages::{name}"), test)
    }));
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn helps() -> impl Iterator<Item = (String, String)> {
    let commands = grammar::commands(cairn_initiator_cli::command_line());
    let top = commands.into_iter().filter(|one| !one.path.contains(' '));
    top.map(|mut one| (one.path, one.command.render_long_help().to_string()))
}

struct Bench {
    target: Target,
    address: Ipv4Addr,
    folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        Self::new_as("")
    }

    fn new_as(listener: &str) -> Self {
        let address = own_loopback_address();
        let text = format!(
            r#"
[target]
reactors = 1
mdts = "1MiB"
data_buffers = "4MiB"

[[listener]]
address = "{address}"
provider = "soft"
{listener}

[[subsystem]]
nqn = "{NQN}"
allow_any_host = true

[[subsystem.namespace]]
nsid = 1
export = "mem:32MiB"
"#
        );
        let config = Config::parse("test", &text, &Flags::default()).unwrap();
        let target = Target::start(config, vec![Arc::new(Soft::default())]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        programs(folder.path());
        Self {
            target,
            address,
            folder,
        }
    }

    fn command(&self, line: &str) -> Command {
        let path = std::env::var("PATH").unwrap_or_default();
        let folder = self.folder.path();
        let mut command = Command::new("bash");
        command
            .args([
                "-c",
                &line.replace(EXAMPLE_ADDRESS, &self.address.to_string()),
            ])
            .current_dir(folder)
            .env("PATH", format!("{}:{path}", folder.display()))
            .stdin(Stdio::null());
        command
    }

    fn run(&self, line: &str) -> Output {
        self.command(line).output().unwrap()
    }

    fn succeed(&self, line: &str) -> Result<String, Failed> {
        let output = self.run(line);
        let (stdout, stderr) = texts(&output);
        if !output.status.success() {
            return Err(format!("{line}: {}\n{stdout}\n{stderr}", output.status).into());
        }
        Ok(stdout)
    }

    fn stop(self) -> Result<(), Failed> {
        self.target.stop().map_err(Failed::from)
    }
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

fn programs(folder: &Path) {
    let this = std::env::current_exe().unwrap();
    for name in ["cairn-initiator", "cairn-target"] {
        let path = folder.join(name);
        let script = format!(
            "#!/bin/sh\n{PROGRAM}={name} exec {} \"$@\"\n",
            this.display()
        );
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

fn partition() -> Result<(), Failed> {
    let bench = Bench::new_as("pkey = 0x8001");
    let at = format!("-a {EXAMPLE_ADDRESS} --provider soft");
    for (line, shown) in [
        (format!("discover {at} --pkey 0x8001"), "rdma_pkey"),
        (
            format!("connect-check {at} -n {NQN} --pkey 0x0001"),
            "0x0001",
        ),
        (format!("ping {at} --time 20 --pkey 0x8001"), "verdict"),
    ] {
        let said = bench.succeed(&format!("cairn-initiator {line}"))?;
        assert!(said.contains(shown), "{line}: {said}");
    }
    for (key, why) in [
        ("0xffff", "of another partition than our P_Key"),
        ("0x8000", "0x0000 and 0x8000 are never valid"),
    ] {
        let line = format!("cairn-initiator connect-check {at} -n {NQN} --pkey {key}");
        let output = bench.run(&line);
        let (_, stderr) = texts(&output);
        assert!(!output.status.success() && stderr.contains(why), "{stderr}");
    }
    bench.stop()
}

fn shows(command: &str) -> &'static str {
    match command {
        "discover" => NQN,
        "connect-check" => "ok: connected, identified and disconnected",
        "list" => "32.0 MiB / 32.0 MiB",
        "id-ctrl" => "\"subnqn\": \"nqn.2024-01.com.example:disk\"",
        "id-ns" => "bytes - Data Size: 512 bytes - Relative Performance: 0 Best (in use)",
        "get-log" => "host_read_commands",
        "smart-log" => "host_read_commands",
        "error-log" => "Error Log Entries",
        "fw-log" => "Firmware Log:",
        "effects-log" => "Identify",
        "ana-log" => "ANA Optimized",
        "list-ns" => "[   0]:0x1",
        "list-subsys" => "+- rdma traddr=",
        "ns-descs" => "uuid",
        "show-regs" => "[0:0] : 0x1\tready",
        "get-feature" => "[0:0] : 0x1\twrite cache: on",
        "set-feature" => "Asynchronous Event Configuration",
        "flush" => "flush: namespace 1: Success",
        "read" => "read: 8 blocks from 0: Success",
        "write" => "write: 8 blocks from 0: Success",
        "compare" => "they are the same",
        "compare-and-write" => "compare-and-write: block 0: Success",
        "write-zeroes" => "write-zeroes: 8 blocks from 0: Success",
        "dsm" => "dsm: 2 ranges: Success",
        "resv-register" => "resv-register: namespace 1: Success",
        "resv-acquire" => "resv-acquire: namespace 1: Success",
        "resv-release" => "resv-release: namespace 1: Success",
        "resv-report" => "regctl    : 0",
        "copy" => "copy: 16 blocks to 128: Success",
        "attach" => "disk.sock: namespace 1 of nqn.2024-01.com.example:disk, 33554432 bytes",
        "detach" => "no such device",
        "bench" => "READ: bw=",
        "verify" => "4096 blocks of 4k right, 0 bad",
        "ping" => "verdict",
        "link" => "RDMA READs of 128 KiB, 8 at a time",
        "fabric" => "locked memory: ",
        "doctor" => " rules: ",
        "completions" => "-o default cairn-initiator",
        other => panic!("say what {other} shows"),
    }
}

fn example_lines(help: &str) -> Vec<&str> {
    let (_, examples) = help.split_once("EXAMPLE").expect("there are examples");
    examples
        .lines()
        .skip(1)
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect()
}

fn examples(name: &str, help: &str) -> Result<(), Failed> {
    let bench = Bench::new();
    if name == "verify" {
        bench.succeed(&format!(
            "cairn-initiator bench -a {EXAMPLE_ADDRESS} --rw=write --bs=4k --size=16m --iodepth=16 \
             --verify=crc32c --do_verify=0 --destroy-data --eta=never"
        ))?;
    }
    if ["resv-acquire", "resv-release"].contains(&name) {
        let key = "--nrkey 0xa1";
        bench.succeed(&format!(
            "cairn-initiator resv-register -a {EXAMPLE_ADDRESS} {key}"
        ))?;
    }
    let lines = example_lines(help);
    assert!(!lines.is_empty(), "{name} has no example");
    let mut shown = String::new();
    for line in lines {
        assert!(line.contains(&format!("cairn-initiator {name} ")), "{line}");
        let stdout = bench.succeed(line)?;
        if line.contains("json") {
            let parsed: Result<Value, _> = serde_json::from_str(&stdout);
            parsed.map_err(|error| format!("{line}: {error}\n{stdout}"))?;
        }
        shown += &stdout;
    }
    assert!(shown.contains(shows(name)), "{name} shows:\n{shown}");
    bench.stop()
}

fn guide() -> Result<(), Failed> {
    let guide = include_str!("../../docs/guide-initiator.md");
    let (_, rest) = guide.split_once("```sh\n").expect("the guide has a block");
    let (block, _) = rest.split_once("```").expect("the block ends");
    let lines: Vec<&str> = block.lines().collect();
    let [build, serve, discover, bench, verify] = lines[..] else {
        return Err(format!("five commands, not {}", lines.len()).into());
    };
    assert_eq!(
        build,
        "cargo build --release -p cairn-target -p cairn-initiator-cli"
    );
    let folder = tempfile::tempdir()?;
    let release = folder.path().join("build/release");
    fs::create_dir_all(&release)?;
    programs(&release);
    let script = format!(
        "set -u; ip link set lo up; {serve}\n\
         until grep -qx ready target.out; do kill -0 $! || exit 9; sleep 0.05; done\n\
         {discover} || exit 1; {bench} || exit 2; {verify} > verify.out; echo verify $?\n\
         kill $!; wait $!",
        serve = serve.replace(" &", " > target.out 2> target.err &")
    );
    let unshare = Command::new("unshare")
        .args(["--net", "bash", "-c", &script])
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .output()?;
    let (stdout, stderr) = texts(&unshare);
    if stderr.contains("unshare failed") {
        eprintln!("left out: only root may make a network namespace and lock memory in it");
        return Ok(());
    }
    let target_says = fs::read_to_string(folder.path().join("target.err")).unwrap_or_default();
    let all = format!("{stdout}\n{stderr}\n{target_says}");
    assert!(unshare.status.success(), "{}: {all}", unshare.status);
    assert!(stdout.contains("subtype:  nvme subsystem"), "{all}");
    assert!(stdout.contains(", 0 bad"), "{all}");
    assert!(stdout.contains("verify 1"), "{all}");
    let verified = fs::read_to_string(folder.path().join("verify.out"))?;
    assert!(verified.contains("never written"), "{verified}");
    Ok(())
}

fn interrupt() -> Result<(), Failed> {
    let bench = Bench::new();
    let line = format!(
        "exec cairn-initiator bench -a {EXAMPLE_ADDRESS} --rw=randread --iodepth=4 --runtime=1h \
         --time_based"
    );
    let child = running(&bench, &line)?;
    Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()?;
    let output = child.wait_with_output()?;
    let (stdout, _) = texts(&output);
    assert!(output.status.success(), "{}: {stdout}", output.status);
    assert!(stdout.contains("clat percentiles"), "{stdout}");
    assert!(
        stdout.contains("READ: bw=") && stdout.contains("interrupted"),
        "{stdout}"
    );
    bench.stop()
}

const SHARING_TARGET: &str = r#"
[target]
reactors = 1
mdts = "1MiB"
data_buffers = "4MiB"
provider = "soft"

[[listener]]
address = "ADDRESS"
port_id = PORT_ID

[[subsystem]]
nqn = "nqn.2024-01.com.example:shared"
allow_any_host = true
controller_ids = "PORT_ID00-PORT_ID99"

[[subsystem.namespace]]
nsid = 1
export = "DISK"
shared = true
"#;

fn two_paths() -> Result<(), Failed> {
    let bench = Bench::new();
    let disk = bench.folder.path().join("disk.img");
    fs::File::create(&disk)?.set_len(32 << 20)?;
    let (mut targets, mut addresses) = (Vec::new(), Vec::new());
    for port_id in ["1", "2"] {
        let address = own_loopback_address().to_string();
        let config = SHARING_TARGET
            .replace("ADDRESS", &address)
            .replace("PORT_ID", port_id)
            .replace("DISK", &disk.display().to_string());
        fs::write(bench.folder.path().join(format!("{port_id}.toml")), config)?;
        let line = format!("exec cairn-target serve --log warn --config {port_id}.toml");
        let child = bench.command(&line).stdout(Stdio::piped()).spawn()?;
        targets.push(ready(child));
        addresses.push(address);
    }
    let line = format!(
        "exec cairn-initiator bench -a {} --path {} --iopolicy queue-depth --rw=randrw --bs=4k \
         --iodepth=8 --size=4m --runtime=5 --time_based --verify=crc32c --destroy-data",
        addresses[0], addresses[1]
    );
    let child = running(&bench, &line)?;
    targets[0].kill()?;
    let output = child.wait_with_output()?;
    let (stdout, _) = texts(&output);
    targets[1].kill()?;
    for mut target in targets {
        target.wait()?;
    }
    let live = fs::read_to_string(bench.folder.path().join("live"))?;
    assert!(output.status.success(), "{stdout}\n{live}");
    assert!(stdout.contains(", 0 bad"), "{stdout}");
    bench.stop()
}

fn ready(mut target: Child) -> Child {
    let stdout = BufReader::new(target.stdout.take().expect("it is a pipe"));
    let mut lines = stdout.lines().map_while(Result::ok);
    assert!(
        lines.any(|line| line == "ready"),
        "the target does not start"
    );
    target
}

fn running(bench: &Bench, line: &str) -> Result<Child, Failed> {
    let path = bench.folder.path().join("live");
    let child = bench
        .command(line)
        .stdout(Stdio::piped())
        .stderr(Stdio::from(fs::File::create(&path)?))
        .spawn()?;
    let live = || fs::read_to_string(&path).unwrap_or_default();
    let deadline = Instant::now() + Duration::from_secs(60);
    while !live().contains("IOPS") {
        assert!(Instant::now() < deadline, "no live line: {}", live());
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(child)
}

fn damage() -> Result<(), Failed> {
    let bench = Bench::new();
    let on = format!("-a {EXAMPLE_ADDRESS}");
    bench.succeed(&format!(
        "cairn-initiator bench {on} --rw=randwrite --bs=4k --size=1m --iodepth=8 --verify=crc32c \
         --randseed=5 --destroy-data"
    ))?;
    bench.succeed(&format!(
        "cairn-initiator verify {on} --size=1m --randseed=5"
    ))?;
    let other = bench.run(&format!(
        "cairn-initiator verify {on} --size=1m --randseed=6"
    ));
    assert!(!other.status.success());
    assert!(
        texts(&other).0.contains("a block of another run"),
        "{:?}",
        texts(&other)
    );
    bench.succeed(&format!(
        "head -c 512 /dev/zero | cairn-initiator write {on} --start-block 12 -z 512 \
         --destroy-data"
    ))?;
    let found = bench.run(&format!("cairn-initiator verify {on} --size=1m"));
    let (stdout, stderr) = texts(&found);
    assert_eq!(found.status.code(), Some(1), "{stderr}");
    assert!(stdout.contains("bad block at offset 4096"), "{stdout}");
    assert!(stdout.contains("first wrong byte 2048"), "{stdout}");
    assert!(stdout.contains("255 blocks of 4k right, 1 bad"), "{stdout}");
    bench.stop()
}

fn json_report() -> Result<(), Failed> {
    let bench = Bench::new();
    let stdout = bench.succeed(&format!(
        "cairn-initiator bench -a {EXAMPLE_ADDRESS} --rw=write --bs=4k --iodepth=8 --size=1m \
         --verify=crc32c --destroy-data --output-format=json"
    ))?;
    let report: Value = serde_json::from_str(&stdout)?;
    let job = &report["jobs"][0];
    assert_eq!(job["write"]["io_bytes"], 1 << 20);
    assert_eq!(job["read"]["io_bytes"], 1 << 20);
    assert_eq!(job["read"]["total_ios"], 256);
    assert_eq!(job["error"], 0);
    assert_eq!(job["job options"]["verify"], "crc32c");
    bench.stop()
}

fn fio_itself() -> Result<(), Failed> {
    let bench = Bench::new();
    for removed in [
        "jobs.fio",
        "--bssplit=4k/50",
        "--ioengine=libaio",
        "--offset 4k",
        "--stonewall",
        "--histogram",
        "--rw=randtrim",
        "--verify=md5",
    ] {
        let output = bench.run(&format!(
            "cairn-initiator bench -a {EXAMPLE_ADDRESS} {removed}"
        ));
        let (_, stderr) = texts(&output);
        assert_eq!(output.status.code(), Some(2), "{removed}: {stderr}");
        assert_eq!(stderr.matches("error: ").count(), 1, "{removed}: {stderr}");
        assert!(
            stderr.contains("Cairn's engine (docs/guide-initiator.md#fio-itself)"),
            "{removed}: {stderr}"
        );
    }
    bench.stop()
}

fn asks_first() -> Result<(), Failed> {
    let bench = Bench::new();
    let on = format!("-a {EXAMPLE_ADDRESS}");
    for line in [
        format!("cairn-initiator write {on} -z 512 -d /dev/zero"),
        format!("cairn-initiator write-zeroes {on}"),
        format!("cairn-initiator dsm {on} --slbs 0 --blocks 8 --ad"),
        format!("cairn-initiator copy {on} --slbs 0 --blocks 7 --sdlba 8"),
        format!("cairn-initiator bench {on} --rw=randwrite --size=1m"),
    ] {
        let output = bench.run(&line);
        let (_, stderr) = texts(&output);
        assert!(!output.status.success(), "{line}");
        assert!(stderr.contains("--destroy-data"), "{line}: {stderr}");
    }
    bench.stop()
}

fn nothing_listed() -> Result<(), Failed> {
    let empty = format!("{NQN}-empty");
    let bench = Bench::new_as(&format!(
        "\n[[subsystem]]\nnqn = \"{empty}\"\nallow_any_host = true\n"
    ));
    let line = |nqn: &str| format!("cairn-initiator list -a {EXAMPLE_ADDRESS} -n {nqn}");
    let output = bench.run(&line(&empty));
    let (stdout, stderr) = texts(&output);
    assert!(output.status.success(), "{stdout}\n{stderr}");
    assert!(
        stderr.starts_with("note: this host, nqn.")
            && stderr.contains(&format!("sees no namespace of {empty}: ")),
        "{stderr}"
    );
    let (_, stderr) = texts(&bench.run(&line(NQN)));
    assert_eq!(stderr, "");
    bench.stop()
}
