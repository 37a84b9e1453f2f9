#!/bin/bash
# Over verbs, a stranger, a liar and a glutton get nothing, see nothing and take a tenth of a reactor's time at most.
# vm: programs=cairn-target,cairn-initiator,cairn-attacker counted timeout=1800 by-name
#
# One host reads without end. Each read's cost is the reactor's processor time, which counts instructions here,
# over the reads that the kernel has counted: alone and attacked in turns. Fio's start and end are not in it.
# What the reactor spent beyond that, by the clock, is what an attacker takes of it. Accounts and limits sell commands
# by the second, and this machine has 500 million instructions a second: a faster one loses less.
#
# The one processor is shared with the attacker, which slows the host whatever the target does. So each attack is also made on
# another target, of which the host knows nothing: what the host's reads take longer than beside that is the target's part.

# The names are those of tests/src/attacker.rs.
NQN=nqn.2026-01.org.example:disks
VAULT=nqn.2026-01.org.example:vault
PRIVATE=nqn.2026-01.org.example:private
FRIEND=nqn.2026-01.org.example:host-friend
STRANGER=nqn.2026-01.org.example:host-stranger
GLUTTON=nqn.2026-01.org.example:host-glutton
HOST_ADDR=192.168.77.2
ATTACKER_ADDR=192.168.77.3
CONFIG=/tmp/cairn.toml
# The target that the host does not use.
OTHER_CONFIG=/tmp/other.toml
OTHER_PORT=4430

ROUNDS=${ATTACKERS_ROUNDS:-3}
READS=${ATTACKERS_READS:-2000}
KINDS=${ATTACKERS_KINDS:-silent,garbage,wrong-name,wrong-key,reconnect,admin,io}
DEPTH=${ATTACKERS_DEPTH:-32}
# Per cent of the reactor's time that an attacker may take: what a reactor loses that hosts keep busy all the time.
# The same of a read's time, beside one that is attacked by way of another target.
MOST=10

# configure FILE: only FRIEND may have namespace 2 and the subsystem PRIVATE. VAULT requires a key.
configure() {
    TARGET_SETTINGS=(reactors=1 poll_idle_us=0)
    write_config "$1" "1 null:1GiB" "2 mem:16MiB hosts=[\"$FRIEND\"]"
    cat >> "$1" <<END

[[subsystem.limited_host]]
nqn = "$GLUTTON"
limits = { iops = 400, total = "16MiB" }

[[subsystem]]
nqn = "$VAULT"
allow_any_host = true
dhchap_key = "/tmp/vault.key"

[[subsystem.namespace]]
nsid = 1
export = "mem:16MiB"

[[subsystem]]
nqn = "$PRIVATE"
allowed_hosts = ["$FRIEND"]

[[subsystem.namespace]]
nsid = 1
export = "mem:16MiB"
END
}

# check SUBSYSTEM HOST [OPTION...]: whether our host connects from the attackers' address; what it says is in /tmp/said.
check() {
    local subsystem=$1 host=$2
    shift 2
    cairn-initiator connect-check --provider verbs -a "$FABRIC_ADDR" -w "$ATTACKER_ADDR" -n "$subsystem" \
        --hostnqn "$host" --nr-io-queues 1 "$@" > /tmp/said 2>&1
}

# admits WHO COMMAND..., refuses WHO WHY COMMAND...
admits() {
    local who=$1
    shift
    "$@" || fail "$who is refused: $(< /tmp/said)"
    say "ok: $who is admitted"
}
refuses() {
    local who=$1 why=$2
    shift 2
    if "$@"; then fail "$who is admitted: $(< /tmp/said)"; fi
    assert_contains "$who is refused" "$why" "$(< /tmp/said)"
}

# found_by HOST: the subsystems of disks that discovery shows it.
found_by() {
    nvme_discover -w "$ATTACKER_ADDR" --hostnqn="$1" |
        jq -r '.records[].subnqn | select(endswith(".discovery") | not)' | sort | paste -sd ' '
}

# nap SECONDS: sleeps without a process, which would be work for the one processor.
exec {nothing}<> <(:)
nap() { read -r -t "$1" -u "$nothing" || true; }

# now: reads that the kernel has carried out, and the nanoseconds of the reactor's thread.
now() {
    read -r READS_DONE _ < "$STAT"
    read -r REACTOR_NS _ < "$REACTOR/schedstat"
}

# measure KIND: the next reads; as an object in costs.jsonl the kind, reads, the reactor's nanoseconds and those of the clock.
measure() {
    local reads ns began
    now
    reads=$READS_DONE ns=$REACTOR_NS began=${EPOCHREALTIME/./}
    while [ $((READS_DONE - reads)) -lt "$READS" ]; do
        nap 0.02
        now
    done
    # By hand: jq would run as long as some thousand reads here.
    printf '{"kind": "%s", "reads": %d, "ns": %d, "clock": %d}\n' "$1" $((READS_DONE - reads)) $((REACTOR_NS - ns)) \
        $(((${EPOCHREALTIME/./} - began) * 1000)) >> "$OUT/costs.jsonl"
}

# attacked KIND PORT NAME: measures under this name beside an attacker of this kind, of the target with this port.
attacked() {
    local said=$OUT/attacker-$3.txt code=0 attacker
    rm -f /tmp/enough "$said"
    cairn-attacker --provider verbs --addr "$FABRIC_ADDR" --port "$2" --from "$ATTACKER_ADDR" \
        --seconds 120 --until /tmp/enough "$1" > "$said" 2>&1 &
    attacker=$!
    wait_for 30 "the attacker" grep -qx ready "$said"
    # Beside I/O it has its burst once; what is measured comes after.
    nap 0.2
    measure "$3"
    touch /tmp/enough
    wait "$attacker" || code=$?
    [ "$code" -eq 0 ] || fail "attacker $1 on port $2 ended with $code: $(tail -n 3 "$said")"
    wait_for 30 "the attacker's queue pairs to go" queue_pairs_are "$QUEUE_PAIRS"
    say "$3: $(paste -sd ' ' "$said")"
}

queue_pairs_are() { [ "$(count_queue_pairs)" -eq "$1" ]; }

# report: medians of the rounds, with a star before each kind that takes too much.
report() {
    printf '  %-11s %8s %8s %18s %8s %10s\n' attack ns/read "more, %" "of the reactor, %" us/read "slower, %"
    jq -rs --argjson most "$MOST" '
        def median: sort | .[length / 2 | floor];
        def tenths: . * 10 | round / 10;
        def each: .ns / .reads;
        def time(kind): map(select(.kind == kind) | .clock / .reads) | median;
        . as $all
        | (map(select(.kind == "alone") | each) | median) as $alone
        | group_by(.kind)[] | select(.[0].kind | endswith("-elsewhere") | not)
        | .[0].kind as $kind
        | (map(each) | median) as $each
        | (map(100 * (.ns - $alone * .reads) / .clock) | median) as $share
        | ($all | time($kind)) as $time
        | (if $kind == "alone" then 0 else 100 * ($time / ($all | time($kind + "-elsewhere")) - 1) end) as $slower
        | [if $share > $most or $slower > $most then "*" else "-" end, $kind, ($each | round), (100 * ($each / $alone - 1) | tenths),
            ($share | tenths), ($time / 1000 | tenths), ($slower | tenths)]
        | @tsv' "$OUT/costs.jsonl" |
        while read -r mark kind each more share time slower; do
            printf '%s %-11s %8s %8s %18s %8s %10s\n' "$mark" "$kind" "$each" "$more" "$share" "$time" "$slower"
        done
}

step "A target, two hosts' addresses"
setup_rxe
ip addr add "$HOST_ADDR/24" dev "$FABRIC_NETDEV"
ip addr add "$ATTACKER_ADDR/24" dev "$FABRIC_NETDEV"
cairn-target key generate --output /tmp/vault.key
cairn-target key generate --output /tmp/wrong.key
configure "$CONFIG"
start_target_from "$CONFIG"
PORT=$OTHER_PORT configure "$OTHER_CONFIG"
cairn-target serve --config "$OTHER_CONFIG" > /tmp/other.stdout 2> "$OUT/other.log" &
OTHER=$!
wait_for 30 "the other target" grep -q listening "$OUT/other.log"

step "Strangers and liars get nothing, and see nothing"
assert_eq "what a friend finds" "$NQN $PRIVATE $VAULT" "$(found_by "$FRIEND")"
assert_eq "what a stranger finds" "$NQN $VAULT" "$(found_by "$STRANGER")"
admits "a friend" check "$PRIVATE" "$FRIEND"
refuses "a stranger" "does not allow this host" check "$PRIVATE" "$STRANGER"
admits "a host with the key" check "$VAULT" "$STRANGER" --dhchap-secret "$(< /tmp/vault.key)"
refuses "a liar with another key" "does not accept this host's response" check "$VAULT" "$STRANGER" --dhchap-secret "$(< /tmp/wrong.key)"
refuses "a stranger without a key" "this host has no secret" check "$VAULT" "$STRANGER"
mark_kernel_log
nvme_connect -w "$HOST_ADDR" --hostnqn="$STRANGER" --nr-io-queues=1
wait_for 20 "namespace 1" namespace_device 1
disk=$(namespace_device 1)
assert_eq "the namespaces that a stranger sees" 1 "$(nvme list-ns "$disk" -o json | jq '.nsid_list | length')"
no_namespace_device 2 || fail "a stranger has namespace 2"

step "What attackers add to the reads of another host"
STAT=/sys/block/${disk#/dev/}/stat
for task in "/proc/$TARGET_PID/task"/*; do
    case $(< "$task/comm") in reactor-0) REACTOR=$task ;; esac
done
: > "$OUT/costs.jsonl"
fio --name=reads --filename="$disk" --ioengine=libaio --direct=1 --rw=randread --bs=4k --iodepth="$DEPTH" \
    --norandommap --time_based --runtime=100000 --eta=never --output="$OUT/fio.log" &
reader=$!
reads_begin() { now && [ "$READS_DONE" -gt 1000 ]; }
wait_for 30 "reads" reads_begin
QUEUE_PAIRS=$(count_queue_pairs)
for ((round = 1; round <= ROUNDS; round++)); do
    for kind in ${KINDS//,/ }; do
        measure alone
        attacked "$kind" "$PORT" "$kind"
        attacked "$kind" "$OTHER_PORT" "$kind-elsewhere"
    done
done
kill "$reader" "$OTHER"
wait "$reader" "$OTHER" || true

assert_no_nvme_warnings
nvme_disconnect
assert_target_alive
stop_target
report | tee "$OUT/report.txt"
assert_fails "no attacker takes more than it may" grep '^[*]' "$OUT/report.txt"
