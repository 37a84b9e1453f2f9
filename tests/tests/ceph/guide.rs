use cairn_ceph::Cluster;
use cairn_config::{Config, Flags};
use cairn_initiator::{Data, Host, HostOptions, Identity, command};
use cairn_rdma::Provider;
use cairn_rdma::loopback::Loopback;
use cairn_target::Target;
use cairn_tests::harness::nqn;
use nvme_proto::wire::Status;

use super::{cluster, status};

const GUIDE: &str = include_str!("../../../docs/guide-ceph.md");

const FOLDER: &str = "/etc/ceph";

const COMMANDS_MAX: usize = 10;

fn section() -> &'static str {
    let (_, section) = GUIDE
        .split_once("## From a cluster to a disk of a host\n")
        .expect("the section");
    section.split("\n## ").next().unwrap_or(section)
}

fn commands() -> Vec<&'static str> {
    let mut block = None;
    let mut commands = Vec::new();
    for line in section().lines() {
        match (line.strip_prefix("```"), block) {
            (Some(language), None) => block = Some(language),
            (Some(_), Some(_)) => block = None,
            (None, Some("")) => commands.push(line),
            (None, _) => {}
        }
    }
    commands
}

fn words(command: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for letter in command.chars() {
        match letter {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            letter => words.last_mut().expect("there is one").push(letter),
        }
    }
    words
}

fn administer(cluster: &Cluster, folder: &str) {
    let mut run = 0;
    for command in commands() {
        let words = words(command);
        let words: Vec<String> = words
            .iter()
            .map(|word| word.replace(FOLDER, folder))
            .collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let ran = match words[0] {
            "ceph" => cluster.ceph(&words[1..]),
            "rbd" => cluster.rbd(&words[1..]),
            _ => continue,
        };
        ran.unwrap_or_else(|error| panic!("{command}: {error}"));
        run += 1;
    }
    assert_eq!(run, 4, "the commands for the cluster: {:?}", commands());
}

fn config(cluster: &Cluster, folder: &str, user: &str, image: &str) -> Config {
    let (_, toml) = section().split_once("```toml\n").expect("a configuration");
    let toml = toml.split("```").next().expect("its end");
    let conf = cluster.conf();
    let ceph = format!(
        "ceph = {{ id = \"{user}\", conf = \"{}\", keyring = \"{folder}/ceph.client.{user}.keyring\" }}",
        conf.display()
    );
    assert!(toml.contains("ceph = { id = \"cairn\" }") && toml.contains("rbd:disks/vm-7"));
    let toml = toml
        .replace("ceph = { id = \"cairn\" }", &ceph)
        .replace("rbd:disks/vm-7", image);
    Config::parse("the guide", &toml, &Flags::default()).expect("the guide's configuration")
}

fn connect(network: &Loopback, target: &Target) -> Host {
    let remote = target.addresses()[0];
    let (subsystem, host) = (
        "nqn.2024-01.com.example:vm-7",
        "nqn.2024-01.com.example:a-host",
    );
    assert!(section().contains(&format!("-n {subsystem}\n")));
    let options = HostOptions {
        local: Some("192.0.2.2".parse().expect("an address")),
        kato_ms: 0,
        ..HostOptions::new(remote, nqn(subsystem), Identity::named(nqn(host)))
    };
    Host::connect(network, options).expect("the host that the guide allows")
}

fn start(network: &Loopback, config: Config) -> Target {
    let providers: Vec<std::sync::Arc<dyn Provider>> = vec![std::sync::Arc::new(network.clone())];
    Target::start(config, providers).expect("a target")
}

#[test]
#[ignore = "a real Ceph: `cargo xtask test` runs it"]
fn the_guide_leads_from_a_cluster_to_a_disk() {
    assert_eq!(commands().last(), Some(&"mount /dev/nvme0n1 /mnt"));
    assert!(commands().len() <= COMMANDS_MAX, "{:?}", commands());
    let Some((folder, cluster)) = cluster() else {
        return;
    };
    let folder = folder
        .path()
        .to_str()
        .expect("a path of letters")
        .to_owned();
    administer(&cluster, &folder);
    let network = Loopback::new();
    let target = start(
        &network,
        config(&cluster, &folder, "cairn", "rbd:disks/vm-7"),
    );
    let mut host = connect(&network, &target);
    let namespace = host.open_namespace(1).unwrap();
    assert_eq!(
        namespace.blocks * u64::from(namespace.block_bytes),
        100 << 30
    );
    let bytes: Vec<u8> = (0..4096_u32).map(|n| (n * 31 % 251) as u8).collect();
    let mut buffer = host.buffer(4096).unwrap();
    let blocks = 4096 / namespace.block_bytes;
    let last = namespace.blocks - u64::from(blocks);
    buffer.write(0, &bytes);
    let data = Data::start_of(&mut buffer, 4096);
    host.run(command::write(1, last, blocks), data).unwrap();

    cluster.rbd(&["snap", "create", "disks/vm-7@then"]).unwrap();
    let caps = "`mon 'profile rbd' osd 'profile rbd-read-only pool=disks'`";
    assert!(section().contains(caps));
    let caps = words(caps.trim_matches('`'));
    let keyring = format!("{folder}/ceph.client.reader.keyring");
    let mut grant = vec!["auth", "get-or-create", "client.reader"];
    grant.extend(caps.iter().map(String::as_str));
    grant.extend(["-o", &keyring]);
    cluster.ceph(&grant).unwrap();
    let snapshots = Loopback::new();
    let reader = start(
        &snapshots,
        config(&cluster, &folder, "reader", "rbd:disks/vm-7@then"),
    );
    let mut other = connect(&snapshots, &reader);
    let mut buffer = other.buffer(4096).unwrap();
    let data = Data::start_of(&mut buffer, 4096);
    other.run(command::read(1, last, blocks), data).unwrap();
    let mut found = vec![0; 4096];
    buffer.read(0, &mut found);
    assert_eq!(found, bytes);
    let data = Data::start_of(&mut buffer, 4096);
    let written = other.run(command::write(1, last, blocks), data);
    assert_eq!(status(written), Err(Status::NAMESPACE_WRITE_PROTECTED));
    drop((host, other));
    reader.stop().unwrap();
    target.stop().unwrap();
    assert_eq!(cluster.rbd(&["lock", "ls", "disks/vm-7"]).unwrap(), "");
}
