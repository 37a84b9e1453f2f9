use libtest_mimic::Failed;

use super::{Bench, EXAMPLE_ADDRESS, NQN, texts};

const WRONG: &[(&str, &str)] = &[
    (
        "write -z 1000 -d long.bin --destroy-data",
        "not a multiple of the block size",
    ),
    (
        "write -z 512 -c 7 -d long.bin --destroy-data",
        "-z 512 and -c 7 disagree",
    ),
    (
        "write -z 4096 -c 0 -d long.bin --destroy-data",
        "-z 4096 and -c 0 disagree",
    ),
    ("write -z 0 -d long.bin --destroy-data", "-z 0 is no block"),
    (
        "write -c 7 -d long.bin --destroy-data",
        "more than the 4096 bytes",
    ),
    (
        "write -d long.bin --destroy-data",
        "more than the 512 bytes",
    ),
    ("write -d odd.bin --destroy-data", "more than the 512 bytes"),
    (
        "write -c 7 --destroy-data < long.bin",
        "more than the 4096 bytes",
    ),
    (
        "write -c 7 --destroy-data < odd.bin",
        "there are 1000 bytes of data for the 4096",
    ),
    (
        "write -c 0 --destroy-data < <(cat long.bin)",
        "more than the 512 bytes",
    ),
    (
        "write -c 63 --destroy-data < <(cat long.bin)",
        "there are 8192 bytes of data",
    ),
    (
        "write --start-block 65535 -c 1 -d long.bin --destroy-data",
        "are not all in the namespace",
    ),
    (
        "write --start-block 0xffffffffffffffff -d /dev/zero --destroy-data",
        "are not all in the namespace",
    ),
    (
        "write -c 0xffffffffffffffff -d /dev/zero --destroy-data",
        "are not all in the namespace",
    ),
    (
        "compare -z 1000 -d long.bin",
        "not a multiple of the block size",
    ),
    ("compare -d long.bin", "more than the 512 bytes"),
    ("read -z 0", "-z 0 is no block"),
    ("read -z 512 -c 7", "-z 512 and -c 7 disagree"),
    ("read -z 0xffffffffffffffff", "are not all in the namespace"),
    (
        "write-zeroes -c 0xffffffffffffffff --destroy-data",
        "are not all in the namespace",
    ),
    (
        "write-zeroes --start-block 65536 --destroy-data",
        "are not all in the namespace",
    ),
    (
        "dsm --ad --slbs 0 --blocks 1,2 --destroy-data",
        "the same count of numbers",
    ),
    (
        "dsm --ad --slbs 65536 --blocks 1 --destroy-data",
        "LBA Out of Range",
    ),
    (
        "copy --slbs 0,8 --blocks 7 --sdlba 64 --destroy-data",
        "the same count of numbers",
    ),
    (
        "copy --slbs 0 --blocks 7 --sdlba 7 --destroy-data",
        "Overlapping I/O Range",
    ),
    ("get-log -L error -e 0", "--log-entries"),
    ("get-log -L smart -e 1", "--log-entries"),
    ("get-log -L smart --log-len 7", "multiples of 4"),
    (
        "bench --rw=randread --bs=1000",
        "multiple of the namespace's block",
    ),
    ("verify --size 64m", "more than the namespace"),
];

const RIGHT: &[(&str, &str)] = &[
    (
        "cairn-initiator write AT -z 1024 -d long.bin --destroy-data",
        "write: 2 blocks from 0",
    ),
    (
        "cairn-initiator write AT --start-block 8 --destroy-data < <(head -c 512 long.bin)",
        "write: 1 blocks",
    ),
    (
        "cairn-initiator write AT -c 1 --start-block 9 -d /dev/zero --destroy-data",
        "write: 2 blocks",
    ),
    (
        "cairn-initiator read AT -z 1000 | cmp - odd.bin && echo same",
        "same",
    ),
    (
        "cairn-initiator compare AT -z 512 -d long.bin",
        "they are the same",
    ),
    (
        "cairn-initiator compare AT -z 512 --start-block 8 -d long.bin",
        "they are the same",
    ),
];

pub(crate) fn refused() -> Result<(), Failed> {
    let bench = Bench::new();
    let at = format!("-a {EXAMPLE_ADDRESS} --provider soft -n {NQN}");
    bench.succeed("head -c 8192 /dev/urandom > long.bin; head -c 1000 long.bin > odd.bin")?;
    for (line, why) in WRONG {
        let (command, rest) = line.split_once(' ').expect("arguments");
        let output = bench.run(&format!("cairn-initiator {command} {at} {rest}"));
        let (_, stderr) = texts(&output);
        assert!(!output.status.success(), "{line}");
        assert!(stderr.contains(*why), "{line}: {stderr}");
    }
    let all = bench.succeed(&format!(
        "cairn-initiator read {at} -c 0xffff | cmp - <(head -c 32M /dev/zero) && echo unchanged"
    ))?;
    assert!(all.contains("unchanged"), "{all}");
    for (line, said) in RIGHT {
        let shown = bench.succeed(&line.replace("AT", &at))?;
        assert!(shown.contains(*said), "{line}: {shown}");
    }
    bench.stop()
}
