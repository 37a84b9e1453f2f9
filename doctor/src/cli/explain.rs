use std::io::Write;
use std::net::IpAddr;

use cairn_trouble::{self as trouble, Caller, Found};
use serde::Serialize;

use super::{Failure, Format, output};

#[derive(Serialize)]
struct Explained {
    table: &'static str,
    code: u16,
    name: &'static str,
    what: &'static str,
    causes: &'static [&'static str],
    next: String,
}

pub(super) fn run(
    word: Option<&str>,
    caller: Caller,
    peer: Option<IpAddr>,
    format: Format,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let peer = peer.map_or_else(|| "ADDR".to_owned(), |peer| peer.to_string());
    let explain = |Found {
                       table,
                       code,
                       trouble,
                   }| Explained {
        table,
        code,
        name: trouble.name,
        what: trouble.what,
        causes: trouble.causes,
        next: trouble.next.command(caller, &peer),
    };
    let word = word.unwrap_or_default();
    let found: Vec<Explained> = trouble::search(word).into_iter().map(explain).collect();
    match (found.is_empty(), format) {
        (true, _) => Err(format!(
            "no error goes by {word:?}: `{} fabric explain` lists those there are",
            caller.program()
        )),
        (false, Format::Json) => output::json(&found, out),
        (false, _) => {
            let texts = found.iter().map(Explained::text);
            output::text(&texts.collect::<Vec<_>>().join("\n"), out)
        }
    }
}

impl Explained {
    fn text(&self) -> String {
        let causes = self.causes.iter().enumerate();
        let causes = causes.map(|(index, cause)| format!("  likely ({}): {cause}\n", index + 1));
        let code = match self.table {
            trouble::OF_STATUSES => format!("{:#x}", self.code),
            _ => self.code.to_string(),
        };
        format!(
            "{} ({code}; {})\n  what: {}\n{}  next: {}\n",
            self.name,
            self.table,
            self.what,
            causes.collect::<String>(),
            self.next
        )
    }
}
