use std::path::PathBuf;

use cairn_base::{TraddrError, Trid};
use cairn_rdma::PKey;
use uuid::Uuid;

use crate::config::{DIRECTORY_PREFIX, NSID_MAX, PORT_DEFAULT};
use crate::file::{File, ListenerTable, NamespaceTable, SubsystemTable};
use crate::identity;
use crate::key_path::KeyPath;
use crate::problem::{Excerpt, Problem};

const DIRECTORY_NSIDS: i64 = 1000;

const LINKS_MAX: usize = 40;

/// Command-line options. Lists add to the file; single values override it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Flags {
    /// `--listen ADDR[:PORT]`: listeners to add.
    pub listen: Vec<String>,
    /// `--export PATH|dir:DIRECTORY|rbd:POOL/IMAGE|mem:SIZE|null:SIZE`: namespaces to add to `nqn`.
    ///
    /// Exports get the next free NSIDs, directories last. Each directory except the last one
    /// reserves 1000 NSIDs.
    pub export: Vec<String>,
    /// `--nqn NQN`: subsystem of the exports, created if the file lacks it.
    ///
    /// The default is equal at each start: it derives from the machine, the first listener and the
    /// first export.
    pub nqn: Option<String>,
    /// First export, converted by [`resolved_export`], so that the default NQN does not depend on
    /// the spelling of the path.
    pub first_export: Option<String>,
    /// `--provider auto|verbs|soft`: provider of every listener, those of the file included.
    pub provider: Option<String>,
    /// `--roce v1|v2`: `target.roce`.
    pub roce: Option<String>,
    /// `--congestion-control on|off`: `target.congestion_control`.
    pub congestion_control: Option<String>,
    /// `--vlan VID`: `target.vlan`.
    pub vlan: Option<u16>,
    /// `--pkey KEY`: partition key of each `--listen`.
    pub pkey: Option<PKey>,
    /// `--metrics ADDR[:PORT]`: `metrics.listen`.
    pub metrics: Option<String>,
    /// `--control PATH|off`: `control.socket`.
    pub control: Option<String>,
    /// `--mark RULE`: marking rules to add.
    pub mark: Vec<String>,
    /// `--log FILTER`: `target.log`.
    pub log: Option<String>,
    /// `--log-format text|json`: `target.log_format`.
    pub log_format: Option<String>,
}

#[derive(Debug, Default)]
pub(crate) struct Origins(Vec<(KeyPath, String)>);

impl Origins {
    pub(crate) fn flag(&self, place: &KeyPath) -> Option<&str> {
        self.0
            .iter()
            .filter(|(given, _)| place.steps().starts_with(given.steps()))
            .max_by_key(|(given, _)| given.steps().len())
            .map(|(_, flag)| flag.as_str())
    }

    fn record(&mut self, place: KeyPath, flag: &str, value: &str) {
        self.0.push((place, format!("{flag} {value}")));
    }
}

impl Flags {
    pub(crate) fn apply(&self, file: &mut File, problems: &mut Vec<Problem>) -> Origins {
        let mut origins = Origins::default();
        self.apply_words(file, &mut origins);
        self.apply_marks(file, &mut origins);
        self.apply_listeners(file, &mut origins, problems);
        if let Some(pkey) = self.pkey.filter(|_| self.listen.is_empty()) {
            let mut problem = Problem::new("a partition key without an address to listen on")
                .located(Excerpt::of_flag(&format!("--pkey {pkey}")));
            problem.help(
                "add --listen ADDR, or leave --pkey out: each [[listener]] of the file has its own pkey",
            );
            problems.push(problem);
        }
        if !self.export.is_empty() {
            self.apply_exports(file, &mut origins);
        } else if let Some(nqn) = &self.nqn {
            let mut problem = Problem::new("an NQN without anything to export")
                .located(Excerpt::of_flag(&format!("--nqn {nqn}")));
            problem.help("add --export PATH, or leave --nqn out: each [[subsystem]] of the file has its own nqn");
            problems.push(problem);
        }
        origins
    }

    fn apply_words(&self, file: &mut File, origins: &mut Origins) {
        let target = KeyPath::root().key("target");
        let table = &mut file.target;
        let words = [
            (
                "--provider",
                "provider",
                &self.provider,
                &mut table.provider,
            ),
            ("--roce", "roce", &self.roce, &mut table.roce),
            (
                "--congestion-control",
                "congestion_control",
                &self.congestion_control,
                &mut table.congestion_control,
            ),
            ("--log", "log", &self.log, &mut table.log),
            (
                "--log-format",
                "log_format",
                &self.log_format,
                &mut table.log_format,
            ),
        ];
        for (flag, key, given, value) in words {
            if let Some(given) = given {
                *value = Some(given.clone());
                origins.record(target.key(key), flag, given);
            }
        }
        if let Some(metrics) = &self.metrics {
            file.metrics.listen = Some(metrics.clone());
            let place = KeyPath::root().key("metrics").key("listen");
            origins.record(place, "--metrics", metrics);
        }
        if let Some(control) = &self.control {
            file.control.socket = Some(if control == "off" {
                control.clone()
            } else {
                absolute_path(control)
            });
            let place = KeyPath::root().key("control").key("socket");
            origins.record(place, "--control", control);
        }
        if let Some(vlan) = self.vlan {
            table.vlan = Some(vlan.into());
            origins.record(target.key("vlan"), "--vlan", &vlan.to_string());
        }
        if self.provider.is_some() {
            for listener in &mut file.listener {
                listener.provider = None;
            }
        }
    }

    fn apply_marks(&self, file: &mut File, origins: &mut Origins) {
        let place = KeyPath::root().key("marking").key("rules");
        for rule in &self.mark {
            let rules = file.marking.rules.get_or_insert_default();
            origins.record(place.index(rules.len()), "--mark", rule);
            rules.push(rule.clone());
        }
    }

    fn apply_listeners(&self, file: &mut File, origins: &mut Origins, problems: &mut Vec<Problem>) {
        for listen in &self.listen {
            let Trid { address, port } = match Trid::parse(listen, PORT_DEFAULT) {
                Ok(at) => at,
                Err(error) => {
                    problems.push(not_an_address(listen, &error));
                    continue;
                }
            };
            let place = KeyPath::root().key("listener").index(file.listener.len());
            origins.record(place, "--listen", listen);
            file.listener.push(ListenerTable {
                address: Some(address.to_string()),
                port: Some(port.into()),
                pkey: self.pkey.map(|pkey| pkey.bits().into()),
                ..ListenerTable::default()
            });
        }
    }

    fn apply_exports(&self, file: &mut File, origins: &mut Origins) {
        let subsystems = KeyPath::root().key("subsystem");
        let nqn = self.nqn.clone().unwrap_or_else(|| self.made_nqn(file));
        let known = file
            .subsystem
            .iter()
            .position(|sub| sub.nqn.as_ref() == Some(&nqn));
        let index = known.unwrap_or_else(|| {
            let index = file.subsystem.len();
            let (flag, value) = match &self.nqn {
                Some(nqn) => ("--nqn", nqn),
                None => ("--export", &self.export[0]),
            };
            origins.record(subsystems.index(index), flag, value);
            file.subsystem.push(SubsystemTable {
                nqn: Some(nqn),
                allow_any_host: Some(true),
                ..SubsystemTable::default()
            });
            index
        });
        let namespaces = &mut file.subsystem[index].namespace;
        // Directories come last, so that the NSIDs of other exports do not depend on the NSIDs that
        // each directory reserves.
        let is_directory = |export: &&String| export.starts_with(DIRECTORY_PREFIX);
        let (directories, others): (Vec<_>, Vec<_>) = self.export.iter().partition(is_directory);
        for export in others.into_iter().chain(directories) {
            let place = subsystems
                .index(index)
                .key("namespace")
                .index(namespaces.len());
            origins.record(place, "--export", export);
            let nsid = free_nsid(namespaces);
            namespaces.push(NamespaceTable {
                nsid: Some(nsid),
                export: Some(absolute_export(export)),
                ..NamespaceTable::default()
            });
        }
    }

    /// Returns an NQN that differs between targets. If two targets had the same NQN, a host would
    /// use their disks as two paths to one disk.
    fn made_nqn(&self, file: &File) -> String {
        let listener = file
            .listener
            .first()
            .map(|first| format!("{:?} {:?}", first.address, first.port))
            .unwrap_or_default();
        let export = self.first_export.as_ref().unwrap_or(&self.export[0]);
        let seed = format!("{} {listener} {export}", identity::machine());
        let uuid = Uuid::new_v5(&identity::CAIRN, seed.as_bytes());
        format!("nqn.2014-08.org.nvmexpress:uuid:{uuid}")
    }
}

/// Returns the first NSID after all used and reserved NSIDs.
fn free_nsid(namespaces: &[NamespaceTable]) -> i64 {
    let numbered = namespaces.iter().filter_map(|one| one.nsid.zip(Some(one)));
    let Some((nsid, last)) = numbered.max_by_key(|(nsid, _)| *nsid) else {
        return 1;
    };
    let export = last.export.as_deref().unwrap_or_default();
    let share = if export.starts_with(DIRECTORY_PREFIX) {
        DIRECTORY_NSIDS
    } else {
        1
    };
    nsid.clamp(0, i64::from(NSID_MAX)) + share
}

/// Makes the path of an export absolute, for a process with another current directory.
///
/// A word without `/` and `.` before a colon names a kind of disk, perhaps misspelt, and stays
/// unchanged. A file can be `./a:b`.
#[must_use]
pub fn absolute_export(export: &str) -> String {
    match export.split_once(':') {
        _ if export.is_empty() => String::new(),
        Some(("dir", directory)) => format!("{DIRECTORY_PREFIX}{}", absolute_export(directory)),
        Some((kind, _)) if !kind.contains(['/', '.']) => export.to_owned(),
        _ => absolute_path(export),
    }
}

#[must_use]
pub fn absolute_path(path: &str) -> String {
    let absolute = std::path::absolute(path).ok();
    let absolute = absolute.and_then(|path| path.to_str().map(str::to_owned));
    absolute.unwrap_or_else(|| path.to_owned())
}

/// Returns an export with its absolute path. May block, because symbolic links are resolved.
///
/// Links in /dev are kept, because device names such as /dev/dm-3 can change. The result does not
/// depend on whether the file exists: its disk may be unmounted.
#[must_use]
pub fn resolved_export(export: &str) -> String {
    let export = absolute_export(export);
    let (prefix, path) = match export.strip_prefix(DIRECTORY_PREFIX) {
        Some(directory) => (DIRECTORY_PREFIX, directory),
        None => ("", &*export),
    };
    if !path.starts_with('/') {
        return export;
    }
    let mut path = PathBuf::from(path);
    for _ in 0..LINKS_MAX {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            break;
        };
        if let Ok(folder) = folder.canonicalize() {
            path = folder.join(name);
        }
        match path.read_link() {
            Ok(link) if !path.starts_with("/dev") => path = path.with_file_name("").join(link),
            _ => break,
        }
    }
    let path = path.to_str();
    path.map_or_else(|| export.clone(), |path| format!("{prefix}{path}"))
}

pub(crate) fn address_error(text: &str, error: &TraddrError) -> String {
    match error {
        TraddrError::NotAnAddress => format!("\"{text}\" is not an IP address"),
        _ => format!("\"{text}\": {error}"),
    }
}

fn not_an_address(listen: &str, error: &TraddrError) -> Problem {
    let mut problem = Problem::new(address_error(listen, error))
        .located(Excerpt::of_flag(&format!("--listen {listen}")));
    problem.help(
        "write ADDR or ADDR:PORT, such as 192.0.2.1:4420 or [2001:db8::1]:4420; \
         \"ip -brief address\" shows this machine's addresses",
    );
    problem
}
