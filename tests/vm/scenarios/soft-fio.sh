#!/bin/bash
# fio verifies written data on a target that has no RDMA device.
# vm: programs=cairn-target timeout=900

use_soft_target
run_suite fio
