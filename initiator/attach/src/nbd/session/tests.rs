use cairn_initiator::Provider;
use cairn_rdma::loopback::Loopback;
use proptest::prelude::*;

use super::super::wire::{IHAVEOPT, REQUEST_MAGIC, be16, be32, be64, option, reply};
use super::*;

const LIMITS: Limits = Limits {
    block_bytes: 512,
    bytes: 1 << 30,
    piece_bytes: 128 << 10,
    zero_bytes: 128 << 10,
    read_only: false,
    discards: true,
    zeroes: true,
};

fn memory() -> Vec<Buffer> {
    let at = "10.0.0.1:4420".parse().unwrap();
    let device = Loopback::new().device_for(at, None).unwrap();
    let bytes = 2 * PAYLOAD_BYTES_MAX as usize;
    let whole = Buffer::new(&*device, bytes).unwrap();
    whole.split(LIMITS.piece_bytes as usize)
}

fn transmission() -> Session {
    Session::without_handshake(LIMITS, memory())
}

fn put(session: &mut Session, bytes: &[u8]) {
    session.room()[..bytes.len()].copy_from_slice(bytes);
    session.received(bytes.len());
}

fn taken(session: &mut Session) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        let bytes = session.output().to_vec();
        if bytes.is_empty() {
            return all;
        }
        session.sent(bytes.len());
        all.extend(bytes);
    }
}

fn request(kind: u16, flags: u16, handle: u64, offset: u64, bytes: u32) -> Vec<u8> {
    let mut request = Vec::from(REQUEST_MAGIC.to_be_bytes());
    request.extend(flags.to_be_bytes());
    request.extend(kind.to_be_bytes());
    request.extend(handle.to_be_bytes());
    request.extend(offset.to_be_bytes());
    request.extend(bytes.to_be_bytes());
    request
}

fn asked(kind: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::from(IHAVEOPT.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    bytes
}

/// Returns option and type of each reply.
fn replies(mut bytes: &[u8]) -> Vec<(u32, u32)> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        all.push((be32(bytes, 8), be32(bytes, 12)));
        bytes = &bytes[20 + be32(bytes, 16) as usize..];
    }
    all
}

fn end<C>(session: &mut Session, request: Request<Tag<C>>, result: Result<(), Errno>) {
    session.done(Done {
        tag: request.tag,
        bytes: request.bytes,
        result,
        memory: request.memory,
    });
}

#[test]
fn a_client_negotiates_option_by_option() {
    let mut session = Session::with_handshake(LIMITS, memory());
    assert_eq!(taken(&mut session).len(), 18);
    put(&mut session, &3_u32.to_be_bytes());
    let named = |name: &str| {
        let length = (name.len() as u32).to_be_bytes();
        [&length[..], name.as_bytes(), &[0, 0]].concat()
    };
    let described = vec![reply::INFO, reply::INFO, reply::ACK];
    for (kind, data, expected) in [
        (option::LIST, Vec::new(), vec![reply::SERVER, reply::ACK]),
        (option::LIST, vec![0], vec![reply::ERR_INVALID]),
        (5, Vec::new(), vec![reply::ERR_UNSUP]),
        (option::INFO, named("other"), vec![reply::ERR_UNKNOWN]),
        (option::INFO, vec![0, 0, 0, 9], vec![reply::ERR_INVALID]),
        (99, vec![7; 9000], vec![reply::ERR_TOO_BIG]),
        (option::STRUCTURED_REPLY, Vec::new(), vec![reply::ACK]),
        (option::INFO, named(""), described.clone()),
        (option::GO, named(""), described),
    ] {
        put(&mut session, &asked(kind, &data));
        assert!(session.next(()).is_none());
        let expected: Vec<_> = expected.into_iter().map(|one| (kind, one)).collect();
        assert_eq!(replies(&taken(&mut session)), expected);
    }
    put(&mut session, &request(0, 0, 9, 0, 512));
    let read = session.next(()).unwrap();
    assert_eq!((read.operation, read.bytes), (Operation::Read, 512));
    end(&mut session, read, Ok(()));
    let bytes = taken(&mut session);
    assert_eq!(be32(&bytes, 0), STRUCTURED_REPLY_MAGIC);
    assert_eq!(
        (be16(&bytes, 4), be16(&bytes, 6)),
        (CHUNK_DONE, CHUNK_OFFSET_DATA)
    );
    assert_eq!((be32(&bytes, 16), bytes.len()), (8 + 512, 20 + 8 + 512));
}

#[test]
fn data_arrive_whole_however_they_are_cut() {
    let data: Vec<u8> = (0..300_032_u32).map(|at| (at / 7) as u8).collect();
    let mut bytes = request(1, 1, 5, 1024, data.len() as u32);
    bytes.extend(&data);
    for cut in [1, 27, 28, 29, 4096, 131_072, 200_000] {
        let mut session = transmission();
        let mut found = None;
        for part in bytes.chunks(cut) {
            assert!(found.is_none());
            put(&mut session, part);
            found = session.next(());
        }
        let write = found.unwrap();
        assert_eq!(write.operation, Operation::Write { fua: true });
        assert_eq!(write.memory.len(), 3);
        let mut received = Vec::new();
        for piece in &write.memory {
            let left = data.len() - received.len();
            received.extend(piece.bytes(0, piece.len().min(left)));
        }
        assert!(received == data, "cut by {cut}");
        end(&mut session, write, Ok(()));
        assert_eq!(taken(&mut session).len(), 16);
    }
}

#[test]
fn a_refused_write_does_not_shift_the_next_request() {
    let mut session = transmission();
    for (bytes, offset) in [(100, 0), (PAYLOAD_BYTES_MAX + 512, 0), (512, 1 << 30)] {
        put(&mut session, &request(1, 0, 1, offset, bytes));
        assert!(session.next(()).is_none());
        let mut left = bytes as usize;
        while left > 0 {
            let part = left.min(session.room().len());
            put(&mut session, &vec![0xff; part]);
            assert!(session.next(()).is_none());
            left -= part;
        }
        let answer = taken(&mut session);
        assert_eq!((answer.len(), be64(&answer, 8)), (16, 1));
        assert_ne!(be32(&answer, 4), 0);
        put(&mut session, &request(3, 0, 2, 0, 0));
        let flush = session.next(()).unwrap();
        assert_eq!(flush.operation, Operation::Flush);
        end(&mut session, flush, Ok(()));
        taken(&mut session);
    }
}

#[test]
fn requests_wait_for_memory_that_the_client_frees_by_reading() {
    let mut session = transmission();
    let mut reads = Vec::new();
    for handle in 0..4 {
        put(&mut session, &request(0, 0, handle, 0, PAYLOAD_BYTES_MAX));
        reads.extend(session.next(()));
    }
    assert_eq!(
        reads.len(),
        2,
        "the memory is for two of the largest requests"
    );
    for read in reads.drain(..) {
        end(&mut session, read, Ok(()));
    }
    assert!(session.next(()).is_none(), "the client has read nothing");
    let mut received = 0;
    while received < 4 * (16 + PAYLOAD_BYTES_MAX as usize) {
        let bytes = session.output().len();
        assert!(bytes > 0);
        session.sent(bytes);
        received += bytes;
        while let Some(read) = session.next(()) {
            end(&mut session, read, Ok(()));
        }
    }
    assert_eq!(session.under_way, 0);
}

#[test]
fn a_session_ends_after_its_last_request() {
    let mut session = transmission();
    put(&mut session, &request(3, 0, 1, 0, 0));
    let flush = session.next(()).unwrap();
    put(&mut session, &request(2, 0, 2, 0, 0));
    assert!(session.next(()).is_none());
    assert!(!session.is_over(false) && !session.is_over(true));
    end(&mut session, flush, Err(Errno(libc::EIO)));
    assert!(!session.is_over(false) && session.is_over(true));
    assert_eq!(be32(&taken(&mut session), 4), 5);
    assert!(session.is_over(false));
}

fn parts() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let option = (0_u32..12, prop::collection::vec(any::<u8>(), 0..40));
    let request = (0_u16..9, any::<u16>(), 0_u64..1 << 21, 0_u32..20);
    let part = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..64),
        option.prop_map(|(kind, data)| asked(kind, &data)),
        request.prop_map(|(kind, flags, slba, blocks)| {
            self::request(kind, flags, 1, slba * 512, blocks * 512)
        }),
        Just(3_u32.to_be_bytes().to_vec()),
    ];
    prop::collection::vec(part, 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn no_bytes_of_a_client_break_a_session(with_handshake: bool, parts in parts()) {
        let mut session = match with_handshake {
            true => Session::with_handshake(LIMITS, memory()),
            false => transmission(),
        };
        let pieces = session.spare.len();
        for part in parts {
            if session.room().len() < part.len() {
                break;
            }
            put(&mut session, &part);
            while let Some(request) = session.next(()) {
                let checked = LIMITS.check(request.operation, request.offset, request.bytes);
                prop_assert_eq!(checked, Ok(()));
                end(&mut session, request, Ok(()));
            }
            taken(&mut session);
        }
        session.end();
        prop_assert!(session.is_over(true));
        prop_assert_eq!(session.spare.len(), pieces, "no memory is lost");
    }
}
