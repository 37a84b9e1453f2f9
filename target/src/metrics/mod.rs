//! Counters of the target's work.
//!
//! Reactors count in their own memory ([`counter`], [`histogram`], [`io`], [`reactor`]), where no other thread
//! writes. Times have the resolution of a reactor's round. [`exposition`](crate::exposition) publishes the counters.

pub(crate) mod counter;
pub(crate) mod histogram;
pub(crate) mod io;
pub(crate) mod reactor;

pub(crate) use counter::Counter;
pub(crate) use io::{Class, HostTotals, NamespaceCounters, Op, QueueCounters, StageTimes};
pub(crate) use reactor::{DeviceCounters, Doing, ReactorCounters};
