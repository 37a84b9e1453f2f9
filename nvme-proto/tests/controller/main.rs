//! Tests of controllers through commands, completions and actions.

mod admin;
mod ana;
mod connect;
mod cross_reset;
mod discovery;
mod events;
mod features;
mod life;
mod linux;
mod logs;
mod page;
mod protection;
mod random;
mod reservations;
mod rig;
mod seen;
