use std::collections::BTreeMap;
use std::fs::Metadata;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::time::Duration;

use cairn_config::{Config, Namespace, Nqn, Uuid};
use cairn_control::{Disk, Error, Kind, Stage};
use serde_json::Value;

pub trait Control: Sync {
    type Snapshot: Snapshot + Send + Sync;

    fn snapshot(&self) -> impl Future<Output = Result<Self::Snapshot, Error>> + Send;

    /// Applies `change` to a copy of the configuration, possibly several times, each time to a new
    /// copy. On success, the result is in force and in the configuration file.
    fn change(
        &self,
        kind: Kind,
        change: impl Fn(&mut Stage) -> Result<Value, Error> + Send + Sync + 'static,
    ) -> Changing<'_>;

    fn disks(&self) -> BTreeMap<String, Disk>;

    /// Returns at most `max` notices ([`Notices`](crate::spdk::Notices)), starting at number `id`.
    fn notices(&self, id: u64, max: u64) -> impl Future<Output = Result<Value, Error>> + Send;

    /// Fails if the file system does not answer.
    fn metadata(&self, path: &Path) -> impl Future<Output = io::Result<Metadata>> + Send;

    fn log_level(&self) -> tracing::level_filters::LevelFilter;

    fn set_log_filter(&self, filter: &str) -> Result<(), String>;
}

pub type Changing<'c> = Pin<Box<dyn Future<Output = Result<Value, Error>> + Send + 'c>>;

pub trait Snapshot {
    fn config(&self) -> &Config;

    fn uptime(&self) -> Duration;

    fn exports(&self) -> impl Iterator<Item = Export<'_>>;

    /// Returns the counts since the namespace was added; zeros if it is missing.
    fn io_counts(&self, nqn: &Nqn, nsid: u32) -> IoCounts;

    fn controllers(&self, nqn: &str) -> Vec<Controller>;

    fn reactors(&self) -> Vec<Reactor>;
}

#[derive(Debug)]
pub struct Export<'s> {
    pub nqn: &'s Nqn,
    pub config: &'s Namespace,
    pub blocks: u64,
    pub block_bytes: u32,
    pub uuid: Uuid,
    pub nguid: Option<[u8; 16]>,
}

#[derive(Debug, Default)]
pub struct IoCounts {
    pub reads: u64,
    pub read_bytes: u64,
    pub read_ns: u64,
    pub writes: u64,
    pub written_bytes: u64,
    pub write_ns: u64,
    pub deallocates: u64,
    pub in_progress: u64,
}

#[derive(Debug)]
pub struct Controller {
    pub cntlid: u16,
    pub host_nqn: String,
    pub hostid: [u8; 16],
    pub queues: Vec<Queue>,
}

#[derive(Debug)]
pub struct Queue {
    pub qid: u16,
    pub reactor: usize,
    pub local: SocketAddr,
    pub peer: SocketAddr,
    pub authenticated: Option<(String, String)>,
}

#[derive(Debug)]
pub struct Reactor {
    pub busy_ns: u64,
    pub sleeps: bool,
    pub admin_queues: usize,
    pub io_queues: usize,
    pub completed: u64,
}
