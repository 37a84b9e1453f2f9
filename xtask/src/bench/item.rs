//! Whatever a run can measure: cells of the matrix, and what stands beside them.

use super::cell::Cell;
use super::disk::{self, DiskRow};
use super::link;

/// What is measured in one go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Item {
    /// Target and host.
    Cell(Cell),
    /// The way to a disk, without a network.
    Disk(DiskRow),
    /// The network, without a disk.
    Link,
}

impl Item {
    /// The table that it is in.
    pub(super) fn group(&self) -> String {
        match self {
            Self::Cell(cell) => cell.group(),
            Self::Disk(_) => disk::GROUP.to_owned(),
            Self::Link => link::GROUP.to_owned(),
        }
    }

    /// Its row; of the link, all of them.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Cell(cell) => cell.name(),
            Self::Disk(row) => row.name(),
            Self::Link => "all".to_owned(),
        }
    }

    /// Group and row.
    pub(super) fn label(&self) -> String {
        format!("{}: {}", self.group(), self.name())
    }

    /// Its parts, by which `--only` picks.
    pub(super) fn words(&self) -> Vec<String> {
        match self {
            Self::Cell(cell) => cell.words().into(),
            Self::Disk(_) => {
                let label = format!("{} {}", self.group(), self.name());
                label.split(' ').map(str::to_owned).collect()
            }
            Self::Link => vec!["link".to_owned()],
        }
    }

    /// The cell, if it is one.
    pub(super) fn cell(&self) -> Option<&Cell> {
        match self {
            Self::Cell(cell) => Some(cell),
            Self::Disk(_) | Self::Link => None,
        }
    }
}
