//! Conversion of a configuration file to a [`Config`], with all checks.
//!
//! After a problem, the check continues with the default, so that one run reports all problems.

mod ana;
mod audit;
mod authentication;
mod control;
mod hosts;
mod keyring;
mod limits;
mod listener;
mod marking;
mod metrics;
mod namespace;
mod pool;
mod rbd;
mod referral;
mod subsystem;
mod target;

use cairn_base::Trid;
use std::collections::HashSet;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::sync::Arc;

use nvme_proto::limits::namespaces_within;

use crate::config::{Config, ControlSocket, DhchapPolicy, Listener, NamedKey, PORT_DEFAULT};
use crate::document::Document;
use crate::file::File;
use crate::flags::Origins;
use crate::key_path::KeyPath;
use crate::problem::{Excerpt, Problem};
use crate::{size, suggest};
use hosts::Groups;
pub use subsystem::MODEL_DEFAULT;

pub(crate) struct Check<'a> {
    pub(crate) document: Option<&'a Document<'a>>,
    pub(crate) origins: &'a Origins,
    /// Keys misspelt or with unusable values in the file. Checks do not report them as missing.
    pub(crate) dropped: &'a HashSet<KeyPath>,
    pub(crate) problems: Vec<Problem>,
}

struct Named<'a> {
    listeners: Option<&'a [Listener]>,
    groups: &'a mut Groups,
    keys: &'a [NamedKey],
    dhchap: &'a DhchapPolicy,
}

pub(crate) fn config(check: &mut Check<'_>, file: &File) -> Config {
    let root = KeyPath::root();
    let target = target::check(check, &root.key("target"), &file.target);
    let provider = target::provider(check, &root.key("target"), &file.target);
    let control = control::check(check, &root.key("control"), &file.control);
    let marking = marking::check(check, &root.key("marking"), &file.marking);
    let metrics = metrics::check(check, &root.key("metrics"), &file.metrics);
    let audit = audit::check(check, &root.key("audit"), &file.audit);
    let may_be_none = control.socket != ControlSocket::Off && file.control.socket.is_some();
    let place = root.key("listener");
    let defaults = listener::Defaults {
        provider,
        roce: target.roce,
    };
    let listeners = listener::check(check, &place, &file.listener, defaults, may_be_none);
    let referrals = referral::check(check, &root.key("referral"), &file.referral);
    let mut groups = Groups::check(check, &root.key("host_group"), &file.host_group);
    let keys = keyring::check(check, &root.key("key"), &file.key);
    let dhchap = authentication::policy_of_target(check, &root.key("target"), &file.target);
    let place = root.key("subsystem");
    let nsid_max = namespaces_within(target.max_transfer_bytes);
    let mut named = Named {
        listeners: Some(&*listeners).filter(|all| all.len() == file.listener.len()),
        groups: &mut groups,
        keys: &keys,
        dhchap: &dhchap,
    };
    let subsystems = subsystem::check(check, &place, &file.subsystem, nsid_max, &mut named);
    target::check_discovery_nqn(check, &root.key("target"), &target, &subsystems);
    Config {
        file: None,
        target,
        metrics,
        audit,
        control,
        marking: Arc::new(marking),
        listeners,
        dhchap,
        referrals,
        keys,
        host_groups: groups.into_groups(),
        subsystems,
    }
}

impl Check<'_> {
    fn wrong(&mut self, place: &KeyPath, message: impl Into<String>) -> &mut Problem {
        let problem = Problem::new(message).located(self.excerpt(place));
        self.problems.push(problem);
        self.problems.last_mut().expect("one was just pushed")
    }

    fn missing(&mut self, place: &KeyPath, key: &str, help: &str) {
        if !self.dropped.contains(&place.key(key)) {
            let message = format!("{} has no \"{key}\"", place.table_name());
            self.wrong(place, message).help(help);
        }
    }

    fn repeated(&mut self, place: &KeyPath, first: &KeyPath, what: impl Display) -> &mut Problem {
        let first = self.excerpt(first).reference();
        self.wrong(place, format!("{what} is given twice, first by {first}"))
    }

    fn excerpt(&self, place: &KeyPath) -> Excerpt {
        match (self.origins.flag(place), self.document) {
            (Some(flag), _) => Excerpt::of_flag(flag),
            (None, Some(document)) => document.locate(place),
            (None, None) => Excerpt::of_flag("command line"),
        }
    }

    fn number(
        &mut self,
        place: &KeyPath,
        value: Option<i64>,
        range: RangeInclusive<i64>,
    ) -> Option<i64> {
        let value = value?;
        if range.contains(&value) {
            return Some(value);
        }
        let (least, most) = range.into_inner();
        self.wrong(place, format!("{value} is out of range"))
            .help(format!("write a number from {least} to {most}"));
        None
    }

    fn size(
        &mut self,
        place: &KeyPath,
        value: Option<&str>,
        range: RangeInclusive<u64>,
    ) -> Option<u64> {
        let text = value?;
        match size::parse(text) {
            Ok(bytes) if range.contains(&bytes) => Some(bytes),
            Ok(_) => {
                let (least, most) = (size::format(*range.start()), size::format(*range.end()));
                self.wrong(place, format!("\"{text}\" is out of range"))
                    .help(format!("write a size from {least} to {most}"));
                None
            }
            Err(error) => {
                let (message, help) = error.explain(text);
                self.wrong(place, message).help(help);
                None
            }
        }
    }

    fn word<T: Copy>(
        &mut self,
        place: &KeyPath,
        value: Option<&str>,
        words: &[(&str, T)],
    ) -> Option<T> {
        let text = value?;
        if let Some((_, meaning)) = words.iter().find(|(word, _)| *word == text) {
            return Some(*meaning);
        }
        let names = || words.iter().map(|(word, _)| *word);
        let help = match suggest::nearest(text, names()) {
            Some(near) => format!("did you mean \"{near}\"?"),
            None => format!("write {}", suggest::choices(names())),
        };
        self.wrong(place, format!("\"{text}\" is not known here"))
            .help(help);
        None
    }

    fn listener_address(&mut self, place: &KeyPath, text: &str) -> Option<Trid> {
        let address = Trid::parse(text, PORT_DEFAULT);
        if address.is_err() {
            let message = format!(
                "\"{}\" is not an address of a listener",
                text.escape_debug()
            );
            self.wrong(place, message).help(
                "write one such as \"192.0.2.1\", \"192.0.2.1:4421\" or \"[2001:db8::1]:4421\"",
            );
        }
        address.ok()
    }

    fn known_listener(
        &mut self,
        place: &KeyPath,
        address: Trid,
        known: Option<&[Listener]>,
    ) -> bool {
        let is_it = |one: &Listener| one.trid() == address;
        let is_known = known.is_none_or(|known| known.iter().any(is_it));
        if !is_known {
            let message = format!("no [[listener]] has the address {address}");
            self.wrong(place, message)
                .help("add one with this address and port, or name an existing one");
        }
        is_known
    }

    fn count(&mut self, place: &KeyPath, count: usize, max: usize) {
        if count > max {
            self.wrong(
                &place.index(max),
                format!("{count} are too many: the limit is {max}"),
            );
        }
    }
}
