use nvme_proto::reservation::Reservations;

const UUID: [u8; 16] = *b"the disk of this";

/// Decodes the bytes as stored reservations; encoding valid reservations must return the same
/// bytes.
pub(crate) fn run(bytes: &[u8]) {
    let _ = Reservations::decode(bytes, &UUID, "nqn");
    let fold = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    let sum = bytes.iter().fold(0xcbf2_9ce4_8422_2325, fold);
    let sealed = [bytes, &sum.to_le_bytes()].concat();
    if let Ok(state) = Reservations::decode(&sealed, &UUID, "nqn") {
        assert_eq!(state.encode(&UUID, "nqn"), sealed, "{state:?}");
        let held = state.rtype().is_some();
        let hosts = state.registrants().iter();
        assert_eq!(
            hosts.filter(|one| state.is_holder(&one.host)).count() > 0,
            held
        );
    }
}
