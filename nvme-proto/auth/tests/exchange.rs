//! Authentications with and without attacks.

use cairn_sim::Random as Seeded;
use nvme_auth::controller::{Authentication, Cause};
use nvme_auth::host::{Failure, Negotiating};
use nvme_auth::message::{MESSAGE_BYTES_MAX, Message};
use nvme_auth::{Authenticated, Group, Hash, Names, Policy, Reason, Secret, Secrets};
use sha2::{Digest, Sha256};

const TRANSACTION: u16 = 0x1234;

fn names() -> Names {
    Names {
        host: "nqn.2014-08.org.nvmexpress:uuid:0d2c54d4-3b7a-4d7c-9d37-0fb4d0a1a2b3".to_owned(),
        subsystem: "nqn.2024-01.com.example:db".to_owned(),
    }
}

/// Generator of the same pseudorandom bytes as in `vectors.py`.
fn counter(seed: u8) -> impl FnMut(&mut [u8]) {
    let mut state = seed;
    move |bytes| {
        for byte in bytes {
            state = state.wrapping_mul(29).wrapping_add(7);
            *byte = state;
        }
    }
}

fn secret(first: u8, length: usize, transformation: Option<Hash>) -> Secret {
    Secret::generate(length, transformation, &mut |bytes| {
        for (byte, value) in bytes.iter_mut().zip(first..) {
            *byte = value;
        }
    })
}

fn secrets(length: usize, transformation: Option<Hash>) -> Secrets {
    Secrets {
        host: secret(0, length, transformation),
        controller: Some(secret(100, length, transformation)),
    }
}

struct Exchange {
    messages: Vec<Vec<u8>>,
    host: Result<Authenticated, Failure>,
    controller: Option<Result<Authenticated, Cause>>,
}

fn exchange(
    host: (Secrets, Policy),
    controller: (Secrets, Policy),
    mut meddle: impl FnMut(usize, &mut Vec<u8>),
) -> Exchange {
    let mut of_host = counter(2);
    let mut of_controller = counter(1);
    let mut messages = Vec::new();
    let mut pass = |message: Vec<u8>| {
        let mut message = message;
        meddle(messages.len(), &mut message);
        messages.push(message.clone());
        message
    };
    let mut controller = Authentication::new(names(), controller.0, controller.1);
    let mut receive = |controller: &mut Authentication| {
        controller
            .receive(MESSAGE_BYTES_MAX, 7, &mut of_controller)
            .expect("a long buffer")
    };
    let negotiating = Negotiating::new(names(), host.0, host.1, TRANSACTION);
    controller.send(&pass(negotiating.message()));
    let challenge = pass(receive(&mut controller));
    let host = negotiating
        .challenged(&challenge, 9, &mut of_host)
        .and_then(|replied| {
            controller.send(&pass(replied.message.clone()));
            let answer = pass(receive(&mut controller));
            replied.answered(&answer)
        });
    let last = match &host {
        Ok(success) => success.message.clone(),
        Err(failure) => failure.message.clone(),
    };
    if let Some(last) = last {
        controller.send(&pass(last));
    }
    Exchange {
        messages,
        host: host.map(|success| success.outcome),
        controller: controller.outcome(),
    }
}

fn only(hash: Hash, group: Group) -> Policy {
    Policy {
        hashes: vec![hash],
        groups: vec![group],
    }
}

/// An independent implementation in Python computed `vectors.txt`.
#[test]
fn messages_are_those_computed_apart() {
    for line in include_str!("vectors.txt").lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let (hash, group): (Hash, Group) = (fields[0].parse().unwrap(), fields[1].parse().unwrap());
        let secrets = secrets(hash.bytes(), fields[2].parse().ok());
        let policy = (secrets.clone(), only(hash, group));
        let exchange = exchange(policy, (secrets, Policy::default()), |_, _| {});
        let digests = exchange.messages[1..4].iter().map(|message| {
            let digest = Sha256::digest(message);
            digest
                .iter()
                .map(|b| format!("{b:02x}"))
                .collect::<String>()
        });
        assert_eq!(digests.collect::<Vec<_>>(), fields[3..6], "{line}");
        let expected = Authenticated {
            hash,
            group,
            mutual: true,
        };
        assert_eq!(exchange.host, Ok(expected));
        assert_eq!(exchange.controller, Some(Ok(expected)));
    }
}

#[test]
fn the_controllers_preference_decides() {
    let both = || secrets(32, None);
    let controller = Policy {
        hashes: vec![Hash::Sha384, Hash::Sha256],
        groups: vec![Group::Null, Group::Ffdhe2048],
    };
    let exchange = exchange((both(), Policy::default()), (both(), controller), |_, _| {});
    let outcome = exchange.host.unwrap();
    assert_eq!((outcome.hash, outcome.group), (Hash::Sha384, Group::Null));
}

#[test]
fn nothing_in_common_is_said() {
    let try_with = |controller: Policy| {
        let both = || secrets(32, None);
        let host = only(Hash::Sha256, Group::Null);
        let exchange = exchange((both(), host), (both(), controller), |_, _| {});
        assert_eq!(exchange.host.clone().unwrap_err().message, None);
        let reason = exchange.host.unwrap_err().reason;
        assert_eq!(exchange.controller, Some(Err(reason.into())));
        reason
    };
    assert_eq!(
        try_with(only(Hash::Sha512, Group::Null)),
        Reason::HashNotUsable
    );
    let other_group = only(Hash::Sha256, Group::Ffdhe2048);
    assert_eq!(try_with(other_group), Reason::GroupNotUsable);
}

#[test]
fn a_host_that_asks_for_nothing_gets_no_response() {
    let one_way = Secrets {
        controller: None,
        ..secrets(32, None)
    };
    let policy = only(Hash::Sha256, Group::Null);
    let host = (one_way, policy.clone());
    let exchange = exchange(host, (secrets(32, None), policy), |_, _| {});
    assert!(!exchange.host.unwrap().mutual);
    assert_eq!(exchange.messages.len(), 4, "and no Success2");
    assert!(matches!(exchange.controller, Some(Ok(outcome)) if !outcome.mutual));
}

#[test]
fn wrong_secrets_are_found_by_the_end_that_asks() {
    let policy = || only(Hash::Sha256, Group::Ffdhe2048);
    let right = secrets(32, None);
    let wrong_host = Secrets {
        host: secret(1, 32, None),
        ..right.clone()
    };
    let stranger = exchange((wrong_host, policy()), (right.clone(), policy()), |_, _| {});
    let failed = Reason::AuthenticationFailed;
    assert_eq!(stranger.host.unwrap_err().reason, failed);
    assert_eq!(stranger.controller, Some(Err(Cause::HostSecret)));
    for controller in [None, Some(secret(1, 32, None))] {
        let is_asked = controller.is_none();
        let wrong = Secrets {
            controller,
            ..right.clone()
        };
        let liar = exchange((right.clone(), policy()), (wrong, policy()), |_, _| {});
        let failure = liar.host.unwrap_err();
        assert_eq!(failure.reason, failed);
        assert_eq!(
            failure.message.is_none(),
            is_asked,
            "Failure2 if it does not know"
        );
        let cause = match is_asked {
            true => Cause::NoControllerSecret,
            false => Cause::ControllerSecret,
        };
        assert_eq!(liar.controller, Some(Err(cause)));
    }
}

#[test]
fn another_name_makes_another_key() {
    let policy = only(Hash::Sha256, Group::Null);
    let both = secrets(32, Some(Hash::Sha256));
    let mut controller = Authentication::new(names(), both.clone(), policy.clone());
    let other = Names {
        host: "nqn.2014-08.org.nvmexpress:uuid:11111111-3b7a-4d7c-9d37-0fb4d0a1a2b3".to_owned(),
        ..names()
    };
    let host = Negotiating::new(other, both, policy, 1);
    controller.send(&host.message());
    let challenge = controller.receive(4096, 7, &mut counter(1)).unwrap();
    let replied = host.challenged(&challenge, 9, &mut counter(2)).unwrap();
    controller.send(&replied.message);
    let answer = controller.receive(4096, 8, &mut counter(1)).unwrap();
    let failure = replied.answered(&answer).unwrap_err();
    assert_eq!(failure.reason, Reason::AuthenticationFailed);
}

#[test]
fn replies_cannot_be_replayed() {
    let policy = only(Hash::Sha256, Group::Null);
    let both = secrets(32, None);
    let recorded = exchange(
        (both.clone(), policy.clone()),
        (both.clone(), policy.clone()),
        |_, _| {},
    );
    let mut controller = Authentication::new(names(), both, policy);
    controller.send(&recorded.messages[0]);
    controller.receive(4096, 7, &mut counter(3)).unwrap();
    controller.send(&recorded.messages[2]);
    let answer = controller.receive(4096, 8, &mut counter(3)).unwrap();
    let failed = Reason::AuthenticationFailed;
    assert_eq!(Message::parse(&answer).1, Ok(Message::Failure1(failed)));
    assert_eq!(controller.outcome(), Some(Err(Cause::HostSecret)));
}

#[test]
fn a_reflected_challenge_is_no_reply() {
    let policy = only(Hash::Sha256, Group::Null);
    // The attack has the best chance if host and controller use the same secret.
    let same = Secrets {
        host: secret(0, 32, None),
        controller: Some(secret(0, 32, None)),
    };
    let mut challenge = Vec::new();
    let stranger = Secrets {
        host: secret(5, 32, None),
        controller: Some(secret(5, 32, None)),
    };
    let exchange = exchange(
        (stranger, policy.clone()),
        (same, policy),
        |index, message| match index {
            1 => challenge = message[16..].to_vec(),
            2 => message[16 + 32..].copy_from_slice(&challenge),
            _ => {}
        },
    );
    assert_eq!(exchange.controller, Some(Err(Cause::HostSecret)));
}

#[test]
fn no_changed_message_succeeds() {
    let policy = || only(Hash::Sha384, Group::Ffdhe2048);
    for seed in 0..400 {
        let mut random = Seeded::new(seed);
        let target = random.below(4) as usize;
        let mut is_changed = false;
        let exchange = exchange(
            (secrets(48, None), policy()),
            (secrets(48, None), policy()),
            |index, message| {
                if index != target {
                    return;
                }
                let before = message.clone();
                match random.below(3) {
                    0 => message.truncate(random.below(message.len() as u64 + 1) as usize),
                    1 => {
                        let at = random.below(message.len() as u64) as usize;
                        message[at] ^= 1 << random.below(8);
                    }
                    _ => message
                        .iter_mut()
                        .for_each(|byte| *byte = random.bits() as u8),
                }
                is_changed = *message != before;
            },
        );
        let succeeded = exchange.host.is_ok() && matches!(exchange.controller, Some(Ok(_)));
        // Except in the Reply (index 2), reserved fields and list entries beyond the list's length
        // may change without effect.
        let is_of_no_account = target != 2 && exchange.messages.len() == 5;
        assert!(!is_changed || !succeeded || is_of_no_account, "seed {seed}");
    }
}

#[test]
fn no_order_of_commands_panics() {
    for seed in 0..2000 {
        let mut random = Seeded::new(seed);
        let policy = only(Hash::Sha256, Group::Null);
        let both = secrets(32, None);
        let right = exchange(
            (both.clone(), policy.clone()),
            (both.clone(), policy.clone()),
            |_, _| {},
        );
        let mut controller = Authentication::new(names(), both, policy);
        for _ in 0..random.below(8) {
            if random.below(2) == 0 {
                let index = random.below(right.messages.len() as u64) as usize;
                controller.send(&right.messages[index]);
            } else {
                let bytes = random.below(200) as usize;
                let received = controller.receive(bytes, 7, &mut counter(1));
                assert!(received.map_or(bytes < 8, |message| message.len() <= bytes));
            }
        }
    }
}

#[test]
fn secure_channels_and_other_protocols_are_refused() {
    let policy = only(Hash::Sha256, Group::Null);
    let reason = |meddle: fn(&mut Vec<u8>)| {
        let both = || (secrets(32, None), policy.clone());
        let exchange = exchange(both(), both(), |index, message| {
            if index == 0 {
                meddle(message);
            }
        });
        exchange.host.unwrap_err().reason
    };
    assert_eq!(
        reason(|message| message[6] = 2),
        Reason::SecureChannelMismatch
    );
    assert_eq!(reason(|message| message[8] = 2), Reason::ProtocolNotUsable);
    assert_eq!(reason(|message| message[10] = 31), Reason::IncorrectPayload);
    assert_eq!(reason(|message| message[7] = 2), Reason::IncorrectPayload);
}
