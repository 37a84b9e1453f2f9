//! Released packages must run on supported systems: with Debian 11's glibc, in a container, and
//! after unpacking by rpm.

#[path = "common/packages.rs"]
mod packages;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use packages::{files, has, may_chroot, named, run, text, unpack_image, workspace};

/// Oldest glibc on which programs must run: the version of Debian 11.
const OLDEST_GLIBC: [u32; 2] = [2, 31];

#[test]
#[ignore = "builds the programs once more: cargo xtask test --all runs it"]
fn packages_run_where_they_say() {
    if !has(&[("objcopy", "binutils"), ("mmdebstrap", "mmdebstrap")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let made = run(Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(["package", "--profile", "dev", "--install-tools", "--out"])
        .arg(&out)
        .current_dir(workspace()));
    let said = text(&made);
    let mut lines = said.lines();
    let Some(link) = lines.find_map(|line| line.strip_prefix("linked with the glibc in ")) else {
        let fetched = can_fetch_debian_11();
        let reason = fetched.expect_err("the glibc of Debian 11 is within reach, and not used");
        return cairn_skips::skip(format_args!("packages: Debian 11: {reason}"));
    };
    let tree = out.join("tree/main");
    let debian = Path::new(link).parent().unwrap();
    runs_on_debian_11(&said, debian, &named(&out, "", ".tar.gz"), folder.path());
    rpm_has_the_same_files(&named(&out, "", ".rpm"), &tree, folder.path());
    image_serves(&named(&out, "", ".oci.tar"), &tree, folder.path());
}

fn can_fetch_debian_11() -> Result<(), String> {
    let mut probe = Command::new("mmdebstrap");
    probe.args(["--simulate", "--variant=extract", "bullseye", "/dev/null"]);
    cairn_skips::probe(probe.arg("http://deb.debian.org/debian")).map(drop)
}

fn runs_on_debian_11(said: &str, root: &Path, archive: &Path, folder: &Path) {
    let line = said
        .lines()
        .find_map(|line| line.strip_prefix("the programs run on glibc "));
    let version = line.and_then(|line| line.split(' ').next()).unwrap();
    let numbers: Vec<u32> = version
        .split('.')
        .map(|number| number.parse().unwrap())
        .collect();
    assert!(numbers <= OLDEST_GLIBC.to_vec(), "glibc {version}");
    let debian = folder.join("debian-11");
    run(Command::new("cp").arg("-a").arg(root).arg(&debian));
    run(Command::new("tar")
        .args(["--strip-components=1", "-xzf"])
        .arg(archive)
        .arg("-C")
        .arg(&debian));
    if let Err(reason) = may_chroot() {
        return cairn_skips::skip(format_args!("packages: {reason}"));
    }
    for program in ["cairn-target", "cairn-initiator"] {
        let mut chroot = Command::new("chroot");
        let output = run(chroot.arg(&debian).args([program, "--version"]));
        assert!(text(&output).starts_with(program), "{output:?}");
    }
}

fn rpm_has_the_same_files(package: &Path, tree: &Path, folder: &Path) {
    if !has(&[("rpm", "rpm")]) {
        return;
    }
    let query = |what: &str| text(&run(Command::new("rpm").args(["-qp", what]).arg(package)));
    assert!(query("--scripts").contains("useradd --system"));
    assert!(query("--requires").contains("libc.so.6"));
    let root = folder.join("rpm");
    fs::create_dir(&root).unwrap();
    let unpack = "rpm2cpio \"$1\" | cpio --quiet --extract --make-directories";
    run(Command::new("sh")
        .args(["-c", unpack, "sh"])
        .arg(package)
        .current_dir(&root));
    let of_files = |root: &Path| {
        let all = files(root).into_iter();
        all.filter(|path| root.join(path).is_file())
            .collect::<Vec<_>>()
    };
    let (unpacked, staged) = (of_files(&root), of_files(tree));
    assert_eq!(unpacked, staged);
    for path in staged {
        let same = fs::read(root.join(&path)).unwrap() == fs::read(tree.join(&path)).unwrap();
        assert!(same, "{path} differs");
    }
}

struct Container(Child);

impl Drop for Container {
    fn drop(&mut self) {
        let name = name_of_container();
        let _ = Command::new("runc").args(["kill", &name, "KILL"]).status();
        let _ = self.0.wait();
        let _ = Command::new("runc")
            .args(["delete", "--force", &name])
            .status();
    }
}

fn name_of_container() -> String {
    format!("cairn-{}", std::process::id())
}

fn may_run_containers(bundle: &Path) -> Result<(), String> {
    let root = bundle.join("rootfs");
    fs::create_dir_all(&root).unwrap();
    let copy = "cp -L --parents /bin/true $(ldd /bin/true | grep -o '/[^ )]*') \"$0\"";
    run(Command::new("sh").args(["-c", copy]).arg(&root));
    configure(bundle, &["/bin/true"]);
    let mut runc = Command::new("runc");
    runc.args(["run", &format!("{}-probe", name_of_container())]);
    cairn_skips::probe(runc.current_dir(bundle)).map(drop)
}

fn configure(bundle: &Path, arguments: &[&str]) {
    run(Command::new("runc").arg("spec").current_dir(bundle));
    let path = bundle.join("config.json");
    let mut config: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    config["process"]["args"] = arguments.into();
    config["process"]["terminal"] = false.into();
    // The container uses the machine's network, because hosts must reach the target.
    let namespaces = config["linux"]["namespaces"].as_array_mut().unwrap();
    namespaces.retain(|namespace| namespace["type"] != "network");
    fs::write(&path, config.to_string()).unwrap();
}

fn image_serves(image: &Path, tree: &Path, folder: &Path) {
    if !has(&[("runc", "runc")]) {
        return;
    }
    if let Err(reason) = may_run_containers(&folder.join("probe")) {
        return cairn_skips::skip(format_args!("packages: {reason}"));
    }
    let bundle = folder.join("bundle");
    let (root, entrypoint, _) = unpack_image(image, &bundle);
    fs::rename(root, bundle.join("rootfs")).unwrap();
    let id = std::process::id();
    let address = |last: u32| format!("127.{}.{}.{last}", 64 + id / 256 % 64, id % 256);
    let (target, host) = (address(1), address(2));
    let serve = [
        "serve",
        "--provider",
        "soft",
        "--export",
        "mem:1MiB",
        "--listen",
    ];
    let arguments: Vec<&str> = std::iter::once(&*entrypoint)
        .chain(serve)
        .chain([&*target])
        .collect();
    configure(&bundle, &arguments);
    let mut runc = Command::new("runc");
    runc.args(["run", &name_of_container()])
        .current_dir(&bundle)
        .stdout(Stdio::piped())
        .stderr(fs::File::create(folder.join("said")).unwrap());
    let mut container = Container(runc.spawn().unwrap());
    let lines = BufReader::new(container.0.stdout.take().unwrap()).lines();
    let ready = lines.map_while(Result::ok).any(|line| line == "ready");
    let said = || fs::read_to_string(folder.join("said")).unwrap();
    assert!(ready, "{}", said());
    let found = run(Command::new(tree.join("usr/bin/cairn-initiator")).args([
        "discover",
        "-a",
        &target,
        "--provider",
        "soft",
        "-w",
        &host,
    ]));
    assert!(
        text(&found).contains("current discovery subsystem"),
        "{found:?}"
    );
}
