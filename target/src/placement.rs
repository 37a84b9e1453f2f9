//! Choice of the core for each reactor.

use std::collections::BTreeSet;
use std::net::IpAddr;

use cairn_config::{Config, Reactors};
use cairn_doctor::placement::near_cpus;
use cairn_doctor::source::Live;

/// Default maximum of reactors, because each may occupy a core by polling.
const REACTORS_AUTO_MAX: usize = 2;

/// Minimum cores for pinning. With fewer, a pinned reactor might wait for its core while another
/// core is idle.
const CORES_TO_PIN: usize = 4;

/// Returns the core of each reactor, or `None` if the scheduler chooses. By default, cores are near
/// the listeners' adapters, because a reactor's memory is on the NUMA node of its core.
pub(crate) fn cores(config: &Config) -> Vec<Option<usize>> {
    let reactors = &config.target.reactors;
    if let Reactors::Cores(cores) = reactors {
        return cores.iter().copied().map(Some).collect();
    }
    let addresses: Vec<IpAddr> = { config.listeners.iter() }
        .map(|listener| listener.address.ip())
        .collect();
    let near = near_cpus(&Live::machine(), &addresses);
    choose(reactors, &allowed_cores(), &near)
}

pub(crate) fn missing_cores(reactors: &Reactors) -> Vec<usize> {
    let Reactors::Cores(cores) = reactors else {
        return Vec::new();
    };
    let allowed = allowed_cores();
    let cores = cores.iter().copied();
    cores.filter(|core| !allowed.contains(core)).collect()
}

pub(crate) fn count(reactors: &Reactors) -> usize {
    match reactors {
        Reactors::Cores(cores) => cores.len(),
        Reactors::Count(count) => *count,
        Reactors::Auto => automatic(&allowed_cores()),
    }
}

fn automatic(allowed: &[usize]) -> usize {
    (allowed.len() / 2).clamp(1, REACTORS_AUTO_MAX)
}

fn choose(reactors: &Reactors, allowed: &[usize], near: &[BTreeSet<u32>]) -> Vec<Option<usize>> {
    let count = match reactors {
        Reactors::Cores(cores) => return cores.iter().copied().map(Some).collect(),
        Reactors::Count(count) => *count,
        Reactors::Auto => automatic(allowed),
    };
    let pin = allowed.len() >= CORES_TO_PIN && count <= allowed.len();
    let mut cores = by_nearness(allowed, near).into_iter();
    (0..count).map(|_| cores.next().filter(|_| pin)).collect()
}

/// Returns the allowed cores in order of preference: first the cores of the `near` nodes, one of
/// each node in turn. In a node, the highest core is first, because interrupts tend to use the
/// lowest.
fn by_nearness(allowed: &[usize], near: &[BTreeSet<u32>]) -> Vec<usize> {
    let is_in = |node: &BTreeSet<u32>, core: usize| node.contains(&(core as u32));
    let mut nodes: Vec<_> = { near.iter() }
        .map(|node| allowed.iter().rev().filter(move |&&core| is_in(node, core)))
        .collect();
    let mut order = Vec::with_capacity(allowed.len());
    while order.len() < allowed.len() {
        let before = order.len();
        order.extend(nodes.iter_mut().filter_map(Iterator::next));
        if order.len() == before {
            break;
        }
    }
    let far = |core: &&usize| !near.iter().any(|node| is_in(node, **core));
    order.extend(allowed.iter().rev().filter(far));
    order
}

fn allowed_cores() -> Vec<usize> {
    let Ok(set) = rustix::thread::sched_getaffinity(None) else {
        return vec![0];
    };
    (0..rustix::thread::CpuSet::MAX_CPU)
        .filter(|&core| set.is_set(core))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(count: usize, allowed: &[usize], near: &[BTreeSet<u32>]) -> Vec<usize> {
        let chosen = choose(&Reactors::Count(count), allowed, near);
        chosen
            .into_iter()
            .map(|core| core.expect("it is pinned"))
            .collect()
    }

    const EIGHT: [usize; 8] = [0, 1, 2, 3, 4, 5, 6, 7];

    #[test]
    fn without_nodes_cores_are_taken_from_the_last_one_down() {
        assert_eq!(chosen(3, &EIGHT, &[]), [7, 6, 5]);
    }

    #[test]
    fn the_adapters_node_comes_first_and_others_when_it_is_full() {
        let near = [(0..4).collect()];
        assert_eq!(chosen(2, &EIGHT, &near), [3, 2]);
        assert_eq!(chosen(6, &EIGHT, &near), [3, 2, 1, 0, 7, 6]);
    }

    #[test]
    fn adapters_on_several_nodes_have_reactors_in_turn() {
        let near = [(0..2).collect(), (4..6).collect()];
        assert_eq!(chosen(3, &EIGHT, &near), [1, 5, 0]);
    }

    #[test]
    fn cores_that_are_not_allowed_are_not_taken() {
        let near = [(0..4).collect()];
        assert_eq!(chosen(2, &[1, 4, 5, 6], &near), [1, 6]);
    }

    #[test]
    fn few_cores_are_left_to_the_scheduler() {
        assert_eq!(choose(&Reactors::Auto, &[0, 1], &[]), [None]);
        assert_eq!(choose(&Reactors::Count(5), &[0, 1, 2, 3], &[]), [None; 5]);
    }

    #[test]
    fn what_the_administrator_says_is_done() {
        let cores = Reactors::Cores(vec![9, 3]);
        let near = [(0..4).collect()];
        assert_eq!(choose(&cores, &EIGHT, &near), [Some(9), Some(3)]);
    }
}
