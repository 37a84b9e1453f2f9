use std::collections::BTreeMap;

use nvme_proto::host::multipath::AnaLog;
use nvme_proto::wire::identify::{
    CSI_NVM, Cns, IdentifyCdw10, IdentifyController, IdentifyControllerNvm, IdentifyNamespace,
    NamespaceDescriptor, NamespaceList, Sgls, namespace_descriptors,
};
use nvme_proto::wire::log::{
    AddressFamily, AnaGroup, AnaLogHeader, AnaState, CommandEffects, CommandEffectsLog,
    DiscoveryEntry, DiscoveryLogHeader, GetLogCdw10, LogPage, RdmaTsas, SmartLog, SubsystemType,
    TransportType,
};
use nvme_proto::wire::property::Vs;
use nvme_proto::wire::{AdminOpcode, FromBytes, IntoBytes, NSID_ALL, Nqn, Sqe};

use super::sessions;

#[test]
fn every_structure_is_emitted_as_it_was_read() {
    let mut seen = BTreeMap::new();
    for session in sessions() {
        let mut discovery_seen = false;
        for (sqe, bytes) in session.payloads() {
            let what = match AdminOpcode(sqe.opc) {
                AdminOpcode::IDENTIFY => identify(sqe, bytes),
                AdminOpcode::GET_LOG_PAGE => log_page(sqe, bytes, &mut discovery_seen),
                _ => continue,
            };
            *seen.entry(what).or_insert(0usize) += 1;
        }
    }
    let expected = [
        ("ana", 4),
        ("command effects", 2),
        ("controller", 6),
        ("controller nvm", 2),
        ("descriptors", 8),
        ("discovery", 4),
        ("namespace", 22),
        ("namespace list", 2),
        ("smart", 2),
    ];
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), expected);
}

fn identify(sqe: &Sqe, bytes: &[u8]) -> &'static str {
    match Cns(IdentifyCdw10(sqe.cdw10.get()).cns()) {
        Cns::CONTROLLER => controller(bytes),
        Cns::NAMESPACE => namespace(bytes),
        Cns::NAMESPACE_DESCRIPTORS => descriptors(bytes),
        Cns::ACTIVE_NAMESPACES => {
            let list = NamespaceList::read_from_bytes(bytes).unwrap();
            assert_eq!(list.iter().collect::<Vec<_>>(), [1, 2]);
            assert_eq!(NamespaceList::new(list.iter()).as_bytes(), bytes);
            "namespace list"
        }
        Cns::IO_COMMAND_SET_CONTROLLER => {
            let controller = IdentifyControllerNvm::read_from_bytes(bytes).unwrap();
            assert_eq!(controller.as_bytes(), bytes);
            "controller nvm"
        }
        other => panic!("{other}"),
    }
}

fn controller(bytes: &[u8]) -> &'static str {
    let controller = IdentifyController::read_from_bytes(bytes).unwrap();
    assert_eq!(controller.as_bytes(), bytes);
    assert_eq!(Vs(controller.ver.get()), Vs::V1_3);
    assert_eq!(controller.maxcmd.get(), 128);
    let sgls = Sgls(controller.sgls.get());
    assert_eq!(sgls.0, 0x10_0005);
    assert!(sgls.keyed() && sgls.in_capsule_offset() && sgls.supported() == 1);
    let subsystem = Nqn::decode(&controller.subnqn).unwrap();
    assert_eq!(controller.subnqn, subsystem.encode());
    if subsystem.is_discovery() {
        assert_eq!(
            controller.cntrltype,
            IdentifyController::CNTRLTYPE_DISCOVERY
        );
    } else {
        assert_eq!(controller.cntrltype, IdentifyController::CNTRLTYPE_IO);
        assert_eq!((controller.mdts, controller.kas.get()), (8, 10));
        assert_eq!((controller.sqes, controller.cqes), (0x66, 0x44));
        assert_eq!((controller.oncs.get(), controller.vwc & 1), (0xc, 1));
        assert_eq!((controller.ioccsz.get(), controller.iorcsz.get()), (260, 1));
        assert_eq!((controller.icdoff.get(), controller.msdbd), (0, 1));
    }
    "controller"
}

fn namespace(bytes: &[u8]) -> &'static str {
    let namespace = IdentifyNamespace::read_from_bytes(bytes).unwrap();
    assert_eq!(namespace.as_bytes(), bytes);
    let format = namespace.lba_format().unwrap();
    assert_eq!((format.ms.get(), format.lbads), (0, 12));
    assert!(namespace.nsze.get() > 0 && namespace.ncap == namespace.nsze);
    assert_eq!(namespace.anagrpid.get(), 1);
    "namespace"
}

fn descriptors(bytes: &[u8]) -> &'static str {
    let mut emitted = vec![0; bytes.len()];
    let mut rest = emitted.as_mut_slice();
    let mut uuids = 0;
    for descriptor in namespace_descriptors(bytes) {
        match descriptor {
            NamespaceDescriptor::Uuid(uuid) => uuids += usize::from(uuid != [0; 16]),
            NamespaceDescriptor::Csi(csi) => assert_eq!(csi, CSI_NVM),
            NamespaceDescriptor::Nguid(_) => {}
            other => panic!("{other:?}"),
        }
        rest = descriptor.write(rest).unwrap();
    }
    assert_eq!(uuids, 1);
    assert_eq!(emitted, bytes);
    "descriptors"
}

fn log_page(sqe: &Sqe, bytes: &[u8], discovery_seen: &mut bool) -> &'static str {
    match LogPage(GetLogCdw10(sqe.cdw10.get()).lid()) {
        LogPage::SMART => {
            let smart = SmartLog::read_from_bytes(bytes).unwrap();
            assert_eq!(smart.as_bytes(), bytes);
            assert_eq!(sqe.nsid.get(), NSID_ALL);
            "smart"
        }
        LogPage::COMMAND_EFFECTS => {
            let log = CommandEffectsLog::read_from_bytes(bytes).unwrap();
            assert_eq!(log.as_bytes(), bytes);
            let supported =
                |opcode: u8| CommandEffects(log.iocs[usize::from(opcode)].get()).csupp();
            assert!(supported(0x01) && supported(0x02) && !supported(0x05));
            "command effects"
        }
        LogPage::ANA => ana(bytes),
        LogPage::DISCOVERY => {
            discovery(bytes, !std::mem::replace(discovery_seen, true));
            "discovery"
        }
        other => panic!("{other}"),
    }
}

fn ana(bytes: &[u8]) -> &'static str {
    let (header, mut rest) = AnaLogHeader::read_from_prefix(bytes).unwrap();
    let mut emitted = header.as_bytes().to_vec();
    for _ in 0..header.ngrps.get() {
        let (group, tail) = AnaGroup::read_from_prefix(rest).unwrap();
        let (nsids, tail) = tail.split_at(group.nnsids.get() as usize * 4);
        assert_eq!(AnaState(group.anas), AnaState::OPTIMIZED);
        emitted.extend_from_slice(group.as_bytes());
        emitted.extend_from_slice(nsids);
        rest = tail;
    }
    assert_eq!(header.ngrps.get(), 1);
    assert!(
        rest.iter().all(|&b| b == 0),
        "nothing but zeroes after the last group"
    );
    emitted.resize(bytes.len(), 0);
    assert_eq!(emitted, bytes);
    let log = AnaLog::parse(bytes).unwrap();
    assert_eq!(log.chgcnt(), header.chgcnt.get());
    assert!(
        log.groups()
            .flat_map(|group| group.nsids().collect::<Vec<_>>())
            .eq([1, 2])
    );
    assert_eq!(log.state_of(1), Some(AnaState::OPTIMIZED));
    assert_eq!(log.state_of(3), None);
    "ana"
}

fn discovery(bytes: &[u8], header_alone: bool) {
    let (header, rest) = DiscoveryLogHeader::read_from_prefix(bytes).unwrap();
    assert_eq!((header.numrec.get(), header.recfmt.get()), (2, 0));
    assert_eq!(rest.len(), if header_alone { 0 } else { 2048 });
    let mut emitted = header.as_bytes().to_vec();
    for record in rest.chunks_exact(1024) {
        let entry = DiscoveryEntry::read_from_bytes(record).unwrap();
        assert_eq!(TransportType(entry.trtype), TransportType::RDMA);
        assert_eq!(AddressFamily(entry.adrfam), AddressFamily::IPV4);
        let current = SubsystemType(entry.subtype) == SubsystemType::CURRENT_DISCOVERY;
        assert_eq!(Nqn::decode(&entry.subnqn).unwrap().is_discovery(), current);
        assert!(entry.trsvcid.starts_with(b"4420"));
        assert!(entry.traddr.starts_with(b"10.9.2.1"));
        let tsas = RdmaTsas::read_from_bytes(&entry.tsas).unwrap();
        assert_eq!(
            (tsas.qptype, tsas.cms),
            (RdmaTsas::QPTYPE_CONNECTED, RdmaTsas::CMS_RDMA_IP_CM)
        );
        emitted.extend_from_slice(entry.as_bytes());
    }
    assert_eq!(emitted, bytes);
}
