#!/bin/bash
# The verbs provider does over rdma_rxe what any provider must do.
# vm: timeout=300 programs=cairn-fabric-conformance

step "Every case of the fabric conformance suite"
setup_rxe
show cairn-fabric-conformance --provider verbs --addr "$FABRIC_ADDR"

step "Nothing is left behind"
# One queue pair stays: rxe's own, for connection management.
assert_eq "queue pairs" 1 "$(count_queue_pairs)"
