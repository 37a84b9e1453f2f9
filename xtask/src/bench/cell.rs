//! Cell of the benchmark matrix: provider, backend and workload.

use std::fmt;
use std::str::FromStr;

use anyhow::{Result, bail, ensure};

/// Maximum queue depth: a queue of 128 entries holds 127 commands (NVMe Base 2.0, 3.3.1.2.1).
const DEPTH_MAX: u32 = 127;

/// Maximum queue pairs; the host has a thread for each.
const QUEUE_PAIRS_MAX: u32 = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) provider: Provider,
    pub(super) backend: Backend,
    pub(super) workload: Workload,
    pub(super) size: Size,
    pub(super) depth: Depth,
    pub(super) queue_pairs: QueuePairs,
}

impl Cell {
    pub(super) fn group(&self) -> String {
        format!("{} {}", self.provider, self.backend)
    }

    pub(super) fn name(&self) -> String {
        let name = format!("{} {} {}", self.workload, self.size, self.depth);
        match self.queue_pairs.0 {
            1 => name,
            _ => format!("{name} {}", self.queue_pairs),
        }
    }

    pub(super) fn words(&self) -> [String; 6] {
        [
            self.provider.to_string(),
            self.backend.to_string(),
            self.workload.to_string(),
            self.size.to_string(),
            self.depth.to_string(),
            self.queue_pairs.to_string(),
        ]
    }
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident, $what:literal: $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)*) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum $name { $($(#[$variant_doc])* $variant,)* }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self { $(Self::$variant => $word,)* })
            }
        }

        impl FromStr for $name {
            type Err = anyhow::Error;

            fn from_str(word: &str) -> Result<Self> {
                match word {
                    $($word => Ok(Self::$variant),)*
                    _ => bail!(concat!("no ", $what, " is called {:?}: there are {}"), word, [$($word),*].join(", ")),
                }
            }
        }
    };
}

words! {
    Provider, "provider":
    Soft = "soft",
    Loopback = "loopback",
    Verbs = "verbs",
}

words! {
    Backend, "backend":
    Null = "null",
    Mem = "mem",
    File = "file",
}

words! {
    Workload, "workload":
    RandRead = "randread",
    RandWrite = "randwrite",
    /// 70 % reads and 30 % writes.
    Mixed = "mixed",
}

impl Workload {
    pub(super) fn keys(self) -> &'static [&'static str] {
        match self {
            Self::RandRead => &["rw=randread"],
            Self::RandWrite => &["rw=randwrite"],
            Self::Mixed => &["rw=randrw", "rwmixread=70"],
        }
    }

    pub(super) fn writes(self) -> bool {
        self != Self::RandRead
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size(pub(super) u32);

impl FromStr for Size {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let lower = text.to_ascii_lowercase();
        let (digits, unit) = match lower.strip_suffix('m') {
            Some(digits) => (digits, 1 << 20),
            None => match lower.strip_suffix('k') {
                Some(digits) => (digits, 1 << 10),
                None => (lower.as_str(), 1),
            },
        };
        let bytes = digits.parse::<u32>().ok().and_then(|n| n.checked_mul(unit));
        match bytes {
            Some(bytes) if (4096..=1 << 20).contains(&bytes) && bytes.is_multiple_of(4096) => {
                Ok(Self(bytes))
            }
            _ => bail!("{text:?} is no size of a command: give multiples of 4k, up to 1m"),
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 >> 10 {
            kib if kib.is_multiple_of(1 << 10) => f.pad(&format!("{}m", kib >> 10)),
            kib => f.pad(&format!("{kib}k")),
        }
    }
}

macro_rules! counts {
    ($(#[$doc:meta])* $name:ident, $word:literal, $what:literal, $max:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) struct $name(pub(super) u32);

        impl FromStr for $name {
            type Err = anyhow::Error;

            fn from_str(text: &str) -> Result<Self> {
                let number = text.strip_prefix($word).unwrap_or(text).parse::<u32>();
                let number = number.unwrap_or(0);
                ensure!(
                    (1..=$max).contains(&number),
                    concat!("{:?} is no ", $what, ": give numbers from 1 to {}"),
                    text,
                    $max
                );
                Ok(Self(number))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&format!(concat!($word, "{}"), self.0))
            }
        }
    };
}

counts! {
    Depth, "qd", "queue depth", DEPTH_MAX
}

counts! {
    QueuePairs, "qp", "number of queue pairs", QUEUE_PAIRS_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_written_alike() {
        for text in ["4k", "16k", "128k", "1m"] {
            assert_eq!(text.parse::<Size>().unwrap().to_string(), text);
        }
        assert_eq!("4096".parse::<Size>().unwrap().to_string(), "4k");
        for text in [
            "", "0", "k", "4kk", "2m", "512", "5000", "-4k", "4096m", "9999999m",
        ] {
            let error = text.parse::<Size>().unwrap_err().to_string();
            assert!(error.contains("multiples of 4k"), "{error}");
        }
    }

    #[test]
    fn numbers_have_bounds() {
        assert_eq!("32".parse::<Depth>().unwrap(), Depth(32));
        assert_eq!("qd127".parse::<Depth>().unwrap(), Depth(127));
        for text in ["0", "128", "qd", "x", "-1", ""] {
            let error = text.parse::<Depth>().unwrap_err().to_string();
            assert!(error.contains("from 1 to 127"), "{error}");
        }
        assert!("65".parse::<QueuePairs>().is_err());
    }

    #[test]
    fn unknown_words_are_answered_with_the_known() {
        let error = "seq".parse::<Workload>().unwrap_err().to_string();
        assert!(error.contains("randread, randwrite, mixed"), "{error}");
    }
}
