#!/bin/bash
# ext4 and xfs on exported disks keep a file tree intact, on a file and on a block device.
# vm: programs=cairn-target timeout=420

run_suite filesystem
