//! A target and hosts in one process, over the loopback fabric.

mod access;
mod ana;
mod dashboard;
mod data;
mod disconnecting;
mod discovery;
mod disks;
mod doctor;
mod events;
mod examples;
mod features;
mod fencing;
mod identify;
mod isolation;
mod lifecycle;
mod log_pages;
mod metrics;
mod one_path;
mod promql;
mod queues;
mod recovery;
mod scarcity;
mod service_manager;
mod top;
mod verified;
mod withheld;
