//! Counters of the target's RoCE endpoints, logged when the target ends.

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Counters(Vec<(String, u64)>);

impl Counters {
    pub(super) fn of_log(log: &str) -> Self {
        let lines = log
            .lines()
            .filter_map(|line| line.split_once("counters of RoCE in user space: "));
        let pairs = lines.flat_map(|(_, rest)| rest.split(' '));
        let mut counters: Vec<(String, u64)> = Vec::new();
        for (name, value) in pairs.filter_map(|pair| pair.split_once('=')) {
            let Ok(value) = value.parse::<u64>() else {
                continue;
            };
            match counters.iter_mut().find(|(known, _)| known == name) {
                Some((_, sum)) => *sum += value,
                None => counters.push((name.to_owned(), value)),
            }
        }
        Self(counters)
    }

    pub(super) fn get(&self, name: &str) -> u64 {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map_or(0, |(_, value)| *value)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn without(&self, other: &Self) -> Self {
        let rest = self.0.iter();
        let rest = rest.map(|(name, value)| (name.clone(), value.saturating_sub(other.get(name))));
        Self(rest.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "INFO connected host=\"x\" qid=1\n\
        2026 INFO counters of RoCE in user space: sent_pkts=2500 rcvd_pkts=1000 device=\"soft-127.0.0.1\"\n\
        2026 INFO counters of RoCE in user space: sent_pkts=500 device=\"soft-127.0.0.9\"\n";

    #[test]
    fn devices_are_added_up_and_runs_subtracted() {
        let counters = Counters::of_log(LOG);
        assert_eq!(counters.get("sent_pkts"), 3000);
        assert_eq!(counters.get("rcvd_pkts"), 1000);
        assert_eq!(counters.get("out_of_sequence"), 0);
        let rest = counters.without(&Counters::of_log(
            "counters of RoCE in user space: sent_pkts=1 rcvd_pkts=2000",
        ));
        assert_eq!((rest.get("sent_pkts"), rest.get("rcvd_pkts")), (2999, 0));
        assert!(Counters::of_log("INFO ready").is_empty());
    }
}
