use std::str::FromStr;

use anyhow::{Result, ensure};
use clap::Args;

use super::cell::Workload::{self, Mixed, RandRead, RandWrite};
use super::cell::{Backend, Cell, Depth, Provider, QueuePairs, Size};
use super::disk::DiskRow;
use super::item::Item;

/// Selection of cells by command line.
#[derive(Debug, Default, Args)]
pub(super) struct Choice {
    /// Only the most important rows, with shorter samples: under a minute
    #[arg(long)]
    pub(super) quick: bool,
    /// Only rows with this word (4k, qd32, randread, mem, soft, disk, link, ...); repeatable
    #[arg(long, value_name = "WORD")]
    only: Vec<String>,
    /// Queue depths
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    depth: Vec<String>,
    /// Bytes of each command
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',')]
    size: Vec<String>,
    /// Workloads: randread, randwrite, mixed (70 % reads)
    #[arg(long, value_name = "RW,...", value_delimiter = ',')]
    rw: Vec<String>,
    /// Numbers of queue pairs; the host has a thread for each
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    queue_pairs: Vec<String>,
    /// Disks of the target: null, mem, file
    #[arg(long, value_name = "KIND,...", value_delimiter = ',')]
    backend: Vec<String>,
    /// Providers: soft, loopback (one process, no network), verbs
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    provider: Vec<String>,
}

impl Choice {
    pub(super) fn items(&self) -> Result<Vec<Item>> {
        let dimensions = [
            &self.depth,
            &self.size,
            &self.rw,
            &self.queue_pairs,
            &self.backend,
            &self.provider,
        ];
        let own = dimensions.iter().any(|values| !values.is_empty());
        let blocks = match (own, self.quick) {
            (true, _) => vec![self.block()?],
            (false, true) => quick(),
            (false, false) => usual(),
        };
        let cells = blocks.iter().flat_map(Block::cells);
        let mut items: Vec<Item> = cells.map(Item::Cell).collect();
        if !own {
            items.push(Item::Link);
            items.extend(DiskRow::all().into_iter().map(Item::Disk));
        }
        self.filter(&items)
    }

    fn block(&self) -> Result<Block> {
        Ok(Block {
            providers: values(&self.provider, &[Provider::Soft])?,
            backends: values(&self.backend, &[Backend::Mem])?,
            workloads: values(&self.rw, &[RandRead])?,
            sizes: values(&self.size, &[Size(4096)])?,
            depths: values(&self.depth, &[Depth(32)])?,
            queue_pairs: values(&self.queue_pairs, &[QueuePairs(1)])?,
        })
    }

    fn filter(&self, items: &[Item]) -> Result<Vec<Item>> {
        let mut left = items.to_owned();
        for word in &self.only {
            left.retain(|item| item.words().contains(word));
            ensure!(
                !left.is_empty(),
                "--only {word} leaves nothing to measure; the rows have these words: {}",
                vocabulary(items).join(", ")
            );
        }
        Ok(left)
    }
}

fn vocabulary(items: &[Item]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for word in items.iter().flat_map(Item::words) {
        if !all.contains(&word) {
            all.push(word);
        }
    }
    all
}

fn values<T>(given: &[String], otherwise: &[T]) -> Result<Vec<T>>
where
    T: FromStr<Err = anyhow::Error> + Clone + PartialEq,
{
    if given.is_empty() {
        return Ok(otherwise.to_vec());
    }
    let mut values = Vec::new();
    for word in given {
        let value = word.parse()?;
        if !values.contains(&value) {
            values.push(value);
        }
    }
    Ok(values)
}

struct Block {
    providers: Vec<Provider>,
    backends: Vec<Backend>,
    workloads: Vec<Workload>,
    sizes: Vec<Size>,
    depths: Vec<Depth>,
    queue_pairs: Vec<QueuePairs>,
}

impl Block {
    fn soft(backend: Backend, workloads: &[Workload], kib: &[u32], depths: &[u32]) -> Self {
        Self {
            providers: vec![Provider::Soft],
            backends: vec![backend],
            workloads: workloads.to_vec(),
            sizes: kib.iter().map(|kib| Size(kib << 10)).collect(),
            depths: depths.iter().copied().map(Depth).collect(),
            queue_pairs: vec![QueuePairs(1)],
        }
    }

    fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for &provider in &self.providers {
            for &backend in &self.backends {
                for &workload in &self.workloads {
                    for &size in &self.sizes {
                        for &depth in &self.depths {
                            cells.extend(self.queue_pairs.iter().map(|&queue_pairs| Cell {
                                provider,
                                backend,
                                workload,
                                size,
                                depth,
                                queue_pairs,
                            }));
                        }
                    }
                }
            }
        }
        cells
    }
}

fn quick() -> Vec<Block> {
    vec![
        Block::soft(Backend::Mem, &[RandRead], &[4], &[1, 32, 127]),
        Block::soft(Backend::Mem, &[RandWrite], &[4], &[32]),
        Block::soft(Backend::Mem, &[RandRead, RandWrite], &[128], &[8]),
        Block::soft(Backend::Null, &[RandRead], &[4], &[127]),
        Block::soft(Backend::File, &[RandRead], &[4], &[32]),
    ]
}

fn usual() -> Vec<Block> {
    let no_network = Block {
        providers: vec![Provider::Loopback],
        ..Block::soft(Backend::Null, &[RandRead], &[4], &[1, 32, 127])
    };
    let several = Block {
        queue_pairs: vec![QueuePairs(4)],
        ..Block::soft(Backend::Mem, &[RandRead], &[4], &[8])
    };
    vec![
        Block::soft(
            Backend::Mem,
            &[RandRead, RandWrite],
            &[4, 128],
            &[1, 8, 32, 127],
        ),
        Block::soft(Backend::Mem, &[RandRead, RandWrite], &[16], &[1, 32]),
        Block::soft(Backend::Mem, &[RandRead, RandWrite], &[1024], &[8]),
        Block::soft(Backend::Mem, &[Mixed], &[4, 128], &[1, 32]),
        several,
        Block::soft(Backend::Null, &[RandRead, RandWrite], &[4], &[1, 32, 127]),
        Block::soft(Backend::File, &[RandRead, RandWrite], &[4], &[1, 32, 127]),
        Block::soft(Backend::File, &[RandRead, RandWrite], &[128], &[8]),
        no_network,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        choice: Choice,
    }

    fn names(line: &str) -> Result<Vec<String>> {
        let words = ["bench"].into_iter().chain(line.split_whitespace());
        let items = Cli::try_parse_from(words)?.choice.items()?;
        Ok(items.iter().map(Item::label).collect())
    }

    #[test]
    fn dimensions_multiply() {
        let line = "--depth 1,32 --rw randread,mixed --size 128k --backend null --queue-pairs 1,4";
        assert_eq!(
            names(line).unwrap(),
            [
                "soft null: randread 128k qd1",
                "soft null: randread 128k qd1 qp4",
                "soft null: randread 128k qd32",
                "soft null: randread 128k qd32 qp4",
                "soft null: mixed 128k qd1",
                "soft null: mixed 128k qd1 qp4",
                "soft null: mixed 128k qd32",
                "soft null: mixed 128k qd32 qp4",
            ]
        );
        assert_eq!(
            names("--depth 1,1").unwrap(),
            ["soft mem: randread 4k qd1"],
            "twice is once"
        );
    }

    #[test]
    fn words_pick() {
        let all = names("").unwrap();
        let quick = names("--quick").unwrap();
        assert!(quick.iter().all(|name| all.contains(name)), "{quick:?}");
        assert_eq!(
            names("--quick --only 128k").unwrap(),
            [
                "soft mem: randread 128k qd8",
                "soft mem: randwrite 128k qd8"
            ]
        );
        assert_eq!(
            names("--quick --only null --only qd127").unwrap(),
            ["soft null: randread 4k qd127"]
        );
        assert_eq!(
            names("--only disk --only qd1").unwrap(),
            ["disk: randread 4k qd1", "disk: randwrite 4k qd1"]
        );
        assert_eq!(names("--only link").unwrap(), ["raw link: all"]);
    }

    #[test]
    fn bad_choices_are_answered_with_a_remedy() {
        for (line, hint) in [
            ("--only 4kk", "the rows have these words: soft, "),
            ("--quick --only qd127 --only 128k", "leaves nothing"),
            ("--depth 128", "from 1 to 127"),
            ("--size 3k", "multiples of 4k"),
            ("--rw seq", "randread, randwrite, mixed"),
            ("--backend disk", "null, mem, file"),
            ("--provider tcp", "soft, loopback, verbs"),
            ("--depth ,", "from 1 to 127"),
        ] {
            let error = names(line).unwrap_err().to_string();
            assert!(error.contains(hint), "{line}: {error}");
        }
    }

    #[test]
    fn no_cell_is_measured_twice() {
        for line in ["", "--quick"] {
            let mut names = names(line).unwrap();
            let count = names.len();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), count);
        }
    }
}
