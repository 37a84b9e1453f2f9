use super::*;

#[test]
fn a_failed_flush_is_remembered() {
    let durable = BlockOp::Write { durable: true };
    let zero_durably = BlockOp::WriteZeroes {
        deallocate: false,
        durable: true,
    };
    for first in [BlockOp::Flush, durable, zero_durably] {
        on_disk_and_in_memory(|_, backend| {
            let mut rig = Rig::new(backend);
            let span = Some(rig.span(4096));
            let eio = Err(Errno(libc::EIO));
            let Kind::File(disk) = &rig.backend.0 else {
                unreachable!("opened as a file")
            };
            assert!(!disk.is_failed());
            disk.fail_syncs(1);
            assert_eq!(rig.run(first, 0, 4096, span), eio);
            assert!(rig.backend.is_failed());
            for op in [BlockOp::Flush, durable, zero_durably] {
                assert_eq!(rig.run(op, 4096, 4096, span), eio, "{op:?}");
            }
            assert!(rig.backend.flush().is_err());
            rig.write(WRITE, 0, &pattern(5, 4096));
            assert_eq!(rig.read(0, 4096), pattern(5, 4096));

            rig.backend.recover().unwrap();
            assert!(!rig.backend.is_failed());
            assert_eq!(rig.run(BlockOp::Flush, 0, 0, None), Ok(()));
            assert_eq!(rig.run(durable, 4096, 4096, span), Ok(()));
        });
    }
}

#[test]
fn a_durable_write_that_found_no_memory_condemns_nothing() {
    let durable = BlockOp::Write { durable: true };
    on_disk_and_in_memory(|_, backend| {
        let mut rig = Rig::new(backend);
        let span = Some(rig.span(4096));
        let Kind::File(disk) = &rig.backend.0 else {
            unreachable!("opened as a file")
        };
        let is_direct = disk.is_direct();
        disk.fail_syncs_with(1, libc::ENOMEM);
        let tried_again = rig.run(durable, 0, 4096, span);
        assert_eq!(tried_again.is_ok(), is_direct, "{tried_again:?}");
        let Kind::File(disk) = &rig.backend.0 else {
            unreachable!("opened as a file")
        };
        disk.fail_syncs_with(1000, libc::ENOMEM);
        assert!(rig.run(durable, 0, 4096, span).is_err());
        assert_eq!(rig.backend.is_failed(), !is_direct);
        let Kind::File(disk) = &rig.backend.0 else {
            unreachable!("opened as a file")
        };
        disk.fail_syncs(0);
        assert_eq!(rig.run(durable, 0, 4096, span).is_ok(), is_direct);
    });
}

#[test]
fn a_flush_that_fails_condemns_those_under_way() {
    on_disk_and_in_memory(|_, backend| {
        let mut rig = Rig::new(backend);
        let Kind::File(disk) = &rig.backend.0 else {
            unreachable!("opened as a file")
        };
        disk.fail_syncs(1);
        let flush = BlockIo::new(BlockOp::Flush, 0, 0, None);
        let ends = rig.run_all(&mut [flush; 8]);
        assert!(ends.iter().all(Result::is_err), "{ends:?}");
    });
}

#[test]
fn a_blocking_flush_that_fails_is_remembered() {
    on_disk_and_in_memory(|_, backend| {
        let mut rig = Rig::new(backend);
        let Kind::File(disk) = &rig.backend.0 else {
            unreachable!("opened as a file")
        };
        disk.fail_syncs(2);
        assert!(rig.backend.flush().is_err());
        assert!(rig.backend.recover().is_err(), "it fails still");
        assert_eq!(
            rig.run(BlockOp::Flush, 0, 0, None),
            Err(Errno(libc::EIO)),
            "a reload changes nothing as long as it fails"
        );
        rig.backend.recover().unwrap();
        assert_eq!(rig.run(BlockOp::Flush, 0, 0, None), Ok(()));
    });
}
