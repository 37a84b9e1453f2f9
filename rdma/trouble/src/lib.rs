//! Explanations of errors: completion statuses, reject reasons and connection ends of RDMA,
//! statuses of NVMe, and log lines of Linux's NVMe host.
//!
//! Target, host and doctor share these tables.

mod caller;
mod completion;
mod connection;
mod linux;
mod nvme;
mod parameter;
mod paste;
mod reject;
mod status;

use std::fmt;

pub use completion::COMPLETIONS;
pub use connection::{
    ADDRESS_CHANGED, DEVICE_FAULT, DEVICE_REMOVED, ENDINGS, NO_ANSWER, PEER_LEFT, PEER_MOVED,
    TRANSPORT_GAVE_UP,
};
pub use linux::{LINUX_ERRORS, LINUX_LINES};
pub use nvme::NVME_REJECTS;
pub use parameter::CONNECT_PARAMETERS;
pub use paste::Found;
pub use reject::CM_REJECTS;
pub use status::STATUSES;

pub use caller::{Caller, End};

/// Error with causes and next command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trouble {
    /// Number of the error in its table.
    pub code: u16,
    /// Name in the specification and in other programs.
    pub name: &'static str,
    /// Meaning of the error.
    pub what: &'static str,
    /// Causes, the most likely first.
    pub causes: &'static [&'static str],
    /// Next command to run.
    pub next: Next,
}

/// Command that the user should run next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Examine the path to the peer.
    Path,
    /// Examine the local machine.
    Here,
    /// Read the kernel's log and examine the local machine.
    KernelLog,
    /// Watch the counters of the local machine.
    Counters,
    /// Read the log at the other end.
    OtherLog,
    /// Collect data for a bug report.
    Report,
    /// Command for each end; PROGRAM stands for the calling program, TARGET for the target's
    /// program.
    Own {
        /// Command at the host.
        host: &'static str,
        /// Command at the target.
        target: &'static str,
    },
}

impl Next {
    /// Returns the command for the caller's end of a connection to `peer`.
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
    const fn new(
        code: u16,
        name: &'static str,
        what: &'static str,
        causes: &'static [&'static str],
        next: Next,
    ) -> Self {
        Self {
            code,
            name,
            what,
            causes,
            next,
        }
    }

    /// Returns one log line: meaning, causes and next command.
    #[must_use]
    pub fn line(&self, caller: Caller, peer: impl fmt::Display) -> String {
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

/// Explains a completion status (`ibv_wc_status`) of any provider.
#[must_use]
pub fn of_completion(status: u32) -> &'static Trouble {
    of(&COMPLETIONS, status).unwrap_or(&completion::UNKNOWN)
}

/// Explains a connection manager's reject reason (IBTA 12.6.7.2).
#[must_use]
pub fn of_reject(reason: u16) -> &'static Trouble {
    of(&CM_REJECTS, reason.into()).unwrap_or(&reject::UNKNOWN)
}

/// Explains the status (STS) in a target's REJ (NVMe RDMA transport 1.0, figure 8).
#[must_use]
pub fn of_nvme_reject(status: u16) -> &'static Trouble {
    of(&NVME_REJECTS, status.into()).unwrap_or(&nvme::UNKNOWN)
}

/// Explains a failed Connect. After Connect Invalid Parameters, `result` (DW0) names the parameter.
#[must_use]
pub fn of_connect(sct: u8, sc: u8, result: u32) -> Option<&'static Trouble> {
    const INVALID_PARAMETERS: (u8, u8) = (1, 0x82);
    let is_in_data = result >> 16 & 1 == 1;
    let code = result as u16 | if is_in_data { parameter::IN_DATA } else { 0 };
    let parameter = of(&CONNECT_PARAMETERS, code.into());
    parameter
        .filter(|_| (sct, sc) == INVALID_PARAMETERS)
        .or_else(|| of(&STATUSES, u32::from(sct) << 8 | u32::from(sc)))
}

fn of(table: &'static [Trouble], code: u32) -> Option<&'static Trouble> {
    table.iter().find(|known| u32::from(known.code) == code)
}

/// Returns all tables with their titles.
#[must_use]
pub fn tables() -> [(&'static str, &'static [Trouble]); 8] {
    [
        (OF_COMPLETIONS, &COMPLETIONS),
        (OF_CM_REJECTS, &CM_REJECTS),
        (OF_NVME_REJECTS, &NVME_REJECTS),
        ("connections that end, or never begin", &ENDINGS),
        (OF_STATUSES, &STATUSES),
        ("parameters of Connect", &CONNECT_PARAMETERS),
        (OF_LINES, &LINUX_LINES),
        (OF_ERRORS, &LINUX_ERRORS),
    ]
}

const OF_COMPLETIONS: &str = "work that completes with an error";
const OF_CM_REJECTS: &str = "connections that a machine refuses";
const OF_NVME_REJECTS: &str = "connections that a target refuses";
/// Title of the table with hexadecimal numbers (SCT and SC).
pub const OF_STATUSES: &str = "statuses of NVMe commands";
const OF_LINES: &str = "lines of Linux's NVMe host";
const OF_ERRORS: &str = "error numbers of Linux";

/// Returns the entries that explain a pasted log line or a negative Linux error number. For other
/// texts, returns the entries with number `word`, or with `word` in their name or meaning.
#[must_use]
pub fn search(word: &str) -> Vec<Found> {
    let pasted = paste::explain(word);
    if !pasted.is_empty() {
        return pasted;
    }
    let negative = word.strip_prefix('-').and_then(|word| word.parse().ok());
    if let Some(code) = negative {
        let found = of(&LINUX_ERRORS, code).map(|trouble| Found {
            table: OF_ERRORS,
            code: trouble.code,
            trouble,
        });
        return found.into_iter().collect();
    }
    let matches = |trouble: &Trouble| match word.parse::<u16>() {
        Ok(code) => trouble.code == code,
        Err(_) => {
            let word = word.to_ascii_lowercase();
            let text = format!("{} {}", trouble.name, trouble.what);
            text.to_ascii_lowercase().contains(&word)
        }
    };
    let all = tables().into_iter().flat_map(|(table, troubles)| {
        let found = troubles.iter().filter(|trouble| matches(trouble));
        found.map(move |trouble| Found {
            table,
            code: trouble.code,
            trouble,
        })
    });
    all.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr};

    const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 9));

    fn caller(end: End) -> Caller {
        Caller {
            end,
            host: "a-host",
            target: "a-target",
        }
    }

    #[test]
    fn a_negative_number_is_an_error_of_linux() {
        let names = |word| {
            search(word)
                .iter()
                .map(|it| it.trouble.name)
                .collect::<Vec<_>>()
        };
        assert_eq!(names("-110"), ["ETIMEDOUT"]);
        assert!(names("110").contains(&"ETIMEDOUT"));
        assert!(names("-9999").is_empty());
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
        assert_eq!(by_name[0].code, 13);
        let eight = search("8");
        assert!(
            eight
                .iter()
                .any(|found| found.trouble.name == "Invalid ORD")
        );
        let by_word = search("invalid host");
        assert_eq!(by_word[0].trouble.name, "Connect Invalid Host");
        assert!(search("no such word").is_empty());
    }
}
