use libtest_mimic::Failed;
use serde_json::{Value, json};

use super::{Bench, EXAMPLE_ADDRESS, NQN, texts};

const WINNER: &str = "11111111-2222-4333-8444-555555555555";
const LOSER: &str = "99999999-2222-4333-8444-555555555555";

fn line(hostid: &str, command: &str) -> String {
    format!(
        "cairn-initiator resv-{command} -a {EXAMPLE_ADDRESS} --provider soft -n {NQN} -q {NQN} -I {hostid}"
    )
}

fn report(bench: &Bench) -> Result<Value, Failed> {
    let stdout = bench.succeed(&line(WINNER, "report --eds -o json"))?;
    Ok(serde_json::from_str(&stdout)?)
}

#[track_caller]
fn is_refused(bench: &Bench, hostid: &str, command: &str, parts: &[&str]) {
    let output = bench.run(&line(hostid, command));
    let (_, stderr) = texts(&output);
    assert_eq!(output.status.code(), Some(1), "{command}: {stderr}");
    for part in parts {
        assert!(stderr.contains(part), "{command}: {stderr}");
    }
}

fn names_the_conflict(bench: &Bench) {
    for byte in ["0", "1"] {
        let line = format!(
            "cairn-initiator compare-and-write -a {EXAMPLE_ADDRESS} --provider soft -n {NQN} -q {NQN} \
             -I {WINNER} --expected <(head -c 512 /dev/zero | tr '\\0' '\\{byte}') \
             -d <(head -c 512 /dev/zero) --destroy-data"
        );
        let (stdout, stderr) = texts(&bench.run(&line));
        let names = stderr.contains("Reservation Conflict") && stderr.contains("resv-report");
        assert!(names, "{stdout}{stderr}");
    }
}

pub(crate) fn fence() -> Result<(), Failed> {
    let bench = Bench::new();
    let run = |hostid: &str, command: &str| bench.succeed(&line(hostid, command));
    run(WINNER, "register --nrkey 0xa1 --rrega 0")?;
    run(LOSER, "register --nrkey=178")?;
    run(LOSER, "acquire --crkey 0xb2 --rtype 1 --racqa 0")?;
    assert_eq!(
        report(&bench)?,
        json!({"gen": 2, "rtype": 1, "regctl": 2, "ptpls": 0, "regctlext": [
            {"cntlid": 0xffff, "rcsts": 0, "rkey": 0xa1, "hostid": WINNER.replace('-', "")},
            {"cntlid": 0xffff, "rcsts": 1, "rkey": 0xb2, "hostid": LOSER.replace('-', "")},
        ]})
    );
    names_the_conflict(&bench);
    let acquire = "acquire --crkey 0xa1 --rtype 1";
    is_refused(
        &bench,
        WINNER,
        acquire,
        &["Reservation Conflict", "--racqa=1 with --prkey"],
    );
    is_refused(
        &bench,
        WINNER,
        "register --nrkey 3",
        &["Reservation Conflict", "--rrega=2"],
    );
    is_refused(
        &bench,
        WINNER,
        "release --crkey 5",
        &["Reservation Conflict", "--crkey is not"],
    );
    is_refused(
        &bench,
        LOSER,
        "release --crkey 0xb2 --rtype 2",
        &["Invalid Field", "--rtype"],
    );
    is_refused(
        &bench,
        WINNER,
        "register --cptpl 3",
        &["Invalid Field", "state_directory"],
    );
    let done = run(
        WINNER,
        "acquire --crkey 0xa1 --prkey 0xb2 --rtype 3 --racqa 2 -o json",
    )?;
    let done: Value = serde_json::from_str(&done)?;
    assert_eq!(done, json!({"command": "resv-acquire", "nsid": 1}));
    run(WINNER, "register --crkey 0xa1 --nrkey 7 --rrega 2")?;
    run(WINNER, "register --nrkey 8 --rrega 2 --iekey")?;
    let shown = run(LOSER, "report")?;
    for part in [
        "rtype     : 3 (write exclusive, registrants only)",
        "rkey       : 8",
    ] {
        assert!(shown.contains(part), "{shown}");
    }
    run(WINNER, "release --crkey 8 --rtype 3 --rrela 0")?;
    assert_eq!(report(&bench)?["rtype"], 0);
    run(WINNER, "register --crkey 8 --rrega 1")?;
    assert_eq!(report(&bench)?["regctl"], 0);
    bench.stop()
}
