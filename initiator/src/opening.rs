//! Opening of namespaces, and detection of changed ones.

use nvme_proto::wire::identify::{Cns, IDENTIFY_BYTES};
use nvme_proto::wire::log::LogPage;

use crate::error::HostError;
use crate::host::Host;
use crate::namespace::Namespace;

/// Attempts to identify a namespace that changes during the identification.
const OPEN_TRIES: u32 = 8;

impl Host {
    /// Opens the namespace `nsid`. Blocks.
    ///
    /// Afterwards, whenever the controller was lost and is back, or reports a change, the namespace
    /// is identified again before commands go there. Once it is another disk, commands end in
    /// [`HostError::Replaced`] until it is opened anew.
    ///
    /// # Errors
    /// As for [`run`](Self::run), or this host cannot use it.
    pub fn open_namespace(&mut self, nsid: u32) -> Result<Namespace, HostError> {
        for _ in 0..OPEN_TRIES {
            let changes = self.changes();
            let namespace = self.identify_namespace(nsid)?;
            // If the namespaces have changed meanwhile, the two responses may describe two disks.
            if self.changes() == changes {
                self.expect_disk(&namespace)?;
                return Ok(namespace);
            }
        }
        Err(HostError::Unsupported(format!(
            "namespace {nsid} changed {OPEN_TRIES} times while it was identified; look at the \
             target's log for what changes it"
        )))
    }

    /// Opens a namespace that another controller has shown, at this one. Blocks.
    ///
    /// # Errors
    /// As for [`open_namespace`](Self::open_namespace), or its NSID is another disk here.
    pub fn open_same(&mut self, namespace: &Namespace) -> Result<(), HostError> {
        let found = self.open_namespace(namespace.nsid)?;
        if found.disk() == namespace.disk() {
            return Ok(());
        }
        Err(HostError::Replaced {
            remote: self.options().remote,
            nsid: namespace.nsid,
        })
    }

    fn identify_namespace(&mut self, nsid: u32) -> Result<Namespace, HostError> {
        let identify = self.namespace(nsid)?;
        // Controllers before NVMe 1.3 have no descriptors; this is no failure.
        let descriptors = match self.identify_bytes(Cns::NAMESPACE_DESCRIPTORS, nsid) {
            Ok(bytes) => bytes,
            Err(HostError::Status { .. }) => vec![0; IDENTIFY_BYTES],
            Err(other) => return Err(other),
        };
        Namespace::parse(nsid, &identify, &descriptors)
    }

    /// Opens all active namespaces that this host can use. Blocks.
    ///
    /// # Errors
    /// As for [`run`](Self::run).
    pub fn open_namespaces(&mut self) -> Result<Vec<Namespace>, HostError> {
        let mut all = Vec::new();
        for nsid in self.active_namespaces()? {
            match self.open_namespace(nsid) {
                Ok(namespace) => all.push(namespace),
                Err(HostError::Unsupported(_)) => {}
                Err(other) => return Err(other),
            }
        }
        Ok(all)
    }

    /// NSIDs changed since the last call (log page 04h); re-arms the event. `None` if too many to
    /// list: check all. Blocks.
    ///
    /// # Errors
    /// As for [`run`](Self::run).
    pub fn changed_namespaces(&mut self) -> Result<Option<Vec<u32>>, HostError> {
        // While namespaces are open, the controller object reads the page itself.
        let what = "the list of changed namespaces";
        let mut changes = self.wait_until(what, |host| host.take_changes())?;
        let bytes = self.log_page(LogPage::CHANGED_NAMESPACES, 0, IDENTIFY_BYTES, false)?;
        changes.add(bytes[..].try_into().expect("as long as was asked for"));
        Ok(changes.into_list())
    }
}
