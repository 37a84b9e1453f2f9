//! Target whose RDMA adapter has the quirks of a profile.
//!
//! Usage: `cairn-quirky-target PROFILE CONFIG`, which prints `ready` when it listens. Without
//! arguments it lists the profiles.

use std::path::Path;
use std::sync::Arc;

use cairn_config::{Config, Flags};
use cairn_target::Target;
use cairn_verbs::{Quirks, VerbsProvider};

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let (profile, config) = match &arguments[1..] {
        [] => {
            for quirks in &Quirks::ALL[1..] {
                println!("{}", quirks.name);
            }
            return;
        }
        [profile, config] => (profile, config),
        _ => panic!("[PROFILE CONFIG]"),
    };
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
    let quirks = Quirks::named(profile).expect("a profile of cairn_verbs::Quirks");
    let provider = VerbsProvider::with_quirks(quirks).unwrap();
    let config = Config::from_file(Path::new(config), &Flags::default()).unwrap();
    let _target = Target::start(config, vec![Arc::new(provider)]).unwrap();
    println!("ready");
    loop {
        std::thread::park();
    }
}
