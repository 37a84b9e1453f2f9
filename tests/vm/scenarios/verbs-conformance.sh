#!/bin/bash
# The verbs provider over rdma_rxe passes the conformance suite for providers.
# vm: timeout=300 programs=cairn-fabric-conformance

step "Every case of the fabric conformance suite"
setup_rxe
show cairn-fabric-conformance --provider verbs --addr "$FABRIC_ADDR"

step "Nothing is left behind"
# The remaining queue pair is rxe's GSI pair.
assert_eq "queue pairs" 1 "$(count_queue_pairs)"
