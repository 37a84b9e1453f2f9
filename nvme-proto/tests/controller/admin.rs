use nvme_proto::limits::Limits;
use nvme_proto::namespace::{Atomic, Namespace, NamespaceError, Preferred};
use nvme_proto::subsystem::{Settings, Subsystem};
use nvme_proto::wire::identify::{
    Cns, IdentifyCdw11, IdentifyController, IdentifyNamespace, IdentifyNamespaceIndependent,
    NamespaceDescriptor, NamespaceList, Oncs, Vwc, namespace_descriptors,
};
use nvme_proto::wire::{AdminOpcode, NSID_ALL, Status};

use crate::rig::*;

#[test]
fn what_identify_says_of_the_controller_is_what_it_does() {
    let mut rig = Rig::ready();
    let id: IdentifyController = rig.identify_as(Cns::CONTROLLER, 0);
    assert_eq!((id.acl, id.aerl, id.elpe), (3, 3, 63));
    assert_eq!(id.ver.get(), 0x0002_0000);
    assert_eq!((id.sqes, id.cqes), (0x66, 0x44));
    assert_eq!(id.oncs.get(), 0b1_1111_1101);
    let limits = rig.subsystem.io_limits();
    assert_eq!(
        (limits.oncs, limits.vwc),
        (Oncs(id.oncs.get()), Vwc(id.vwc))
    );
    assert_eq!(id.vwc, 0b111);
    assert_eq!((id.hctma.get(), id.fna, id.sanicap.get()), (0, 0, 0));
}

#[test]
fn without_a_write_cache_there_is_no_vwc() {
    let settings = Settings {
        volatile_write_cache: false,
        ..settings()
    };
    let mut rig = Rig::connected(Subsystem::new(settings), 0);
    rig.enable();
    let id: IdentifyController = rig.identify_as(Cns::CONTROLLER, 0);
    assert_eq!(id.vwc, 0b110);
    assert_eq!(rig.fail(get_features(0x06, 0, 0)), Status::INVALID_FIELD);
    assert_eq!(rig.fail(set_features(0x06, 1)), Status::INVALID_FIELD);
    // Without a volatile write cache, log page 12h does not list feature 06h.
    assert_eq!(rig.log(0x12, 1024)[6 * 4], 0);
}

#[test]
fn larger_limits_are_announced() {
    let limits = Limits {
        mdts: 5,
        io_queue_entries: 1024,
        in_capsule_bytes: 16384,
        namespaces: 16,
        ..Limits::default()
    };
    let mut rig = Rig::connected(
        Subsystem::new(Settings {
            limits,
            ..settings()
        }),
        0,
    );
    rig.enable();
    let id: IdentifyController = rig.identify_as(Cns::CONTROLLER, 0);
    assert_eq!(
        (id.mdts, id.maxcmd.get(), id.nn.get(), id.mnan.get()),
        (5, 1024, 16, 16)
    );
    assert_eq!(id.ioccsz.get() * 16, 64 + 16384);
    assert_eq!(rig.subsystem.io_limits().mdts_bytes, 128 * 1024);
    assert_eq!(rig.fail(log(0x01, 128 * 1024 + 4)), Status::INVALID_FIELD);
    rig.log(0x01, 128 * 1024);
    assert_eq!(
        rig.fail(identify(Cns::NAMESPACE, 17)),
        Status::INVALID_NAMESPACE_OR_FORMAT
    );
}

#[test]
fn an_inactive_namespace_is_all_zeroes_and_an_invalid_one_an_error() {
    let mut rig = Rig::ready();
    for cns in [
        Cns::NAMESPACE,
        Cns::IO_COMMAND_SET_NAMESPACE,
        Cns::NAMESPACE_INDEPENDENT,
    ] {
        assert_eq!(rig.identify(cns, 3), [0; 4096]);
        for nsid in [0, 10_241, NSID_ALL] {
            let status = rig.fail(identify(cns, nsid));
            assert_eq!(status, Status::INVALID_NAMESPACE_OR_FORMAT);
        }
    }
    let descriptors = rig.fail(identify(Cns::NAMESPACE_DESCRIPTORS, 3));
    assert_eq!(descriptors, Status::INVALID_NAMESPACE_OR_FORMAT);
    for cns in [
        Cns::ACTIVE_NAMESPACES,
        Cns::IO_COMMAND_SET_ACTIVE_NAMESPACES,
    ] {
        for nsid in [NSID_ALL - 1, NSID_ALL] {
            let status = rig.fail(identify(cns, nsid));
            assert_eq!(status, Status::INVALID_NAMESPACE_OR_FORMAT);
        }
    }
}

#[test]
fn unknown_structures_and_command_sets_are_refused() {
    let mut rig = Rig::ready();
    for cns in [0x04, 0x09, 0x0a, 0x10, 0x12, 0x13, 0x14, 0x15, 0x17, 0xff] {
        assert_eq!(
            rig.fail(identify(Cns(cns), 1)),
            Status::INVALID_FIELD,
            "CNS {cns:#x}"
        );
    }
    for cns in [0x05, 0x06, 0x07] {
        let mut zoned = identify(Cns(cns), 1);
        zoned.cdw11.set(IdentifyCdw11(0).with_csi(2).0);
        assert_eq!(rig.fail(zoned), Status::INVALID_FIELD, "CNS {cns:#x}");
        rig.identify(Cns(cns), 1);
    }
    let mut other = identify(Cns::IO_COMMAND_SETS, 0);
    other.cdw10.set(other.cdw10.get() | 0x1234 << 16);
    assert_eq!(rig.fail(other), Status::INVALID_FIELD);
}

#[test]
fn a_namespace_is_described_as_it_is() {
    let mut rig = Rig::ready();
    let small = Namespace {
        nguid: [9; 16],
        blocks: 10,
        block_shift: 9,
        read_only: true,
        deallocates: false,
        preferred: Some(Preferred {
            write: 8,
            write_alignment: 4,
            optimal_write: 1 << 20,
            deallocate: 128,
            deallocate_alignment: 64,
        }),
        boundary: 256,
        ..namespace(7)
    };
    rig.subsystem.add_namespace(small, &mut Vec::new()).unwrap();
    let id: IdentifyNamespace = rig.identify_as(Cns::NAMESPACE, 7);
    assert_eq!(
        (id.nsze.get(), id.nuse.get(), id.nvmcap.get()),
        (10, 10, 5120)
    );
    assert_eq!(id.lba_format().unwrap().lbads, 9);
    assert_eq!((id.nsattr, id.dlfeat, id.nguid), (1, 0, [9; 16]));
    let of_writes = [id.npwg, id.npwa, id.nows].map(|field| field.get());
    let of_deallocation = [id.npdg, id.npda].map(|field| field.get());
    assert_eq!((of_writes, of_deallocation), ([7, 3, 0xffff], [127, 63]));
    assert_eq!(id.nsfeat, 1 << 4, "those are valid");
    assert_eq!(id.noiob.get(), 256);
    let id: IdentifyNamespace = rig.identify_as(Cns::NAMESPACE, 1);
    assert_eq!((id.nsattr, id.dlfeat, id.nsfeat), (0, 0b1001, 0));
    let independent: IdentifyNamespaceIndependent = rig.identify_as(Cns::NAMESPACE_INDEPENDENT, 7);
    assert_eq!(independent.nsattr, 1);
    let descriptors = rig.identify(Cns::NAMESPACE_DESCRIPTORS, 7);
    let nguid = namespace_descriptors(&descriptors).nth(1);
    assert_eq!(nguid, Some(NamespaceDescriptor::Nguid([9; 16])));
    assert!(small.view().write_protected);
    assert_eq!((small.view().nsze, small.view().lbads), (10, 9));
}

#[test]
fn a_namespace_of_a_drive_has_its_names_and_its_promises() {
    let mut rig = Rig::ready();
    let drive = Namespace {
        nguid: [9; 16],
        eui64: [8; 8],
        atomic: Atomic {
            normal: 256,
            power_fail: 8,
            boundary: 64,
            boundary_offset: 5,
            boundary_power_fail: 0,
        },
        ..namespace(7)
    };
    rig.subsystem.add_namespace(drive, &mut Vec::new()).unwrap();
    let id: IdentifyNamespace = rig.identify_as(Cns::NAMESPACE, 7);
    assert_eq!((id.nguid, id.eui64), ([9; 16], [8; 8]));
    assert_eq!(id.nsfeat, 1 << 1, "those are valid");
    let units = [id.nawun, id.nawupf, id.nacwu].map(|field| field.get());
    let boundaries = [id.nabsn, id.nabo, id.nabspf].map(|field| field.get());
    assert_eq!((units, boundaries), ([255, 7, 0], [63, 5, 0]));
    let descriptors = rig.identify(Cns::NAMESPACE_DESCRIPTORS, 7);
    let eui64 = namespace_descriptors(&descriptors).nth(2);
    assert_eq!(eui64, Some(NamespaceDescriptor::Eui64([8; 8])));
}

#[test]
fn a_namespace_that_makes_no_sense_is_not_added() {
    let mut subsystem = Subsystem::new(settings());
    let mut add = |namespace| subsystem.add_namespace(namespace, &mut Vec::new());
    assert_eq!(add(namespace(0)), Err(NamespaceError::NsidOutOfRange));
    assert_eq!(add(namespace(10_241)), Err(NamespaceError::NsidOutOfRange));
    assert_eq!(
        add(Namespace {
            blocks: 0,
            ..namespace(1)
        }),
        Err(NamespaceError::BadGeometry)
    );
    let odd = Namespace {
        block_shift: 10,
        ..namespace(1)
    };
    assert_eq!(add(odd), Err(NamespaceError::BadGeometry));
    assert_eq!(add(namespace(1024)), Ok(()));
    assert_eq!(add(namespace(1024)), Err(NamespaceError::NsidInUse));
    assert_eq!(
        subsystem.remove_namespace(5, &mut Vec::new()),
        Err(NamespaceError::Unknown)
    );
    let resized = subsystem.resize_namespace(1024, 0, &mut Vec::new());
    assert_eq!(resized, Err(NamespaceError::BadGeometry));
}

#[test]
fn the_list_of_namespaces_goes_on_after_the_nsid_given() {
    let mut subsystem = Subsystem::new(settings());
    for nsid in (1..=1024).rev() {
        subsystem
            .add_namespace(namespace(nsid), &mut Vec::new())
            .unwrap();
    }
    let mut rig = Rig::connected(subsystem, 0);
    rig.enable();
    let list: NamespaceList = rig.identify_as(Cns::ACTIVE_NAMESPACES, 0);
    assert!(list.iter().eq(1..=1024));
    let list: NamespaceList = rig.identify_as(Cns::IO_COMMAND_SET_ACTIVE_NAMESPACES, 1000);
    assert!(list.iter().eq(1001..=1024));
}

#[test]
fn opcodes_that_are_not_there_are_refused() {
    let mut rig = Rig::ready();
    for opcode in 0..=u8::MAX {
        let known = [0x02, 0x06, 0x08, 0x09, 0x0a, 0x0c, 0x18, 0x38, 0x7f].contains(&opcode);
        if !known {
            let mut unknown = sqe(AdminOpcode(opcode));
            assert_eq!(rig.fail(unknown), Status::INVALID_OPCODE);
            for flags in [0x00, 0x41, 0x80, 0xc0, 0xff] {
                unknown.flags = flags;
                unknown.mptr.set(u64::MAX);
                unknown.cdw10.set(u32::MAX);
                assert_eq!(rig.fail(unknown), Status::INVALID_OPCODE, "{flags:#x}");
            }
        }
    }
    for fctype in [0x02, 0x05, 0x06, 0x08, 0xff] {
        let mut fabrics = sqe(AdminOpcode::FABRICS);
        fabrics.nsid.set(fctype);
        assert_eq!(rig.fail(fabrics), Status::INVALID_OPCODE);
        fabrics.flags = 0;
        assert_eq!(rig.fail(fabrics), Status::INVALID_OPCODE);
    }
}

#[test]
fn prps_and_fused_commands_are_refused() {
    let mut rig = Rig::ready();
    for flags in [
        0b0000_0000,
        0b1100_0000,
        0b0100_0001,
        0b0100_0010,
        0b0100_0100,
    ] {
        let mut bad = identify(Cns::CONTROLLER, 0);
        bad.flags = flags;
        assert_eq!(rig.fail(bad), Status::INVALID_FIELD);
    }
}
