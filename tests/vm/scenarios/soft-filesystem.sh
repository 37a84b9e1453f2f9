#!/bin/bash
# ext4 and xfs keep a file tree intact on a target that has no RDMA device.
# vm: programs=cairn-target timeout=720

use_soft_target
run_suite filesystem
