use super::*;

struct Fixture {
    state: AdmissionTable,
    now: Instant,
    taken: Vec<(IpAddr, PlaceId)>,
    evicted: Vec<PlaceId>,
}

impl Fixture {
    fn new() -> Self {
        Self {
            state: AdmissionTable::default(),
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
    let mut fixture = Fixture::new();
    let full = Full(STRANGER_MAX);
    assert_eq!(fixture.fill("192.0.2.1"), (STRANGER_MAX, full));
    assert_eq!(fixture.fill("::ffff:192.0.2.1"), (0, full), "the same host");
    assert_eq!(fixture.fill("192.0.2.2"), (STRANGER_MAX, full));
    assert_eq!(fixture.fill("192.0.2.3"), (STRANGER_MAX, full));
    assert_eq!(fixture.evicted, []);
    let first = fixture.taken[0].1;
    fixture.take("192.0.2.4").unwrap();
    assert_eq!(fixture.evicted, [first], "the network has all that it may");
    assert_eq!(fixture.state.strangers.networks(), 1);
    assert_eq!(fixture.state.strangers.count(), NETWORK_MAX);
}

#[test]
fn strangers_of_many_networks_keep_no_new_host_out() {
    const NETWORKS: u32 = 600;
    let mut fixture = Fixture::new();
    for number in 0..4 * NETWORKS {
        fixture
            .take_of(of_network(number % NETWORKS), false)
            .unwrap();
    }
    assert_eq!(fixture.state.strangers.count(), STRANGERS_MAX);
    for round in 0..20 {
        let host = format!("192.0.{round}.1");
        let place = fixture.take(&host).unwrap();
        let asked = fixture.evicted.len();
        for number in 0..STRANGERS_MAX - 1 {
            let number = match number {
                0 => NETWORKS + round,
                _ => (number * 7 + round) % NETWORKS,
            };
            fixture.take_of(of_network(number), false).unwrap();
            let gone = fixture.evicted.contains(&place);
            assert!(
                !gone,
                "after {} in round {round}",
                fixture.evicted.len() - asked
            );
        }
        assert_eq!(fixture.state.strangers.count(), STRANGERS_MAX);
        fixture.associate(&host);
    }
    assert_eq!(
        fixture.state.waiting.len() as u32,
        fixture.state.strangers.count()
    );
}

#[test]
fn who_asks_again_loses_its_own_place() {
    let mut fixture = Fixture::new();
    let host = fixture.take("192.0.2.1").unwrap();
    for number in 0..STRANGERS_MAX - 1 {
        fixture.take_of(of_network(number), false).unwrap();
    }
    for asked in 0..1000 {
        fixture
            .take_of(in_network(7, 1 + asked / 100), false)
            .unwrap();
    }
    assert!(!fixture.evicted.contains(&host));
}

#[test]
fn a_stranger_takes_anothers_place_where_queue_pairs_are_short() {
    let mut fixture = Fixture::new();
    fixture.take_of(of_network(1), true).unwrap();
    assert_eq!(fixture.evicted, [], "there is none to take");
    let first = fixture.taken[0].1;
    fixture.take_of(of_network(2), true).unwrap();
    assert_eq!(fixture.evicted, [first]);
}

#[test]
fn a_place_that_was_taken_may_be_used_or_given_back() {
    let mut fixture = Fixture::new();
    fixture.take("192.0.2.1").unwrap();
    fixture.take_of(of_network(1), true).unwrap();
    let (host, id) = fixture.associate("192.0.2.1");
    assert!(fixture.state.hosts[&host].is_known);
    fixture.state.give_back(id, host, true, fixture.now);
    let other = fixture.taken[0];
    fixture.take_of(of_network(2), true).unwrap();
    assert_eq!(fixture.evicted.last(), Some(&other.1));
    fixture
        .state
        .give_back(other.1, other.0, false, fixture.now);
    assert_eq!(fixture.state.strangers.count(), 1);
    assert_eq!(fixture.state.waiting.len(), 1);
}

#[test]
fn hosts_that_were_here_have_places_whatever_strangers_take() {
    let mut fixture = Fixture::new();
    fixture.visit("192.0.2.1", Duration::from_secs(1));
    for number in 0..4 * STRANGER_MAX {
        fixture
            .take(&format!("192.0.2.{}", 2 + number % 4))
            .unwrap();
    }
    for number in 0..600 {
        fixture.take_of(of_network(number), false).unwrap();
    }
    fixture.evicted.clear();
    let full = Full(KNOWN_MAX);
    assert_eq!(fixture.fill("192.0.2.1"), (KNOWN_MAX, full));
    assert_eq!(fixture.evicted, [], "they have places of their own");
}

#[test]
fn an_address_is_known_for_a_while_after_its_association() {
    let mut fixture = Fixture::new();
    for _ in 0..2 {
        let id = fixture.take("192.0.2.1").unwrap();
        fixture.state.confirm(id, "192.0.2.1".parse().unwrap());
    }
    assert_eq!(fixture.state.strangers.count(), 2);
    let (host, id) = fixture.associate("192.0.2.1");
    assert_eq!(
        (
            fixture.state.strangers.count(),
            fixture.state.strangers.networks()
        ),
        (0, 0)
    );
    fixture.now += 2 * KNOWN_FOR;
    assert_eq!(fixture.fill("192.0.2.1").0, KNOWN_MAX - 1);
    fixture.state.give_back(id, host, true, fixture.now);
    fixture.now += KNOWN_FOR;
    assert_eq!(fixture.fill("192.0.2.1"), (0, Full(STRANGER_MAX)));
    assert_eq!(fixture.state.strangers.count(), KNOWN_MAX);
    for _ in 0..KNOWN_MAX {
        fixture.give_back("192.0.2.1");
    }
    assert!(fixture.state.hosts.is_empty() && fixture.state.strangers.networks() == 0);
    assert_eq!(fixture.state.strangers.count(), 0);
}

#[test]
fn who_comes_and_goes_pushes_out_no_host_that_stayed() {
    let mut fixture = Fixture::new();
    fixture.visit("192.0.2.1", Duration::from_secs(60));
    fixture.take("192.0.2.2").unwrap();
    fixture.associate("192.0.2.2");
    let of = |number: usize| format!("10.{}.{}.1", number >> 8, number & 0xff);
    for number in 0..2 * FORMER_MAX {
        fixture.visit(&of(number), Duration::from_millis(1));
    }
    let knows = |address: String| {
        let host = fixture.state.hosts.get(&address.parse().unwrap());
        host.is_some_and(|host| host.is_known)
    };
    assert!(knows("192.0.2.1".into()) && knows("192.0.2.2".into()));
    assert_eq!(fixture.state.hosts.len(), FORMER_MAX + 1);
    assert!(!knows(of(0)) && knows(of(2 * FORMER_MAX - 1)));
}

#[test]
fn who_has_most_loses_the_oldest() {
    let mut fixture = Fixture::new();
    let mut random = 7_u64;
    for round in 0..500 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(round);
        let (network, host) = ((random >> 33) % 9, (random >> 50) % 5);
        let new: IpAddr = format!("10.0.{}.{}", network * network / 9, host + 1)
            .parse()
            .unwrap();
        if round % 3 == 0 && !fixture.taken.is_empty() {
            let at = (random >> 20) as usize % fixture.taken.len();
            let (host, id) = fixture.taken.swap_remove(at);
            fixture.state.give_back(id, host, false, fixture.now);
        }
        let waiting: Vec<(IpAddr, PlaceId)> = fixture
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
        let before = fixture.evicted.len();
        if fixture.take_of(new, round % 5 == 0).is_err() {
            continue;
        }
        let Some(victim) = fixture.evicted.get(before).copied() else {
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
    assert!(fixture.evicted.len() > 50, "{}", fixture.evicted.len());
}

#[test]
fn an_address_that_strangers_claim_is_not_refused() {
    for is_known in [false, true] {
        let mut fixture = Fixture::new();
        let limit = if is_known { KNOWN_MAX } else { STRANGER_MAX };
        if is_known {
            fixture.visit("192.0.2.1", Duration::from_secs(60));
        }
        for _ in 0..10 * limit {
            fixture.take("192.0.2.1").unwrap();
        }
        let own = fixture.take("192.0.2.1").unwrap();
        for _ in 0..limit - 1 {
            fixture.take("192.0.2.1").unwrap();
            assert!(
                !fixture.evicted.contains(&own),
                "it has the time of as many"
            );
        }
        let places: Vec<PlaceId> = fixture.state.waiting.keys().copied().collect();
        for id in places {
            fixture.state.confirm(id, "192.0.2.1".parse().unwrap());
        }
        assert_eq!(fixture.take("192.0.2.1"), Err(Full(limit)));
    }
}

#[test]
fn strangers_of_an_ipv6_network_refuse_nobody_there() {
    let mut fixture = Fixture::new();
    let of = |number: u32| format!("2001:db8::{number:x}");
    fixture.visit(&of(1), Duration::from_secs(60));
    let own = fixture.take(&of(1)).unwrap();
    for number in 2..1000 {
        fixture.take(&of(number)).unwrap();
    }
    assert_eq!(fixture.state.strangers.count(), STRANGER_MAX);
    assert!(!fixture.evicted.contains(&own));
    let new = fixture.take(&of(5000)).unwrap();
    for number in 0..STRANGER_MAX - 1 {
        fixture.take(&of(6000 + number)).unwrap();
    }
    assert!(
        !fixture.evicted.contains(&new),
        "it has the time of as many"
    );
    for _ in 1..KNOWN_MAX {
        fixture.take(&of(1)).unwrap();
    }
}
