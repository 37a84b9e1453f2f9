//! Random steps of the simulation ([`Order`]), and the shortest list of steps that fails.

use cairn_sim::Random;

use super::spec::{BLOCKS, CONTROLLERS, Command, HOSTS, Io, Keys, NSID_ALL, Namespace};

pub(super) const REACTORS: u64 = 2;
/// Upper bound of the system calls of a file change.
const FILE_STEPS: u64 = 16;

#[derive(Clone, Copy, Debug)]
pub(super) enum Order {
    Send {
        by: usize,
        queue: usize,
        nsid: u32,
        command: Command,
        /// True if the command is first made to fit the state ([`apt`]), so that it succeeds.
        apt: bool,
    },
    /// Advances the clock by these microseconds.
    Pass(u64),
    /// Ends the batch: paused reactors continue, and all answers are compared with the model.
    Settle,
    Pause(usize),
    Reset(usize),
    Lose(usize),
    Leave(usize),
    /// The target is killed after this time. With `steps`, it is killed earlier, after these system
    /// calls of a file change.
    Kill {
        after_us: u64,
        steps: Option<u32>,
    },
}

pub(super) fn random(random: &mut Random, count: usize) -> Vec<Order> {
    let mut orders = Vec::new();
    for by in 0..CONTROLLERS.len() as u64 * random.below(2) {
        orders.push(registration(random, by as usize));
    }
    while orders.len() < count {
        match random.below(100) {
            0..60 => orders.push(send(random)),
            60..72 => orders.push(Order::Settle),
            72..82 => orders.push(Order::Pass(random.below(400))),
            82..86 => orders.push(Order::Pass(random.below(8000))),
            86..90 => orders.push(Order::Pause(random.below(REACTORS) as usize)),
            90 => orders.push(Order::Pass(random.below(7_000_000))),
            91..93 => orders.push(Order::Reset(controller(random))),
            93..95 => orders.push(Order::Lose(controller(random))),
            95 => orders.push(Order::Leave(controller(random))),
            96..98 => {
                let steps = Some(random.below(FILE_STEPS) as u32);
                let after_us = 2000;
                orders.extend((0..1 + random.below(2)).map(|_| changes(random)));
                orders.push(Order::Kill { after_us, steps });
            }
            _ => {
                let after_us = random.below(400);
                let steps = None;
                orders.push(Order::Kill { after_us, steps });
            }
        }
    }
    orders.push(Order::Settle);
    orders
}

fn controller(random: &mut Random) -> usize {
    random.below(CONTROLLERS.len() as u64) as usize
}

/// Returns the key `usual`, which is the host's number, or sometimes a random key.
fn key(random: &mut Random, usual: u8) -> u64 {
    match random.below(4) {
        0 => random.below(u64::from(HOSTS) + 1),
        _ => usual.into(),
    }
}

fn keys(random: &mut Random, host: u8, actions: u64) -> Keys {
    let is_odd = random.below(24) == 0;
    let bound = if is_odd { 8 } else { actions };
    let other = match random.below(3) {
        0 => random.below(u64::from(HOSTS) + 1),
        _ => u64::from(host % HOSTS) + 1,
    };
    Keys {
        action: random.below(bound) as u8,
        rtype: match is_odd {
            true => random.below(9) as u8,
            false => 1 + random.below(6) as u8,
        },
        iekey: is_odd && random.below(2) == 0,
        current: key(random, host),
        other,
    }
}

fn change(random: &mut Random, host: u8) -> Command {
    match random.below(16) {
        0..7 => {
            let mut keys = keys(random, host, 3);
            keys.iekey = random.below(3) == 0;
            keys.other = key(random, host);
            if random.below(2) == 0 {
                keys.action = 0;
            }
            let cptpl = match random.below(20) {
                0 => 1,
                1 => 2,
                2..10 => 3,
                _ => 0,
            };
            Command::Register { keys, cptpl }
        }
        7..13 => {
            let mut keys = keys(random, host, 3);
            if random.below(2) == 0 {
                keys.action = 0;
            }
            Command::Acquire(keys)
        }
        13..15 => Command::Release(Keys {
            action: 0,
            ..keys(random, host, 2)
        }),
        _ => Command::Release(keys(random, host, 2)),
    }
}

fn nsid(random: &mut Random) -> u32 {
    match random.below(40) {
        0 => 3,
        1..8 => 2,
        _ => 1,
    }
}

fn registration(random: &mut Random, by: usize) -> Order {
    let host = CONTROLLERS[by].into();
    let keys = Keys {
        action: 0,
        rtype: 0,
        iekey: false,
        current: host,
        other: host,
    };
    let cptpl = [0, 3][random.below(2) as usize];
    Order::Send {
        by,
        queue: 0,
        nsid: 1,
        command: Command::Register { keys, cptpl },
        apt: true,
    }
}

/// Returns the command with keys and type that fit the state of the namespace.
pub(super) fn apt(command: Command, host: u8, of: &Namespace) -> Command {
    let own = of.keys.get(&host).copied().unwrap_or(host.into());
    let fit = |mut keys: Keys| {
        keys.current = own;
        keys
    };
    match command {
        Command::Register { keys, cptpl } => {
            let mut keys = fit(keys);
            if keys.action == 0 {
                keys.other = own;
            }
            Command::Register { keys, cptpl }
        }
        Command::Acquire(keys) => {
            let mut keys = fit(keys);
            let other = of.keys.get(&(keys.other as u8)).copied();
            keys.other = other.unwrap_or(keys.other);
            Command::Acquire(keys)
        }
        Command::Release(keys) => {
            let mut keys = fit(keys);
            keys.rtype = of.rtype;
            Command::Release(keys)
        }
        Command::Io {
            io: Io::Compare(_),
            block,
        } => {
            let io = Io::Compare(of.blocks[block]);
            Command::Io { io, block }
        }
        other => other,
    }
}

fn sent(random: &mut Random, command: impl FnOnce(&mut Random, u8) -> Command) -> Order {
    let by = controller(random);
    Order::Send {
        by,
        queue: random.below(2) as usize,
        nsid: nsid(random),
        command: command(random, CONTROLLERS[by]),
        apt: random.below(6) > 0,
    }
}

fn changes(random: &mut Random) -> Order {
    sent(random, change)
}

fn io(random: &mut Random) -> Command {
    let value = random.below(256) as u8;
    let io = match random.below(11) {
        0..2 => Io::Read,
        2..4 => Io::Verify,
        4 => Io::Compare(value % 4),
        5..8 => Io::Write(value),
        8 => Io::WriteZeroes,
        9 => Io::Deallocate,
        _ => Io::Copy,
    };
    let block = random.below(BLOCKS as u64) as usize;
    Command::Io { io, block }
}

fn send(random: &mut Random) -> Order {
    let mut order = sent(random, |random, host| match random.below(40) {
        0..20 => change(random, host),
        20..31 => io(random),
        31 => Command::Flush,
        32..34 => Command::Report {
            extended: random.below(4) > 0,
        },
        34 => Command::SetMask((random.below(8) << 1) as u8),
        35 => Command::GetMask,
        36 => Command::SetPersistence(random.below(3) > 0),
        37 => Command::GetPersistence,
        38 => Command::Log,
        _ => Command::Identify,
    });
    if let Order::Send { nsid, command, .. } = &mut order {
        let may_be_all = matches!(
            command,
            Command::Flush
                | Command::SetMask(_)
                | Command::GetMask
                | Command::SetPersistence(_)
                | Command::GetPersistence
        );
        if may_be_all && random.below(4) == 0 {
            *nsid = NSID_ALL;
        }
    }
    order
}

pub(super) fn shortest(orders: Vec<Order>, fails: impl Fn(&[Order]) -> bool) -> Vec<Order> {
    let mut orders = orders;
    let mut length = orders.len() / 2;
    while length > 0 {
        let mut at = 0;
        while at < orders.len() {
            let end = (at + length).min(orders.len());
            let rest = [&orders[..at], &orders[end..]].concat();
            if fails(&rest) {
                orders = rest;
            } else {
                at = end;
            }
        }
        length /= 2;
    }
    orders
}
