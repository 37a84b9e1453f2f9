//! Packages install, run, and are removed completely. The programs are a debug build, which does
//! not affect the packaging.

#[path = "common/packages.rs"]
mod packages;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use packages::{files, has, named, run, text, unpack_image, workspace};

/// Builds the packages into a folder.
fn make(out: &Path) {
    // A test is among the targets, so that cargo selects the dependency features of the tests and
    // reuses compiled dependencies.
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
fn packages_have_what_they_promise_and_go_without_a_trace() {
    if !has("objcopy") || !has("dpkg-deb") {
        return cairn_skips::skip("packages: binutils and dpkg are not there");
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

/// Checks that the image's program runs in its layer.
fn image_runs(image: &Path, folder: &Path) {
    let (root, program) = unpack_image(image, &folder.join("image"));
    let mut chroot = Command::new("chroot");
    let output = chroot
        .arg(&root)
        .args([&program, "--version"])
        .output()
        .unwrap();
    if !output.status.success() && String::from_utf8_lossy(&output.stderr).contains("Operation not")
    {
        return cairn_skips::skip("packages: only root may chroot");
    }
    assert!(text(&output).starts_with("cairn-target"), "{output:?}");
    for file in [
        "usr/share/doc/cairn/copyright",
        "usr/share/doc/cairn/examples/minimal.toml",
        "usr/share/doc/cairn/grafana/cairn-target.json",
        "usr/share/man/man1/cairn-target-serve.1.gz",
        "usr/share/bash-completion/completions/cairn-target",
    ] {
        assert!(root.join(file).is_file(), "{file} is not in the image");
    }
}

/// Installs the package in a clean root and removes it.
fn installs(deb: &Path, root: &Path) {
    if !has("mmdebstrap") {
        return cairn_skips::skip("packages: mmdebstrap is not there");
    }
    if !debian_root(root) {
        return cairn_skips::skip(
            "packages: mmdebstrap cannot make a root without root or a mirror",
        );
    }
    let before = files(root);
    let users = fs::read_to_string(root.join("etc/passwd")).unwrap();
    fs::copy(deb, root.join("cairn.deb")).unwrap();
    let chroot = |args: &[&str]| run(Command::new("chroot").arg(root).args(args));
    let apt = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "--yes"];
    // Required packages are in the root: apt downloads nothing.
    chroot(&[&apt[..], &["--no-download", "install", "/cairn.deb"]].concat());
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
    // As created by systemd for the unit, with an audit log.
    let logs = root.join("var/log/cairn");
    fs::create_dir(&logs).unwrap();
    fs::write(logs.join("audit.log"), "{}\n").unwrap();
    chroot(&[&apt[..], &["remove", "cairn"]].concat());
    assert!(config.is_file(), "the configuration stays until a purge");
    chroot(&[&apt[..], &["purge", "cairn"]].concat());
    assert!(!logs.exists(), "a purge leaves the logs");
    assert_eq!(fs::read_to_string(root.join("etc/passwd")).unwrap(), users);
    let left: Vec<String> = files(root).difference(&before).cloned().collect();
    assert!(left.is_empty(), "a purge leaves {left:?}");
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
            // The folder may contain the administrator's data, so it is removed only if empty.
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
    // Calls of @resources and @privileged, which the unit excludes.
    for call in ["setpriority", "sched_setaffinity", "prlimit64", "fchown"] {
        assert!(allowed.contains(&call), "{call} is not among {allowed:?}");
    }
}

#[test]
fn the_unit_is_rated_safe() {
    if !has("systemd-analyze") {
        return cairn_skips::skip("packages: systemd-analyze is not there");
    }
    let unit = workspace().join("packaging/cairn-target.service");
    let mut analyze = Command::new("systemd-analyze");
    // The threshold is in tenths.
    analyze.args(["security", "--offline=true", "--threshold=20", "--no-pager"]);
    run(analyze.arg(unit));
}

/// Creates a clean root of Debian stable, or of this machine's release from its mirrors. Returns
/// false if neither is possible.
fn debian_root(root: &Path) -> bool {
    let make = |release: &str, sources: &[PathBuf]| {
        let mut mmdebstrap = Command::new("mmdebstrap");
        mmdebstrap.args(["--quiet", "--variant=apt", "--include=passwd", release]);
        mmdebstrap
            .arg(root)
            .args(sources)
            .output()
            .unwrap()
            .status
            .success()
    };
    if make("stable", &[]) {
        return true;
    }
    let about = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let release = about
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let lists = fs::read_dir("/etc/apt/sources.list.d")
        .into_iter()
        .flatten();
    let lists = lists.filter_map(|list| Some(list.ok()?.path()));
    let main = PathBuf::from("/etc/apt/sources.list");
    let is_list = |path: &PathBuf| {
        path.is_file()
            && path
                .extension()
                .is_some_and(|end| end == "list" || end == "sources")
    };
    let sources: Vec<PathBuf> = lists.chain([main]).filter(is_list).collect();
    release.is_some_and(|release| make(release, &sources))
}
