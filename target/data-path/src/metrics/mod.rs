//! Counters of the target's work, published by `cairn_target::exposition`. Each reactor writes its
//! own counters. The resolution of times is a polling round.

pub mod counter;
pub mod histogram;
pub mod io;
pub mod reactor;

pub(crate) use counter::Counter;
pub use io::{Class, HostTotals, NamespaceCounters, Op, QueueCounters, StageTimes};
pub use reactor::{DeviceCounters, Doing, ReactorCounters};
