//! One test per topic in `docs/roce/rules.md`. Each test plants the condition of its rule, and
//! fails without the rule.

#[path = "../common/mod.rs"]
mod common;

mod adapters;
mod addresses;
mod bonds;
mod links;
mod machine;
mod peers;
mod priorities;
mod versions;
