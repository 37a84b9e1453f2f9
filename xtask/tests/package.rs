//! Packages must install, run, and be removed completely.

#[path = "common/packages.rs"]
mod packages;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use packages::{files, has, may_chroot, named, run, text, unpack_image, workspace};

fn make(out: &Path) {
    let build = [
        "build",
        "-q",
        "--bin",
        "cairn-target",
        "--bin",
        "cairn-initiator",
        "--test",
        "words",
    ];
    run(Command::new("cargo").args(build).current_dir(workspace()));
    run(Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(["package", "--programs", "build/debug", "--out"])
        .arg(out)
        .current_dir(workspace()));
}

#[test]
#[ignore = "it makes and installs packages: cargo xtask test --all runs it"]
fn packages_have_what_they_promise_and_go_without_a_trace() {
    if !has(&[("objcopy", "binutils"), ("dpkg-deb", "dpkg")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    make(&out);
    let main = named(&out, "/cairn_", ".deb");
    let listed = text(&run(Command::new("dpkg-deb").arg("--contents").arg(&main)));
    for file in [
        "usr/bin/cairn-target",
        "usr/bin/cairn-initiator",
        "usr/lib/systemd/system/cairn-target.service",
        "usr/share/man/man1/cairn-target-serve.1.gz",
        "usr/share/man/man1/cairn-initiator-bench.1.gz",
        "usr/share/bash-completion/completions/cairn-target",
        "usr/share/zsh/vendor-completions/_cairn-initiator",
        "usr/share/fish/vendor_completions.d/cairn-target.fish",
        "usr/share/doc/cairn/copyright",
        "usr/share/doc/cairn/grafana/cairn-target.json",
        "usr/share/doc/cairn/prometheus/rules.yml",
        "usr/share/doc/cairn/operations/disks.md",
        "usr/share/doc/cairn/recordings/healthy.txt",
        "usr/share/doc/cairn/roce/troubleshooting.md",
        "usr/share/doc/cairn/examples/minimal.toml",
    ] {
        assert!(listed.contains(file), "{file} is not in\n{listed}");
    }
    let symbols = run(Command::new("readelf")
        .arg("-S")
        .arg(out.join("tree/main/usr/bin/cairn-target")));
    assert!(!text(&symbols).contains(".debug_info"), "it is stripped");
    image_runs(&named(&out, "", ".oci.tar"), folder.path());
    let list = run(Command::new("tar")
        .arg("-tzf")
        .arg(named(&out, "", ".tar.gz")));
    assert!(text(&list).contains("/usr/bin/cairn-target\n"));
    installs(&main, &folder.path().join("root"));
}

fn image_runs(image: &Path, folder: &Path) {
    let (root, program, owner) = unpack_image(image, &folder.join("image"));
    let (user, group) = owner.split_once(':').unwrap();
    assert!(user != "0" && group != "0", "the image's user is {owner}");
    match may_chroot() {
        Ok(()) => {
            let mut chroot = Command::new("chroot");
            chroot.arg(format!("--userspec={owner}")).arg(&root);
            let output = run(chroot.args([&program, "--version"]));
            assert!(text(&output).starts_with("cairn-target"), "{output:?}");
        }
        Err(reason) => cairn_skips::skip(format_args!("packages: {reason}")),
    }
    for file in [
        "usr/share/doc/cairn/copyright",
        "usr/share/doc/cairn/examples/minimal.toml",
        "usr/share/doc/cairn/grafana/cairn-target.json",
        "usr/share/doc/cairn/prometheus/rules.yml",
        "usr/share/doc/cairn/operations/disks.md",
        "usr/share/man/man1/cairn-target-serve.1.gz",
        "usr/share/bash-completion/completions/cairn-target",
    ] {
        assert!(root.join(file).is_file(), "{file} is not in the image");
    }
}

fn installs(deb: &Path, root: &Path) {
    let probed = may_chroot().and_then(|()| Release::choose());
    let release = match probed {
        Ok(release) => release,
        Err(reason) => return cairn_skips::skip(format_args!("packages: no clean root: {reason}")),
    };
    run(release.mmdebstrap().arg(root).args(&release.sources));
    let before = files(root);
    let users = fs::read_to_string(root.join("etc/passwd")).unwrap();
    fs::copy(deb, root.join("cairn.deb")).unwrap();
    let chroot = |args: &[&str]| run(Command::new("chroot").arg(root).args(args));
    let apt = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "--yes"];
    // apt downloads nothing: the root already contains all required packages.
    chroot(&[&apt[..], &["install", "/cairn.deb"]].concat());
    fs::remove_file(root.join("cairn.deb")).unwrap();
    for program in ["cairn-target", "cairn-initiator"] {
        assert!(text(&chroot(&[program, "--version"])).starts_with(program));
    }
    let config = root.join("etc/cairn/target.toml");
    let example = root.join("usr/share/doc/cairn/examples/minimal.toml");
    if example.is_file() {
        fs::copy(example, &config).unwrap();
        let checked = chroot(&[
            "cairn-target",
            "check",
            "--offline",
            "/etc/cairn/target.toml",
        ]);
        assert!(text(&checked).starts_with("ok: "));
    }
    fs::write(&config, "# Mine.\n").unwrap();
    let installed = fs::read_to_string(root.join("etc/passwd")).unwrap();
    assert!(installed.contains("\ncairn:"), "{installed}");
    can_be_changed(root, &config);
    let logs = root.join("var/log/cairn");
    fs::create_dir(&logs).unwrap();
    fs::write(logs.join("audit.log"), "{}\n").unwrap();
    let image = root.join("var/lib/cairn/disk.img");
    fs::create_dir(root.join("var/lib/cairn")).unwrap();
    fs::write(&image, "data of a host").unwrap();
    chroot(&[&apt[..], &["remove", "cairn"]].concat());
    assert!(config.is_file(), "the configuration stays until a purge");
    chroot(&[&apt[..], &["purge", "cairn"]].concat());
    assert!(!logs.exists(), "a purge leaves the logs");
    assert_eq!(fs::read_to_string(&image).unwrap(), "data of a host");
    fs::remove_dir_all(root.join("var/lib/cairn")).unwrap();
    assert_eq!(fs::read_to_string(root.join("etc/passwd")).unwrap(), users);
    let left: Vec<String> = files(root).difference(&before).cloned().collect();
    assert!(left.is_empty(), "a purge leaves {left:?}");
    fs::copy(deb, root.join("cairn.deb")).unwrap();
    chroot(&["groupadd", "cairn"]);
    chroot(&[&apt[..], &["install", "/cairn.deb"]].concat());
    assert_eq!(text(&chroot(&["id", "-Gn", "cairn"])).trim(), "cairn");
    let state = root.join("var/lib/cairn");
    fs::create_dir_all(state.join("index")).unwrap();
    fs::write(state.join("lock"), "1\n").unwrap();
    chroot(&[&apt[..], &["purge", "cairn"]].concat());
    assert!(!state.exists(), "a purge leaves an empty state directory");
    assert_eq!(fs::read_to_string(root.join("etc/passwd")).unwrap(), users);
    let groups = fs::read_to_string(root.join("etc/group")).unwrap();
    assert!(
        groups.contains("\ncairn:"),
        "the group of another is gone: {groups}"
    );
}

fn can_be_changed(root: &Path, config: &Path) {
    let text = "[control]\nsocket = \"/run/cairn/target.sock\"\n[[subsystem]]\n\
                nqn = \"nqn.2024-01.com.example:a\"\nallow_any_host = true\n";
    fs::write(config, text).unwrap();
    let folder = ["install", "-d", "-o", "cairn", "-g", "cairn", "/run/cairn"];
    run(Command::new("chroot").arg(root).args(folder));
    let script = "mount -t proc proc \"$0/proc\" && exec chroot --userspec=cairn:cairn \"$0\" \
                  cairn-target serve --config /etc/cairn/target.toml";
    let mut target = Command::new("unshare")
        .args(["--mount", "sh", "-c", script])
        .arg(root)
        .spawn()
        .unwrap();
    let mut add = Command::new("chroot");
    add.arg(root)
        .args([
            "cairn-target",
            "subsystem",
            "add",
            "nqn.2024-01.com.example:b",
        ])
        .env("CAIRN_CONTROL", "/run/cairn/target.sock");
    let deadline = Instant::now() + Duration::from_secs(60);
    let added = loop {
        let added = cairn_skips::probe(&mut add);
        if added.is_ok() || Instant::now() > deadline {
            break added;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    run(Command::new("kill").arg(target.id().to_string()));
    target.wait().unwrap();
    added.unwrap();
    let written = fs::read_to_string(config).unwrap();
    assert!(written.contains("example:b"), "{written}");
}

#[test]
fn a_purge_removes_each_folder_that_the_unit_has_systemd_make_but_keeps_its_data() {
    let read = |file: &str| fs::read_to_string(workspace().join("packaging").join(file)).unwrap();
    let (unit, script) = (read("cairn-target.service"), read("postrm"));
    let removed = script.lines().find(|line| line.contains("rm -rf")).unwrap();
    let mut made = 0;
    for (key, above) in [
        ("RuntimeDirectory=", "/run"),
        ("LogsDirectory=", "/var/log"),
        ("StateDirectory=", "/var/lib"),
        ("CacheDirectory=", "/var/cache"),
        ("ConfigurationDirectory=", "/etc"),
    ] {
        let values = unit.lines().filter_map(|line| line.strip_prefix(key));
        for name in values.flat_map(str::split_whitespace) {
            let folder = format!("{above}/{name}");
            let is_removed = removed.split_whitespace().any(|word| word == folder);
            // State folders with data must remain.
            let is_state = key == "StateDirectory=";
            assert_eq!(is_removed, !is_state, "{key}{name}: {folder}");
            let is_emptied = script.contains(&format!("rmdir {folder}"));
            assert_eq!(is_emptied, is_state, "{key}{name}: {folder}");
            made += 1;
        }
    }
    assert!(made >= 2, "the unit has {made} folders");
}

#[test]
fn the_unit_allows_the_system_calls_of_the_program() {
    let unit = fs::read_to_string(workspace().join("packaging/cairn-target.service")).unwrap();
    let filters = unit
        .lines()
        .filter_map(|line| line.strip_prefix("SystemCallFilter="));
    let allowed: Vec<&str> = filters
        .filter(|calls| !calls.starts_with(['~', '@']))
        .flat_map(str::split_whitespace)
        .collect();
    // The unit forbids groups of system calls, so it must permit these by name.
    for call in ["setpriority", "sched_setaffinity", "prlimit64", "fchown"] {
        assert!(allowed.contains(&call), "{call} is not among {allowed:?}");
    }
}

#[test]
fn the_unit_is_rated_safe() {
    if !has(&[("systemd-analyze", "systemd")]) {
        return;
    }
    let unit = workspace().join("packaging/cairn-target.service");
    let mut analyze = Command::new("systemd-analyze");
    analyze.args(["security", "--offline=true", "--threshold=20", "--no-pager"]);
    run(analyze.arg(unit));
}

struct Release {
    name: String,
    sources: Vec<PathBuf>,
}

impl Release {
    /// Returns the first release whose packages mmdebstrap can fetch: Debian stable, else this
    /// machine's release.
    fn choose() -> Result<Self, String> {
        let stable = Self {
            name: "stable".to_owned(),
            sources: Vec::new(),
        };
        let mut reasons = Vec::new();
        for release in [Some(stable), Self::of_machine()].into_iter().flatten() {
            let folder = tempfile::tempdir().unwrap();
            let mut probe = release.mmdebstrap();
            probe.arg("--simulate").arg(folder.path().join("root"));
            match cairn_skips::probe(probe.args(&release.sources)) {
                Ok(_) => return Ok(release),
                Err(reason) => reasons.push(format!("Debian {}: {reason}", release.name)),
            }
        }
        Err(reasons.join("; "))
    }

    fn of_machine() -> Option<Self> {
        let about = fs::read_to_string("/etc/os-release").unwrap_or_default();
        let mut lines = about.lines();
        let name = lines.find_map(|line| line.strip_prefix("VERSION_CODENAME="))?;
        let lists = fs::read_dir("/etc/apt/sources.list.d");
        let lists = lists.into_iter().flatten();
        let lists = lists.filter_map(|list| Some(list.ok()?.path()));
        let is_list = |path: &PathBuf| {
            let end = path.extension();
            path.is_file() && end.is_some_and(|end| end == "list" || end == "sources")
        };
        let all = lists.chain([PathBuf::from("/etc/apt/sources.list")]);
        Some(Self {
            name: name.to_owned(),
            sources: all.filter(is_list).collect(),
        })
    }

    fn mmdebstrap(&self) -> Command {
        let mut command = Command::new("mmdebstrap");
        command.args([
            "--mode=root",
            "--variant=apt",
            "--include=passwd",
            &self.name,
        ]);
        command
    }
}
