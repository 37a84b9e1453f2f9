use super::*;

struct Door {
    state: State,
    now: Instant,
    taken: Vec<(IpAddr, PlaceId)>,
    evicted: Vec<PlaceId>,
}

impl Door {
    fn new() -> Self {
        Self {
            state: State::default(),
            now: Instant::now(),
            taken: Vec::new(),
            evicted: Vec::new(),
        }
    }

    fn take(&mut self, address: &str) -> Result<PlaceId, Full> {
        self.take_of(address.parse().unwrap(), false)
    }

    fn take_of(&mut self, address: IpAddr, is_short: bool) -> Result<PlaceId, Full> {
        let host = address.to_canonical();
        let (id, evicted) = self.state.take(host, is_short, self.now)?;
        let waiting = self.state.waiting.get_mut(&id);
        waiting.unwrap().reactor = Some(3);
        if let Some(Evicted { place, reactor }) = evicted {
            assert_eq!(reactor, 3);
            self.evicted.push(place);
        }
        self.taken.push((host, id));
        Ok(id)
    }

    fn fill(&mut self, address: &str) -> (u32, Full) {
        for taken in 0..=KNOWN_MAX {
            match self.take(address) {
                Ok(id) => {
                    let host = address.parse::<IpAddr>().unwrap().to_canonical();
                    self.state.confirm(id, host);
                }
                Err(full) => return (taken, full),
            }
        }
        panic!("an address has a limit");
    }

    fn oldest(&mut self, address: &str) -> (IpAddr, PlaceId) {
        let host = address.parse::<IpAddr>().unwrap().to_canonical();
        let at = self.taken.iter().position(|(other, _)| *other == host);
        self.taken.remove(at.unwrap())
    }

    fn give_back(&mut self, address: &str) {
        let (host, id) = self.oldest(address);
        self.state.give_back(id, host, false, self.now);
    }

    fn associate(&mut self, address: &str) -> (IpAddr, PlaceId) {
        let (host, id) = self.oldest(address);
        self.state.associate(id, host, self.now);
        (host, id)
    }

    fn visit(&mut self, address: &str, time: Duration) {
        self.take(address).unwrap();
        let (host, id) = self.associate(address);
        self.now += time;
        self.state.give_back(id, host, true, self.now);
    }
}

fn of_network(number: u32) -> IpAddr {
    in_network(number, 1)
}

fn in_network(network: u32, host: u32) -> IpAddr {
    std::net::Ipv4Addr::from_bits((10 << 24) + (network << 8) + host).into()
}

#[test]
fn an_address_has_a_limit_and_networks_take_places_from_themselves() {
    let mut door = Door::new();
    let full = Full(STRANGER_MAX);
    assert_eq!(door.fill("192.0.2.1"), (STRANGER_MAX, full));
    assert_eq!(door.fill("::ffff:192.0.2.1"), (0, full), "the same host");
    assert_eq!(door.fill("192.0.2.2"), (STRANGER_MAX, full));
    assert_eq!(door.fill("192.0.2.3"), (STRANGER_MAX, full));
    assert_eq!(door.evicted, []);
    let first = door.taken[0].1;
    door.take("192.0.2.4").unwrap();
    assert_eq!(door.evicted, [first], "the network has all that it may");
    assert_eq!(door.state.strangers.networks(), 1);
    assert_eq!(door.state.strangers.count(), NETWORK_MAX);
}

#[test]
fn strangers_of_many_networks_keep_no_new_host_out() {
    const NETWORKS: u32 = 600;
    let mut door = Door::new();
    for number in 0..4 * NETWORKS {
        door.take_of(of_network(number % NETWORKS), false).unwrap();
    }
    assert_eq!(door.state.strangers.count(), STRANGERS_MAX);
    for round in 0..20 {
        let host = format!("192.0.{round}.1");
        let place = door.take(&host).unwrap();
        let asked = door.evicted.len();
        for number in 0..STRANGERS_MAX - 1 {
            let number = match number {
                0 => NETWORKS + round,
                _ => (number * 7 + round) % NETWORKS,
            };
            door.take_of(of_network(number), false).unwrap();
            let gone = door.evicted.contains(&place);
            assert!(
                !gone,
                "after {} in round {round}",
                door.evicted.len() - asked
            );
        }
        assert_eq!(door.state.strangers.count(), STRANGERS_MAX);
        door.associate(&host);
    }
    assert_eq!(
        door.state.waiting.len() as u32,
        door.state.strangers.count()
    );
}

#[test]
fn who_asks_again_loses_its_own_place() {
    let mut door = Door::new();
    let host = door.take("192.0.2.1").unwrap();
    for number in 0..STRANGERS_MAX - 1 {
        door.take_of(of_network(number), false).unwrap();
    }
    for asked in 0..1000 {
        door.take_of(in_network(7, 1 + asked / 100), false).unwrap();
    }
    assert!(!door.evicted.contains(&host));
}

#[test]
fn a_stranger_takes_anothers_place_where_queue_pairs_are_short() {
    let mut door = Door::new();
    door.take_of(of_network(1), true).unwrap();
    assert_eq!(door.evicted, [], "there is none to take");
    let first = door.taken[0].1;
    door.take_of(of_network(2), true).unwrap();
    assert_eq!(door.evicted, [first]);
}

#[test]
fn a_place_that_was_taken_may_be_used_or_given_back() {
    let mut door = Door::new();
    door.take("192.0.2.1").unwrap();
    door.take_of(of_network(1), true).unwrap();
    let (host, id) = door.associate("192.0.2.1");
    assert!(door.state.hosts[&host].is_known);
    door.state.give_back(id, host, true, door.now);
    let other = door.taken[0];
    door.take_of(of_network(2), true).unwrap();
    assert_eq!(door.evicted.last(), Some(&other.1));
    door.state.give_back(other.1, other.0, false, door.now);
    assert_eq!(door.state.strangers.count(), 1);
    assert_eq!(door.state.waiting.len(), 1);
}

#[test]
fn hosts_that_were_here_have_places_whatever_strangers_take() {
    let mut door = Door::new();
    door.visit("192.0.2.1", Duration::from_secs(1));
    for number in 0..4 * STRANGER_MAX {
        door.take(&format!("192.0.2.{}", 2 + number % 4)).unwrap();
    }
    for number in 0..600 {
        door.take_of(of_network(number), false).unwrap();
    }
    door.evicted.clear();
    let full = Full(KNOWN_MAX);
    assert_eq!(door.fill("192.0.2.1"), (KNOWN_MAX, full));
    assert_eq!(door.evicted, [], "they have places of their own");
}

#[test]
fn an_address_is_known_for_a_while_after_its_association() {
    let mut door = Door::new();
    for _ in 0..2 {
        let id = door.take("192.0.2.1").unwrap();
        door.state.confirm(id, "192.0.2.1".parse().unwrap());
    }
    assert_eq!(door.state.strangers.count(), 2);
    let (host, id) = door.associate("192.0.2.1");
    assert_eq!(
        (
            door.state.strangers.count(),
            door.state.strangers.networks()
        ),
        (0, 0)
    );
    door.now += 2 * KNOWN_FOR;
    assert_eq!(door.fill("192.0.2.1").0, KNOWN_MAX - 1);
    door.state.give_back(id, host, true, door.now);
    door.now += KNOWN_FOR;
    assert_eq!(door.fill("192.0.2.1"), (0, Full(STRANGER_MAX)));
    assert_eq!(door.state.strangers.count(), KNOWN_MAX);
    for _ in 0..KNOWN_MAX {
        door.give_back("192.0.2.1");
    }
    assert!(door.state.hosts.is_empty() && door.state.strangers.networks() == 0);
    assert_eq!(door.state.strangers.count(), 0);
}

#[test]
fn who_comes_and_goes_pushes_out_no_host_that_stayed() {
    let mut door = Door::new();
    door.visit("192.0.2.1", Duration::from_secs(60));
    door.take("192.0.2.2").unwrap();
    door.associate("192.0.2.2");
    let of = |number: usize| format!("10.{}.{}.1", number >> 8, number & 0xff);
    for number in 0..2 * FORMER_MAX {
        door.visit(&of(number), Duration::from_millis(1));
    }
    let knows = |address: String| {
        let host = door.state.hosts.get(&address.parse().unwrap());
        host.is_some_and(|host| host.is_known)
    };
    assert!(knows("192.0.2.1".into()) && knows("192.0.2.2".into()));
    assert_eq!(door.state.hosts.len(), FORMER_MAX + 1);
    assert!(!knows(of(0)) && knows(of(2 * FORMER_MAX - 1)));
}

#[test]
fn who_has_most_loses_the_oldest() {
    let mut door = Door::new();
    let mut random = 7_u64;
    for round in 0..500 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(round);
        let (network, host) = ((random >> 33) % 9, (random >> 50) % 5);
        let new: IpAddr = format!("10.0.{}.{}", network * network / 9, host + 1)
            .parse()
            .unwrap();
        if round % 3 == 0 && !door.taken.is_empty() {
            let at = (random >> 20) as usize % door.taken.len();
            let (host, id) = door.taken.swap_remove(at);
            door.state.give_back(id, host, false, door.now);
        }
        let waiting: Vec<(IpAddr, PlaceId)> = door
            .state
            .waiting
            .iter()
            .map(|(id, one)| (one.host, *id))
            .collect();
        let of_network = |host: IpAddr| {
            let own = waiting
                .iter()
                .filter(|(other, _)| network_of(*other) == network_of(host));
            own.count() + usize::from(network_of(host) == network_of(new))
        };
        let of_address = |host: IpAddr| {
            let own = waiting.iter().filter(|(other, _)| *other == host);
            own.count() + usize::from(host == new)
        };
        let before = door.evicted.len();
        if door.take_of(new, round % 5 == 0).is_err() {
            continue;
        }
        let Some(victim) = door.evicted.get(before).copied() else {
            continue;
        };
        let (loser, _) = *waiting.iter().find(|(_, id)| *id == victim).unwrap();
        let within = |host: &IpAddr| network_of(*host) == network_of(loser);
        let hosts = || waiting.iter().map(|(host, _)| *host);
        assert_eq!(of_network(loser), hosts().map(of_network).max().unwrap());
        let most = hosts().filter(within).map(of_address).max().unwrap();
        assert_eq!(of_address(loser), most);
        let oldest = waiting
            .iter()
            .find(|(host, _)| within(host) && of_address(*host) == most);
        assert_eq!(oldest.unwrap().1, victim);
    }
    assert!(door.evicted.len() > 50, "{}", door.evicted.len());
}

#[test]
fn an_address_that_strangers_claim_is_not_refused() {
    for is_known in [false, true] {
        let mut door = Door::new();
        let limit = if is_known { KNOWN_MAX } else { STRANGER_MAX };
        if is_known {
            door.visit("192.0.2.1", Duration::from_secs(60));
        }
        for _ in 0..10 * limit {
            door.take("192.0.2.1").unwrap();
        }
        let own = door.take("192.0.2.1").unwrap();
        for _ in 0..limit - 1 {
            door.take("192.0.2.1").unwrap();
            assert!(!door.evicted.contains(&own), "it has the time of as many");
        }
        let places: Vec<PlaceId> = door.state.waiting.keys().copied().collect();
        for id in places {
            door.state.confirm(id, "192.0.2.1".parse().unwrap());
        }
        assert_eq!(door.take("192.0.2.1"), Err(Full(limit)));
    }
}

/// Addresses of one IPv6 /64.
#[test]
fn strangers_of_an_ipv6_network_refuse_nobody_there() {
    let mut door = Door::new();
    let of = |number: u32| format!("2001:db8::{number:x}");
    door.visit(&of(1), Duration::from_secs(60));
    let own = door.take(&of(1)).unwrap();
    for number in 2..1000 {
        door.take(&of(number)).unwrap();
    }
    assert_eq!(door.state.strangers.count(), STRANGER_MAX);
    assert!(!door.evicted.contains(&own));
    let new = door.take(&of(5000)).unwrap();
    for number in 0..STRANGER_MAX - 1 {
        door.take(&of(6000 + number)).unwrap();
    }
    assert!(!door.evicted.contains(&new), "it has the time of as many");
    for _ in 1..KNOWN_MAX {
        door.take(&of(1)).unwrap();
    }
}
