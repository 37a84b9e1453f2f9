//! The providers that the test programs can name on a command line.

use std::sync::Arc;

use anyhow::Result;
use cairn_rdma::Provider;
use cairn_rdma::loopback::Loopback;
use cairn_verbs::VerbsProvider;
use clap::ValueEnum;

/// Which provider to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ProviderName {
    /// Inside this process.
    Loopback,
    /// RDMA adapters, by libibverbs and librdmacm.
    Verbs,
}

impl ProviderName {
    /// Opens it.
    ///
    /// # Errors
    /// It cannot work on this machine.
    pub fn open(self) -> Result<Arc<dyn Provider>> {
        match self {
            Self::Loopback => Ok(Arc::new(Loopback::new())),
            Self::Verbs => Ok(Arc::new(VerbsProvider::new()?)),
        }
    }
}
