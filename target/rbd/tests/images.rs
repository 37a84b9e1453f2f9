//! Images of a real Ceph cluster.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use cairn_base::{ImageSpec, Mapping, wake};
use cairn_ceph::Cluster;
use cairn_rbd::{Access, Image, Memory, OpenError, Queue, Work};

const WRITER: Access = Access {
    read_only: false,
    shared: false,
};
const PIECE: usize = 64 << 10;

struct Rig {
    _folder: tempfile::TempDir,
    cluster: Cluster,
    queue: Queue,
    memory: Arc<Mapping>,
}

impl Rig {
    fn new() -> Option<Self> {
        if let Some(missing) = cairn_ceph::missing() {
            cairn_skips::skip(missing);
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        Some(Self {
            cluster: Cluster::start(folder.path()).expect("a cluster"),
            _folder: folder,
            queue: Queue::new().unwrap(),
            memory: Arc::new(Mapping::anonymous(1 << 20).unwrap()),
        })
    }

    fn spec(&self, image: &str) -> ImageSpec {
        let (image, snapshot) = match image.split_once('@') {
            Some((image, snapshot)) => (image, Some(snapshot.to_owned())),
            None => (image, None),
        };
        ImageSpec {
            pool: "rbd".into(),
            namespace: None,
            image: image.into(),
            snapshot,
            conf: Some(self.cluster.conf()),
            user: None,
            keyring: None,
            options: Vec::new(),
        }
    }

    fn open(&self, image: &str, access: Access) -> Result<Image, OpenError> {
        Image::open(&self.spec(image), access, Arc::new(|| {}))
    }

    fn piece(&self, at: usize) -> Memory {
        Memory::new(Arc::clone(&self.memory), at, PIECE)
    }

    fn end(&mut self) -> Result<u32, i32> {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some((_, result)) = self.queue.pop() {
                return result;
            }
            assert!(Instant::now() < deadline, "it has not ended");
            if self.queue.prepare_sleep() {
                wake::wait_readable([self.queue.wake_fd()], Some(Duration::from_secs(1)));
                self.queue.clear();
            }
        }
    }

    fn run(&mut self, image: &Image, work: &Work) -> Result<u32, i32> {
        self.queue.submit(image, 7, work);
        self.end()
    }

    fn read(&mut self, image: &Image, offset: u64) -> Vec<u8> {
        let memory = self.piece(0);
        let read = self.run(image, &Work::Read { offset, memory });
        assert_eq!(read, Ok(PIECE as u32));
        let mut bytes = vec![0; PIECE];
        self.memory.read(0, &mut bytes);
        bytes
    }

    fn write(&mut self, image: &Image, offset: u64, byte: u8) -> Result<u32, i32> {
        self.memory.fill(0, PIECE, byte);
        let memory = self.piece(0);
        self.run(image, &Work::Write { offset, memory })
    }
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn options_reach_the_client(rig: &Rig) {
    let open = |option: &str, value: &str| {
        let mut spec = rig.spec("none");
        spec.options = vec![(option.to_owned(), value.to_owned())];
        let access = Access {
            read_only: false,
            shared: false,
        };
        let opened = Image::open(&spec, access, Arc::new(|| {}));
        opened.err().unwrap().to_string()
    };
    let said = open("rbd_cahce_size", "1");
    assert!(
        said.contains("rbd_cahce_size") && said.contains("no such option"),
        "{said}"
    );
    let said = open("rbd_readahead_max_bytes", "many");
    assert!(said.contains("rbd_readahead_max_bytes"), "{said}");
    let said = open("rbd_readahead_max_bytes", "0");
    assert!(!said.contains("rbd_readahead_max_bytes"), "{said}");
    assert!(said.contains("none"), "{said}");
}

#[test]
fn an_image_from_its_making_to_its_removal() {
    let Some(mut rig) = Rig::new() else { return };
    options_reach_the_client(&rig);
    let none = rig.open("none", WRITER).unwrap_err().to_string();
    assert!(
        none.contains("there is no image rbd/none") && none.contains("rbd create"),
        "{none}"
    );

    rig.cluster.image("disk", "64M").unwrap();
    let image = rig.open("disk", WRITER).unwrap();
    assert_eq!(image.bytes(), 64 << 20);
    assert_eq!(image.layout().object_bytes, 4 << 20);
    assert_eq!(rig.write(&image, 4096, 0xab), Ok(0));
    assert_eq!(rig.read(&image, 4096), [0xab; PIECE]);
    assert_eq!(rig.run(&image, &Work::Flush), Ok(0));
    image.flush().unwrap();

    let zeroes = |offset, allocated| Work::WriteZeroes {
        offset,
        length: PIECE,
        allocated,
    };
    for allocated in [false, true] {
        assert_eq!(rig.write(&image, 4096, 0xab), Ok(0));
        assert_eq!(rig.run(&image, &zeroes(4096, allocated)), Ok(0));
        assert_eq!(rig.read(&image, 4096), [0; PIECE]);
    }
    assert_eq!(rig.write(&image, 0, 0xcd), Ok(0));
    let (offset, length) = (0, PIECE as u64);
    assert_eq!(rig.run(&image, &Work::Discard { offset, length }), Ok(0));
    assert_eq!(rig.read(&image, 0), [0; PIECE]);

    let second = rig.open("disk", WRITER).unwrap_err().to_string();
    assert!(second.contains("in use by another client"), "{second}");
    assert_eq!(rig.write(&image, 8 << 20, 0x77), Ok(0));
    rig.cluster.rbd(&["snap", "create", "disk@then"]).unwrap();
    assert_eq!(rig.write(&image, 8 << 20, 0x88), Ok(0));
    let then = rig.open("disk@then", WRITER).unwrap();
    assert_eq!(rig.read(&then, 8 << 20), [0x77; PIECE]);
    assert!(rig.write(&then, 0, 1).is_err());
    assert_ne!(then.identity(), image.identity());
    let identity = image.identity().to_owned();

    drop((image, then));
    let image = rig.open("disk", WRITER).unwrap();
    assert_eq!(image.identity(), identity);
    assert_eq!(rig.read(&image, 8 << 20), [0x88; PIECE]);
}

#[test]
fn an_image_that_changes_says_so() {
    let Some(mut rig) = Rig::new() else { return };
    rig.cluster.image("disk", "64M").unwrap();
    let changes = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&changes);
    let on_change = Arc::new(move || {
        seen.fetch_add(1, Ordering::Relaxed);
    });
    let image = Image::open(&rig.spec("disk"), WRITER, on_change).unwrap();
    rig.cluster
        .rbd(&["resize", "--size", "96M", "disk"])
        .unwrap();
    wait_until("the new size is seen", || image.bytes() == 96 << 20);
    wait_until("and said", || changes.load(Ordering::Relaxed) == 1);

    rig.cluster.kill_osd().unwrap();
    let memory = rig.piece(0);
    rig.memory.fill(0, PIECE, 0x11);
    rig.queue
        .submit(&image, 1, &Work::Write { offset: 0, memory });
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(rig.queue.pop(), None, "there is no OSD to acknowledge it");
    rig.cluster.start_osd().unwrap();
    assert_eq!(rig.end(), Ok(0));
    assert_eq!(rig.read(&image, 0), [0x11; PIECE]);

    let list = rig.cluster.rbd(&["status", "disk"]).unwrap();
    let (_, address) = list.split_once("watcher=").expect("a watcher");
    let address = address.split_whitespace().next().unwrap();
    rig.cluster
        .ceph(&["osd", "blocklist", "add", address])
        .unwrap();
    wait_until("that is seen", || image.failure() == Some(libc::ESHUTDOWN));
    assert_eq!(rig.write(&image, 0, 1), Err(libc::ESHUTDOWN));

    image.open_again().unwrap();
    assert_eq!(image.failure(), None);
    assert_eq!(rig.write(&image, 0, 2), Ok(0));
    assert_eq!(rig.read(&image, 0), [2; PIECE]);
    assert!(cairn_rbd::wait_for_closes(Duration::from_secs(60)));
    assert_eq!(rig.read(&image, 0), [2; PIECE]);
    let second = rig.open("disk", WRITER).unwrap_err().to_string();
    assert!(second.contains("in use by another client"), "{second}");
}
