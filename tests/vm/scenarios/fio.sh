#!/bin/bash
# fio verifies what it wrote: small and large, shallow and deep, one job and four.
# vm: programs=cairn-target timeout=480

run_suite fio
