//! Checks of the Linux host (drivers/nvme/host). If a check fails, Linux warns or does not connect.

use nvme_proto::controller::Action;
use nvme_proto::wire::fabrics::{PropertyGetCommand, PropertySize};
use nvme_proto::wire::identify::{
    Cmic, Cns, Ctratt, IdentifyController, IdentifyControllerNvm, IdentifyNamespace,
    IdentifyNamespaceIndependent, IoCommandSets, Lpa, NamespaceDescriptor, NamespaceList, Sgls,
    namespace_descriptors,
};
use nvme_proto::wire::log::{AnaGroup, AnaLogHeader};
use nvme_proto::wire::property::{Cap, Crto, offset};
use nvme_proto::wire::{AdminOpcode, FromBytes};

use crate::rig::*;

fn controller(rig: &mut Rig) -> IdentifyController {
    rig.identify_as(Cns::CONTROLLER, 0)
}

#[test]
fn linux_requires_ready_within_the_timeout_of_cap_and_crto() {
    let mut rig = Rig::ready();
    let get = |size, ofst| PropertyGetCommand::new(0, size, ofst).into();
    let cap = Cap(rig.complete(get(PropertySize::Eight, offset::CAP)).result);
    assert_eq!(cap.mpsmin(), 0, "nvme_enable_ctrl: pages of 4 KiB");
    // Linux waits for the longer of CAP.TO and CRTO.CRWMT (unit: 500 ms).
    assert!(cap.crwms());
    let crto = Crto(rig.complete(get(PropertySize::Four, offset::CRTO)).result as u32);
    assert_eq!(crto.crwmt(), u16::from(cap.to()));
    assert_eq!(rig.csts() & 1, 1);
    assert_ne!(cap.css() & Cap::CSS_IOCS, 0);
    assert_eq!(cap.mqes(), 127);
}

#[test]
fn linux_requires_fabrics_fields_of_identify_controller() {
    let mut rig = Rig::ready();
    let id = controller(&mut rig);
    assert_eq!(
        id.cntlid.get(),
        rig.cntlid,
        "nvme_check_ctrl_fabric_info: Mismatching cntlid"
    );
    assert_ne!(
        id.kas.get(),
        0,
        "keepalive support is mandatory for fabrics"
    );
    assert!(id.ioccsz.get() >= 4);
    assert_eq!(id.ioccsz.get() * 16, 64 + 4096);
    assert!(id.iorcsz.get() >= 1);
    assert_ne!(id.maxcmd.get(), 0, "Max outstanding commands");
    assert_eq!(
        id.icdoff.get(),
        0,
        "nvme_rdma_setup_ctrl: icdoff is not supported"
    );
    let sgls = Sgls(id.sgls.get());
    assert!(sgls.keyed(), "Mandatory keyed sgls are not supported");
    assert!(sgls.in_capsule_offset(), "use_inline_data");
    assert_eq!(id.msdbd, 16);
    assert_eq!(id.sgls.get(), 0x0011_0005);
    assert_eq!(id.mdts, 8, "1 MiB");
    assert!(Ctratt(id.ctratt.get()).tbkas());
    assert_eq!((id.crdt1.get(), id.oacs.get()), (0, 0));
}

#[test]
fn linux_requires_controllers_of_one_subsystem_to_say_so() {
    let mut rig = Rig::ready();
    let id = controller(&mut rig);
    assert_eq!(&id.subnqn[..SUBNQN.len()], SUBNQN.as_bytes());
    assert_eq!(id.subnqn[SUBNQN.len()], 0);
    let cmic = Cmic(id.cmic);
    assert!(
        cmic.multi_controller(),
        "Subsystem does not support multiple controllers"
    );
    let second = Connect::admin(SUBNQN, 0)
        .send(&mut rig.subsystem, rig.now)
        .unwrap();
    assert_ne!(second.cntlid, rig.cntlid, "Duplicate cntlid");
    assert_eq!(id.cntrltype, IdentifyController::CNTRLTYPE_IO);
    assert_eq!(&id.sn, b"CAIRN0001           ");
}

#[test]
fn linux_requires_a_sane_ana_log_where_cmic_promises_one() {
    let mut rig = Rig::ready();
    let id = controller(&mut rig);
    assert!(Cmic(id.cmic).ana());
    let (nn, mnan) = (id.nn.get(), id.mnan.get());
    assert!(0 < mnan && mnan <= nn, "Invalid MNAN value");
    assert!(id.anatt > 0);
    assert!(id.anagrpmax.get() >= 1 && id.nanagrpid.get() >= 1);
    // nvme_mpath_init_identify: the longest ANA log must fit MDTS.
    let length = 16 + 32 * id.nanagrpid.get() as usize + 4 * mnan as usize;
    assert!(length <= 4096 << id.mdts);
    let log = rig.log(0x0c, length);
    let header: AnaLogHeader = read(&log);
    assert_eq!(header.ngrps.get(), 1);
    let group: AnaGroup = read(&log[16..]);
    assert_eq!(
        (group.agid.get(), group.nnsids.get(), group.anas),
        (1, 2, 0x01)
    );
    assert_eq!(log[48..56], [1, 0, 0, 0, 2, 0, 0, 0]);
    assert!(log[56..].iter().all(|&byte| byte == 0));
}

#[test]
fn linux_requires_queues_to_be_granted() {
    let mut rig = Rig::ready();
    assert_eq!(rig.succeed(set_features(0x07, 0x0003_0003)).0, 0x0003_0003);
    for qid in 1..=4 {
        assert_eq!(rig.connect_io(qid).unwrap().cntlid, rig.cntlid);
    }
}

#[test]
fn linux_requires_the_events_of_oaes_to_be_accepted() {
    let mut rig = Rig::ready();
    let oaes = controller(&mut rig).oaes.get();
    // NVME_AEN_SUPPORTED in Linux: namespace attributes, firmware activation, ANA, discovery.
    let supported = 1 << 8 | 1 << 9 | 1 << 11 | 1 << 31;
    assert_eq!(oaes & supported, 0x900);
    rig.succeed(set_features(0x0b, oaes & supported));
    rig.park_aer();
    assert_eq!(rig.take_actions(), []);
}

#[test]
fn linux_requires_namespaces_to_be_listed_and_described() {
    let mut rig = Rig::ready();
    let list: NamespaceList = rig.identify_as(Cns::ACTIVE_NAMESPACES, 0);
    assert_eq!(list.iter().collect::<Vec<_>>(), [1, 2]);
    let list: NamespaceList = rig.identify_as(Cns::ACTIVE_NAMESPACES, 1);
    assert_eq!(list.iter().collect::<Vec<_>>(), [2]);
    let descriptors = rig.identify(Cns::NAMESPACE_DESCRIPTORS, 2);
    let descriptors: Vec<_> = namespace_descriptors(&descriptors).collect();
    assert_eq!(
        descriptors,
        [
            NamespaceDescriptor::Uuid([2; 16]),
            NamespaceDescriptor::Csi(0)
        ]
    );
    let independent: IdentifyNamespaceIndependent = rig.identify_as(Cns::NAMESPACE_INDEPENDENT, 1);
    assert_eq!(independent.nstat & 1, 1, "not ready: it is left out");
    assert_eq!(independent.anagrpid.get(), 1);
    assert_eq!(independent.nmic & 1, 1, "shared: else no multipath");
    let id: IdentifyNamespace = rig.identify_as(Cns::NAMESPACE, 1);
    assert_eq!((id.nsze.get(), id.ncap.get()), (1 << 20, 1 << 20));
    let format = id.lba_format().unwrap();
    assert_eq!(
        (format.lbads, format.ms.get()),
        (12, 0),
        "no metadata over RDMA without PI"
    );
    assert_eq!((id.anagrpid.get(), id.nmic & 1), (1, 1));
}

#[test]
fn linux_requires_command_set_limits_it_can_use() {
    let mut rig = Rig::ready();
    let nvm: IdentifyControllerNvm = rig.identify_as(Cns::IO_COMMAND_SET_CONTROLLER, 0);
    assert_eq!((nvm.wzsl, nvm.vsl), (8, 8));
    let limits = rig.subsystem.io_limits();
    assert_eq!(limits.wzsl_bytes, Some(1 << 20));
    let mut sets = identify(Cns::IO_COMMAND_SETS, 0);
    sets.cdw10.set(sets.cdw10.get() | 0xffff << 16);
    let sets: IoCommandSets = read(&rig.succeed(sets).1);
    assert_eq!(sets.combinations[0].get(), 1);
    let lpa = Lpa(controller(&mut rig).lpa);
    assert!(lpa.command_effects() && lpa.extended_data() && !lpa.smart_per_namespace());
}

#[test]
fn linux_requires_shutdown_to_complete() {
    let mut rig = Rig::ready();
    assert!(
        controller(&mut rig).rtd3e.get() >= 5_000_000,
        "it waits that long at least"
    );
    rig.set_cc(CC_SHUT_DOWN);
    assert!(matches!(rig.take_actions()[..], [Action::FlushAll { .. }]));
    rig.flushed(true);
    assert_eq!(rig.csts() & 0b1100, 0b1000);
    rig.disconnect(0);
    assert_eq!(rig.take_actions(), []);
}

#[test]
fn linux_requires_keep_alive_and_the_health_log_of_hwmon() {
    let mut rig = Rig::ready();
    rig.succeed(sqe(AdminOpcode::KEEP_ALIVE));
    assert_eq!(rig.log(0x02, 512).len(), 512);
    assert!(NamespaceList::read_from_bytes(&rig.log(0x04, 4096)).is_ok());
}
