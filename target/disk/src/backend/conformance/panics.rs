use super::*;

#[test]
fn a_write_whose_thread_panics_fails_flushes_until_a_reload() {
    for durable in [false, true] {
        on_disk_and_in_memory(|_, backend| {
            let mut rig = Rig::new(backend);
            let span = Some(rig.span(4096));
            let eio = Err(Errno(libc::EIO));
            let Kind::File(disk) = &rig.backend.0 else {
                unreachable!("opened as a file")
            };
            disk.panic_writes(1);
            let write = BlockOp::Write { durable };
            assert_eq!(rig.run(write, 0, 4096, span), eio);
            assert!(rig.backend.is_failed());
            let durable = BlockOp::Write { durable: true };
            for op in [BlockOp::Flush, durable] {
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
