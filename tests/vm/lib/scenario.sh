# Functions for all scenarios: output, assertions, waits with timeouts, and cleanup.
#
# This file is sourced. A scenario is a list of assertions and of commands that must succeed (set -e); the first failure
# ends it.

LIB=${LIB:-/cairn/tests/lib}
OUT=${OUT:-/cairn/out}

# shellcheck source=fabric.sh
. "$LIB/fabric.sh"
# shellcheck source=target.sh
. "$LIB/target.sh"
# shellcheck source=host.sh
. "$LIB/host.sh"
# shellcheck source=disk.sh
. "$LIB/disk.sh"
# shellcheck source=nvmet.sh
. "$LIB/nvmet.sh"
# shellcheck source=nfs.sh
. "$LIB/nfs.sh"
# shellcheck source=spdk.sh
. "$LIB/spdk.sh"

begin_scenario() {
    set -Eeuo pipefail
    trap 'report_failure "$LINENO" "$BASH_COMMAND" "$?"' ERR
    trap leave_scenario EXIT
}

# run_suite NAME: Runs the steps of suites/NAME.sh on the selected fabric and target.
# shellcheck source=/dev/null
run_suite() { . "$LIB/../suites/$1.sh"; }

end_scenario() {
    trap - ERR
    SCENARIO_COMPLETE=1
}

# Ends all processes of the scenario, which completes their logs.
leave_scenario() {
    local code=$?
    trap - ERR EXIT
    set +e
    # An early `exit 0` is a failure.
    if [ "$code" -eq 0 ] && [ -z "${SCENARIO_COMPLETE:-}" ]; then
        echo "FAILED: the script left before its end"
        code=1
    fi
    # The kernel's log then has the stacks of tasks that wait for a lock or a device.
    [ "$code" -eq 0 ] || echo w > /proc/sysrq-trigger
    abandon_target
    # A scenario with logs elsewhere defines keep_logs.
    if declare -F keep_logs > /dev/null; then keep_logs; fi
    exit "$code"
}

report_failure() {
    # Subshells inherit this trap, but only the outermost shell reports the failure. It prints the innermost line of the
    # scenario.
    [ "$BASH_SUBSHELL" -eq 0 ] || return 0
    local where="line $1" command=$2 code=$3 depth
    for ((depth = ${#BASH_SOURCE[@]} - 1; depth > 0; depth--)); do
        case ${BASH_SOURCE[depth]} in
        */scenarios/* | */suites/*)
            where="${BASH_SOURCE[depth]##*/} line ${BASH_LINENO[depth - 1]}"
            ;;
        esac
    done
    echo "FAILED: exit code $code from: $command ($where)"
}

# Requests a reboot at the end of the script, which then runs again with a higher BOOT. Requires systemd
# (`# vm: systemd`).
reboot_guest() { touch "$OUT/reboot"; }

# --- narration ---------------------------------------------------------------------------------

step() { printf '\n--- %s (%s s)\n' "$*" "$SECONDS"; }
say() { printf '%s\n' "$*"; }

# show COMMAND...: Prints a command, then runs it.
show() {
    printf '\n# %s\n' "$*"
    "$@"
}

# fail REASON: Ends the scenario. Within $(...) it ends only the subshell: assign the output of $(...) to a variable
# first, so that set -e detects the failure.
fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# --- assertions --------------------------------------------------------------------------------

# Each assertion except assert_empty fails on empty input, because a broken program may print nothing.

SHA256_OF_NOTHING=e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855

assert_eq() {
    case $2 in
    '' | null) fail "$1: nothing is expected ('$2'); use assert_empty for that" ;;
    "$SHA256_OF_NOTHING"*) fail "$1: the checksum of no bytes is expected" ;;
    esac
    [ "$2" = "$3" ] || fail "$1: expected '$2', got '$3'"
    say "ok: $1: $3"
}

# assert_empty WHAT COMMAND...: Checks that the command succeeds without output.
assert_empty() {
    local what=$1 output
    shift
    output=$("$@") || fail "$what: exit code $? from: $*"
    [ -z "$output" ] || fail "$what: none were expected, got '$output'"
    say "ok: $what: none"
}

# assert_le WHAT ACTUAL LIMIT
assert_le() {
    [ "$2" -le "$3" ] || fail "$1: $2 is more than $3"
    say "ok: $1: $2 (limit $3)"
}

# assert_ge WHAT ACTUAL MINIMUM
assert_ge() {
    [ "$2" -ge "$3" ] || fail "$1: $2 is less than $3"
    say "ok: $1: $2 (at least $3)"
}

assert_contains() {
    [ -n "$2" ] || fail "$1: an empty text is part of every text"
    case $3 in
    *"$2"*) say "ok: $1: $2" ;;
    *) printf '%s\n' "$3"; fail "$1: '$2' is missing above" ;;
    esac
}

# assert_json WHAT JQ_CONDITION JSON: Checks that the text is one JSON value, and that the condition yields at least one
# result and only `true`. (jq 1.6 succeeds on empty input.)
assert_json() {
    if ! jq --exit-status --slurp "length == 1 and (.[0] | [$2] | length > 0 and all(. == true))" \
        > /dev/null <<< "$3"; then
        printf '%s\n' "$3"
        fail "$1: $2 does not hold above"
    fi
    say "ok: $1"
}

# assert_fails WHAT COMMAND...: Checks that the command runs and fails; exit codes 126 and 127 mean that it cannot be
# started.
assert_fails() {
    local what=$1 code=0
    shift
    "$@" > /dev/null 2>&1 || code=$?
    case $code in
    0) fail "$what: '$*' should have failed" ;;
    126 | 127) fail "$what: '$*' could not be run (exit code $code)" ;;
    esac
    say "ok: $what"
}

# --- waiting -----------------------------------------------------------------------------------

# Factor for timeouts, because an emulated machine is slower during builds.
PATIENCE=3

# wait_for SECONDS WHAT COMMAND...: Repeats the command until it succeeds. SECONDS is the timeout on an idle machine.
wait_for() {
    local deadline=$((SECONDS + $1 * PATIENCE)) what=$2 pause=0.2 tries=0
    shift 2
    until "$@" > /dev/null 2>&1; do
        [ "$SECONDS" -lt "$deadline" ] || fail "gave up waiting for $what"
        # After ten tries, the pauses are longer, because a try may start several processes. On an emulated processor,
        # this takes as long as a pause.
        [ "$((++tries))" -lt 10 ] || pause=0.6
        sleep "$pause"
    done
}

# --- the kernel's log --------------------------------------------------------------------------

# mark_kernel_log: Writes a mark to the kernel's log.
# kernel_news: Prints the lines after the mark, and fails without a mark.
mark_kernel_log() {
    KERNEL_LOG_MARK="cairn: mark $((${KERNEL_LOG_MARKS:-0} + 1)) of $$"
    KERNEL_LOG_MARKS=$((${KERNEL_LOG_MARKS:-0} + 1))
    # By default the kernel drops lines of a program that writes more than ten in five seconds.
    echo on > /proc/sys/kernel/printk_devkmsg
    echo "<6>$KERNEL_LOG_MARK" > /dev/kmsg
}
kernel_news() {
    local mark=${KERNEL_LOG_MARK:-mark_kernel_log was not called}
    # awk searches for the mark, because bash would try each prefix of the log. This takes seconds on an emulated
    # processor.
    dmesg | awk -v mark="$mark" '
        found { print }
        index($0, mark) { found = 1 }
        END { exit !found }' || fail "the kernel's log cannot be read or has lost its mark '$mark'"
}

# Pattern for a keep alive that took between a quarter of KATO (5 s) and KATO. A pause of the target or the guest's
# processor for one second can cause it (docs/vm-lab.md).
SLOW_KEEP_ALIVE='long keepalive RTT \(([0-9]{1,3}|[1-4][0-9]{3}) ms\)'

# NSIDs, separated by `|`, of namespaces that the scenario adds and removes while a host is connected.
FLEETING_NSIDS=

# without_fleeting_namespaces: Removes lines about the namespaces of FLEETING_NSIDS. Linux first reads the list of
# NSIDs, and then the identifiers of each namespace. A namespace may be removed or replaced in between. Linux then logs
# status 600Bh (Invalid Namespace or Format, with DNR and More).
without_fleeting_namespaces() {
    local nsid="(${FLEETING_NSIDS:-none})"
    grep -vE "nvme[0-9]+: (Identify Descriptors failed \(nsid=$nsid, status=0x600b\)|identifiers changed for nsid $nsid)\$" ||
        true
}

# Pattern for the reads of a partition table that a disconnect cuts off. A scenario that disconnects right after the
# connection sets SCANS_ARE_CUT=1.
CUT_SCAN='(nvme[0-9]+n[0-9]+(: no available path - failing I/O|, logical block [0-9]+, async page read)|unable to read RDB block [0-9]+|nvme_ns_head_submit_bio: [0-9]+ callbacks suppressed)$'
SCANS_ARE_CUT=

without_cut_scans() {
    if [ -n "$SCANS_ARE_CUT" ]; then grep -vE "$CUT_SCAN" || true; else cat; fi
}

# Selects lines about NVMe that may indicate a fault of the target. Slow keep alives of an emulated machine are
# excluded. Also excluded is a keep alive that Linux 6.12 creates while it disconnects, but never sends. It is cancelled
# (error 4), and its start time is 0, so its round-trip time is the clock reading (4294798688 ms after two minutes).
about_nvme() {
    { grep -i nvme || true; } | { grep -vE "$SLOW_KEEP_ALIVE" || true; } | without_fleeting_namespaces |
        without_cut_scans | awk '
        { controller = match($0, /nvme[0-9]+:/) ? substr($0, RSTART, RLENGTH) : "" }
        /nvme_keep_alive_end_io error=4$/ { delete held[controller]; next }
        controller in held { print held[controller]; delete held[controller] }
        /long keepalive RTT/ { held[controller] = $0; next }
        { print }
        END { for (controller in held) print held[controller] }'
}

# Prints slow keep alives and rxe's retransmission counters.
mention_slow_keep_alives() {
    local slow
    slow=$(kernel_news | grep -oE "$SLOW_KEEP_ALIVE") || return 0
    say "note: $(paste -sd ',' <<< "$slow"); $(rdma statistic show 2>&1 |
        grep -oE '(duplicate_request|out_of_seq_request|completer_retry_err) [0-9]+' | paste -sd ',')"
}

assert_no_nvme_warnings() {
    local all news warnings
    all=$(kernel_news) || fail "the kernel's log could not be read"
    news=$(dmesg --level=emerg,alert,crit,err,warn | about_nvme)
    # The text is searched, because the driver logs some problems with level info.
    warnings=$(about_nvme <<< "$all" |
        grep -iE 'warn|error|fail|timeout|invalid|bogus|duplicate|unsupported|not (equal|supported|ready)|reconnect|resett' || true)
    [ -z "$warnings" ] || { printf '%s\n' "$warnings"; fail "the kernel's nvme driver complained"; }
    if [ -n "$news" ] && [ -n "$(comm -12 <(sort <<< "$all") <(sort <<< "$news"))" ]; then
        printf '%s\n' "$news"
        fail "the kernel's nvme driver warned"
    fi
    mention_slow_keep_alives
    say "ok: no warning from nvme in the kernel's log"
}
