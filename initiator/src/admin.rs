use nvme_proto::wire::fabrics::{PropertyGetCommand, PropertySetCommand, PropertySize};
use nvme_proto::wire::feature::{Feature, Select};
use nvme_proto::wire::identify::{
    Cns, IDENTIFY_BYTES, IdentifyNamespace, NAMESPACE_LIST_MAX, NamespaceList,
};
use nvme_proto::wire::log::LogPage;
use nvme_proto::wire::{FromBytes, NSID_ALL};

use crate::buffer::Data;
use crate::command;
use crate::error::HostError;
use crate::host::{Host, SCRATCH_BYTES};
use crate::queue::Ticket;
use crate::reading::Reading;

impl Host {
    /// Reads the 4-byte property at offset `at`.
    pub fn property(&mut self, at: u32) -> Result<u32, HostError> {
        let get = PropertyGetCommand::new(0, PropertySize::Four, at);
        Ok(self.run_admin(get.into(), Data::None)?.cqe.result() as u32)
    }

    /// Reads the 8-byte property at offset `at`.
    pub fn wide_property(&mut self, at: u32) -> Result<u64, HostError> {
        let get = PropertyGetCommand::new(0, PropertySize::Eight, at);
        Ok(self.run_admin(get.into(), Data::None)?.cqe.result())
    }

    /// Writes the 4-byte property at offset `at`. For CC, use [`shutdown`](Self::shutdown) or
    /// [`reset`](Self::reset), which also update the host's state.
    pub fn set_property(&mut self, at: u32, value: u32) -> Result<(), HostError> {
        let set = PropertySetCommand::new(0, PropertySize::Four, at, value.into());
        self.run_admin(set.into(), Data::None).map(|_| ())
    }

    /// Runs Identify. Returns its data as `T`, which must have 4096 bytes.
    pub fn identify<T: FromBytes>(&mut self, cns: Cns, nsid: u32) -> Result<Box<T>, HostError> {
        let bytes = self.identify_bytes(cns, nsid)?;
        let structure = T::read_from_bytes(&bytes).ok();
        Ok(Box::new(
            structure.expect("Identify structures have 4096 bytes"),
        ))
    }

    /// Runs Identify and returns its 4096 bytes.
    pub fn identify_bytes(&mut self, cns: Cns, nsid: u32) -> Result<Vec<u8>, HostError> {
        let mut scratch = self.scratch.lend();
        let data = Data::start_of(&mut scratch, IDENTIFY_BYTES as u32);
        self.run_admin(command::identify(cns, nsid), data)?;
        Ok(scratch.bytes(0, IDENTIFY_BYTES))
    }

    /// Returns the NSIDs of active namespaces in ascending order.
    pub fn active_namespaces(&mut self) -> Result<Vec<u32>, HostError> {
        let mut all = Vec::new();
        loop {
            let after = all.last().copied().unwrap_or(0);
            let list = self.identify::<NamespaceList>(Cns::ACTIVE_NAMESPACES, after)?;
            let before = all.len();
            all.extend(list.iter().filter(|&nsid| nsid > after));
            if all.len() - before < NAMESPACE_LIST_MAX {
                return Ok(all);
            }
        }
    }

    /// Runs Identify Namespace (CNS 00h).
    pub fn namespace(&mut self, nsid: u32) -> Result<Box<IdentifyNamespace>, HostError> {
        self.identify(Cns::NAMESPACE, nsid)
    }

    /// Reads `length` bytes of a log page from `offset`, if necessary with several commands. With
    /// `retain` (RAE), the controller does not re-arm the page's event.
    ///
    /// # Panics
    /// If `length` is 0 or not a multiple of 4.
    pub fn log_page(
        &mut self,
        page: LogPage,
        offset: u64,
        length: usize,
        retain: bool,
    ) -> Result<Vec<u8>, HostError> {
        self.log_page_of(NSID_ALL, page, offset, length, retain)
    }

    /// Like [`log_page`](Self::log_page), for the log page of a namespace.
    pub fn log_page_of(
        &mut self,
        nsid: u32,
        page: LogPage,
        offset: u64,
        length: usize,
        retain: bool,
    ) -> Result<Vec<u8>, HostError> {
        let mut scratch = self.scratch.lend();
        let piece_max = SCRATCH_BYTES.min(self.transfer_max() as usize);
        let mut reading = Reading::new((page, nsid), offset, length, piece_max, retain);
        while let Some((sqe, piece)) = reading.next() {
            self.run_admin(sqe, Data::start_of(&mut scratch, piece))?;
            reading.take(&scratch.bytes(0, piece as usize));
        }
        Ok(reading.into_bytes())
    }

    /// Reads a feature. Returns DW0 of the completion.
    pub fn feature(&mut self, feature: Feature, select: Select) -> Result<u32, HostError> {
        let sqe = command::get_features(feature.0, select, 0, 0);
        Ok(self.run_admin(sqe, Data::None)?.cqe.dw0.get())
    }

    /// Sets a feature to `value` (CDW11). Returns DW0 of the completion.
    pub fn set_feature(&mut self, feature: Feature, value: u32) -> Result<u32, HostError> {
        let sqe = command::set_features(feature.0, 0, value);
        Ok(self.run_admin(sqe, Data::None)?.cqe.dw0.get())
    }

    /// Aborts `command`. Returns true if the controller aborted it. `command` completes in any
    /// case, and its result must be taken.
    pub fn abort(&mut self, command: Ticket) -> Result<bool, HostError> {
        const NOT_ABORTED: u32 = 1;
        let sqe = command::abort(command.qid(), command.cid());
        let dw0 = self.run_admin(sqe, Data::None)?.cqe.dw0.get();
        Ok(dw0 & NOT_ABORTED == 0)
    }
}
