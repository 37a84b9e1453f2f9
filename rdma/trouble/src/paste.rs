//! Search for statuses, reasons and error numbers in pasted lines of logs.

use super::linux::{LINUX_ERRORS, LINUX_LINES};
use super::status::{DO_NOT_RETRY, OTHERS, STATUSES};
use super::{
    CM_REJECTS, COMPLETIONS, NVME_REJECTS, OF_CM_REJECTS, OF_COMPLETIONS, OF_ERRORS, OF_LINES,
    OF_NVME_REJECTS, OF_STATUSES, Trouble, of,
};

/// Entry that explains a part of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// Title of the table.
    pub table: &'static str,
    /// Number in the text. One entry may explain several numbers.
    pub code: u16,
    /// Entry of the table.
    pub trouble: &'static Trouble,
}

const DNR: u16 = 1 << 14;
const SC_SCT: u16 = 0x7ff;
const STATUS_BITS: u16 = 0x7fff;

pub(super) fn explain(text: &str) -> Vec<Found> {
    let text = text.to_ascii_lowercase();
    let mut all = Vec::new();
    let lines = LINUX_LINES.iter().filter(|line| {
        let mut parts = line.name.split("%d").map(str::to_ascii_lowercase);
        let (first, last) = (parts.next().unwrap_or_default(), parts.next());
        let rest = text.split_once(&first).map(|(_, rest)| rest);
        rest.is_some_and(|rest| last.is_none_or(|last| rest.contains(&last)))
    });
    // The longest name is the most specific, so shorter names within it are removed.
    let mut lines: Vec<&Trouble> = lines.collect();
    let names: Vec<&str> = lines.iter().map(|line| line.name).collect();
    lines.retain(|line| {
        let is_part = |other: &&str| *other != line.name && other.contains(line.name);
        !names.iter().any(is_part)
    });
    for trouble in &lines {
        push(&mut all, OF_LINES, trouble.code, trouble);
    }
    let is_line = !lines.is_empty();
    statuses(&text, &mut all);
    for (before, title, table) in [
        ("connect rejected: status ", OF_CM_REJECTS, &CM_REJECTS[..]),
        ("nvme status ", OF_NVME_REJECTS, &NVME_REJECTS),
    ] {
        if let Some(number) = after(&text, before).and_then(decimal)
            && let Some(trouble) = of(table, number.into())
        {
            push(&mut all, title, number, trouble);
        }
    }
    for before in ["error wo/dnr bit: ", "ret="] {
        if is_line && let Some(number) = after(&text, before).and_then(decimal) {
            status(number & STATUS_BITS, &mut all);
        }
    }
    if text.contains(" for cqe 0x")
        && let Some(number) = after(&text, "failed with status ").and_then(in_parentheses)
        && let Some(trouble) = of(&COMPLETIONS, number.into())
    {
        push(&mut all, OF_COMPLETIONS, number, trouble);
    }
    if is_line
        && let Some(number) = negative(&text)
        && let Some(trouble) = of(&LINUX_ERRORS, number.into())
    {
        push(&mut all, OF_ERRORS, number, trouble);
    }
    all
}

fn push(all: &mut Vec<Found>, table: &'static str, code: u16, trouble: &'static Trouble) {
    let found = Found {
        table,
        code,
        trouble,
    };
    if !all.contains(&found) {
        all.push(found);
    }
}

/// Adds the first status in one of these forms: `sct 0x3 / sc 0x70`, `1/84h`, `16772` without other
/// text, `status=0x4184`, `(0x4184)`.
fn statuses(text: &str, all: &mut Vec<Found>) {
    let pair = after(text, "sct ")
        .and_then(number)
        .zip(after(text, "sc ").and_then(number));
    if let Some((sct, sc)) = pair {
        status((sct & 7) << 8 | sc & 0xff, all);
        return;
    }
    let own = text.split(|c: char| !c.is_ascii_hexdigit() && c != '/' && c != 'h');
    for word in own {
        let Some((sct, sc)) = word.strip_suffix('h').and_then(|word| word.split_once('/')) else {
            continue;
        };
        if let (Ok(sct @ 0..=7), Ok(sc)) = (sct.parse::<u16>(), u16::from_str_radix(sc, 16)) {
            status(sct << 8 | sc & 0xff, all);
            return;
        }
    }
    // A number below 0x100 is ambiguous, because it may belong to any table.
    if let Ok(bits @ 0x100..=STATUS_BITS) = text.trim().parse::<u16>()
        && of(&STATUSES, (bits & SC_SCT).into()).is_some()
    {
        status(bits, all);
        return;
    }
    let is_status = |before: &str| {
        let before = before.trim_end_matches([' ', '=', ':', '(']);
        before.is_empty()
            || before.ends_with("status")
            || before.ends_with("error")
            || text.starts_with("nvme status")
    };
    for (at, _) in text.match_indices("0x") {
        if let Some(number) = number(&text[at..])
            && is_status(&text[..at])
            && number != 0
        {
            status(number & STATUS_BITS, all);
            return;
        }
    }
}

fn status(bits: u16, all: &mut Vec<Found>) {
    let code = bits & SC_SCT;
    let other = &OTHERS[usize::from(code >> 8)];
    let trouble = of(&STATUSES, code.into()).unwrap_or(other);
    push(all, OF_STATUSES, code, trouble);
    if bits & DNR != 0 {
        push(all, OF_STATUSES, DNR, &DO_NOT_RETRY);
    }
}

fn after<'t>(text: &'t str, words: &str) -> Option<&'t str> {
    text.match_indices(words).find_map(|(at, _)| {
        let before = text[..at].chars().next_back();
        let is_word = before.is_none_or(|c| !c.is_alphanumeric());
        is_word.then(|| &text[at + words.len()..])
    })
}

fn digits(text: &str, radix: u32) -> Option<u16> {
    let end = text
        .find(|c: char| !c.is_digit(radix))
        .unwrap_or(text.len());
    u16::from_str_radix(&text[..end], radix).ok()
}

fn decimal(text: &str) -> Option<u16> {
    digits(text, 10)
}

fn number(text: &str) -> Option<u16> {
    match text.strip_prefix("0x") {
        Some(text) => digits(text, 16),
        None => decimal(text),
    }
}

fn in_parentheses(text: &str) -> Option<u16> {
    decimal(text.split_once('(')?.1)
}

fn negative(text: &str) -> Option<u16> {
    text.match_indices('-').find_map(|(at, _)| {
        let before = text[..at].chars().next_back();
        let begins = before.is_none_or(|c| matches!(c, ' ' | '(' | '='));
        begins.then(|| decimal(&text[at + 1..])).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<&'static str> {
        explain(text)
            .iter()
            .map(|found| found.trouble.name)
            .collect()
    }

    const LINES: &[(&str, &[&str])] = &[
        (
            "nvme nvme0: rdma connection establishment failed (-104)",
            &["rdma connection establishment failed", "ECONNRESET"],
        ),
        (
            "[   12.3] nvme nvme1: failed to connect socket: -111",
            &["failed to connect socket", "ECONNREFUSED"],
        ),
        (
            "nvme nvme0: Connect Invalid Data Parameter, subsysnqn \"nqn.2024-01.com.example:a\"",
            &["Connect Invalid Data Parameter"],
        ),
        (
            "nvme nvme0: Connect for subsystem nqn.a is not allowed, hostnqn: nqn.b",
            &["is not allowed, hostnqn"],
        ),
        (
            "nvme nvme0: Connect command failed, error wo/DNR bit: 385",
            &[
                "Connect command failed, error wo/DNR bit",
                "Connect Controller Busy",
            ],
        ),
        (
            "nvme nvme0: Connect command failed, errno: -110",
            &["Connect command failed, errno", "ETIMEDOUT"],
        ),
        (
            "nvme nvme0: Connect rejected: status 8 (invalid service ID).",
            &["Connect rejected", "CM reject 8, Invalid service ID"],
        ),
        (
            "nvme nvme0: Connect rejected: status 28 (consumer defined) nvme status 4 (invalid host SQ size).",
            &[
                "Connect rejected",
                "CM reject 28, Consumer reject",
                "Invalid HSQSIZE",
            ],
        ),
        (
            "nvme nvme0: I/O tag 12 (500c) opcode 0x1 (I/O Cmd) QID 3 timeout",
            &["QID %d timeout"],
        ),
        ("nvme nvme0: I/O 12 QID 3 timeout", &["QID %d timeout"]),
        (
            "nvme nvme0: Reconnecting in 10 seconds...",
            &["Reconnecting in"],
        ),
        (
            "nvme nvme0: Failed reconnect attempt 3/60",
            &["Failed reconnect attempt"],
        ),
        (
            "nvme nvme0: RECV for CQE 0x00000000d6a5 failed with status WR flushed (5)",
            &["for CQE 0x", "IBV_WC_WR_FLUSH_ERR"],
        ),
        (
            "nvme0n1: Read(0x2) @ LBA 0, 8 blocks, Internal Path Error (sct 0x3 / sc 0x0) DNR",
            &["Internal Path Error"],
        ),
        (
            "nvme nvme0: Identify Descriptors failed (nsid=30, status=0x600b)",
            &["Invalid Namespace or Format", "DNR"],
        ),
        (
            "nvme nvme0: qid 0: authentication failed",
            &["authentication failed"],
        ),
        (
            "nvme nvme0: qid 0: controller authentication failed",
            &["controller authentication failed"],
        ),
        (
            "nvme nvme0: failed to connect queue: 1 ret=16770",
            &[
                "failed to connect queue",
                "Connect Invalid Parameters",
                "DNR",
            ],
        ),
        (
            "nvme nvme0: failed to connect queue: 0 ret=-111",
            &["failed to connect queue", "ECONNREFUSED"],
        ),
        (
            "nvme nvme0: rdma_resolve_addr failed (-101).",
            &["rdma_resolve_addr failed", "ENETUNREACH"],
        ),
        (
            "nvme nvme0: rdma_resolve_route failed (-22).",
            &["rdma_resolve_route failed", "EINVAL"],
        ),
        (
            "could not add new controller: failed to write to nvme-fabrics device",
            &["failed to write to nvme-fabrics device"],
        ),
        (
            "Failed to write to /dev/nvme-fabrics: Input/output error",
            &["Failed to write to /dev/nvme-fabrics"],
        ),
        (
            "block nvme0n1: no available path - failing I/O",
            &["no available path - failing I/O"],
        ),
        (
            "nvme nvme0: Device not ready; aborting reset, CSTS=0x1",
            &["Device not ready; aborting"],
        ),
        (
            "I/O error, dev nvme0n1, sector 2048 op 0x1:(WRITE) flags 0x8800 phys_seg 1 prio class 2",
            &["I/O error, dev nvme"],
        ),
    ];

    #[test]
    fn pasted_lines_are_explained_with_their_numbers() {
        for (line, expected) in LINES {
            assert_eq!(names(line), *expected, "{line}");
        }
    }

    #[test]
    fn statuses_are_read_in_each_notation() {
        for (text, expected) in [
            ("sct 0x3 sc 0x0", &["Internal Path Error"][..]),
            ("sct 0x1 / sc 0x84", &["Connect Invalid Host"]),
            ("status: 0x4184", &["Connect Invalid Host", "DNR"]),
            ("0x4185", &["Invalid Queue Type", "DNR"]),
            ("0x6380", &["path related status", "DNR"]),
            (
                "NVMe status: Connect Invalid Host(0x4184)",
                &["Connect Invalid Host", "DNR"],
            ),
            ("Connect Invalid Host (1/84h)", &["Connect Invalid Host"]),
            ("16770", &["Connect Invalid Parameters", "DNR"]),
            ("388", &["Connect Invalid Host"]),
            ("4420", &[]),
            ("0x0", &[]),
            ("rnr", &[]),
            ("12", &[]),
            ("0x", &[]),
            ("sct 0xfffff sc 0x1", &[]),
        ] {
            assert_eq!(names(text), expected, "{text}");
        }
        assert_eq!(explain("0x6380")[0].code, 0x380);
    }

    #[test]
    fn no_text_panics() {
        for text in [
            "é-",
            "0xé",
            "sct é sc é",
            "(-",
            "status 0x",
            "1/h",
            "/h",
            "-é",
        ] {
            explain(text);
            explain(&format!("Reconnecting in {text}"));
        }
    }
}
