use std::cmp::Ordering;

use cairn_doctor::tos::Tos;

use super::rates::{Device, Host, Load, Namespace, Rates, Reactor, STAGES};

pub(super) const MIB: f64 = 1_048_576.0;

const NEARLY_BUSY: f64 = 0.9;

#[derive(Debug)]
pub(super) struct Table {
    pub(super) name: &'static str,
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<Vec<Cell>>,
    pub(super) first_sort: usize,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Column {
    pub(super) title: &'static str,
    /// Columns of the highest rank are dropped first, columns of rank 0 never.
    pub(super) rank: u8,
    pub(super) is_name: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Idle,
    Warning,
    Bad,
}

#[derive(Debug, Clone)]
pub(super) struct Cell {
    pub(super) text: String,
    pub(super) tone: Tone,
    number: Option<f64>,
}

impl Cell {
    /// Replaces control characters, because hosts choose the text.
    fn name(text: &str) -> Self {
        let shown = |c: char| if c.is_control() { '\u{fffd}' } else { c };
        Self {
            text: text.chars().map(shown).collect(),
            tone: Tone::Plain,
            number: text.parse().ok(),
        }
    }

    fn number(number: f64, text: String) -> Self {
        let tone = if number == 0.0 {
            Tone::Idle
        } else {
            Tone::Plain
        };
        Self {
            text,
            tone,
            number: Some(number),
        }
    }

    fn count(number: f64) -> Self {
        Self::number(number, number.to_string())
    }

    fn rate(number: f64) -> Self {
        Self::number(number, rate(number))
    }

    fn mib(bytes: f64) -> Self {
        Self::number(bytes, format!("{:.1}", bytes / MIB))
    }

    fn micros(value: Option<f64>) -> Self {
        Self {
            text: value.map_or_else(|| "-".to_owned(), |us| format!("{us:.0}")),
            tone: value.map_or(Tone::Idle, |_| Tone::Plain),
            number: Some(value.unwrap_or(0.0)),
        }
    }

    fn toned(self, tone: Tone, applies: bool) -> Self {
        Self {
            tone: if applies { tone } else { self.tone },
            ..self
        }
    }

    pub(super) fn compare(&self, other: &Self) -> Ordering {
        match (self.number, other.number) {
            (Some(one), Some(other)) => one.total_cmp(&other),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => self.text.cmp(&other.text),
        }
    }
}

pub(super) fn all(rates: &Rates) -> [Table; 4] {
    [
        hosts(&rates.hosts),
        namespaces(&rates.namespaces),
        reactors(&rates.reactors),
        devices(&rates.devices),
    ]
}

const fn name(title: &'static str, rank: u8) -> Column {
    Column {
        title,
        rank,
        is_name: true,
    }
}

const fn number(title: &'static str, rank: u8) -> Column {
    Column {
        title,
        rank,
        is_name: false,
    }
}

const LOAD: [Column; 7] = [
    number("READ/s", 0),
    number("WRITE/s", 0),
    number("READ MiB/s", 1),
    number("WRITE MiB/s", 1),
    number("P50 us", 3),
    number("P99 us", 2),
    number("ERR/s", 2),
];

const LIMITED: Column = number("LIMITED/s", 3);

fn load(load: &Load) -> [Cell; 7] {
    [
        Cell::rate(load.reads_per_s),
        Cell::rate(load.writes_per_s),
        Cell::mib(load.read_bytes_per_s),
        Cell::mib(load.written_bytes_per_s),
        Cell::micros(load.p50_us),
        Cell::micros(load.p99_us),
        Cell::rate(load.errors_per_s).toned(Tone::Bad, load.errors_per_s > 0.0),
    ]
}

fn waits(per_s: f64) -> Cell {
    Cell::rate(per_s).toned(Tone::Warning, per_s > 0.0)
}

fn hosts(all: &[Host]) -> Table {
    let mut columns = vec![
        name("HOST", 0),
        number("CNTLID", 6),
        name("FROM", 5),
        number("QUEUES", 7),
        number("DEPTH", 4),
    ];
    let first_sort = columns.len();
    columns.extend(LOAD);
    columns.extend([
        number("WAITS/s", 4),
        LIMITED,
        name("ToS (DSCP, SL)", 8),
        name("HOPS", 9),
        name("P_KEY", 9),
    ]);
    let row = |one: &Host| {
        let mut row = vec![
            Cell::name(&one.host_nqn),
            Cell::name(&one.cntlid),
            Cell::name(&one.remote),
            Cell::count(one.queues),
            Cell::count(one.depth),
        ];
        row.extend(load(&one.load));
        row.extend([
            waits(one.buffer_waits_per_s),
            waits(one.limit_waits_per_s),
            Cell::name(&marked(&one.tos)),
            Cell::name(&one.hop_limit.join(" ")),
            Cell::name(&one.pkey.join(" ")),
        ]);
        row
    };
    Table {
        name: "hosts",
        columns,
        rows: all.iter().map(row).collect(),
        first_sort,
    }
}

const STAGE_COLUMNS: [Column; STAGES.len()] = [
    number("BUFFER us", 6),
    number("DATA_IN us", 5),
    number("BACKEND us", 4),
    number("DATA_OUT us", 5),
];

fn namespaces(all: &[Namespace]) -> Table {
    let mut columns = vec![
        name("SUBSYSTEM", 0),
        number("NSID", 0),
        name("BACKING", 3),
        number("DEPTH", 3),
    ];
    let first_sort = columns.len();
    columns.extend(LOAD);
    columns.push(LIMITED);
    columns.extend(STAGE_COLUMNS);
    let row = |one: &Namespace| {
        let mut row = vec![
            Cell::name(&one.subsystem),
            Cell::name(&one.nsid),
            Cell::name(&one.backing),
            Cell::count(one.in_progress),
        ];
        row.extend(load(&one.load));
        row.push(waits(one.limit_waits_per_s));
        row.extend(STAGES.map(|stage| Cell::micros(one.stage_p50_us.get(stage).copied())));
        row
    };
    Table {
        name: "namespaces",
        columns,
        rows: all.iter().map(row).collect(),
        first_sort,
    }
}

fn reactors(all: &[Reactor]) -> Table {
    let share = |share: f64| Cell::number(share, format!("{:.1} %", share * 100.0));
    let row = |one: &Reactor| {
        vec![
            Cell::name(&one.reactor),
            share(one.busy).toned(Tone::Warning, one.busy > NEARLY_BUSY),
            share(one.polling),
            share(one.sleeping),
            Cell::count(one.queue_pairs),
            Cell::number(
                one.requests,
                format!("{}/{}", one.requests, one.requests_max),
            ),
            Cell::number(
                one.buffer_used_bytes,
                format!(
                    "{:.1}/{:.1}",
                    one.buffer_used_bytes / MIB,
                    one.buffer_bytes / MIB
                ),
            ),
            waits(one.waits_per_s),
        ]
    };
    Table {
        name: "reactors",
        columns: vec![
            number("REACTOR", 0),
            number("BUSY", 0),
            number("POLLING", 1),
            number("ASLEEP", 2),
            number("QPS", 4),
            number("COMMANDS", 3),
            number("BUFFERS MiB", 3),
            number("WAITS/s", 1),
        ],
        rows: all.iter().map(row).collect(),
        first_sort: 1,
    }
}

fn devices(all: &[Device]) -> Table {
    let rows = all.iter().flat_map(|one| {
        one.per_second.iter().map(|(name, value)| {
            let text = match name.ends_with("bytes") {
                true => format!("{:.1} MiB/s", value / MIB),
                false => format!("{}/s", rate(*value)),
            };
            let rate = Cell::number(*value, text);
            vec![Cell::name(&one.device), Cell::name(name), rate]
        })
    });
    Table {
        name: "devices",
        columns: vec![name("DEVICE", 0), name("COUNTER", 0), number("RATE", 0)],
        rows: rows.collect(),
        first_sort: 2,
    }
}

fn marked(tos: &[String]) -> String {
    let shown = tos.iter().map(|text| match text.parse() {
        Ok(number) => {
            let tos = Tos(number);
            format!("{number} ({}, {})", tos.dscp(), tos.sl())
        }
        Err(_) => text.clone(),
    });
    shown.collect::<Vec<_>>().join(" ")
}

pub(super) fn rate(value: f64) -> String {
    if value > 0.0 && value < 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}
