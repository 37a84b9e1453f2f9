//! Counters of the target's work, published by [`exposition`](crate::exposition). Each reactor
//! writes its own, with times in the resolution of its rounds.

pub(crate) mod counter;
pub(crate) mod histogram;
pub(crate) mod io;
pub(crate) mod reactor;

pub(crate) use counter::Counter;
pub(crate) use io::{Class, HostTotals, NamespaceCounters, Op, QueueCounters, StageTimes};
pub(crate) use reactor::{DeviceCounters, Doing, ReactorCounters};
