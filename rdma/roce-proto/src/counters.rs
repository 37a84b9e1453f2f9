//! Counters of an endpoint, named as RDMA drivers do in
//! `/sys/class/infiniband/*/ports/*/hw_counters`.

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters since the endpoint was opened.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct Counters { $($(#[$doc])* pub $name: u64,)* }

        impl Counters {
            /// Returns names and values, in the order of the fields.
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
    /// Datagrams sent, each of one or several packets.
    sent_datagrams,
    /// Packets received and accepted by this endpoint.
    rcvd_pkts,
    /// Bytes sent, transport headers included.
    sent_bytes,
    /// Bytes received, transport headers included.
    rcvd_bytes,
    /// Datagrams received.
    rcvd_datagrams,
    /// System calls for sending.
    send_calls,
    /// System calls for receiving.
    rcv_calls,
    /// System calls without data received.
    rcv_calls_in_vain,
    /// RDMA READ requests received.
    rx_read_requests,
    /// RDMA WRITE requests received (first packets).
    rx_write_requests,
    /// Atomic requests received.
    rx_atomic_requests,
    /// Duplicates of executed requests.
    duplicate_request,
    /// Requests received out of sequence: a packet was lost.
    out_of_sequence,
    /// SENDs received while no receive was posted.
    out_of_buffer,
    /// NAKs received for packets lost on the way to the peer.
    packet_seq_err,
    /// Lost READ responses, detected by a later response.
    implied_nak_seq_err,
    /// Expirations of the acknowledgement timer.
    local_ack_timeout_err,
    /// RNR NAKs received.
    rnr_nak_retry_err,
    /// Queue pairs ended because the peer did not answer.
    retry_exceeded_err,
    /// Queue pairs ended because the peer had no receive posted.
    retry_rnr_exceeded_err,
    /// Requests refused by the peer for a key, range or right.
    req_remote_access_errors,
    /// Requests that the peer called invalid.
    req_remote_invalid_request,
    /// Requests of the peer refused for a key, range or right.
    resp_remote_access_errors,
    /// Invalid requests of the peer.
    resp_remote_invalid_request,
    /// Messages of the peer longer than their receive.
    resp_local_length_error,
    /// Responses without a matching request.
    bad_resp_err,
    /// NAKs that would have ended a queue pair, refuted by later acknowledgements.
    refuted_naks,
    /// Packets dropped because of a wrong ICRC.
    rx_icrc_encapsulated,
    /// Packets dropped because they were malformed.
    rx_malformed,
    /// Packets dropped because queue pair, address or partition matched no connection.
    rx_not_ours,
    /// Packets that the kernel's GRO delivered to another endpoint's socket, passed on to the right
    /// endpoint.
    rx_handed_over,
    /// Packets not passed on to their endpoint, because its queue was full.
    rx_handover_dropped,
    /// Connection requests ignored because the queue was full, or because more than 500 requests a
    /// second from their address were refused.
    cm_dropped_requests,
    /// Connection requests ignored because their address had sent memory keys not given to it.
    cm_held_requests,
    /// Packets dropped because the socket or link accepted no more.
    send_err,
    /// Times that super-packets to a peer were disabled for a minute: refused by the system, or
    /// lost.
    send_offload_err,
    /// Packets received with a congestion mark.
    np_ecn_marked_roce_packets,
    /// Congestion notifications sent.
    np_cnp_sent,
    /// Congestion notifications received that reduced the rate of a queue pair.
    rp_cnp_handled,
    /// Congestion notifications ignored: more than one in a round trip, no data under way, or
    /// congestion control disabled.
    rp_cnp_ignored,
}
