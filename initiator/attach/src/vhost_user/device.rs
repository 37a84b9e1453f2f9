//! State of the device, which messages change.

use std::fs::File;

use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
    VhostUserLog, VhostUserMemoryRegion, VhostUserProtocolFeatures, VhostUserShMemConfig,
    VhostUserSharedMsg, VhostUserSingleMemoryRegion, VhostUserVirtioFeatures,
    VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{Error, GpuBackend, Result, VhostUserBackendReqHandlerMut};
use virtio_bindings::virtio_ring::VIRTIO_RING_F_EVENT_IDX;

use super::config::{QUEUE_ENTRIES_MAX, QUEUES_MAX, Serial, features, has, space};
use super::inflight::Inflight;
use super::memory::Memory;
use super::ring::{Addresses, Ring};
use crate::request::Limits;

const PROTOCOL_FEATURES: u64 = VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();

#[derive(Debug)]
pub(super) struct Device {
    pub(super) limits: Limits,
    pub(super) serial: Serial,
    pub(super) features: u64,
    pub(super) memory: Option<Memory>,
    pub(super) inflight: Option<Inflight>,
    pub(super) rings: Vec<Ring>,
    pub(super) has_left: bool,
}

fn refused(why: &'static str) -> Error {
    Error::InvalidOperation(why)
}

impl Device {
    pub(super) fn new(limits: Limits, serial: Serial) -> Self {
        Self {
            limits,
            serial,
            features: 0,
            memory: None,
            inflight: None,
            rings: Vec::new(),
            has_left: false,
        }
    }

    fn ring(&mut self, index: u32) -> Result<&mut Ring> {
        if index >= QUEUES_MAX.into() {
            return Err(refused("the device has fewer queues"));
        }
        let index = index as usize;
        if index >= self.rings.len() {
            self.rings.resize_with(index + 1, Ring::default);
        }
        Ok(&mut self.rings[index])
    }

    fn stopped_ring(&mut self, index: u32) -> Result<&mut Ring> {
        let ring = self.ring(index)?;
        match ring.is_started() {
            true => Err(refused("the queue is started")),
            false => Ok(ring),
        }
    }
}

impl VhostUserBackendReqHandlerMut for Device {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        // Obsolete: GET_VRING_BASE stops queues.
        Ok(())
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(features(&self.limits) | PROTOCOL_FEATURES)
    }

    fn set_features(&mut self, accepted: u64) -> Result<()> {
        if accepted & !(features(&self.limits) | PROTOCOL_FEATURES) != 0 {
            return Err(refused("a feature was not offered"));
        }
        self.features = accepted;
        Ok(())
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::INFLIGHT_SHMFD)
    }

    fn set_protocol_features(&mut self, _accepted: u64) -> Result<()> {
        Ok(())
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(QUEUES_MAX.into())
    }

    fn get_config(
        &mut self,
        offset: u32,
        size: u32,
        _flags: VhostUserConfigFlags,
    ) -> Result<Vec<u8>> {
        let space = space(&self.limits);
        let known = space.get(offset as usize..).unwrap_or(&[]);
        let mut part = known[..known.len().min(size as usize)].to_vec();
        part.resize(size as usize, 0);
        Ok(part)
    }

    fn set_config(
        &mut self,
        _offset: u32,
        _buf: &[u8],
        _flags: VhostUserConfigFlags,
    ) -> Result<()> {
        Err(refused("the configuration is read-only"))
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _postcopy: Option<bool>,
    ) -> Result<Option<Vec<u64>>> {
        let memory = Memory::map(regions, files).map_err(Error::ReqHandlerError)?;
        if !self.rings.iter().all(|ring| ring.fits(&memory)) {
            return Err(refused("a started queue is not in the memory"));
        }
        self.memory = Some(memory);
        Ok(None)
    }

    fn set_vring_num(&mut self, index: u32, entries: u32) -> Result<()> {
        if entries > QUEUE_ENTRIES_MAX.into() {
            return Err(refused("a queue is too long"));
        }
        self.stopped_ring(index)?.entries = entries as u16;
        Ok(())
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        _flags: VhostUserVringAddrFlags,
        table: u64,
        used: u64,
        available: u64,
        _log: u64,
    ) -> Result<()> {
        self.stopped_ring(index)?.addresses = Some(Addresses {
            table,
            available,
            used,
        });
        Ok(())
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        self.stopped_ring(index)?.base = base as u16;
        Ok(())
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        let ring = self.ring(index)?;
        ring.stop();
        let (entries, base) = (ring.entries, ring.base);
        let inflight = self.inflight.as_ref();
        if let Some(region) = inflight.and_then(|all| all.region(index as usize, entries)) {
            // A broken guest left requests unanswered.
            region.forget(entries);
        }
        Ok(VhostUserVringState::new(index, base.into()))
    }

    fn set_vring_kick(&mut self, index: u8, kick: Option<File>) -> Result<()> {
        let kick = kick.ok_or(refused("a queue has no event descriptor"))?;
        let entries = self.stopped_ring(index.into())?.entries;
        let memory = self.memory.as_ref().ok_or(refused("there is no memory"))?;
        let has_event_index = has(self.features, VIRTIO_RING_F_EVENT_IDX);
        let region = match &self.inflight {
            Some(inflight) => {
                let region = inflight.region(index.into(), entries);
                Some(region.ok_or(refused("a queue has no record of its requests"))?)
            }
            None => None,
        };
        let ring = &mut self.rings[usize::from(index)];
        if self.features & PROTOCOL_FEATURES == 0 {
            ring.is_enabled = true;
        }
        let started = ring.start(kick, memory, region, has_event_index);
        self.has_left |= started.map_err(refused)?;
        Ok(())
    }

    fn set_vring_call(&mut self, index: u8, call: Option<File>) -> Result<()> {
        let set = self.ring(index.into())?.set_call(call);
        set.map_err(Error::ReqHandlerError)
    }

    fn set_vring_err(&mut self, index: u8, error: Option<File>) -> Result<()> {
        let set = self.ring(index.into())?.set_error(error);
        set.map_err(Error::ReqHandlerError)
    }

    fn set_vring_enable(&mut self, index: u32, is_enabled: bool) -> Result<()> {
        self.ring(index)?.is_enabled = is_enabled;
        Ok(())
    }

    fn get_inflight_fd(&mut self, asked: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        Inflight::create(asked).map_err(Error::ReqHandlerError)
    }

    fn set_inflight_fd(&mut self, kept: &VhostUserInflight, file: File) -> Result<()> {
        if self.rings.iter().any(Ring::is_started) {
            return Err(refused("a queue is started"));
        }
        let inflight = Inflight::map(kept, file).map_err(Error::ReqHandlerError)?;
        self.inflight = Some(inflight);
        Ok(())
    }

    fn reset_device(&mut self) -> Result<()> {
        Err(not_offered())
    }

    fn set_gpu_socket(&mut self, _backend: GpuBackend) -> Result<()> {
        Err(not_offered())
    }

    fn get_shared_object(&mut self, _uuid: VhostUserSharedMsg) -> Result<File> {
        Err(not_offered())
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        Err(not_offered())
    }

    fn add_mem_region(
        &mut self,
        _region: &VhostUserSingleMemoryRegion,
        _file: File,
        _postcopy: Option<bool>,
    ) -> Result<Option<u64>> {
        Err(not_offered())
    }

    fn remove_mem_region(&mut self, _region: &VhostUserSingleMemoryRegion) -> Result<()> {
        Err(not_offered())
    }

    fn set_device_state_fd(
        &mut self,
        _direction: VhostTransferStateDirection,
        _phase: VhostTransferStatePhase,
        _file: File,
    ) -> Result<Option<File>> {
        Err(not_offered())
    }

    fn check_device_state(&mut self) -> Result<()> {
        Err(not_offered())
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        Err(not_offered())
    }

    fn set_log_base(&mut self, _log: &VhostUserLog, _file: File) -> Result<()> {
        Err(not_offered())
    }
}

fn not_offered() -> Error {
    refused("the device does not offer this feature")
}
