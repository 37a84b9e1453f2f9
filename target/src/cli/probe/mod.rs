//! Checks of the preconditions of `serve`, with the code of `serve` but without side effects: disks
//! and Ceph images are opened for reading, and NVMe character devices receive only Identify
//! commands.

mod disks;
mod images;
mod rdma_port;
pub(super) mod running;
pub(super) mod writable;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use cairn_config::{Backing, Config, ControlSettings, LeftOut, Listener, Provider};
use cairn_control::BindError;
use cairn_doctor::cli::print_finding;
use cairn_doctor::rules::Severity;
use cairn_doctor::source::{Live, Source};
use rustix::process::{Resource, geteuid, getrlimit};

use running::{Object, Problem};

use super::diagnosis;
use super::serve::raise_file_limit;
use crate::files;
use crate::pool::Pools;
use crate::server::{KeyError, check_count, key_errors};
use crate::{logging, placement, steering};

const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
pub(super) struct Finding {
    /// `note`, `warning` or `error`.
    #[schemars(with = "String")]
    pub(super) severity: Severity,
    pub(super) text: String,
}

impl Finding {
    fn note(text: String) -> Self {
        let severity = Severity::Note;
        Self { severity, text }
    }
}

pub(super) fn worst(findings: &[Finding]) -> Severity {
    let severities = findings.iter().map(|one| one.severity);
    severities.max().unwrap_or(Severity::Note)
}

pub(super) fn print(findings: &[Finding]) {
    for Finding { severity, text } in findings {
        print_finding(*severity, text);
    }
}

const PORT_IN_USE: &str = "is in use";

/// Returns the findings. An error would prevent the start of `serve`; with a warning, `serve` would
/// start without an object. A note needs no action.
pub(super) fn probe(config: &Config) -> Vec<Finding> {
    let mut config = config.clone();
    Pools::default().expand(&mut config, false);
    let mut findings = Vec::new();
    let mut error = |text| {
        findings.push(Finding {
            severity: Severity::Error,
            text,
        });
    };
    if let Err(text) = logging::check(&config.target.log) {
        error(text);
    }
    raise_file_limit();
    if let Err(text) = check_count(&config) {
        error(text.to_string());
    }
    findings.extend(keys(&config));
    findings.extend(cores(&config));
    findings.extend(directories(&config));
    findings.extend(parts(&config));
    let empty = writable::empty_state(&config).map(writable::before_first_start);
    findings.extend(empty.map(Finding::note));
    findings
}

fn socket(control: &ControlSettings) -> Option<Problem> {
    let path = steering::path_of(control)?;
    let own = control.clone();
    let checked = files::call_here(&path, move |_| steering::check_socket(&own));
    let (error, is_fatal) = checked
        .unwrap_or_else(|source| Err((BindError::System { path, source }, true)))
        .err()?;
    let severity = if is_fatal {
        Severity::Error
    } else {
        Severity::Warning
    };
    Some(Problem::of_socket(&error, severity))
}

fn cores(config: &Config) -> Option<Finding> {
    let missing = placement::missing_cores(&config.target.reactors);
    (!missing.is_empty()).then(|| Finding {
        severity: Severity::Warning,
        text: format!(
            "[target] cores: this machine lacks the cores {missing:?}, or does not let this process use them \
             (`taskset -pc $$` shows which it may): their reactors would run anywhere"
        ),
    })
}

fn directories(config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    let finding = |severity, text| Finding { severity, text };
    for subsystem in &config.subsystems {
        let pooled = subsystem.namespaces.iter();
        let pooled = pooled.filter_map(|one| Some((one, one.pooled?)));
        for (namespace, file) in pooled {
            let Backing::Disk(path) = &namespace.backing else {
                continue;
            };
            let (nsid, nqn) = (namespace.nsid, subsystem.nqn);
            let (path, bytes) = (path.display(), file.bytes);
            let text = format!("namespace {nsid} of {nqn} would be {path}, {bytes} bytes");
            findings.push(finding(Severity::Note, text));
        }
        for pool in &subsystem.pools {
            let problem = pool.problem.iter().cloned();
            findings.extend(problem.map(|text| finding(Severity::Warning, text)));
            for LeftOut { name, reason } in &pool.left_out {
                let text = format!("{}/{name} is left out: {reason}", pool.folder.display());
                findings.push(finding(Severity::Warning, text));
            }
        }
    }
    findings
}

fn keys(config: &Config) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    for (nqn, error) in key_errors(config) {
        let finding = match error {
            KeyError::NoCredentials(name) => Finding {
                severity: Severity::Note,
                text: format!(
                    "{nqn}: the key credential:{name} is not checked: systemd passes it to the service alone"
                ),
            },
            error => Finding {
                severity: match error.is_of_a_file() {
                    true => Severity::Warning,
                    false => Severity::Error,
                },
                text: format!("{nqn}: {error}"),
            },
        };
        if !findings.contains(&finding) {
            findings.push(finding);
        }
    }
    findings
}

fn parts(config: &Config) -> Vec<Finding> {
    let (disks, mut findings) = disks::problems(config);
    let listeners = config.listeners.iter().filter_map(|one| {
        let text = rdma_port::refusal(config, one)?;
        Some(Problem::of(Object::Listener(one.address.to_string()), text))
    });
    let metrics = config.metrics.listen.and_then(|at| tcp_port(at).err());
    let metrics = metrics.map(|text| Problem::of(Object::MetricsPort, text));
    let mut others = images::problems(config, images::open, images::Patience::default());
    let limit = getrlimit(Resource::Memlock).current;
    let limit = limit.filter(|_| !geteuid().is_root());
    others.extend(limit.and_then(|limit| memory(config, limit, has_devices())));
    others.extend(writable::problems(&config.audit));
    others.extend(writable::protection_problems(config));
    let state = config.target.state_directory.as_deref();
    others.extend(state.and_then(writable::state_problem));
    let in_use = state.and_then(writable::state_in_use);
    let mut problems: Vec<Problem> = socket(&config.control).into_iter().chain(disks).collect();
    problems.extend(in_use.as_ref().map(Problem::of_state));
    problems.extend(listeners.chain(metrics));
    problems.extend(others.into_iter().map(Problem::of_file));
    findings.extend(running::findings(config, problems));
    findings
}

fn user() -> String {
    format!("user {}", geteuid())
}

fn tcp_port(at: SocketAddr) -> Result<(), String> {
    TcpListener::bind(at)
        .map(drop)
        .map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => {
                format!(
                    "metrics at {at}: the TCP port {PORT_IN_USE}: `ss -ltnp` shows by which program"
                )
            }
            io::ErrorKind::AddrNotAvailable => format!(
                "metrics at {at}: no interface has this address: `ip -brief address` shows this machine's; \
                 0.0.0.0 and :: listen at all"
            ),
            _ => format!("metrics at {at}: {error}: change [metrics] listen"),
        })
}

fn has_devices() -> bool {
    let devices = Live::machine().list("/sys/class/infiniband");
    devices.is_ok_and(|devices| !devices.is_empty())
}

/// Returns an error if the limit on locked memory is too low for the listeners at RDMA devices.
fn memory(config: &Config, limit: u64, has_devices: bool) -> Option<String> {
    let locks = |listener: &Listener| match listener.provider {
        Provider::Soft => false,
        Provider::Auto => has_devices,
        Provider::Verbs => true,
    };
    if !config.listeners.iter().any(locks) {
        return None;
    }
    let parts = diagnosis::memory(&config.target);
    let needed: u64 = parts.iter().map(|(_, bytes)| bytes).sum();
    (needed > limit).then(|| {
        format!(
            "an RDMA device would require {} MiB of locked memory, and the limit is {} KiB: set \
             LimitMEMLOCK in the service, or run `ulimit -l unlimited`",
            needed.div_ceil(1 << 20),
            limit >> 10
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use cairn_config::{Flags, Trid};
    use cairn_rdma::FabricError;
    use nvme_auth::Secret;
    use rustix::fs::FlockOperation;
    use std::fs::{File, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    fn found(text: &str) -> Vec<Finding> {
        let config = Config::parse("test", text, &Flags::default()).unwrap();
        probe(&config)
    }

    #[test]
    fn unusable_key_files_are_warnings() {
        let folder = tempfile::tempdir().unwrap();
        let good = folder.path().join("good.key");
        let secret = Secret::generate(32, None, &mut |bytes| bytes.fill(7));
        let write = |path: &Path, mode, text: &str| {
            std::fs::write(path, text).unwrap();
            std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        };
        write(&good, 0o600, &secret.to_text());
        let open = folder.path().join("open.key");
        write(&open, 0o644, &secret.to_text());
        let wrong = folder.path().join("wrong.key");
        write(&wrong, 0o600, "DHHC-1:00:nonsense:");
        let mut text = String::from("[[listener]]\naddress = \"127.0.0.1\"\n");
        let keys = [
            (good.display().to_string(), None),
            (open.display().to_string(), Some("chmod 600")),
            (wrong.display().to_string(), Some("the key")),
            (
                folder.path().join("none.key").display().to_string(),
                Some("cannot read"),
            ),
            ("credential:db".to_owned(), Some("is not checked")),
        ];
        for (index, (key, _)) in keys.iter().enumerate() {
            text += &format!(
                "[[subsystem]]\nnqn = \"nqn.2024-01.com.example:k{index}\"\nallow_any_host = true\n\
                 dhchap_key = \"{key}\"\n"
            );
        }
        let found = found(&text);
        let warnings = found.iter().filter(|one| one.severity == Severity::Warning);
        assert_eq!(warnings.count(), 3, "{found:?}");
        for (index, (_, said)) in keys.iter().enumerate() {
            let mut of_key = found.iter().map(|one| one.text.as_str());
            let name = format!("nqn.2024-01.com.example:k{index}: ");
            let of_key = of_key.find(|text| text.starts_with(&name));
            assert_eq!(of_key.is_some(), said.is_some(), "{found:?}");
            assert!(
                of_key
                    .unwrap_or_default()
                    .contains(said.unwrap_or_default()),
                "{found:?}"
            );
        }
    }

    #[test]
    fn a_port_of_an_rdma_device_that_another_process_has_is_named() {
        let at: Trid = "192.0.2.1:4420".parse().unwrap();
        let of = |provider, is_free| rdma_port::explain(at, provider, is_free);
        let in_use = || {
            Err(FabricError::AddressInUse {
                address: at.resolve().unwrap(),
            })
        };
        for provider in [Provider::Auto, Provider::Verbs] {
            let text = of(provider, in_use()).unwrap();
            assert!(
                text.contains(PORT_IN_USE) && text.contains("rdma resource"),
                "{text}"
            );
            assert_eq!(of(provider, Ok(())), None);
        }
        let none = || {
            Err(FabricError::NoDevice {
                address: at.address.ip(),
                remedy: "a remedy".to_owned(),
            })
        };
        assert!(of(Provider::Verbs, none()).unwrap().contains("a remedy"));
        assert_eq!(of(Provider::Auto, none()), None);
    }

    #[test]
    fn locked_memory_is_a_matter_of_rdma_devices() {
        let of = |provider: &str, limit, has_devices| {
            let text = format!(
                "[target]\nprovider = \"{provider}\"\n[[listener]]\naddress = \"127.0.0.1\"\n"
            );
            let config = Config::parse("test", &text, &Flags::default()).unwrap();
            memory(&config, limit, has_devices).is_some()
        };
        for (provider, has_devices, expected) in [
            ("soft", true, false),
            ("auto", false, false),
            ("auto", true, true),
            ("verbs", false, true),
        ] {
            assert_eq!(of(provider, 64 << 10, has_devices), expected, "{provider}");
            assert!(!of(provider, u64::MAX, has_devices), "{provider}");
        }
    }

    #[test]
    fn an_image_without_a_cluster_is_a_warning_with_a_remedy() {
        let text = "[[listener]]\naddress = \"127.0.0.1\"\n[[subsystem]]\n\
                    nqn = \"nqn.2024-01.com.example:i\"\nallow_any_host = true\n\
                    [[subsystem.namespace]]\nnsid = 1\nexport = \"rbd:pool/image\"\n\
                    ceph = { conf = \"/no/such/ceph.conf\" }\n";
        let found = found(text);
        let name = "namespace 1 of nqn.2024-01.com.example:i: ";
        let mut of_image = found.iter().filter(|one| one.text.starts_with(name));
        let image = of_image.next().unwrap();
        assert_eq!(image.severity, Severity::Warning);
        let remedies = [
            "install Ceph's client libraries",
            "copy it from the cluster",
        ];
        assert!(
            remedies.iter().any(|remedy| image.text.contains(remedy)),
            "{image:?}"
        );
    }

    #[test]
    fn what_is_missing_is_a_warning_with_a_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let metrics = taken.local_addr().unwrap();
        let empty = folder.path().join("empty");
        File::create(&empty).unwrap();
        let used = folder.path().join("used");
        File::create(&used).unwrap().set_len(1 << 20).unwrap();
        let user = File::open(&used).unwrap();
        rustix::fs::flock(&user, FlockOperation::LockExclusive).unwrap();
        let disk = |nsid: u32, path: &Path| {
            let path = path.display();
            format!("[[subsystem.namespace]]\nnsid = {nsid}\nexport = \"{path}\"\n")
        };
        let text = format!(
            "[control]\nsocket = \"{}\"\n[metrics]\nlisten = \"{metrics}\"\n\
             [[listener]]\naddress = \"192.0.2.77\"\n\
             [[subsystem]]\nnqn = \"nqn.2024-01.com.example:a\"\nallow_any_host = true\n{}{}{}{}",
            folder.path().join("socket").display(),
            disk(1, &folder.path().join("none")),
            disk(2, folder.path()),
            disk(3, &empty),
            disk(4, &used),
        );
        let found = found(&text);
        let parts = [
            "none does not exist",
            "is a directory",
            "less than one block",
            "used is already exported",
            "listener 192.0.2.77:4420: no interface has this address",
            "the TCP port is in use",
        ];
        let foreign = tcp_port("192.0.2.77:9464".parse().unwrap()).unwrap_err();
        assert!(
            foreign.contains("no interface has this address"),
            "{foreign}"
        );
        assert!(found.len() >= parts.len(), "{found:?}");
        for (finding, part) in found.iter().zip(parts) {
            assert_eq!(finding.severity, Severity::Warning);
            assert!(finding.text.contains(part), "{finding:?}");
        }
    }

    fn only(text: &str) -> Finding {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        File::create(path("disk"))
            .unwrap()
            .set_len(1 << 20)
            .unwrap();
        File::create(path("small")).unwrap().set_len(100).unwrap();
        std::os::unix::fs::symlink(path("disk"), path("symlink")).unwrap();
        std::fs::hard_link(path("disk"), path("hardlink")).unwrap();
        std::fs::create_dir(path("sub")).unwrap();
        let text = text.replace("FOLDER", &folder.path().display().to_string());
        let has_control = text.contains("[control]");
        let control = if has_control {
            ""
        } else {
            "[control]\nsocket = \"off\"\n"
        };
        let nqn = "nqn.2024-01.com.example:a";
        let text = format!(
            "{control}[[listener]]\naddress = \"127.0.0.1\"\nprovider = \"verbs\"\n{text}",
            text = text.replace(
                "SUBSYSTEM",
                &format!("[[subsystem]]\nnqn = \"{nqn}\"\nallow_any_host = true")
            )
        );
        let mut found = found(&text);
        found.retain(|one| !one.text.contains("listener 127.0.0.1"));
        found.retain(|one| !one.text.contains("LimitMEMLOCK"));
        assert_eq!(found.len(), 1, "{text}\n{found:?}");
        assert!(!folder.path().join("deep").exists(), "nothing is made");
        found.remove(0)
    }

    fn disk(nsid: u32, export: &str) -> String {
        format!("[[subsystem.namespace]]\nnsid = {nsid}\nexport = \"{export}\"\n")
    }

    #[test]
    fn a_disk_that_is_exported_twice_is_found_by_whatever_names() {
        for other in ["symlink", "hardlink", "sub/../disk"] {
            let both = disk(1, "FOLDER/disk") + &disk(2, &format!("FOLDER/{other}"));
            let found = only(&format!("SUBSYSTEM\n{both}"));
            assert_eq!(found.severity, Severity::Warning);
            assert!(found.text.contains("namespace 2"), "{found:?}");
            assert!(found.text.contains("already exported"), "{found:?}");
            let shared = both.replace(
                "[[subsystem.namespace]]",
                "[[subsystem.namespace]]\nread_only = true",
            );
            let found = only(&format!("SUBSYSTEM\n{shared}"));
            assert!(found.text.contains("it is the same disk"), "{found:?}");
        }
    }

    #[test]
    fn disks_that_serve_would_not_open_are_warnings() {
        for (export, part) in [
            ("FOLDER/small", "less than one block"),
            ("mem:60TiB", "no memory for"),
        ] {
            let found = only(&format!("SUBSYSTEM\n{}", disk(1, export)));
            assert_eq!(found.severity, Severity::Warning);
            assert!(found.text.contains(part), "{found:?}");
        }
    }

    #[test]
    fn a_control_socket_that_serve_would_not_open_is_an_error() {
        for (control, part) in [
            ("group = \"no-such-group\"", "no-such-group"),
            (
                "socket = \"/proc/cairn/target.sock\"",
                "cannot make the control socket",
            ),
            (
                "socket = \"FOLDER/disk/target.sock\"",
                "cannot make the control socket",
            ),
            ("socket = \"FOLDER/disk\"", "is not a socket"),
        ] {
            let found = only(&format!(
                "[control]\n{control}\nSUBSYSTEM\n{}",
                disk(1, "null:1MiB")
            ));
            assert_eq!(found.severity, Severity::Error);
            assert!(found.text.contains(part), "{found:?}");
        }
    }

    #[test]
    fn cores_are_those_of_this_machine() {
        let rest = format!("SUBSYSTEM\n{}", disk(1, "null:1MiB"));
        let found = only(&format!("[target]\ncores = [1023]\n{rest}"));
        assert_eq!(found.severity, Severity::Warning);
        assert!(found.text.contains("1023"), "{found:?}");
    }

    #[test]
    fn what_a_directory_would_show_is_listed_and_what_not() {
        let folder = tempfile::tempdir().unwrap();
        let pool = folder.path().join("pool");
        std::fs::create_dir_all(pool.join("below")).unwrap();
        std::fs::create_dir(pool.join("lost+found")).unwrap();
        let make = |name: &str, bytes| {
            let file = File::create(pool.join(name)).unwrap();
            file.set_len(bytes).unwrap();
            file
        };
        let names = [
            "disk",
            ".hidden",
            "odd",
            "empty",
            "turn\u{202e}ed",
            "half.part",
        ];
        for (name, bytes) in names.into_iter().zip([4096, 4096, 4097, 0, 4096, 4096]) {
            let old = std::time::SystemTime::now() - Duration::from_secs(60);
            make(name, bytes).set_modified(old).unwrap();
        }
        let writer = make("written", 4096);
        std::os::unix::fs::symlink("/etc/hostname", pool.join("link")).unwrap();
        let text = format!(
            "[[listener]]\naddress = \"127.0.0.1\"\n\
             [[subsystem]]\nnqn = \"nqn.2024-01.com.example:a\"\nallow_any_host = true\n\
             [[subsystem.namespace]]\nnsid = 7\nexport = \"dir:{}\"\n",
            pool.display()
        );
        std::thread::sleep(Duration::from_millis(2500));
        let found = found(&text);
        let of = |part: &str| {
            let mut all = found.iter().filter(|one| one.text.contains(part));
            (all.next().cloned(), all.next().cloned())
        };
        let (disk, other) = of("/disk,");
        let disk = disk.unwrap();
        assert_eq!((disk.severity, other), (Severity::Note, None));
        assert!(
            disk.text
                .starts_with("namespace 7 of nqn.2024-01.com.example:a would be")
        );
        for (name, why) in [
            ("odd", "not a multiple of 512"),
            ("empty", "size of a disk"),
            ("turn\\u{202e}ed", "rename the file"),
            ("link", "does not follow"),
            ("below", "a directory"),
            ("written", "open for writing"),
        ] {
            let (Some(one), None) = of(&format!("pool/{name} ")) else {
                panic!("{name}: {found:?}");
            };
            assert_eq!(one.severity, Severity::Warning);
            assert!(one.text.contains(why), "{one:?}");
        }
        for name in ["hidden", "half.part", "lost+found"] {
            assert_eq!(of(name), (None, None));
        }
        assert!(!pool.join(".cairn-nsids").exists());
        drop(writer);
    }
}
