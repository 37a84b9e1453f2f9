//! Counters of an endpoint. Names are those of `/sys/class/infiniband/*/ports/*/hw_counters`, where
//! RDMA drivers have the same counter.

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters since the endpoint was opened.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct Counters { $($(#[$doc])* pub $name: u64,)* }

        impl Counters {
            /// Returns names and values in the order of the fields.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }

            /// Adds the counters of another endpoint.
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

counters! {
    /// Packets sent.
    sent_pkts,
    /// Datagrams sent, each with one or several packets.
    sent_datagrams,
    /// Valid packets received.
    rcvd_pkts,
    /// Bytes sent, including transport headers.
    sent_bytes,
    /// Bytes received, including transport headers.
    rcvd_bytes,
    /// Datagrams received.
    rcvd_datagrams,
    /// Send system calls.
    send_calls,
    /// Receive system calls.
    rcv_calls,
    /// Receive system calls without data.
    rcv_calls_in_vain,
    /// RDMA READ requests received.
    rx_read_requests,
    /// RDMA WRITE requests received (first packets).
    rx_write_requests,
    /// Atomic requests received.
    rx_atomic_requests,
    /// Repeated requests that were already executed.
    duplicate_request,
    /// Requests out of sequence, because an earlier packet was lost.
    out_of_sequence,
    /// Messages that found no posted receive.
    out_of_buffer,
    /// NAKs received for packets lost on the way to the peer.
    packet_seq_err,
    /// READ responses lost, as detected by a later response.
    implied_nak_seq_err,
    /// Expirations of the acknowledgement timer.
    local_ack_timeout_err,
    /// RNR NAKs received.
    rnr_nak_retry_err,
    /// Queue pairs broken because the peer did not acknowledge.
    retry_exceeded_err,
    /// Queue pairs broken because the peer had no receive posted.
    retry_rnr_exceeded_err,
    /// Requests refused by the peer because of a key, range or access right.
    req_remote_access_errors,
    /// Requests refused by the peer as invalid.
    req_remote_invalid_request,
    /// Requests of the peer refused because of a key, range or access right.
    resp_remote_access_errors,
    /// Requests of the peer refused as invalid.
    resp_remote_invalid_request,
    /// Messages of the peer longer than the receive.
    resp_local_length_error,
    /// Responses without a matching request.
    bad_resp_err,
    /// Fatal NAKs contradicted by a later acknowledgement.
    refuted_naks,
    /// Packets dropped because of a wrong ICRC.
    rx_icrc_encapsulated,
    /// Malformed packets dropped.
    rx_malformed,
    /// Packets dropped because queue pair, addresses or partition match no connection.
    rx_not_ours,
    /// Packets handed over to another endpoint, because the kernel (GRO) delivered them to the
    /// wrong socket.
    rx_handed_over,
    /// Packets not handed over because the other endpoint's queue was full.
    rx_handover_dropped,
    /// Connection requests dropped: too many were waiting, a listener ignored them, or their
    /// rejection would exceed 500 answers per second to unproven addresses.
    cm_dropped_requests,
    /// Connection requests ignored because their address had sent wrong memory keys.
    cm_held_requests,
    /// Packets dropped because the socket refused them.
    send_err,
    /// Times that super-packets (segmentation offload) to a peer were disabled for a minute,
    /// because the system refused them or the peer did not receive them.
    send_offload_err,
    /// Packets received with the congestion mark (ECN CE).
    np_ecn_marked_roce_packets,
    /// Congestion notifications (CNP) sent.
    np_cnp_sent,
    /// CNPs that reduced a queue pair's rate.
    rp_cnp_handled,
    /// CNPs ignored, because the queue pair was idle, congestion control was disabled, or another
    /// CNP arrived in the same round trip.
    rp_cnp_ignored,
}
