//! Notes about settings that a conversion leaves out.
//!
//! Functions here and in the exports destructure each structure of the configuration without `..`,
//! so that a new key is a compile error until they handle it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use cairn_config::{
    Audit, Config, ControlSettings, ControlSocket, DhchapPolicy, EditError, Flags, HostGroup,
    Limits, Listener, Log, MODEL_DEFAULT, Metrics, NewSubsystem, Nqn, Pool, Reactors, Roce,
    Subsystem, Target,
};
use cairn_rdma::marking::Rules;
use serde_json::Value;

use super::Converted;

#[derive(Clone, Default)]
pub(super) struct Notes {
    all: Rc<RefCell<Vec<String>>>,
    namespaces: Rc<Cell<usize>>,
    opens: Rc<RefCell<Vec<String>>>,
    is_partial: Rc<Cell<bool>>,
}

/// Escapes control characters, which would end the TOML comments that contain notes.
fn escaped(note: &str) -> String {
    let escaped = |c: char| match c.is_control() {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    };
    note.chars().map(escaped).collect()
}

impl Notes {
    pub(super) fn add(&self, note: impl Into<String>) {
        self.add_at(usize::MAX, &note.into());
    }

    pub(super) fn lacks_namespace(&self, note: impl Into<String>) {
        let at = self.namespaces.get();
        self.add_at(at, &note.into());
        self.namespaces.set(at + 1);
        self.is_partial.set(true);
    }

    fn add_at(&self, at: usize, note: &str) {
        let note = escaped(note);
        let mut notes = self.all.borrow_mut();
        if !notes.contains(&note) {
            let at = at.min(notes.len());
            notes.insert(at, note);
        }
    }

    pub(super) fn opens(&self, note: impl Into<String>) {
        let note = note.into();
        self.opens.borrow_mut().push(escaped(&note));
        self.add(note);
    }

    pub(super) fn lacks(&self, note: impl Into<String>) {
        self.add(note);
        self.is_partial.set(true);
    }

    pub(super) fn lacks_model(&self, what: &str, new: &NewSubsystem, before: &str) {
        if new.model.is_none() {
            self.add(format!(
                "{what}: it has no model: hosts see \"{MODEL_DEFAULT}\" instead of \"{before}\""
            ));
        }
    }

    pub(super) fn made<T>(&self, made: Result<T, EditError>) {
        if let Err(error) = made {
            self.lacks(error.to_string());
        }
    }

    pub(super) fn into_converted(self, text: String) -> Converted {
        Converted {
            text,
            notes: self.all.take(),
            opens: self.opens.take(),
            is_partial: self.is_partial.get(),
        }
    }

    pub(super) fn into_commented(self, text: &str) -> Converted {
        let notes = self.all.borrow();
        let comments: String = notes.iter().map(|note| format!("# {note}\n")).collect();
        drop(notes);
        let between = if comments.is_empty() { "" } else { "\n" };
        self.into_converted(format!("{comments}{between}{text}"))
    }

    pub(super) fn unknown(&self, what: &str, table: &Value, known: &[&str]) {
        let table = table.as_object().into_iter().flatten();
        let is_set = |value: &Value| match value {
            // nvmet shows -1 for a value that it chooses itself, and 0x000000 for an unset OUI.
            Value::String(text) => !matches!(text.as_str(), "" | "0" | "none" | "-1" | "0x000000"),
            Value::Number(number) => number.as_u64() != Some(0),
            Value::Bool(is_so) => *is_so,
            Value::Array(array) => !array.is_empty(),
            Value::Object(object) => !object.is_empty(),
            Value::Null => false,
        };
        let unknown = table.filter(|(key, value)| !known.contains(&key.as_str()) && is_set(value));
        for (key, value) in unknown {
            let note = format!("{what}: {key} has no counterpart");
            if holds_key(key, value) {
                self.opens(format!("{note}, and a host would connect without its key"));
            } else {
                self.add(note);
            }
        }
    }

    pub(super) fn without_counterpart<'k>(
        &self,
        what: &str,
        settings: impl IntoIterator<Item = (&'k str, bool)>,
    ) {
        for (key, _) in settings.into_iter().filter(|(_, is_set)| *is_set) {
            self.add(format!("{what}: {key} has no counterpart"));
        }
    }

    /// Adds a note for each process setting that is not the default, except keys of `[target]` in
    /// `carried`. Returns the default configuration.
    pub(super) fn of_process(&self, config: &Config, carried: &[&str]) -> Config {
        let usual = usual();
        let Config {
            file: _,
            target,
            metrics: Metrics { listen },
            audit:
                Audit {
                    file,
                    journal,
                    datagram,
                },
            control:
                ControlSettings {
                    socket,
                    group,
                    read_only,
                    exports,
                },
            marking,
            host_groups,
            listeners: _,
            dhchap: _,
            referrals: _,
            keys: _,
            subsystems: _,
        } = config;
        self.of_target(target, &usual.target, carried);
        self.without_counterpart("[metrics]", [("listen", listen.is_some())]);
        let audit = [
            ("file", file.is_some()),
            ("journal", *journal),
            ("datagram", datagram.is_some()),
        ];
        self.without_counterpart("[audit]", audit);
        let control = [
            ("socket", *socket != ControlSocket::Usual),
            ("group", group.is_some()),
            ("read_only", *read_only),
            ("exports", exports.is_some()),
        ];
        self.without_counterpart("[control]", control);
        self.without_counterpart("[marking]", [("rules", **marking != Rules::default())]);
        for HostGroup { name, hosts: _ } in host_groups {
            self.add(format!(
                "[[host_group]] {name} has no counterpart: its hosts are listed one by one"
            ));
        }
        usual
    }

    fn of_target(&self, target: &Target, usual: &Target, carried: &[&str]) {
        let Target {
            reactors,
            poll_idle,
            poll_drives,
            io_timeout,
            data_buffers_bytes,
            receives,
            in_capsule_data_bytes,
            max_transfer_bytes,
            queue_depth,
            io_queues,
            state_directory,
            discovery_nqn,
            roce,
            congestion_control,
            segmentation_offload,
            send_with_invalidate,
            ack_timeout,
            log: Log { filter, format },
        } = target;
        let settings = [
            ("reactors", matches!(reactors, Reactors::Count(_))),
            ("cores", matches!(reactors, Reactors::Cores(_))),
            ("poll_idle_us", *poll_idle != usual.poll_idle),
            ("poll_drives", *poll_drives != usual.poll_drives),
            ("io_timeout_s", *io_timeout != usual.io_timeout),
            (
                "data_buffers",
                *data_buffers_bytes != usual.data_buffers_bytes,
            ),
            ("receives", *receives != usual.receives),
            (
                "in_capsule_data",
                *in_capsule_data_bytes != usual.in_capsule_data_bytes,
            ),
            ("mdts", *max_transfer_bytes != usual.max_transfer_bytes),
            ("queue_depth", *queue_depth != usual.queue_depth),
            ("io_queues", *io_queues != usual.io_queues),
            ("state_directory", state_directory.is_some()),
            ("discovery_nqn", *discovery_nqn != usual.discovery_nqn),
            ("roce", *roce != usual.roce),
            ("vlan", is_tagged(*roce)),
            (
                "congestion_control",
                *congestion_control != usual.congestion_control,
            ),
            (
                "segmentation_offload",
                *segmentation_offload != usual.segmentation_offload,
            ),
            (
                "send_with_invalidate",
                *send_with_invalidate != usual.send_with_invalidate,
            ),
            ("ack_timeout_ms", ack_timeout.is_some()),
            ("log", *filter != usual.log.filter),
            ("log_format", *format != usual.log.format),
        ];
        let settings = settings.into_iter();
        let lost = settings.filter(|(key, _)| !carried.contains(key));
        self.without_counterpart("[target]", lost);
    }

    pub(super) fn of_listener(&self, what: &str, listener: &Listener, usual: &Listener) {
        let Listener {
            address: _,
            port: _,
            provider,
            roce,
            traffic_class,
            hop_limit,
            pkey,
            allowed_addresses,
            backlog,
            port_id: _,
            ana: _,
        } = listener;
        let settings = [
            ("provider", *provider != usual.provider),
            ("roce", roce.is_some()),
            ("vlan", roce.is_some_and(is_tagged)),
            ("tos (dscp)", traffic_class.is_some()),
            ("hop_limit", hop_limit.is_some()),
            ("pkey", *pkey != usual.pkey),
            ("backlog", *backlog != usual.backlog),
        ];
        self.without_counterpart(what, settings);
        if allowed_addresses.is_some() {
            self.opens(format!(
                "{what}: allowed_addresses has no counterpart, and hosts at every address could \
                 connect"
            ));
        }
    }

    pub(super) fn of_pool(&self, nqn: &str, pool: &Pool) {
        let Pool {
            folder,
            nsids: _,
            like,
            problem: _,
            left_out: _,
        } = pool;
        self.lacks(format!(
            "namespace {} of {nqn} is left out: only Cairn exports the files of a directory \
             (dir:{})",
            like.nsid,
            folder.display()
        ));
    }

    pub(super) fn of_limits(&self, subsystem: &Subsystem) {
        let what = format!("subsystem {}", subsystem.nqn);
        self.limits(&what, "limits", &subsystem.limits);
        self.limits(&what, "limits_per_host", &subsystem.limits_per_host);
        for (host, limits) in &subsystem.limits_of_hosts {
            // An entry without limits still exempts its host from `limits_per_host`.
            self.add(format!("{what}: limited_host {host} has no counterpart"));
            self.limits(&format!("{what}, limited_host {host}"), "limits", limits);
        }
    }

    pub(super) fn limits(&self, what: &str, key: &str, limits: &Limits) {
        let Limits {
            iops,
            read,
            write,
            total,
            outstanding,
            burst,
            weight,
        } = limits;
        let limits = [
            ("iops", iops.is_some()),
            ("read", read.is_some()),
            ("write", write.is_some()),
            ("total", total.is_some()),
            ("outstanding", outstanding.is_some()),
            ("burst_ms", burst.is_some()),
        ];
        self.without_counterpart(&format!("{what}, {key}"), limits);
        self.without_counterpart(what, [("weight", weight.is_some())]);
    }

    pub(super) fn of_policy(&self, what: &str, policy: &DhchapPolicy, usual: &DhchapPolicy) {
        let DhchapPolicy { hashes, groups } = policy;
        let settings = [
            ("dhchap_hashes", *hashes != usual.hashes),
            ("dhchap_groups", *groups != usual.groups),
        ];
        self.without_counterpart(what, settings);
    }

    pub(super) fn of_required_key(&self, subsystem: &Subsystem) {
        let keys = &subsystem.authentication;
        if !keys.is_required {
            return;
        }
        let what = format!("subsystem {}", subsystem.nqn);
        let mut hosts = subsystem.allowed_hosts.hosts.iter();
        let has_key = |host: &Nqn| keys.hosts.iter().any(|(other, _)| other == host);
        let opens = subsystem.allow_any_host || hosts.any(|host| !has_key(host));
        if keys.others.is_none() && opens {
            self.opens(format!(
                "{what}: require_key has no counterpart, and hosts without a key would connect: \
                 remove them from its list"
            ));
        } else {
            self.without_counterpart(&what, [("require_key", true)]);
        }
    }
}

fn is_tagged(roce: Roce) -> bool {
    matches!(roce, Roce::V1 { vlan: Some(_) })
}

fn holds_key(name: &str, value: &Value) -> bool {
    let is_named = || {
        ["key", "psk", "secret"]
            .iter()
            .any(|word| name.contains(word))
    };
    match value {
        Value::String(text) => text.contains("DHHC-") || is_named(),
        Value::Array(values) => values.iter().any(|value| holds_key(name, value)),
        Value::Object(members) => members.iter().any(|(name, value)| holds_key(name, value)),
        _ => false,
    }
}

fn usual() -> Config {
    let text = "[[listener]]\naddress = \"192.0.2.1\"\n[[subsystem]]\n\
                nqn = \"nqn.2024-01.com.example:usual\"\nallow_any_host = true\n\
                [[subsystem.namespace]]\nnsid = 1\nexport = \"mem:1MiB\"\n";
    Config::parse("defaults", text, &Flags::default()).expect("it sets required keys alone")
}
