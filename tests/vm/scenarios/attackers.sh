#!/bin/bash
# Attackers over verbs are not admitted, see no disks, and take at most a tenth of a reactor's time.
# vm: programs=cairn-target,cairn-initiator,cairn-attacker counted timeout=1800 by-name
#
# One host reads continuously. The cost of a read is the reactor's processor time (here a count of instructions) divided
# by the kernel's count of reads, measured alternately without and with an attack. The reactor's other time is the
# attacker's share. Rate limits are per second, and this machine executes 500 million instructions a second, so the
# share is smaller on a faster machine.
#
# Target, host and attacker share one processor, so an attack slows the host in any case. Each attack is therefore
# repeated on another target without the host: only the difference is due to the target.

# Names as in tests/src/attacker.rs.
NQN=nqn.2026-01.org.example:disks
VAULT=nqn.2026-01.org.example:vault
PRIVATE=nqn.2026-01.org.example:private
FRIEND=nqn.2026-01.org.example:host-friend
STRANGER=nqn.2026-01.org.example:host-stranger
GLUTTON=nqn.2026-01.org.example:host-glutton
HOST_ADDR=192.168.77.2
ATTACKER_ADDR=192.168.77.3
CONFIG=/tmp/cairn.toml
# Target that the host does not use.
OTHER_CONFIG=/tmp/other.toml
OTHER_PORT=4430

ROUNDS=${ATTACKERS_ROUNDS:-3}
READS=${ATTACKERS_READS:-2000}
KINDS=${ATTACKERS_KINDS:-silent,garbage,wrong-name,wrong-key,reconnect,admin,io}
DEPTH=${ATTACKERS_DEPTH:-32}
# Maximum share of the reactor's time for an attacker, in percent, on a busy reactor. Also the maximum increase of a
# read's time, compared with the attack on the other target.
MOST=10

# configure FILE: Writes a configuration: only FRIEND may use namespace 2 and subsystem PRIVATE, and VAULT requires a
# key.
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

# check SUBSYSTEM HOST [OPTION...]: Succeeds if cairn-initiator can connect from the attackers' address; its output is
# in /tmp/said.
check() {
    local subsystem=$1 host=$2
    shift 2
    cairn-initiator connect-check --provider verbs -a "$FABRIC_ADDR" -w "$ATTACKER_ADDR" -n "$subsystem" \
        --hostnqn "$host" --nr-io-queues 1 "$@" > /tmp/said 2>&1
}

# admits WHO COMMAND..., refuses WHO WHY COMMAND...: Check that a connection succeeds or fails.
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

# found_by HOST: Prints the NVM subsystems that discovery shows to HOST.
found_by() {
    nvme_discover -w "$ATTACKER_ADDR" --hostnqn="$1" |
        jq -r '.records[].subnqn | select(endswith(".discovery") | not)' | sort | paste -sd ' '
}

# nap SECONDS: Sleeps without starting a process, which would load the only processor.
exec {nothing}<> <(:)
nap() { read -r -t "$1" -u "$nothing" || true; }

# Reads the number of completed reads, and the reactor's processor time in nanoseconds.
now() {
    read -r READS_DONE _ < "$STAT"
    read -r REACTOR_NS _ < "$REACTOR/schedstat"
}

# measure KIND: Waits for the next READS reads, and appends an object to costs.jsonl: kind, reads, and nanoseconds of
# the reactor and of the clock.
measure() {
    local reads ns began
    now
    reads=$READS_DONE ns=$REACTOR_NS began=${EPOCHREALTIME/./}
    while [ $((READS_DONE - reads)) -lt "$READS" ]; do
        nap 0.02
        now
    done
    # The JSON is written by printf, because jq would take as long as some thousand reads.
    printf '{"kind": "%s", "reads": %d, "ns": %d, "clock": %d}\n' "$1" $((READS_DONE - reads)) $((REACTOR_NS - ns)) \
        $(((${EPOCHREALTIME/./} - began) * 1000)) >> "$OUT/costs.jsonl"
}

# attacked KIND PORT NAME: Measures as NAME during an attack of KIND on the target at PORT.
attacked() {
    local said=$OUT/attacker-$3.txt code=0 attacker
    rm -f /tmp/enough "$said"
    cairn-attacker --provider verbs --addr "$FABRIC_ADDR" --port "$2" --from "$ATTACKER_ADDR" \
        --seconds 120 --until /tmp/enough "$1" > "$said" 2>&1 &
    attacker=$!
    wait_for 30 "the attacker" grep -qx ready "$said"
    # An I/O attacker first uses up its burst, which is not measured.
    nap 0.2
    measure "$3"
    touch /tmp/enough
    wait "$attacker" || code=$?
    [ "$code" -eq 0 ] || fail "attacker $1 on port $2 ended with $code: $(tail -n 3 "$said")"
    wait_for 30 "the attacker's queue pairs to go" queue_pairs_are "$QUEUE_PAIRS"
    say "$3: $(paste -sd ' ' "$said")"
}

queue_pairs_are() { [ "$(count_queue_pairs)" -eq "$1" ]; }

# Prints the medians of all rounds, with a star for each kind above its maximum.
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
cairn-target key generate --file /tmp/vault.key
cairn-target key generate --file /tmp/wrong.key
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
