//! What an endpoint counts, by the names that RDMA drivers give in
//! `/sys/class/infiniband/*/ports/*/hw_counters`.

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters since the endpoint was opened.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct Counters { $($(#[$doc])* pub $name: u64,)* }

        impl Counters {
            /// Names and values, in the order of the fields.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }

            /// Adds another endpoint's.
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

counters! {
    /// Packets sent.
    sent_pkts,
    /// Datagrams sent, each of one packet or several: trips through the network stack.
    sent_datagrams,
    /// Packets received that were ours.
    rcvd_pkts,
    /// Bytes sent, transport headers included.
    sent_bytes,
    /// Bytes received, transport headers included.
    rcvd_bytes,
    /// Datagrams received.
    rcvd_datagrams,
    /// System calls that sent.
    send_calls,
    /// System calls that received.
    rcv_calls,
    /// System calls that found nothing to receive.
    rcv_calls_in_vain,
    /// Requests for RDMA READ received.
    rx_read_requests,
    /// Requests for RDMA WRITE received: first packets.
    rx_write_requests,
    /// Requests for atomics received.
    rx_atomic_requests,
    /// Requests that had been carried out before.
    duplicate_request,
    /// Requests that came ahead of their turn: a packet was lost.
    out_of_sequence,
    /// SENDs that met no receive here.
    out_of_buffer,
    /// NAKs received for packets that were lost on their way to the peer.
    packet_seq_err,
    /// READ responses that were found missing.
    implied_nak_seq_err,
    /// Times the acknowledgement timer ran out.
    local_ack_timeout_err,
    /// RNR NAKs received.
    rnr_nak_retry_err,
    /// Times a peer was given up because it did not answer.
    retry_exceeded_err,
    /// Times a peer was given up because it had no receive.
    retry_rnr_exceeded_err,
    /// Our requests that the peer refused for a key, range or right.
    req_remote_access_errors,
    /// Our requests that the peer called invalid.
    req_remote_invalid_request,
    /// The peer's requests that were refused for a key, range or right.
    resp_remote_access_errors,
    /// The peer's requests that made no sense.
    resp_remote_invalid_request,
    /// Messages of the peer that were longer than their receive.
    resp_local_length_error,
    /// Responses that fit no request.
    bad_resp_err,
    /// NAKs that would have ended a queue pair, and that the peer's next acknowledgements refuted.
    refuted_naks,
    /// Packets dropped because their ICRC was wrong.
    rx_icrc_encapsulated,
    /// Packets dropped because they were malformed.
    rx_malformed,
    /// Packets dropped because their queue pair, address, or partition was not
    /// that of a connection.
    rx_not_ours,
    /// Packets that arrived at one endpoint's socket, joined with others by the kernel, and were
    /// handed to the endpoint of their queue pair.
    rx_handed_over,
    /// Packets that were lost because their endpoint had too many that were handed over.
    rx_handover_dropped,
    /// Connection requests that were ignored because too many waited, or because more than 500 a
    /// second of their address were refused.
    cm_dropped_requests,
    /// Connection requests that were ignored because packets of their address had
    /// named keys that it was not given.
    cm_held_requests,
    /// Packets dropped because the socket or link took no more.
    send_err,
    /// Times that packets to a peer began to leave one by one for a minute, since the system refused
    /// super-packets for it, or joined packets did not arrive.
    send_offload_err,
    /// Packets that arrived with a congestion mark.
    np_ecn_marked_roce_packets,
    /// Congestion notifications sent.
    np_cnp_sent,
    /// Congestion notifications received and heeded.
    rp_cnp_handled,
    /// Congestion notifications received and ignored: more than one a round trip,
    /// without data under way, or with congestion control switched off.
    rp_cnp_ignored,
}
