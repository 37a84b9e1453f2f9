#!/bin/bash
# The verbs provider over rdma_rxe passes the conformance suite for providers, also with the quirks
# of adapters.
# vm: timeout=900 programs=cairn-fabric-conformance

step "Every case of the fabric conformance suite"
setup_rxe
show cairn-fabric-conformance --provider verbs --addr "$FABRIC_ADDR"

step "Every case with the quirks of each adapter"
show cairn-fabric-conformance --provider verbs --addr "$FABRIC_ADDR" --quirks all

step "Nothing is left behind"
# The remaining queue pair is rxe's GSI pair.
assert_eq "queue pairs" 1 "$(count_queue_pairs)"
