//! Errors of a fabric that explain themselves: for each status that a work request can
//! complete with, each reason that a connection can be refused for and each way that
//! one can end, what it means, what it comes from mostly, and what to type next.
//!
//! Target, host and doctor share these tables; who has an error looks it up by its
//! number and logs [`Trouble::line`]: one line, whatever went wrong.

mod completion;
mod connection;
mod nvme;
mod reject;

use std::fmt;
use std::net::IpAddr;

pub use completion::COMPLETIONS;
pub use connection::{
    ADDRESS_CHANGED, DEVICE_REMOVED, ENDINGS, NO_ANSWER, PEER_LEFT, PEER_MOVED, TRANSPORT_GAVE_UP,
};
pub use nvme::NVME_REJECTS;
pub use reject::CM_REJECTS;

use crate::caller::{Caller, End};

/// An error, and what there is to say about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trouble {
    /// Its number in its own table.
    pub code: u16,
    /// Its name, as other programs and documents have it.
    pub name: &'static str,
    /// What happened.
    pub what: &'static str,
    /// What that comes from, the likeliest first.
    pub causes: &'static [&'static str],
    /// What to type.
    pub next: Next,
}

/// The command to run next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Examine the way to the other end.
    Path,
    /// Examine this machine.
    Here,
    /// Read the kernel's log, and examine this machine.
    KernelLog,
    /// Watch the counters.
    Counters,
    /// Read what the other end says of it.
    OtherLog,
    /// It is a bug: write down what is needed to find it.
    Report,
    /// Something of its own for each end, with PROGRAM for the caller and TARGET for the
    /// target's program.
    Own {
        /// At the host.
        host: &'static str,
        /// At the target.
        target: &'static str,
    },
}

impl Next {
    /// The command, for the caller's end of a connection to `peer`.
    #[must_use]
    pub fn command(self, caller: Caller, peer: impl fmt::Display) -> String {
        let (program, target) = (caller.program(), caller.target);
        match (self, caller.end) {
            (Self::Path, _) => format!("{program} doctor --peer {peer}"),
            (Self::Here, _) => format!("{program} doctor"),
            (Self::KernelLog, _) => format!("dmesg | tail -50, and {program} doctor"),
            (Self::Counters, _) => format!("{program} fabric watch"),
            (Self::OtherLog, End::Host) => {
                format!("read the target's log at {peer}: journalctl -u {target}")
            }
            (Self::OtherLog, End::Target) => {
                format!("read the host's log at {peer}: journalctl -k -g nvme")
            }
            (Self::Report, _) => format!(
                "{program} fabric --record fabric.txt, and report that file with both ends' logs"
            ),
            (Self::Own { host, .. }, End::Host) => caller.fill(host),
            (Self::Own { target, .. }, End::Target) => caller.fill(target),
        }
    }
}

impl Trouble {
    /// All that there is to say, for a log: what, the causes in their order, the command.
    #[must_use]
    pub fn line(&self, caller: Caller, peer: IpAddr) -> String {
        format!(
            "{self}; likely {}; next: {}",
            Causes(self.causes),
            self.next.command(caller, peer)
        )
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.what, self.name)
    }
}

/// Causes in their order, as part of a line.
struct Causes(&'static [&'static str]);

impl fmt::Display for Causes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, cause) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}({}) {cause}", index + 1)?;
        }
        Ok(())
    }
}

/// What a work request's status means: `ibv_wc_status`, which RoCE in user space has, too.
#[must_use]
pub fn of_completion(status: u32) -> &'static Trouble {
    of(&COMPLETIONS, status).unwrap_or(&completion::UNKNOWN)
}

/// Why a connection manager refuses (IBTA 12.6.7.2).
#[must_use]
pub fn of_reject(reason: u16) -> &'static Trouble {
    of(&CM_REJECTS, reason.into()).unwrap_or(&reject::UNKNOWN)
}

/// Why a target of NVMe over RDMA refuses: STS of its private data (RDMA, figure 8).
#[must_use]
pub fn of_nvme_reject(status: u16) -> &'static Trouble {
    of(&NVME_REJECTS, status.into()).unwrap_or(&nvme::UNKNOWN)
}

fn of(table: &'static [Trouble], code: u32) -> Option<&'static Trouble> {
    table.iter().find(|known| u32::from(known.code) == code)
}

/// The tables by their titles.
#[must_use]
pub fn tables() -> [(&'static str, &'static [Trouble]); 4] {
    [
        ("work that completes with an error", &COMPLETIONS),
        ("connections that a machine refuses", &CM_REJECTS),
        ("connections that a target refuses", &NVME_REJECTS),
        ("connections that end, or never begin", &ENDINGS),
    ]
}

/// What goes by this name, or part of a name, or number.
#[cfg(feature = "cli")]
pub(crate) fn search(word: &str) -> Vec<(&'static str, &'static Trouble)> {
    let matches = |trouble: &Trouble| match word.parse::<u16>() {
        Ok(code) => trouble.code == code,
        Err(_) => {
            let word = word.to_ascii_lowercase();
            let text = format!("{} {}", trouble.name, trouble.what);
            text.to_ascii_lowercase().contains(&word)
        }
    };
    let all = tables().into_iter().flat_map(|(title, table)| {
        table
            .iter()
            .filter(|trouble| matches(trouble))
            .map(move |trouble| (title, trouble))
    });
    all.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 9));

    fn caller(end: End) -> Caller {
        Caller {
            end,
            host: "a-host",
            target: "a-target",
        }
    }

    #[test]
    fn a_line_has_what_causes_in_order_and_a_command() {
        let line = of_completion(12).line(caller(End::Target), PEER);
        let parts = [
            "transport retry counter exceeded",
            "(IBV_WC_RETRY_EXC_ERR)",
            "; likely (1) the peer is down",
            ", (2) ",
            "; next: a-target doctor --peer 192.0.2.9",
        ];
        let mut rest = line.as_str();
        for part in parts {
            let (_, after) = rest
                .split_once(part)
                .unwrap_or_else(|| panic!("no {part:?} (there) in {line}"));
            rest = after;
        }
        let at_host = of_completion(12).line(caller(End::Host), PEER);
        assert!(at_host.ends_with("next: a-host doctor --peer 192.0.2.9"));
    }

    #[test]
    fn each_status_reason_and_ending_has_an_entry_of_its_own() {
        // ibv_wc_status has no gaps up to its last; the CM's reasons leave 34 out.
        for status in 0..=23 {
            assert_eq!(u32::from(of_completion(status).code), status);
        }
        for reason in (1..=33).chain([35]) {
            assert_eq!(of_reject(reason).code, reason);
        }
        for status in 1..=9 {
            assert_eq!(of_nvme_reject(status).code, status);
        }
        assert_eq!(of_completion(24).name, "unknown completion status");
        assert_eq!(of_completion(u32::MAX).name, "unknown completion status");
        assert_eq!(of_reject(34).name, "unknown CM reject reason");
        assert_eq!(of_nvme_reject(10).name, "unknown NVMe/RDMA status");
    }

    #[test]
    fn no_entry_is_empty_or_another_ones() {
        let mut seen = Vec::new();
        for (title, table) in tables() {
            for trouble in table {
                assert!(!trouble.what.is_empty() && !trouble.causes.is_empty());
                for end in [End::Host, End::Target] {
                    let line = trouble.line(caller(end), PEER);
                    assert!(!line.contains('\n') && line.is_ascii(), "{line}");
                    assert!(
                        !line.contains("PROGRAM") && !line.contains("TARGET"),
                        "{line}"
                    );
                    assert!(line.len() < 900, "{title}: {line}");
                    assert!(!trouble.next.command(caller(end), PEER).is_empty());
                }
                assert!(!seen.contains(&trouble.what), "{}", trouble.what);
                seen.push(trouble.what);
            }
        }
    }

    #[test]
    fn names_and_numbers_are_found() {
        let by_name = search("rnr_retry");
        assert_eq!(by_name.len(), 1, "{by_name:?}");
        assert_eq!(by_name[0].1.code, 13);
        assert!(
            search("8")
                .iter()
                .any(|(_, found)| found.name == "Invalid ORD")
        );
        assert!(search("no such word").is_empty());
    }
}
