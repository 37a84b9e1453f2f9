//! Fuzz target that modifies DH-HMAC-CHAP messages between host and controller.

use nvme_auth::controller::Authentication;
use nvme_auth::host::Negotiating;
use nvme_auth::message::Message;
use nvme_auth::{Group, Hash, Names, Policy, Secret, Secrets};

use crate::input::Input;

const TRANSACTION: u16 = 7;

fn policy() -> Policy {
    Policy {
        hashes: Hash::ALL.to_vec(),
        groups: vec![Group::Null, Group::Ffdhe2048],
    }
}

fn names() -> Names {
    Names {
        host: "nqn.2026-01.org.example:host".into(),
        subsystem: "nqn.2026-01.org.example:disks".into(),
    }
}

fn secrets(seed: u8) -> Secrets {
    let secret = |seed| Secret::generate(32, None, &mut |bytes| bytes.fill(seed));
    Secrets {
        host: secret(seed),
        controller: Some(secret(seed + 1)),
    }
}

pub(crate) fn run(bytes: &[u8]) {
    let Some((choice, bytes)) = bytes.split_first() else {
        return;
    };
    let mut input = Input::new(bytes);
    match choice % 4 {
        0 => {
            let _ = Message::parse(bytes).1.map(|message| message.encode(1));
        }
        1 => controller(&mut input),
        2 => both(&mut input),
        _ => secret(bytes),
    }
}

fn controller(input: &mut Input<'_>) {
    let mut end = Authentication::new(names(), secrets(1), policy());
    for seqnum in 1..8 {
        if input.is_empty() {
            break;
        }
        if input.byte() & 1 == 0 {
            let length = input.short() % 700;
            end.send(input.bytes(length.into()));
        } else {
            let room = usize::from(input.short() % 1024);
            let answer = end.receive(room, seqnum, &mut |bytes| bytes.fill(seqnum as u8));
            assert!(answer.is_ok_and(|message| message.len() <= room) || room < 16);
        }
    }
    assert!(!matches!(end.outcome(), Some(Ok(_))));
}

fn both(input: &mut Input<'_>) {
    let seed = 1 + 2 * (input.byte() & 1);
    let (at, turn, flip) = (input.short(), input.byte() % 4, input.byte());
    let change = |number: u8, mut message: Vec<u8>| {
        if number == turn && !message.is_empty() {
            let place = usize::from(at) % message.len();
            message[place] ^= flip;
        }
        message
    };
    let mut random = |bytes: &mut [u8]| bytes.fill(0x5a);
    let mut controller = Authentication::new(names(), secrets(1), policy());
    let host = Negotiating::new(names(), secrets(seed), policy(), TRANSACTION);
    controller.send(&change(0, host.message()));
    let Ok(challenge) = controller.receive(4096, 1, &mut random) else {
        return;
    };
    let Ok(replied) = host.challenged(&change(1, challenge), 2, &mut random) else {
        return;
    };
    controller.send(&change(2, replied.message.clone()));
    let Ok(answer) = controller.receive(4096, 3, &mut random) else {
        return;
    };
    let end = replied.answered(&change(3, answer));
    if seed != 1 {
        assert!(end.is_err(), "it has another secret");
    }
    if let Ok(success) = end
        && let Some(message) = success.message
    {
        controller.send(&message);
        assert!(seed == 1 || !matches!(controller.outcome(), Some(Ok(_))));
    }
}

fn secret(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(secret) = text.parse::<Secret>()
    {
        let again: Secret = secret.to_text().parse().expect("its own text");
        assert_eq!(again.key_len(), secret.key_len());
    }
}
