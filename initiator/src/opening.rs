use nvme_proto::wire::identify::{Cns, IDENTIFY_BYTES};
use nvme_proto::wire::log::LogPage;

use crate::error::HostError;
use crate::host::Host;
use crate::namespace::Namespace;

const OPEN_TRIES: u32 = 8;

impl Host {
    /// Identifies namespace `nsid` and allows I/O to it. Blocks.
    ///
    /// # Errors
    /// As [`run`](Self::run), or the namespace is inactive or has an unsupported format.
    pub fn open_namespace(&mut self, nsid: u32) -> Result<Namespace, HostError> {
        for _ in 0..OPEN_TRIES {
            let changes = self.controller().changes();
            let namespace = self.identify_namespace(nsid)?;
            if self.controller().changes() == changes {
                self.controller_mut().expect_disk(&namespace)?;
                return Ok(namespace);
            }
        }
        Err(HostError::Unsupported(format!(
            "namespace {nsid} changed {OPEN_TRIES} times while it was identified; look at the \
             target's log for what changes it"
        )))
    }

    /// Opens a namespace that was opened at another controller. Blocks.
    ///
    /// # Errors
    /// As [`open_namespace`](Self::open_namespace), or the NSID refers to another disk at this
    /// controller.
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
        // Controllers before NVMe 1.3 have no descriptors.
        let descriptors = match self.identify_bytes(Cns::NAMESPACE_DESCRIPTORS, nsid) {
            Ok(bytes) => bytes,
            Err(HostError::Status { .. }) => vec![0; IDENTIFY_BYTES],
            Err(other) => return Err(other),
        };
        Namespace::parse(nsid, &identify, &descriptors)
    }

    /// Opens all active namespaces with a supported format. Blocks.
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

    /// Returns the NSIDs changed since the last call (log page 04h), or `None` if every namespace
    /// may have changed. Re-arms the event. Blocks.
    pub fn changed_namespaces(&mut self) -> Result<Option<Vec<u32>>, HostError> {
        // While namespaces are open, `Controller` reads this log page too, and keeps the changes.
        let what = "the list of changed namespaces";
        let mut changes = self.wait_until(what, |host| host.controller_mut().take_changes())?;
        let bytes = self.log_page(LogPage::CHANGED_NAMESPACES, 0, IDENTIFY_BYTES, false)?;
        changes.add(bytes[..].try_into().expect("as long as was asked for"));
        Ok(changes.into_list())
    }
}
