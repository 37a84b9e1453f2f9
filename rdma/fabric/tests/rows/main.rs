//! One test for each thing that a storage admin meets in RoCE: `docs/roce/rules.md`
//! says which is which. Each plants what the rule is about, and falls without it.

#[path = "../common/mod.rs"]
mod common;

mod addresses;
mod bonds;
mod links;
mod machine;
mod peers;
mod priorities;
mod versions;
