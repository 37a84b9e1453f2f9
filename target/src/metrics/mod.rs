//! What is told of what the target does.
//!
//! Reactors count into memory of their own ([`counter`], [`histogram`]): of I/O
//! commands ([`io`]), of themselves and their devices ([`reactor`]). Nobody else
//! writes there, so counting takes neither lock nor read-modify-write, and time is
//! what the reactor's round began with.
//!
//! When somebody asks, [`observe`] goes through all that is there and tells a
//! recorder of the `metrics` façade: [`page`] is the one whose text Prometheus
//! reads, [`http`] hands it out. What is gone is not told of any more.
//!
//! docs/metrics.md has all names; they stand in [`families`].

mod counter;
mod families;
mod histogram;
mod http;
mod io;
mod observe;
mod page;
mod reactor;

pub(crate) use counter::Counter;
pub(crate) use http::MetricsServer;
pub(crate) use io::{HostTotals, NamespaceCounters, Op, QueueCounters, Way};
pub(crate) use observe::Observed;
pub(crate) use reactor::{DeviceCounters, Doing, ReactorCounters};
