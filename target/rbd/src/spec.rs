#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    pub read_only: bool,
    /// Whether to leave out the exclusive lock, so that other clients may write.
    pub shared: bool,
}

/// Layout of an image over objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    pub object_bytes: u64,
    /// Stripe unit in bytes. Without striping, it equals the object size.
    pub stripe_bytes: u64,
    pub stripe_objects: u64,
}
