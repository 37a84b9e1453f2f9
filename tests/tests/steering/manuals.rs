//! Commands and recipes in docs/operations: they must run, and hosts must connect with the
//! documented names.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use cairn_initiator::{Host, HostOptions, Identity};
use cairn_roce::Soft;
use cairn_tests::harness::{host_nqn, nqn, own_loopback_address};
use serde_json::json;

use super::target::Steered;

const ADDRESS: &str = "192.0.2.1";
const DISK: &str = "/dev/vg0/disk1";
const SIDE_BY_SIDE: &str = "from-nvmet-and-spdk.md";

fn page(name: &str) -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operations");
    fs::read_to_string(Path::new(folder).join(name)).unwrap()
}

fn commands(page: &str) -> Vec<String> {
    let rows = page.lines().filter(|line| line.starts_with("| "));
    let cells = rows.filter_map(|row| row.trim_end_matches(" |").rsplit(" | ").next());
    let quoted = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    quoted
        .filter(|text| text.starts_with("cairn-target "))
        .map(str::to_owned)
        .collect()
}

#[test]
fn commands_side_by_side_work_in_their_order() {
    let target = Steered::start();
    let disk = target.folder.path().join("disk1");
    fs::File::create(&disk).unwrap().set_len(1 << 20).unwrap();
    let other = own_loopback_address().to_string();
    let mut ran = 0;
    for command in commands(&page(SIDE_BY_SIDE)) {
        if command == "cairn-target top" || command.contains(" import ") {
            continue;
        }
        let said = command
            .replace(DISK, disk.to_str().unwrap())
            .replace(ADDRESS, &other)
            .replace("NQN", "nqn.2024-01.com.example:disks")
            .replace("HOST", "nqn.2024-01.com.example:host1");
        let args: Vec<&str> = said.split(' ').skip(1).collect();
        let output = target.command(&args);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command}: {errors}");
        ran += 1;
    }
    assert!(ran >= 14, "{ran} commands");
}

/// Returns the commands in a table row of docs/control.md.
///
/// "`host key show`, `set NQN HOST --key FILE`" means `host key show` and `host key set`.
fn commands_of_row(row: &str) -> Vec<Vec<&str>> {
    let cell = row.split(" | ").next().unwrap();
    let mut commands: Vec<Vec<&str>> = Vec::new();
    for quoted in cell.split('`').skip(1).step_by(2) {
        let is_word = |word: &&str| word.chars().all(|c| c.is_ascii_lowercase());
        let words = quoted.split(' ').take_while(is_word);
        let mut command = commands.first().cloned().unwrap_or_default();
        command.pop();
        command.extend(words);
        commands.push(command);
    }
    commands
}

#[test]
fn each_option_of_a_command_is_in_the_table_of_commands() {
    let page = include_str!("../../../docs/control.md");
    let (_, after) = page.split_once("| command | does |").unwrap();
    let rows = after
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with("| "));
    let mut seen = 0;
    for row in rows {
        for command in commands_of_row(row) {
            let output = Command::new(cairn_tests::process::program("cairn-target-process"))
                .args(&command)
                .arg("--help")
                .output()
                .unwrap();
            assert!(output.status.success(), "{command:?}");
            let help = String::from_utf8(output.stdout).unwrap();
            let words = help.split(|c: char| !c.is_ascii_lowercase() && c != '-');
            let options = words.filter(|word| word.starts_with("--"));
            let of_all = ["--socket", "--output", "--help", "--quiet", "--no-headers"];
            for option in options.filter(|option| !of_all.contains(option)) {
                assert!(row.contains(option), "{command:?} {option} is not in {row}");
                seen += 1;
            }
        }
    }
    assert!(seen > 20, "{seen} options");
}

#[test]
fn methods_of_the_page_for_spdk_are_there() {
    let target = Steered::start();
    let methods = target.done("rpc_get_methods", json!({}));
    let methods = methods.as_array().unwrap();
    let page = page(SIDE_BY_SIDE);
    let rows = page.lines().filter(|line| line.starts_with("| "));
    let cells = rows.filter(|row| row.matches('|').count() == 5);
    let cells = cells.filter_map(|row| row.split('|').nth(3));
    let quoted = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    let mut seen = 0;
    for name in quoted.map(|call| call.split(' ').next().unwrap()) {
        if name == "save_config" {
            continue;
        }
        assert!(methods.iter().any(|method| method == name), "{name}");
        seen += 1;
    }
    assert!(seen >= 10, "{seen} methods");
}

struct Target {
    child: Child,
    address: Ipv4Addr,
    _folder: tempfile::TempDir,
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn value<'a>(text: &'a str, key: &str) -> &'a str {
    let after = text.split(key).nth(1).unwrap_or_else(|| panic!("no {key}"));
    let value = after.trim_start_matches([' ', '=', ':', '"']);
    value.split(['"', '\n', ' ', '/']).next().unwrap()
}

impl Target {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let address = own_loopback_address();
        let mut text = page("recipes/target.toml").replace(ADDRESS, &address.to_string());
        for (index, disk) in ["/dev/vg0/kubernetes", "/dev/vg0/machine1"]
            .iter()
            .enumerate()
        {
            assert!(text.contains(disk), "{disk}");
            let file = folder.path().join(format!("disk{index}"));
            fs::File::create(&file).unwrap().set_len(1 << 20).unwrap();
            text = text.replace(disk, file.to_str().unwrap());
        }
        let socket = format!("socket = \"{}\"", folder.path().join("socket").display());
        text = text.replace("group = \"cairn\"", &socket);
        text += "\n[target]\nprovider = \"soft\"\nreactors = 1\n";
        let config: PathBuf = folder.path().join("target.toml");
        fs::write(&config, text).unwrap();
        let mut child = Command::new(cairn_tests::process::program("cairn-target-process"))
            .args(["serve", "--log", "warn", "--config"])
            .arg(&config)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = std::io::BufReader::new(child.stdout.take().unwrap());
        let mut lines = std::io::BufRead::lines(stdout).map_while(Result::ok);
        assert!(lines.any(|line| line == "ready"), "it starts");
        Self {
            child,
            address,
            _folder: folder,
        }
    }

    fn uuid_of_disk(&self, subsystem: &str, host: &str) -> String {
        let address = SocketAddr::from((self.address, 4420));
        let host = if host.is_empty() {
            host_nqn("node")
        } else {
            nqn(host)
        };
        let host = Host::connect(
            &Soft::default(),
            HostOptions::new(address, nqn(subsystem), Identity::named(host)),
        );
        let mut host = host.unwrap_or_else(|error| panic!("{subsystem}: {error}"));
        let uuid = host.open_namespace(1).unwrap().uuid.expect("it has one");
        let text: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
        let parts = [
            &text[..8],
            &text[8..12],
            &text[12..16],
            &text[16..20],
            &text[20..],
        ];
        parts.join("-")
    }
}

#[test]
fn recipes_name_disks_that_are_there() {
    let target = Target::start();
    let volume = page("recipes/kubernetes-pv.yaml");
    assert_eq!(value(&volume, "targetTrType"), "rdma");
    assert_eq!(value(&volume, "targetTrAddr"), ADDRESS);
    assert_eq!(value(&volume, "targetTrPort"), "4420");
    let subsystem = value(&volume, " nqn: ");
    assert_eq!(value(&volume, "volumeHandle:"), subsystem);
    let uuid = target.uuid_of_disk(subsystem, "");
    assert_eq!(value(&volume, "deviceUUID"), uuid);

    let disk = page("recipes/libvirt-disk.xml");
    let recipes = page("recipes.md");
    let machines = value(&recipes, "-s 4420 -n");
    let config = page("recipes/target.toml");
    let host = value(&config, "allowed_hosts = [");
    let uuid = target.uuid_of_disk(machines, host);
    let named = value(&disk, "by-id/nvme-uuid.");
    assert_eq!(named, uuid);
    assert_eq!(
        value(&recipes, "pvcreate /dev/disk/by-id/nvme-uuid."),
        named
    );
    let discovery = page("recipes/discovery.conf");
    assert_eq!(value(&discovery, "--traddr"), ADDRESS);
    assert_eq!(value(&discovery, "--trsvcid"), "4420");
}

#[test]
fn the_playbook_installs_a_configuration_that_is_accepted() {
    let playbook = page("recipes/ansible.yml");
    let check = value(&playbook, "validate:");
    assert_eq!(check, "cairn-target");
    let line = playbook
        .lines()
        .find(|line| line.contains("validate:"))
        .unwrap();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operations/recipes");
    let file = Path::new(file).join(value(&playbook, "src:"));
    let args = line.split_once("cairn-target ").unwrap().1;
    let args = args
        .split(' ')
        .map(|word| word.replace("%s", file.to_str().unwrap()));
    let output = Command::new(cairn_tests::process::program("cairn-target-process"))
        .args(args)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert!(playbook.contains("command: cairn-target reload"));
}
