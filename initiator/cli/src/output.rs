use std::io::{ErrorKind, Write};

use cairn_doctor::cli::{Format, has_headers, stdout_failure};
use clap::Args;
use nvme_proto::wire::Escaped;

use super::Result;
use cairn_bench::object::Object;
pub(super) use cairn_doctor::cli::print_line as print;

/// Option for the output format.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct Output {
    #[command(flatten)]
    pub(super) output: cairn_doctor::cli::OutputArgs,
}

impl Output {
    pub(super) fn show_list(self, list: &[Object], normal: impl FnOnce(&[Object]) -> String) {
        match self.output.format {
            Format::Json => print(&Object::pretty_list(list)),
            _ => print(normal(list).trim_end()),
        }
    }

    pub(super) fn show(self, object: &Object, normal: impl FnOnce(&Object) -> String) {
        match self.output.format {
            Format::Json => print(&object.pretty()),
            _ => print(normal(object).trim_end()),
        }
    }

    /// Prints `names` if the format is `-o name`. Returns true if printed.
    pub(super) fn has_shown_names<T: ToString>(self, names: impl IntoIterator<Item = T>) -> bool {
        let is_it = self.output.format == Format::Name;
        if is_it {
            names.into_iter().for_each(|name| print(&name.to_string()));
        }
        is_it
    }
}

/// Error of a command whose output has no reader. The command ends silently, as with SIGPIPE.
pub(super) const UNREAD: &str = "";

pub(super) fn print_bytes(bytes: &[u8]) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    let written = stdout.write_all(bytes).and_then(|()| stdout.flush());
    written.map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => UNREAD.to_owned(),
        _ => stdout_failure(&error),
    })
}

pub(super) fn table<const N: usize>(
    head: [&str; N],
    rows: impl IntoIterator<Item = Vec<String>>,
) -> String {
    let head = head.map(str::to_owned).to_vec();
    // Cells may contain a target's text, which must not control the terminal.
    let escaped = |row: Vec<String>| row.iter().map(|cell| Escaped(cell).to_string()).collect();
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(rows).map(escaped).collect();
    let widths: Vec<usize> = (0..N)
        .map(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0))
        .collect();
    let mut out = String::new();
    let left_out = usize::from(!has_headers());
    for (at, row) in rows.iter().enumerate().skip(left_out) {
        let cells = row.iter().zip(&widths);
        let cells: Vec<_> = cells
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        out += cells.join("  ").trim_end();
        out.push('\n');
        if at == 0 {
            let rules: Vec<_> = widths.iter().map(|&width| "-".repeat(width)).collect();
            out += &rules.join("  ");
            out.push('\n');
        }
    }
    out
}

pub(super) fn size(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{bytes} B")
    } else {
        format!("{value:.1} {}", units[unit])
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn hexdump(bytes: &[u8]) -> String {
    let mut out = String::new();
    for (at, line) in bytes.chunks(16).enumerate() {
        let hex: Vec<_> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        let text: String = line
            .iter()
            .map(|&byte| match byte {
                b' '..=b'~' => char::from(byte),
                _ => '.',
            })
            .collect();
        out += &format!("{:04x}: {:<47} \"{text}\"\n", at * 16, hex.join(" "));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_fit_their_content() {
        let table = |[head, row]: [[&str; 2]; 2]| table(head, [row.map(str::to_owned).to_vec()]);
        assert_eq!(
            table([["a", "b"], ["long", "x"]]),
            "a     b\n----  -\nlong  x\n"
        );
        let hostile = table([["a", "b"], ["\u{1b}[2J", "x"]]);
        assert_eq!(hostile, "a          b\n---------  -\n\\u{1b}[2J  x\n");
    }

    #[test]
    fn dumps_have_sixteen_bytes_a_line() {
        let dump = hexdump(b"0123456789abcdef\n");
        assert!(dump.starts_with("0000: 30 31 32 33"));
        assert!(dump.contains("\"0123456789abcdef\"\n0010: 0a "));
        assert!(dump.ends_with("\".\"\n"));
    }

    #[test]
    fn sizes_are_short() {
        assert_eq!(size(512), "512 B");
        assert_eq!(size(64 << 20), "64.0 MiB");
    }
}
