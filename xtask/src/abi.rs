//! `cargo xtask abi`: compares the bindings with this machine's rdma-core headers.
//!
//! Each layout and constant of `bindings.rs` becomes a C assertion, which the C compiler checks.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail, ensure};

use crate::cache;

const BINDINGS: &str = include_str!("../../rdma/verbs/src/sys/bindings.rs");
const PACKAGES: [&str; 2] = ["libibverbs-dev", "librdmacm-dev"];
const ANONYMOUS: &str = "__bindgen_";

pub(crate) fn run() -> Result<ExitCode> {
    let headers = match headers() {
        Ok(headers) => headers,
        Err(reason) => {
            println!("SKIP [        ] abi: the layouts cannot be compared: {reason:#}");
            return Ok(ExitCode::SUCCESS);
        }
    };
    let assertions = Bindings::parse(BINDINGS)?.assertions();
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("abi.c");
    std::fs::write(&file, &assertions)?;
    let mut compiler = Command::new("cc");
    compiler.arg("-fsyntax-only").arg("-I").arg(&headers);
    let compiled = compiler.arg(&file).output().context("cannot run cc")?;
    if !compiled.status.success() {
        let errors = String::from_utf8_lossy(&compiled.stderr);
        bail!("the bindings differ from the headers: {errors}");
    }
    println!(
        "{} layouts and constants are as in {}",
        assertions.matches("_Static_assert").count(),
        headers.display()
    );
    Ok(ExitCode::SUCCESS)
}

/// Returns the folder of rdma-core's headers: the installed headers, or else a copy unpacked into
/// the cache.
fn headers() -> Result<PathBuf> {
    ensure!(
        cfg!(target_arch = "x86_64"),
        "the layouts of the bindings are those of x86-64"
    );
    cairn_skips::probe(Command::new("cc").arg("--version")).map_err(anyhow::Error::msg)?;
    let system = Path::new("/usr/include");
    if system.join("rdma/rdma_cma.h").exists() {
        return Ok(system.to_owned());
    }
    let root = cache::folder()?.join("tools/rdma-core-headers");
    let headers = root.join("usr/include");
    if !headers.join("rdma/rdma_cma.h").exists() {
        for package in PACKAGES {
            cache::unpack_package(package, "./usr/include", &root)?;
        }
    }
    Ok(headers)
}

#[derive(Default)]
struct Bindings<'a> {
    types: BTreeMap<&'a str, Type<'a>>,
    constants: Vec<(&'a str, &'a str)>,
}

#[derive(Default)]
struct Type<'a> {
    keyword: &'a str,
    members: Vec<(&'a str, &'a str)>,
    offsets: BTreeMap<&'a str, usize>,
    size: usize,
    alignment: usize,
}

impl<'a> Bindings<'a> {
    fn parse(text: &'a str) -> Result<Self> {
        let mut bindings = Self::default();
        for item in text.split("\npub ").skip(1) {
            let (keyword, rest) = item.split_once(' ').unwrap_or_default();
            match keyword {
                "struct" | "union" => bindings.add_type(keyword, rest)?,
                "const" => {
                    let (name, value) = rest.split_once(": ").context("constant")?;
                    let value = value.split_once(" = ").context("value")?.1;
                    let value = value.split_once(';').context("end of the value")?.0;
                    bindings.constants.push((name, value));
                }
                _ => {}
            }
        }
        ensure!(!bindings.types.is_empty() && !bindings.constants.is_empty());
        Ok(bindings)
    }

    fn add_type(&mut self, keyword: &'a str, rest: &'a str) -> Result<()> {
        let Some((name, rest)) = rest.split_once(" {\n") else {
            return Ok(());
        };
        let (members, rest) = rest.split_once("\n}").context("end of a type")?;
        let mut this = Type {
            keyword,
            ..Type::default()
        };
        for member in members.split("    pub ").skip(1) {
            let (name, of) = member.split_once(':').context("member")?;
            this.members.push((name, of.trim().trim_end_matches(',')));
        }
        // An assertion is `["Offset of field: T::member"][offset_of!(T, member) - 8usize];`.
        for assertion in rest.split("[\"").skip(1) {
            let (title, rest) = assertion.split_once('"').context("title")?;
            let number = rest.split_once(" - ").context("number")?.1;
            let number = number.split_once("usize").context("end of the number")?.0;
            let number = number.parse().context("number")?;
            if title.starts_with("Size of") {
                this.size = number;
            } else if title.starts_with("Alignment of") {
                this.alignment = number;
            } else {
                let member = title.rsplit_once("::").context("member of a title")?.1;
                this.offsets.insert(member, number);
            }
        }
        self.types.insert(name, this);
        Ok(())
    }

    fn assertions(&self) -> String {
        let mut text = "#include <stddef.h>\n#include <infiniband/verbs.h>\n\
                        #include <rdma/rdma_cma.h>\n"
            .to_owned();
        let assert = |text: &mut String, condition: &str| {
            let _ = writeln!(text, "_Static_assert({condition}, \"{condition}\");");
        };
        for (name, of) in &self.types {
            if of.size == 0 || name.contains(ANONYMOUS) || !is_of_rdma_core(name) {
                continue;
            }
            let name = format!("{} {name}", of.keyword);
            assert(&mut text, &format!("sizeof({name}) == {}", of.size));
            assert(&mut text, &format!("_Alignof({name}) == {}", of.alignment));
            for (path, offset) in self.places(of) {
                assert(&mut text, &format!("offsetof({name}, {path}) == {offset}"));
            }
        }
        for (name, value) in &self.constants {
            assert(&mut text, &format!("{name} == {value}"));
        }
        text
    }

    fn places(&self, of: &Type<'a>) -> Vec<(String, usize)> {
        let mut places = Vec::new();
        for (member, inner) in &of.members {
            let Some(&offset) = of.offsets.get(member) else {
                continue;
            };
            let is_named = !member.starts_with(ANONYMOUS);
            let member = if is_named {
                member.trim_end_matches('_')
            } else {
                ""
            };
            if is_named {
                places.push((member.to_owned(), offset));
            }
            if let Some(inner) = self.types.get(inner).filter(|_| inner.contains(ANONYMOUS)) {
                let dot = if is_named { "." } else { "" };
                let inside = self.places(inner).into_iter();
                places.extend(
                    inside.map(|(path, more)| (format!("{member}{dot}{path}"), offset + more)),
                );
            }
        }
        places
    }
}

fn is_of_rdma_core(name: &str) -> bool {
    ["ibv_", "_ibv_", "rdma_"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_member_of_an_anonymous_union_has_the_path_of_c() -> Result<()> {
        let text = "\n\
            pub const IBV_A: ibv_a = -1;\n\
            pub union ibv_b__bindgen_ty_1 {\n    pub first: u32,\n    pub type_: u64,\n}\n\
            const _: () = {\n\
            [\"Size of ibv_b__bindgen_ty_1\"][size_of::<B>() - 8usize];\n\
            [\"Offset of field: ibv_b__bindgen_ty_1::first\"][offset_of!(B, first) - 0usize];\n\
            [\"Offset of field: ibv_b__bindgen_ty_1::type_\"]\n[offset_of!(B, type_) - 0usize];\n};\n\
            pub struct ibv_b {\n    pub id: u64,\n    pub __bindgen_anon_1: ibv_b__bindgen_ty_1,\n    \
            pub wr: ibv_b__bindgen_ty_1,\n}\n\
            const _: () = {\n\
            [\"Size of ibv_b\"][size_of::<A>() - 24usize];\n\
            [\"Alignment of ibv_b\"][align_of::<A>() - 8usize];\n\
            [\"Offset of field: ibv_b::id\"][offset_of!(A, id) - 0usize];\n\
            [\"Offset of field: ibv_b::__bindgen_anon_1\"][offset_of!(A, a) - 8usize];\n\
            [\"Offset of field: ibv_b::wr\"][offset_of!(A, wr) - 16usize];\n};\n";
        let assertions = Bindings::parse(text)?.assertions();
        let conditions: Vec<_> = assertions
            .lines()
            .filter_map(|line| line.strip_prefix("_Static_assert("))
            .filter_map(|line| line.split_once(", \"").map(|(condition, _)| condition))
            .collect();
        assert_eq!(
            conditions,
            [
                "sizeof(struct ibv_b) == 24",
                "_Alignof(struct ibv_b) == 8",
                "offsetof(struct ibv_b, id) == 0",
                "offsetof(struct ibv_b, first) == 8",
                "offsetof(struct ibv_b, type) == 8",
                "offsetof(struct ibv_b, wr) == 16",
                "offsetof(struct ibv_b, wr.first) == 16",
                "offsetof(struct ibv_b, wr.type) == 16",
                "IBV_A == -1",
            ]
        );
        Ok(())
    }
}
