use super::cell::Cell;
use super::disk::{self, DiskRow};
use super::link;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Item {
    Cell(Cell),
    Disk(DiskRow),
    Link,
}

impl Item {
    pub(super) fn group(&self) -> String {
        match self {
            Self::Cell(cell) => cell.group(),
            Self::Disk(_) => disk::GROUP.to_owned(),
            Self::Link => link::GROUP.to_owned(),
        }
    }

    pub(super) fn name(&self) -> String {
        match self {
            Self::Cell(cell) => cell.name(),
            Self::Disk(row) => row.name(),
            Self::Link => "all".to_owned(),
        }
    }

    pub(super) fn label(&self) -> String {
        format!("{}: {}", self.group(), self.name())
    }

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

    pub(super) fn cell(&self) -> Option<&Cell> {
        match self {
            Self::Cell(cell) => Some(cell),
            Self::Disk(_) | Self::Link => None,
        }
    }
}
