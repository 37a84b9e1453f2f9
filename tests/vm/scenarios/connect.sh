#!/bin/bash
# Stock nvme-cli discovers, connects and inspects; the kernel finds nothing to warn of.
# vm: main programs=cairn-target timeout=240

run_suite connect
