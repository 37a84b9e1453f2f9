//! Providers selectable on the command line of test programs.

use std::sync::Arc;

use anyhow::Result;
use cairn_rdma::Provider;
use cairn_rdma::loopback::Loopback;
use cairn_roce::Soft;
use cairn_verbs::VerbsProvider;
use clap::ValueEnum;

/// Provider to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ProviderName {
    /// Inside this process.
    Loopback,
    /// RoCE in user space, over UDP.
    Soft,
    /// RDMA adapters, by libibverbs and librdmacm.
    Verbs,
}

impl ProviderName {
    /// Opens the provider.
    ///
    /// # Errors
    /// The provider is not available on this machine.
    pub fn open(self) -> Result<Arc<dyn Provider>> {
        match self {
            Self::Loopback => Ok(Arc::new(Loopback::new())),
            Self::Soft => Ok(Arc::new(Soft::default())),
            Self::Verbs => Ok(Arc::new(VerbsProvider::new()?)),
        }
    }
}
