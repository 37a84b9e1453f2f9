# Steering by SPDK's names.

CONTROL_SOCKET=${CONTROL_SOCKET:-/run/cairn/target.sock}
# Under systemd nothing is copied from there.
SPDK_CLIENT=/cairn/programs/spdk-client
SPDK_COMMANDS=

# What spdk_rpc runs.
spdk_client() {
    [ -d "$SPDK_CLIENT" ] && echo "SPDK's rpc.py" || echo "a stand-in for SPDK's rpc.py: requests that were recorded"
}

# spdk_rpc METHOD PARAMETERS ARGUMENT...: with these arguments for SPDK's rpc.py if `cargo xtask vm` brought it, once
# spdk_rpc_run is called; else by what rpc.py sends for them, PARAMETERS as JSON: a request over several lines and
# without an end, and an answer that is read until it is whole.
spdk_rpc() {
    local method=$1 parameters=$2
    shift 2
    if [ -d "$SPDK_CLIENT" ]; then
        SPDK_COMMANDS+="$method $*"$'\n'
        return
    fi
    python3 -c '
import json, socket, sys
request = {"jsonrpc": "2.0", "method": sys.argv[2], "id": 1, "params": json.loads(sys.argv[3])}
control = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
control.settimeout(60)
control.connect(sys.argv[1])
control.sendall(json.dumps(request, indent=2).encode())
answer = ""
while True:
    more = control.recv(4096)
    if not more:
        sys.exit("the socket was closed after " + repr(answer))
    answer += more.decode()
    try:
        answer = json.loads(answer)
        break
    except ValueError:
        pass
print(json.dumps(answer))
sys.exit("result" not in answer)
' "$CONTROL_SOCKET" "$method" "$parameters" || fail "$method $parameters"
}

# One rpc.py runs all of them: to start it takes the guest half a minute.
spdk_rpc_run() {
    [ -n "$SPDK_COMMANDS" ] || return 0
    PYTHONPATH=$SPDK_CLIENT python3 -m spdk.spdk_rpc -s "$CONTROL_SOCKET" <<< "$SPDK_COMMANDS" ||
        fail "rpc.py with $SPDK_COMMANDS"
    SPDK_COMMANDS=
}
