#!/bin/bash
# fio verifies written data, with small and large blocks, low and high depth, one job and four.
# vm: aarch64 programs=cairn-target timeout=480

run_suite fio
