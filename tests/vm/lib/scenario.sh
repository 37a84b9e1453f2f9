# What every scenario stands on: narration, assertions, bounded waits, clean-up.
#
# Sourced, never run. A scenario is a list of commands, with `step` and `say` between them, that must
# succeed (set -e) and of assertions that say what was expected. The first failure ends it.

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

# run_suite NAME: the steps of suites/NAME.sh, on the fabric and the target that were chosen.
# shellcheck source=/dev/null
run_suite() { . "$LIB/../suites/$1.sh"; }

end_scenario() {
    trap - ERR
    SCENARIO_COMPLETE=1
}

# Whatever happened: end what we started, so that its logs are whole.
leave_scenario() {
    local code=$?
    trap - ERR EXIT
    set +e
    # A script that ends by `exit 0` halfway has not shown what it promises.
    if [ "$code" -eq 0 ] && [ -z "${SCENARIO_COMPLETE:-}" ]; then
        echo "FAILED: the script left before its end"
        code=1
    fi
    abandon_target
    # A scenario whose logs are elsewhere has this function.
    if declare -F keep_logs > /dev/null; then keep_logs; fi
    exit "$code"
}

report_failure() {
    # Subshells inherit the trap; the outermost shell reports, with the innermost line of the story.
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

# reboot_guest: at the end of this boot's part, the machine starts again, and the script with it. It takes
# systemd (`# vm: systemd`); BOOT counts.
reboot_guest() { touch "$OUT/reboot"; }

# --- narration ---------------------------------------------------------------------------------

step() { printf '\n--- %s (%s s)\n' "$*" "$SECONDS"; }
say() { printf '%s\n' "$*"; }

# Shows a command as a person would type it, then runs it.
show() {
    printf '\n# %s\n' "$*"
    "$@"
}

# Ends the scenario with a reason. From within $(...) it ends only that: assign the output first,
# so that set -e sees the failure.
fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# --- assertions --------------------------------------------------------------------------------

# assert_eq WHAT EXPECTED ACTUAL
assert_eq() {
    [ "$2" = "$3" ] || fail "$1: expected '$2', got '$3'"
    say "ok: $1: $3"
}

# assert_le WHAT ACTUAL LIMIT (integers)
assert_le() {
    [ "$2" -le "$3" ] || fail "$1: $2 is more than $3"
    say "ok: $1: $2 (limit $3)"
}

# assert_ge WHAT ACTUAL MINIMUM (integers)
assert_ge() {
    [ "$2" -ge "$3" ] || fail "$1: $2 is less than $3"
    say "ok: $1: $2 (at least $3)"
}

# assert_contains WHAT NEEDLE TEXT
assert_contains() {
    case $3 in
    *"$2"*) say "ok: $1: $2" ;;
    *) printf '%s\n' "$3"; fail "$1: '$2' is missing above" ;;
    esac
}

# assert_json WHAT JQ_CONDITION JSON
assert_json() {
    if ! jq --exit-status "$2" > /dev/null <<< "$3"; then
        printf '%s\n' "$3"
        fail "$1: $2 does not hold above"
    fi
    say "ok: $1"
}

# assert_fails WHAT COMMAND...
assert_fails() {
    local what=$1
    shift
    if "$@" > /dev/null 2>&1; then fail "$what: '$*' should have failed"; fi
    say "ok: $what"
}

# --- waiting -----------------------------------------------------------------------------------

# An emulated machine beside builds is this much slower than alone. What comes in time does not wait
# any longer for it.
PATIENCE=3

# wait_for SECONDS WHAT COMMAND...: until the command succeeds, no longer than so many seconds of a
# machine at rest.
wait_for() {
    local deadline=$((SECONDS + $1 * PATIENCE)) what=$2
    shift 2
    until "$@" > /dev/null 2>&1; do
        [ "$SECONDS" -lt "$deadline" ] || fail "gave up waiting for $what"
        sleep 0.2
    done
}

# --- the kernel's log --------------------------------------------------------------------------

# Everything the kernel says after this is news to kernel_news.
mark_kernel_log() { KERNEL_LOG_LINES=$(dmesg | wc -l); }
kernel_news() { dmesg | tail -n +$((${KERNEL_LOG_LINES:-0} + 1)); }

# A keep alive that took more than a quarter of KATO (5 s), and less than KATO. A second in which the
# target's process or a processor of the guest stands still is enough: see the traps in vm-lab.md.
SLOW_KEEP_ALIVE='long keepalive RTT \(([0-9]{1,3}|[1-4][0-9]{3}) ms\)'

# The NSIDs, separated by `|`, whose namespaces the scenario adds and removes while a host is connected.
FLEETING_NSIDS=

# Linux reads the list of NSIDs first and each NSID's identifiers afterwards. In between a namespace may go
# (status 600Bh: Invalid Namespace or Format, with DNR and More), or another may take its NSID.
without_fleeting_namespaces() {
    local nsid="(${FLEETING_NSIDS:-none})"
    grep -vE "nvme[0-9]+: (Identify Descriptors failed \(nsid=$nsid, status=0x600b\)|identifiers changed for nsid $nsid)\$" ||
        true
}

# Lines about NVMe that may say something of the target. A slow keep alive on an emulated machine does
# not. Nor does one that Linux 6.12 makes in the moment in which it quiesces the admin queue to
# disconnect: it is never sent, ends as cancelled (error 4), and its round trip, from a start that never
# was, is the age of the machine in disguise (4294798688 ms after two minutes).
about_nvme() {
    { grep -i nvme || true; } | { grep -vE "$SLOW_KEEP_ALIVE" || true; } | without_fleeting_namespaces | awk '
        { controller = match($0, /nvme[0-9]+:/) ? substr($0, RSTART, RLENGTH) : "" }
        /nvme_keep_alive_end_io error=4$/ { delete held[controller]; next }
        controller in held { print held[controller]; delete held[controller] }
        /long keepalive RTT/ { held[controller] = $0; next }
        { print }
        END { for (controller in held) print held[controller] }'
}

# Slow keep alives pass, but not in silence: what rxe sent again goes along.
mention_slow_keep_alives() {
    local slow
    slow=$(kernel_news | grep -oE "$SLOW_KEEP_ALIVE") || return 0
    say "note: $(paste -sd ',' <<< "$slow"); $(rdma statistic show 2>&1 |
        grep -oE '(duplicate_request|out_of_seq_request|completer_retry_err) [0-9]+' | paste -sd ',')"
}

# Warnings and errors of NVMe since the mark: none are expected of a healthy target.
assert_no_nvme_warnings() {
    local news warnings
    news=$(dmesg --level=emerg,alert,crit,err,warn | about_nvme)
    # Some of the driver's complaints come at level info.
    warnings=$(kernel_news | about_nvme |
        grep -iE 'warn|error|fail|timeout|invalid|bogus|duplicate|unsupported|not (equal|supported|ready)|reconnect|resett' || true)
    [ -z "$warnings" ] || { printf '%s\n' "$warnings"; fail "the kernel's nvme driver complained"; }
    if [ -n "$news" ] && [ -n "$(comm -12 <(kernel_news | sort) <(sort <<< "$news"))" ]; then
        printf '%s\n' "$news"
        fail "the kernel's nvme driver warned"
    fi
    mention_slow_keep_alives
    say "ok: no warning from nvme in the kernel's log"
}
