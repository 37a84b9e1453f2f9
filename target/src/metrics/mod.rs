//! What is counted of what the target does.
//!
//! Reactors count into memory of their own ([`counter`], [`histogram`]): of I/O
//! commands ([`io`]), of themselves and their devices ([`reactor`]). Nothing else
//! writes there, so counting takes neither lock nor read-modify-write, and time is
//! what the reactor's round began with. [`exposition`](crate::exposition) shows it.

pub(crate) mod counter;
pub(crate) mod histogram;
pub(crate) mod io;
pub(crate) mod reactor;

pub(crate) use counter::Counter;
pub(crate) use io::{Class, HostTotals, NamespaceCounters, Op, QueueCounters, StageTimes};
pub(crate) use reactor::{DeviceCounters, Doing, ReactorCounters};
