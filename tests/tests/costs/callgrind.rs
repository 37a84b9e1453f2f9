//! Parser of callgrind's output files.

use std::collections::HashMap;
use std::ops::{Add, AddAssign, Sub};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    pub(crate) instructions: u64,
    pub(crate) locked: u64,
    pub(crate) system_calls: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Profile {
    functions: HashMap<String, Cost>,
    calls: HashMap<(String, String), Cost>,
}

impl Profile {
    pub(crate) fn parse(text: &str) -> Self {
        let mut profile = Self::default();
        let mut events = Vec::new();
        let (mut function, mut callee, mut is_call) = ("", "", false);
        for line in text.lines() {
            if let Some(names) = line.strip_prefix("events: ") {
                events = names.split(' ').collect();
            } else if let Some(name) = line.strip_prefix("fn=") {
                function = name;
            } else if let Some(name) = line.strip_prefix("cfn=") {
                callee = name;
            } else if line.starts_with("calls=") {
                is_call = true;
            } else if line.starts_with(|first: char| first.is_ascii_digit()) {
                let cost = Cost::parse(line, &events);
                let place = if std::mem::take(&mut is_call) {
                    let call = (function.to_owned(), callee.to_owned());
                    profile.calls.entry(call).or_default()
                } else {
                    profile.functions.entry(function.to_owned()).or_default()
                };
                *place += cost;
            }
        }
        profile
    }

    pub(crate) fn calls(
        &self,
        is_caller: impl Fn(&str) -> bool,
        is_callee: impl Fn(&str) -> bool,
    ) -> Cost {
        let chosen = |call: &&(String, String)| is_caller(&call.0) && is_callee(&call.1);
        let costs = self.calls.iter().filter(|(call, _)| chosen(call));
        costs.fold(Cost::default(), |sum, (_, &cost)| sum + cost)
    }

    pub(crate) fn own(&self, is_chosen: impl Fn(&str) -> bool) -> Cost {
        let chosen = |function: &&String| is_chosen(function);
        let costs = self.functions.iter().filter(|(name, _)| chosen(name));
        costs.fold(Cost::default(), |sum, (_, &cost)| sum + cost)
    }

    pub(crate) fn functions(&self) -> impl Iterator<Item = &str> {
        let worked = self
            .functions
            .iter()
            .filter(|(_, cost)| cost.instructions > 0);
        worked.map(|(name, _)| name.as_str())
    }
}

impl Cost {
    fn parse(line: &str, events: &[&str]) -> Self {
        let mut numbers = line.split(' ').map(|number| {
            number
                .parse()
                .unwrap_or_else(|_| panic!("callgrind wrote {line:?}"))
        });
        let _line_of_source: Option<u64> = numbers.next();
        let mut cost = Self::default();
        for (&event, number) in events.iter().zip(numbers) {
            match event {
                "Ir" => cost.instructions = number,
                "Ge" => cost.locked = number,
                "sysCount" => cost.system_calls = number,
                _ => {}
            }
        }
        cost
    }
}

impl Add for Cost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            instructions: self.instructions + other.instructions,
            locked: self.locked + other.locked,
            system_calls: self.system_calls + other.system_calls,
        }
    }
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Cost {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            instructions: self.instructions - other.instructions,
            locked: self.locked - other.locked,
            system_calls: self.system_calls - other.system_calls,
        }
    }
}

#[test]
fn a_dump_is_read() {
    let profile = Profile::parse(
        "version: 1\nevents: Ir Ge sysCount\n\nfl=a.rs\nfn=caller\n10 5\nfi=b.rs\n11 6 1\n\
         cfi=c.rs\ncfn=callee\ncalls=3 20\n12 700 8 9\n13 1\n\nfn=callee\n20 50\n",
    );
    let sum = |is_caller: fn(&str) -> bool| profile.calls(is_caller, |name| name == "callee");
    let cost = Cost {
        instructions: 700,
        locked: 8,
        system_calls: 9,
    };
    assert_eq!(sum(|name| name == "caller"), cost);
    assert_eq!(sum(|name| name == "absent"), Cost::default());
    assert_eq!(profile.functions["caller"].instructions, 12);
    assert_eq!(profile.functions().count(), 2);
    assert_eq!(profile.own(|name| name == "callee").instructions, 50);
}
