//! Target over user-space RoCE whose reactors panic at reads of BYTES bytes.
//!
//! Usage: `cairn-sabotaged-target BYTES ADDRESS`. The program prints its listening address.

use std::sync::Arc;
use std::time::Duration;

use cairn_config::{Config, Flags};
use cairn_roce::Soft;
use cairn_target::Target;
use cairn_tests::harness::{NQN, subsystem};
use cairn_tests::saboteur::Saboteur;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, bytes, address] = &arguments[..] else {
        panic!("BYTES ADDRESS")
    };
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
    cairn_target::end_process_on_panic();
    let text = format!(
        "[target]\nreactors = 2\n{}[[listener]]\naddress = \"{address}\"\n",
        subsystem(NQN, &["mem:1MiB block_size = 4096"])
    );
    let config = Config::parse("test", &text, &Flags::default()).unwrap();
    let saboteur = Saboteur::new(Arc::new(Soft::default()), bytes.parse().unwrap());
    saboteur.arm(usize::MAX);
    let target = Target::start(config, vec![Arc::new(saboteur)]).unwrap();
    println!("{}", target.addresses()[0]);
    std::thread::sleep(Duration::from_secs(120));
}
