use libtest_mimic::Failed;
use serde_json::Value;

use super::{Bench, EXAMPLE_ADDRESS, NQN, texts};

pub(crate) fn full() -> Result<(), Failed> {
    let bench = Bench::new();
    let at = format!("-a {EXAMPLE_ADDRESS} --provider soft -n {NQN}");
    for line in [
        format!("read {at} -c 7"),
        format!("list {at}"),
        format!("id-ctrl {at} -o json"),
        format!("get-log {at} -L smart -b"),
        "completions bash".to_owned(),
    ] {
        let output = bench.run(&format!("cairn-initiator {line} > /dev/full"));
        let (_, stderr) = texts(&output);
        assert!(!output.status.success(), "{line}");
        assert!(
            stderr.contains("writing to stdout: No space left"),
            "{line}: {stderr}"
        );
    }
    bench.succeed(&format!(
        "set -o pipefail; cairn-initiator id-ctrl {at} | head -c 1 | wc -c"
    ))?;
    let output = bench.run(&format!(
        "cairn-initiator read {at} -c 0xffff | true; exit ${{PIPESTATUS[0]}}"
    ));
    assert!(!output.status.success(), "nobody has the data");
    bench.stop()
}

pub(crate) fn shapes() -> Result<(), Failed> {
    let bench = Bench::new();
    let json = |line: &str| -> Result<Value, Failed> {
        let line = format!("cairn-initiator {line} -a {EXAMPLE_ADDRESS} --provider soft -o json");
        let stdout = bench.succeed(&line)?;
        Ok(serde_json::from_str(&stdout)?)
    };
    let listed = json("list-subsys")?;
    let subsystem = &listed[0]["Subsystems"][0];
    assert_eq!(subsystem["NQN"], NQN, "{listed}");
    assert_eq!(subsystem["Name"], "nvme-subsys0");
    let path = &subsystem["Paths"][0];
    assert_eq!(
        (&path["Name"], &path["Transport"], &path["State"]),
        (&"nvme0".into(), &"rdma".into(), &"new".into())
    );
    let address = format!("traddr={},trsvcid=4420", bench.address);
    assert_eq!(path["Address"], address.as_str());
    for host in ["HostNQN", "HostID"] {
        assert!(listed[0][host].is_string(), "{listed}");
    }
    let found = json(&format!("ns-descs -n {NQN} -N 0x1"))?;
    let descriptors = found["ns-descs"].as_array().expect("a list");
    let mut loc = 0;
    for one in descriptors {
        assert_eq!(one["loc"], loc, "{found}");
        loc += 4 + one["nidl"].as_u64().expect("a length");
        let kind = one["type"].as_str().expect("a name");
        assert!(one[kind].is_string(), "{found}");
    }
    let kinds: Vec<_> = descriptors.iter().map(|one| &one["type"]).collect();
    assert!(
        kinds.contains(&&"uuid".into()) && kinds.contains(&&"csi".into()),
        "{found}"
    );
    json(&format!("smart-log -n {NQN} -N 0xffffffff"))?;
    let of_one = json(&format!("smart-log -n {NQN} -N 0x1")).unwrap_err();
    let why = of_one.message().unwrap_or_default();
    assert!(why.contains("Get Log Page (02h) failed"), "{why}");
    bench.stop()
}
