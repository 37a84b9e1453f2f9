#!/bin/bash
# blktests' NVMe tests pass by their hook for other targets: `cargo xtask vm blktests --blktests DIR`.
# vm: programs=cairn-target timeout=2400 by-name
#
# Variables: TESTS, the tests to run.

TESTS=${TESTS:-003 004 005 008 010 014 018 019 021 022 023 025 026 027 028 029 031 040 054}
export BLKTESTS_ADDR=$FABRIC_ADDR BLKTESTS_PORT=$PORT BLKTESTS_BYTES=$((64 << 20))

[ -d /cairn/programs/blktests ] || fail "no blktests: give a checkout by --blktests"

step "A target without subsystems"
setup_rxe
printf '[target]\nprovider = "verbs"\n[[listener]]\naddress = "%s"\nport = %s\n' "$FABRIC_ADDR" "$PORT" > /tmp/cairn.toml
start_target_from /tmp/cairn.toml

step "A copy of blktests"
cp -r /cairn/programs/blktests /tmp/blktests
cat > /tmp/blktests/config <<END
NVME_TARGET_CONTROL=$LIB/blktests-target
NVME_IMG_SIZE=$BLKTESTS_BYTES
NVME_NUM_ITER=10
USE_RXE=1
END

# nvme/054 looks for this file of nvmet, whose attribute enables reservations.
mount -t tmpfs configfs /sys/kernel/config
mkdir -p /sys/kernel/config/nvmet/subsystems/blktests-subsystem-1/namespaces/1
touch /sys/kernel/config/nvmet/subsystems/blktests-subsystem-1/namespaces/1/resv_enable

step "Tests"
cd /tmp/blktests
# shellcheck disable=SC2086
./check -o "$OUT/results" ${TESTS// 0/ nvme\/0} 2>&1 | tee "$OUT/blktests.log"
