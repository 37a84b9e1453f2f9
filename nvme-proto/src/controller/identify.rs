//! Identify (Base, 5.17; NVM, 4.1.5).

use zerocopy::{FromBytes, IntoBytes};

use crate::common::{Common, Kind};
use crate::io::{COPY_RANGES_MAX, CopyFormat, IoLimits};
use crate::limits::{
    ABORTS, ANA_GROUPS_MAX, ASYNC_EVENT_REQUESTS, CAPSULE_HEADER_BYTES, COMMAND_QUIESCE_MS,
    CROSS_RESETS, ERROR_LOG_ENTRIES, KAS,
};
use crate::namespace::{Atomic, Namespace, NsidSet};
use crate::transfer::DATA_BLOCKS_MAX;
use crate::wire::identify::{
    Anacap, CSI_NVM, Cmic, Cns, Ctratt, Dlfeat, IdentifyController, IdentifyControllerNvm,
    IdentifyNamespace, IdentifyNamespaceIndependent, IoCommandSets, Lpa, NamespaceDescriptor,
    NamespaceList, Nsfeat, Oncs, Sgls, Vwc, ascii_field,
};
use crate::wire::log::AnaState;
use crate::wire::reservation::Rescap;
use crate::wire::sgl::SGL_DESCRIPTOR_BYTES;
use crate::wire::{NSID_ALL, Status};

use super::command::Identify;
use super::features::offered_events;
use super::protection::nwpc;
use super::refusal::byte;
use super::{Controller, Refusal, properties};

/// ANATT: maximum duration of an ANA transition, in seconds.
///
/// Not enforced. Linux resets a controller in ANA Change after twice this time.
const ANATT_S: u8 = 10;
/// RTD3E: maximum shutdown time in microseconds, with cache flushes.
const RTD3E_US: u32 = 15_000_000;
/// IORCSZ: response capsule size (unit: 16 bytes).
const IORCSZ: u32 = 1;
const SGLS_UNALIGNED: u8 = 0b01;
const FRMW_ONE_READ_ONLY_SLOT: u8 = 1 << 1 | 1;
const CNTID_THIS: u16 = 0xffff;
const DLFEAT_ZEROES: u8 = 0b001;

impl Controller {
    pub(super) fn identify(
        &self,
        common: &Common,
        identify: &Identify,
        out: &mut [u8],
    ) -> Result<(), Refusal> {
        out.fill(0);
        if identify.cns == Cns::CONTROLLER {
            self.fill_controller(common, view(out));
            return Ok(());
        }
        if common.kind() == Kind::Discovery {
            return Err(Refusal::field(byte::CDW10));
        }
        check_csi(identify)?;
        let nsid = identify.nsid;
        match identify.cns {
            Cns::NAMESPACE => {
                if let Some(namespace) = self.find(common, nsid)? {
                    self.fill_namespace(common, namespace, view(out));
                }
            }
            Cns::ACTIVE_NAMESPACES | Cns::IO_COMMAND_SET_ACTIVE_NAMESPACES => {
                // FFFFFFFEh and FFFFFFFFh are invalid (Base, 5.17.2.2).
                if nsid >= NSID_ALL - 1 {
                    return Err(bad_nsid());
                }
                let active = common.namespaces.nsids_after(nsid);
                let list = NamespaceList::new(active.filter(|&nsid| self.sees(nsid)));
                out.copy_from_slice(list.as_bytes());
            }
            Cns::NAMESPACE_DESCRIPTORS => {
                let namespace = self.find(common, nsid)?.ok_or_else(bad_nsid)?;
                write_descriptors(namespace, out);
            }
            // All fields are 0, because no format has metadata.
            Cns::IO_COMMAND_SET_NAMESPACE => {
                self.find(common, nsid)?;
            }
            Cns::IO_COMMAND_SET_CONTROLLER => {
                let controller: &mut IdentifyControllerNvm = view(out);
                controller.vsl = common.limits().mdts;
                controller.wzsl = common.limits().mdts;
                controller.wusl = common.limits().mdts;
            }
            Cns::NAMESPACE_INDEPENDENT => {
                if let Some(namespace) = self.find(common, nsid)? {
                    fill_independent(namespace, view(out));
                }
            }
            Cns::IO_COMMAND_SETS => {
                if identify.cntid != CNTID_THIS && identify.cntid != self.cntlid {
                    return Err(Refusal::field(byte::CDW10));
                }
                let sets: &mut IoCommandSets = view(out);
                sets.combinations[0].set(1 << CSI_NVM);
            }
            _ => return Err(Refusal::field(byte::CDW10)),
        }
        Ok(())
    }

    /// Returns a visible namespace, or `None` for an inactive NSID, whose data is all 0 (Base,
    /// 5.17.2.1).
    fn find<'a>(&self, common: &'a Common, nsid: u32) -> Result<Option<&'a Namespace>, Refusal> {
        if (1..=common.limits().namespaces).contains(&nsid) {
            Ok(common.namespaces.seen(nsid, &self.seen))
        } else {
            Err(bad_nsid())
        }
    }

    fn fill_controller(&self, common: &Common, id: &mut IdentifyController) {
        let (settings, limits) = (&common.settings, common.limits());
        id.sn = ascii_field(&settings.serial);
        id.mn = ascii_field(&settings.model);
        id.fr = ascii_field(&settings.firmware);
        id.mdts = limits.mdts;
        id.cntlid.set(self.cntlid);
        id.ver.set(properties::VERSION.0);
        id.rtd3e.set(RTD3E_US);
        id.oaes.set(offered_events(common.kind()).with_smart(0).0);
        id.ctratt
            .set(Ctratt(0).with_host_id_128(true).with_tbkas(true).0);
        id.acl = ABORTS as u8 - 1;
        id.aerl = ASYNC_EVENT_REQUESTS as u8 - 1;
        id.frmw = FRMW_ONE_READ_ONLY_SLOT;
        id.lpa = Lpa(0)
            .with_command_effects(true)
            .with_extended_data(true)
            .with_supported_pages(true)
            .0;
        id.elpe = ERROR_LOG_ENTRIES as u8 - 1;
        id.kas.set(KAS);
        id.cqt.set(COMMAND_QUIESCE_MS);
        id.sqes = IdentifyController::SQES_64;
        id.cqes = IdentifyController::CQES_16;
        id.maxcmd.set(limits.io_queue_entries);
        let data_blocks = data_blocks(common);
        id.sgls.set(
            Sgls(0)
                .with_supported(SGLS_UNALIGNED)
                .with_keyed(true)
                .with_in_capsule_offset(true)
                .with_bit_bucket(data_blocks > 1)
                .0,
        );
        id.subnqn = settings.nqn.encode();
        id.ioccsz
            .set((CAPSULE_HEADER_BYTES + limits.in_capsule_bytes) / 16);
        id.iorcsz.set(IORCSZ);
        id.msdbd = data_blocks;
        if let Some(instance) = self.instance() {
            id.ciu = instance.ciu;
            id.cirn.set(instance.cirn);
        }
        id.ccrl = CROSS_RESETS as u8;
        match common.kind() {
            Kind::Nvm => {
                fill_nvm_controller(common, &self.seen, id);
                let uncorrectable = self.has_write_uncorrectable(common);
                id.oncs
                    .set(oncs().with_write_uncorrectable(uncorrectable).0);
            }
            Kind::Discovery => id.cntrltype = IdentifyController::CNTRLTYPE_DISCOVERY,
        }
    }

    /// True if namespaces are visible, and all support Write Uncorrectable, as ONCS requires.
    pub(super) fn has_write_uncorrectable(&self, common: &Common) -> bool {
        common
            .namespaces
            .write_uncorrectable(|nsid| self.sees(nsid))
    }

    fn fill_namespace(&self, common: &Common, namespace: &Namespace, id: &mut IdentifyNamespace) {
        id.nsze.set(namespace.blocks);
        id.ncap.set(namespace.blocks);
        // NUSE is 0 in these ANA states (Base, 8.1.3.3 and 8.1.3.4).
        let lost = matches!(
            self.ana.get(namespace.anagrpid),
            AnaState::INACCESSIBLE | AnaState::PERSISTENT_LOSS
        );
        if !lost {
            id.nuse.set(namespace.blocks);
        }
        id.nmic = IdentifyNamespace::NMIC_SHARED;
        id.rescap = rescap(namespace);
        if namespace.deallocates {
            id.dlfeat = Dlfeat(0)
                .with_read(DLFEAT_ZEROES)
                .with_write_zeroes_deallocate(true)
                .0;
        }
        if let Some(preferred) = namespace.preferred {
            id.nsfeat = Nsfeat(id.nsfeat).with_optperf(true).0;
            id.npwg.set(zero_based(preferred.write));
            id.npwa.set(zero_based(preferred.write_alignment));
            id.nows.set(zero_based(preferred.optimal_write));
            id.npdg.set(zero_based(preferred.deallocate));
            id.npda.set(zero_based(preferred.deallocate_alignment));
        }
        if namespace.atomic != Atomic::BLOCK {
            fill_atomic(&namespace.atomic, id);
        }
        let copied = io_limits(common).copy_blocks(&namespace.view());
        id.mssrl.set(copied as u16);
        id.mcl.set(copied);
        id.msrc = (COPY_RANGES_MAX - 1) as u8;
        id.noiob.set(namespace.boundary);
        id.nvmcap
            .set(u128::from(namespace.blocks) << namespace.block_shift);
        id.anagrpid.set(namespace.anagrpid);
        id.nsattr = nsattr(namespace);
        id.nguid = namespace.nguid;
        id.eui64 = namespace.eui64;
        id.lbaf[0].lbads = namespace.block_shift;
    }
}

fn fill_atomic(atomic: &Atomic, id: &mut IdentifyNamespace) {
    id.nsfeat = Nsfeat(id.nsfeat).with_nsabp(true).0;
    id.nawun.set(zero_based(atomic.normal));
    id.nawupf.set(zero_based(atomic.power_fail));
    id.nabsn.set(zero_based(atomic.boundary));
    id.nabo.set(atomic.boundary_offset);
    id.nabspf.set(zero_based(atomic.boundary_power_fail));
}

/// Returns MSDBD: keyed descriptors for which a capsule of an I/O queue has room, at least SGL 1.
fn data_blocks(common: &Common) -> u8 {
    let room = match common.kind() {
        Kind::Nvm => common.limits().in_capsule_bytes as usize / SGL_DESCRIPTOR_BYTES,
        Kind::Discovery => 1,
    };
    room.clamp(1, DATA_BLOCKS_MAX) as u8
}

fn zero_based(blocks: u32) -> u16 {
    (blocks.clamp(1, 1 << 16) - 1) as u16
}

fn fill_nvm_controller(common: &Common, seen: &NsidSet, id: &mut IdentifyController) {
    let nn = common.limits().namespaces;
    id.cntrltype = IdentifyController::CNTRLTYPE_IO;
    id.cmic = Cmic(0)
        .with_multi_port(true)
        .with_multi_controller(true)
        .with_ana(true)
        .0;
    id.anatt = ANATT_S;
    // The static ANAGRPID bit is 0: a namespace may move to another group.
    id.anacap = Anacap(0)
        .with_optimized(true)
        .with_non_optimized(true)
        .with_inaccessible(true)
        .with_persistent_loss(true)
        .with_change(true)
        .0;
    id.anagrpmax.set(ANA_GROUPS_MAX);
    id.nanagrpid.set(ANA_GROUPS_MAX);
    id.nn.set(nn);
    id.mnan.set(nn);
    id.fuses.set(IdentifyController::FUSES_COMPARE_AND_WRITE);
    id.vwc = vwc(common).0;
    id.ocfs.set(CopyFormat::SUPPORTED);
    id.nwpc = nwpc(common.namespaces.keep_protection(seen));
}

fn oncs() -> Oncs {
    Oncs(0)
        .with_compare(true)
        .with_dataset_management(true)
        .with_write_zeroes(true)
        .with_save_select(true)
        .with_reservations(true)
        .with_timestamp(true)
        .with_verify(true)
        .with_copy(true)
}

fn vwc(common: &Common) -> Vwc {
    Vwc(0)
        .with_present(common.has_write_cache())
        .with_flush_all(Vwc::FLUSH_ALL_YES)
}

pub(crate) fn io_limits(common: &Common) -> IoLimits {
    let mdts_bytes = common.limits().transfer_bytes();
    IoLimits {
        mdts_bytes,
        // MDTS also limits commands without data, to bound their execution time.
        wzsl_bytes: Some(mdts_bytes),
        vsl_bytes: Some(mdts_bytes),
        wusl_bytes: Some(mdts_bytes),
        oncs: oncs(),
        vwc: vwc(common),
    }
}

fn fill_independent(namespace: &Namespace, id: &mut IdentifyNamespaceIndependent) {
    id.nmic = IdentifyNamespace::NMIC_SHARED;
    id.rescap = rescap(namespace);
    id.anagrpid.set(namespace.anagrpid);
    id.nsattr = nsattr(namespace);
    id.nstat = IdentifyNamespaceIndependent::NSTAT_READY;
}

fn rescap(namespace: &Namespace) -> u8 {
    if !namespace.reservable {
        return 0;
    }
    let rescap = Rescap(0).with_types(0b11_1111).with_iekey(true);
    rescap.with_ptpl(namespace.keeps_reservations).0
}

fn nsattr(namespace: &Namespace) -> u8 {
    if namespace.is_protected() {
        IdentifyNamespace::NSATTR_WRITE_PROTECTED
    } else {
        0
    }
}

fn write_descriptors(namespace: &Namespace, out: &mut [u8]) {
    let mut rest = out;
    let mut write = |descriptor: NamespaceDescriptor<'_>| {
        let out = core::mem::take(&mut rest);
        rest = descriptor
            .write(out)
            .expect("four descriptors fit in 4 KiB");
    };
    write(NamespaceDescriptor::Uuid(namespace.uuid));
    if namespace.nguid != [0; 16] {
        write(NamespaceDescriptor::Nguid(namespace.nguid));
    }
    if namespace.eui64 != [0; 8] {
        write(NamespaceDescriptor::Eui64(namespace.eui64));
    }
    write(NamespaceDescriptor::Csi(CSI_NVM));
}

fn view<T>(out: &mut [u8]) -> &mut T
where
    T: FromBytes + IntoBytes + zerocopy::KnownLayout + zerocopy::Immutable,
{
    T::mut_from_bytes(out).expect("Identify has a buffer of 4096 bytes")
}

fn bad_nsid() -> Refusal {
    Refusal::new(Status::INVALID_NAMESPACE_OR_FORMAT).at(byte::NSID)
}

/// Rejects a CSI other than NVM, if CNS uses CSI (Base, figure 273).
fn check_csi(identify: &Identify) -> Result<(), Refusal> {
    let uses_csi = matches!(
        identify.cns,
        Cns::IO_COMMAND_SET_NAMESPACE
            | Cns::IO_COMMAND_SET_CONTROLLER
            | Cns::IO_COMMAND_SET_ACTIVE_NAMESPACES
    );
    if uses_csi && identify.csi != CSI_NVM {
        return Err(Refusal::field(byte::CDW11));
    }
    Ok(())
}
