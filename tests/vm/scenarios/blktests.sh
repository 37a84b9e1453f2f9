#!/bin/bash
# blktests' NVMe tests pass by their hook for other targets: `cargo xtask vm blktests --blktests DIR`.
# vm: programs=cairn-target timeout=2400 by-name
#
# Variables: TESTS, the tests to run.

TESTS=${TESTS:-nvme/003 nvme/004 nvme/005 nvme/008 nvme/010 nvme/014 nvme/018 nvme/019 nvme/021 nvme/022 nvme/023 \
    nvme/025 nvme/026 nvme/027 nvme/028 nvme/029 nvme/031 nvme/040 nvme/054}
read -ra TESTS <<< "$TESTS"
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

# nvme/054 looks for the file of nvmet that enables reservations. The host keeps nvmet loaded.
modprobe nvmet
mountpoint -q /sys/kernel/config || mount -t configfs configfs /sys/kernel/config
mkdir /sys/kernel/config/nvmet/hosts/blktests
mount -t tmpfs nvmet /sys/kernel/config/nvmet
mkdir -p /sys/kernel/config/nvmet/subsystems/blktests-subsystem-1/namespaces/1
touch /sys/kernel/config/nvmet/subsystems/blktests-subsystem-1/namespaces/1/resv_enable

step "Tests"
cd /tmp/blktests
./check -o "$OUT/results" "${TESTS[@]}" 2>&1 | tee "$OUT/blktests.log"
# A test that was not run ends with success, too.
assert_eq "tests that passed" "${#TESTS[@]}" "$(grep -c '\[passed\]' "$OUT/blktests.log")"
