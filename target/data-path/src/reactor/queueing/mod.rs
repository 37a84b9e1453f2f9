pub(super) mod capsule_queues;
pub(super) mod depth_queues;
pub(super) mod limited;
pub(super) mod payer_buckets;
pub(super) mod serial_queues;
