//! Marking (traffic class and hop limit) of a connection's packets: from the first matching rule,
//! else from the listener, else from the host's request.
//!
//! A rule for an NQN applies once the host's NQN is known: for an I/O queue from the CNTLID in the
//! connection request, otherwise from the Connect command.

use std::net::IpAddr;
use std::sync::Arc;

use cairn_doctor::priorities::Priorities;
use cairn_doctor::tos::Tos;
use cairn_rdma::marking::{Marked, Marking, Rules};

#[derive(Debug, Clone)]
pub struct MarkingPolicy {
    pub rules: Arc<Rules>,
    pub listener: Marking,
    pub local: IpAddr,
    pub peer: IpAddr,
    pub priorities: Option<Priorities>,
}

impl MarkingPolicy {
    pub fn choose(&self, host_nqn: Option<&str>) -> Marking {
        let by_rule = self.rules.choose(self.local, self.peer, host_nqn);
        by_rule.or(self.listener)
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Shown {
    pub tos: Option<u8>,
    pub dscp: Option<u8>,
    pub sl: Option<u8>,
    pub pcp: Option<u8>,
    pub hop_limit: Option<u8>,
}

impl Shown {
    pub(crate) fn of(marked: Option<Marked>, priorities: Option<Priorities>) -> Self {
        let Some(marked) = marked else {
            return Self::default();
        };
        let tos = Tos(marked.traffic_class);
        Self {
            tos: Some(tos.0),
            dscp: Some(tos.dscp()),
            sl: Some(tos.sl()),
            pcp: priorities.map(|priorities| priorities.pcp(tos)),
            hop_limit: Some(marked.hop_limit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_come_before_the_listener_and_it_before_the_host() {
        let mut policy = MarkingPolicy {
            rules: Arc::new(Rules::parse(["tclass=16,dst_ip=192.0.2.0/24"]).unwrap()),
            listener: Marking {
                traffic_class: Some(96),
                hop_limit: Some(3),
            },
            local: [198, 51, 100, 1].into(),
            peer: [192, 0, 2, 9].into(),
            priorities: None,
        };
        let chosen = policy.choose(None);
        assert_eq!(
            (chosen.traffic_class, chosen.hop_limit),
            (Some(16), Some(3))
        );
        policy.peer = [203, 0, 113, 9].into();
        assert_eq!(policy.choose(None), policy.listener);
        policy.listener = Marking::default();
        assert_eq!(
            policy.choose(None),
            Marking::default(),
            "the host's own choice"
        );
    }

    #[test]
    fn only_tagged_packets_have_a_priority() {
        let marked = Some(Marked {
            traffic_class: 104,
            hop_limit: 7,
        });
        let shown = Shown::of(marked, Some(Priorities::OF_LEVEL));
        assert_eq!((shown.tos, shown.dscp), (Some(104), Some(26)));
        assert_eq!(
            (shown.sl, shown.pcp, shown.hop_limit),
            (Some(3), Some(3), Some(7))
        );
        assert_eq!(Shown::of(marked, None).pcp, None);
        assert_eq!(Shown::of(None, Some(Priorities::OF_LEVEL)).pcp, None);
    }
}
