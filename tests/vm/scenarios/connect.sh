#!/bin/bash
# Stock nvme-cli discovers, connects and inspects; the kernel logs no warnings.
# vm: main aarch64 programs=cairn-target timeout=240

run_suite connect
