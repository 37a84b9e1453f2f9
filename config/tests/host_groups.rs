//! Host groups in many lists share memory.

use std::fmt::Write as _;
use std::sync::Arc;

use cairn_config::{ALLOWED_HOSTS_MAX, Config, Flags, HostList, Nqn};

fn parse(text: &str) -> Config {
    match Config::parse("test", text, &Flags::default()) {
        Ok(config) => config,
        Err(error) => panic!("{error}"),
    }
}

fn host(name: impl std::fmt::Display) -> String {
    format!("nqn.2024-01.com.example:{name}")
}

fn thousand(group: &[String], list: &str) -> String {
    let mut text = format!(
        "[[listener]]\naddress = \"192.0.2.1\"\n\
         [[host_group]]\nname = \"vms\"\nhosts = {group:?}\n\
         [[subsystem]]\nnqn = \"nqn.2024-01.com.example:disks\"\nallowed_hosts = [\"@vms\"]\n"
    );
    for nsid in 1..=1000 {
        let _ = write!(
            text,
            "[[subsystem.namespace]]\nnsid = {nsid}\nexport = \"mem:1MiB\"\nhosts = {list}\n"
        );
    }
    text
}

fn lists(config: &Config) -> impl Iterator<Item = &HostList> {
    let subsystem = &config.subsystems[0];
    let namespaces = subsystem.namespaces.iter();
    namespaces.filter_map(|namespace| namespace.hosts.list())
}

#[test]
fn a_thousand_namespaces_share_the_hosts_of_a_group() {
    let hosts: Vec<String> = (0..ALLOWED_HOSTS_MAX).map(host).collect();
    let config = parse(&thousand(&hosts, "[\"@vms\"]"));
    let group = &config.host_groups[0].hosts;
    assert_eq!(group.len(), ALLOWED_HOSTS_MAX);
    assert_eq!(lists(&config).count(), 1000);
    assert!(lists(&config).all(|list| Arc::ptr_eq(&list.hosts, group)));
    let allowed = &config.subsystems[0].allowed_hosts;
    assert!(Arc::ptr_eq(&allowed.hosts, group));
    assert_eq!(allowed.single(&config.host_groups).count(), 0);
}

#[test]
fn equal_lists_share_one_set_without_a_group() {
    let [a, b] = ["a", "b"].map(host);
    let config = parse(&thousand(
        std::slice::from_ref(&a),
        &format!("[{b:?}, {a:?}, {b:?}]"),
    ));
    let first = &lists(&config).next().unwrap().hosts;
    assert_eq!(first.len(), 2);
    assert!(lists(&config).all(|list| Arc::ptr_eq(&list.hosts, first)));
}

#[test]
fn a_configuration_that_is_read_again_shares_what_is_equal() {
    let [a, b] = ["a", "b"].map(host);
    let text = thousand(std::slice::from_ref(&a), "[\"@vms\"]");
    let former = parse(&text);
    let mut same = parse(&text);
    same.share_hosts(&former);
    assert_eq!(same, former);
    let group = &former.host_groups[0].hosts;
    assert!(lists(&same).all(|list| Arc::ptr_eq(&list.hosts, group)));
    assert!(Arc::ptr_eq(&same.host_groups[0].hosts, group));
    let mut other = parse(&thousand(&[a, b], "[\"@vms\"]"));
    let before = other.clone();
    other.share_hosts(&former);
    assert_eq!(other, before);
    let group = &other.host_groups[0].hosts;
    assert!(lists(&other).all(|list| Arc::ptr_eq(&list.hosts, group)));
}

#[test]
fn a_list_has_groups_and_hosts_together() {
    let [a, b, c] = ["a", "b", "c"].map(host);
    let config = parse(&format!(
        r#"
        [[listener]]
        address = "192.0.2.1"
        # A group may stand after the lists that name it, and have no host.
        [[subsystem]]
        nqn = "nqn.2024-01.com.example:disks"
        allowed_hosts = ["@both", "{c}", "@none"]
        [[host_group]]
        name = "both"
        hosts = ["{a}", "{b}"]
        [[host_group]]
        name = "none"
        "#
    ));
    let list = &config.subsystems[0].allowed_hosts;
    let all = [a, b, c].map(|host| host.parse::<Nqn>().unwrap());
    assert!(list.hosts.iter().eq(&all));
    let names: Vec<&str> = list.groups.iter().map(|name| &**name).collect();
    assert_eq!(names, ["both", "none"]);
    assert!(list.single(&config.host_groups).eq(&all[2..]));
}

#[test]
fn groups_together_have_a_limit() {
    let hosts = |first: usize| -> Vec<String> { (first..first + 3000).map(host).collect() };
    let text = format!(
        "[[listener]]\naddress = \"192.0.2.1\"\n\
         [[host_group]]\nname = \"a\"\nhosts = {:?}\n\
         [[host_group]]\nname = \"b\"\nhosts = {:?}\n\
         [[subsystem]]\nnqn = \"nqn.2024-01.com.example:disks\"\nallowed_hosts = [\"@a\", \"@b\"]\n",
        hosts(0),
        hosts(3000)
    );
    let error = Config::parse("test", &text, &Flags::default()).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("the list has 6000 hosts: the limit is 4096"),
        "{error}"
    );
}
