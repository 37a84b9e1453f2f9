use cairn_base::ImageSpec;
use cairn_ceph::Cluster;

use super::*;

fn cluster() -> Option<(tempfile::TempDir, Cluster)> {
    if let Some(missing) = cairn_ceph::missing() {
        cairn_skips::skip(missing);
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(folder.path()).expect("a cluster");
    Some((folder, cluster))
}

fn open(cluster: &Cluster, image: &str, block_bytes: u32) -> Backend {
    let image = ImageSpec {
        pool: "rbd".into(),
        namespace: None,
        image: image.into(),
        snapshot: None,
        conf: Some(cluster.conf()),
        user: None,
        keyring: None,
        options: Vec::new(),
    };
    Backend::open_image(&image, Some(block_bytes), Claim::default(), Arc::new(|| {})).unwrap()
}

#[test]
fn an_image_of_ceph() {
    let Some((_folder, cluster)) = cluster() else {
        return;
    };
    cluster.image("plain", "8M").unwrap();
    cluster
        .rbd(&[
            "create",
            "--size",
            "8M",
            "--object-size",
            "1M",
            "--stripe-unit",
            "64K",
            "--stripe-count",
            "4",
            "striped",
        ])
        .unwrap();
    for image in ["plain", "striped"] {
        for block_bytes in [512, 4096] {
            suite(|| open(&cluster, image, block_bytes));
        }
    }
    let striped = open(&cluster, "striped", 4096);
    let preferred = striped.preferred().expect("an image says what it likes");
    assert_eq!(
        (
            preferred.write,
            preferred.optimal_write,
            preferred.deallocate
        ),
        (1, 16, 16)
    );

    let mut rig = Rig::new(striped);
    cluster
        .rbd(&["resize", "--size", "4M", "--allow-shrink", "striped"])
        .unwrap();
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while rig.backend.reported_bytes() != Some(4 << 20) {
        assert!(std::time::Instant::now() < deadline, "the new size is seen");
        std::thread::sleep(Duration::from_millis(10));
    }
    let span = Some(rig.span(8192));
    let zeroes = BlockOp::WriteZeroes {
        deallocate: false,
        durable: false,
    };
    for op in [WRITE, BlockOp::Read, zeroes, BlockOp::Deallocate] {
        let ended = rig.run(op, (4 << 20) - 4096, 8192, span);
        assert_eq!(ended, Err(Errno(libc::EIO)), "{op:?}");
    }
    assert!(rig.backend.refresh().unwrap(), "the size changed");
    assert_eq!(rig.backend.geometry().blocks, 1024);
}
