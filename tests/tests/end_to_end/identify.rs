use cairn_initiator::{Data, Host, command};
use cairn_tests::harness::{NQN, Scratch, TestTarget, nqn};
use nvme_proto::wire::identify::{
    Cns, IdentifyController, IdentifyControllerNvm, IdentifyNamespace,
    IdentifyNamespaceIndependent, NamespaceDescriptor, Oncs, Sgls, namespace_descriptors,
};
use nvme_proto::wire::property::Cap;
use nvme_proto::wire::{NSID_ALL, Nqn, Status};

use crate::verified::status;

const EXPORTS: [&str; 3] = [
    "mem:1MiB block_size = 512",
    "null:1GiB block_size = 4096",
    "mem:2MiB read_only = true",
];

#[test]
fn the_controller_is_one_that_linux_takes() {
    let target = TestTarget::with_namespaces(&EXPORTS);
    let mut host = target.connect("a");
    let cap = host.controller().cap();
    assert!(cap.css() & Cap::CSS_NVM != 0 && cap.mpsmin() == 0 && cap.mqes() >= 127);
    let id = host
        .identify::<IdentifyController>(Cns::CONTROLLER, 0)
        .unwrap();
    assert_eq!(id.cntlid.get(), host.cntlid());
    assert_ne!(id.kas.get(), 0);
    assert!(id.ioccsz.get() >= 4 && id.iorcsz.get() == 1 && id.icdoff.get() == 0);
    let sgls = Sgls(id.sgls.get());
    assert!(sgls.keyed() && sgls.in_capsule_offset());
    assert_ne!(id.maxcmd.get(), 0);
    assert_eq!(id.cntrltype, IdentifyController::CNTRLTYPE_IO);
    assert_eq!(Nqn::decode(&id.subnqn).unwrap(), nqn(NQN));
    let oncs = Oncs(id.oncs.get());
    assert!(oncs.compare() && oncs.write_zeroes() && oncs.dataset_management() && oncs.verify());
    assert!((1..=NSID_ALL - 1).contains(&id.nn.get()) && id.mnan.get() <= id.nn.get());
    host.shutdown().unwrap();
}

#[test]
fn namespaces_are_what_was_configured() {
    let target = TestTarget::with_namespaces(&EXPORTS);
    let mut host = target.connect("a");
    assert_eq!(host.active_namespaces().unwrap(), [1, 2, 3]);
    let expected = [(2048, 9), (262_144, 12)];
    for (nsid, (nsze, lbads)) in (1..).zip(expected) {
        let ns = host.namespace(nsid).unwrap();
        assert_eq!(
            (ns.nsze.get(), ns.lba_format().unwrap().lbads),
            (nsze, lbads)
        );
        assert_eq!(ns.ncap.get(), nsze);
        assert_eq!(ns.nsattr & IdentifyNamespace::NSATTR_WRITE_PROTECTED, 0);
    }
    let read_only = host.namespace(3).unwrap();
    assert_ne!(
        read_only.nsattr & IdentifyNamespace::NSATTR_WRITE_PROTECTED,
        0
    );
    host.shutdown().unwrap();
}

#[test]
fn a_namespace_is_the_same_to_every_host_and_after_a_restart() {
    let descriptors = |host: &mut Host, nsid| {
        host.identify_bytes(Cns::NAMESPACE_DESCRIPTORS, nsid)
            .unwrap()
    };
    let disk = Scratch::in_memory("identity-of-all", 1 << 20);
    let exports = [&*disk.export(4096), "mem:1MiB"];
    let target = TestTarget::with_namespaces(&exports);
    let (mut a, mut b) = (target.connect("a"), target.connect("b"));
    let first = descriptors(&mut a, 1);
    assert_eq!(first, descriptors(&mut b, 1));
    assert_ne!(first, descriptors(&mut a, 2));
    assert!(
        namespace_descriptors(&first).any(|d| matches!(d, NamespaceDescriptor::Uuid(_))),
        "no UUID among the descriptors"
    );
    a.shutdown().unwrap();
    b.shutdown().unwrap();
    target.stop();
    let target = TestTarget::with_namespaces(&exports);
    let mut host = target.connect("a");
    assert_eq!(first, descriptors(&mut host, 1));
    host.shutdown().unwrap();
}

#[test]
fn command_set_structures_agree_with_the_rest() {
    let target = TestTarget::with_namespaces(&EXPORTS);
    let mut host = target.connect("a");
    host.identify_bytes(Cns::IO_COMMAND_SET_NAMESPACE, 1)
        .unwrap();
    let nvm = host
        .identify::<IdentifyControllerNvm>(Cns::IO_COMMAND_SET_CONTROLLER, 0)
        .unwrap();
    assert!(nvm.dmrl == 0 || nvm.dmrl >= 1);
    let independent = host
        .identify::<IdentifyNamespaceIndependent>(Cns::NAMESPACE_INDEPENDENT, 1)
        .unwrap();
    assert_ne!(
        independent.nstat & IdentifyNamespaceIndependent::NSTAT_READY,
        0
    );
    let ns = host.namespace(1).unwrap();
    assert_eq!(
        (independent.nmic, independent.anagrpid),
        (ns.nmic, ns.anagrpid)
    );
    host.shutdown().unwrap();
}

#[test]
fn other_structures_and_namespaces_are_refused() {
    let target = TestTarget::with_namespaces(&EXPORTS);
    let mut host = target.connect("a");
    for cns in [0x04, 0x09, 0x10, 0x11, 0x14, 0x20, 0x7f, 0xff] {
        let refused = host.identify_bytes(Cns(cns), 1);
        assert_eq!(
            status(refused).code(),
            Status::INVALID_FIELD,
            "CNS {cns:#x}"
        );
    }
    for nsid in [0, NSID_ALL - 1] {
        let refused = host.namespace(nsid);
        assert_eq!(
            status(refused).code(),
            Status::INVALID_NAMESPACE_OR_FORMAT,
            "NSID {nsid:#x}"
        );
    }
    assert_eq!(host.namespace(4).unwrap().nsze.get(), 0);
    let descriptors = host.identify_bytes(Cns::NAMESPACE_DESCRIPTORS, 4);
    assert_eq!(
        status(descriptors).code(),
        Status::INVALID_NAMESPACE_OR_FORMAT
    );
    host.shutdown().unwrap();
}

#[test]
fn one_block_fewer_than_a_structure_is_refused() {
    let target = TestTarget::with_namespaces(&EXPORTS);
    let mut host = target.connect("a");
    let mut buffer = host.buffer(4096).unwrap();
    let identify = command::identify(Cns::CONTROLLER, 0);
    let short = host.run_admin(identify, Data::start_of(&mut buffer, 3584));
    assert_eq!(status(short).code(), Status::DATA_SGL_LENGTH_INVALID);
    host.shutdown().unwrap();
}
