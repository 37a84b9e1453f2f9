#!/bin/bash
# A system call guarded by a restartable sequence is made once or not at all if it is interrupted.
# vm: aarch64 tests=cairn-disk

step "Signals at random moments around the call"
show env CAIRN_RSEQ=required cairn-disk-tests timely --nocapture
