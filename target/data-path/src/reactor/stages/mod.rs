//! Stages of an I/O command, in the order of docs/walk.md: [`receive`], [`plan`], [`buffers`],
//! [`fetch`], [`disk`], [`respond`] and [`sent`].

pub(super) mod admission;
pub(super) mod budget;
pub(super) mod buffers;
pub(super) mod decisions;
pub(super) mod disk;
pub(super) mod disk_errors;
pub(super) mod fetch;
pub(super) mod fused;
pub(super) mod gates;
pub(super) mod lists;
pub(super) mod plan;
pub(super) mod receive;
pub(super) mod respond;
pub(super) mod sent;
pub(super) mod throttle;
pub(super) mod turns;
