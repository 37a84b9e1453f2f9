# Control of the target by SPDK's methods.

CONTROL_SOCKET=${CONTROL_SOCKET:-/run/cairn/target.sock}
# The client runs from the shared folder, because programs are not copied to the guest's disk under systemd.
SPDK_CLIENT=/cairn/programs/spdk-client
SPDK_COMMANDS=

# Prints the name of the client that spdk_rpc uses.
spdk_client() {
    [ -d "$SPDK_CLIENT" ] && echo "SPDK's rpc.py" || echo "a stand-in for SPDK's rpc.py: requests that were recorded"
}

# spdk_rpc METHOD PARAMETERS ARGUMENT...: If `cargo xtask vm` provides SPDK's rpc.py, queues METHOD with these
# arguments for spdk_rpc_run. Otherwise, sends the same request with PARAMETERS as JSON on several lines, and
# reads a complete response.
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

# Runs all queued commands in one rpc.py, whose start takes half a minute in the guest.
spdk_rpc_run() {
    [ -n "$SPDK_COMMANDS" ] || return 0
    PYTHONPATH=$SPDK_CLIENT python3 -m spdk.spdk_rpc -s "$CONTROL_SOCKET" <<< "$SPDK_COMMANDS" ||
        fail "rpc.py with $SPDK_COMMANDS"
    SPDK_COMMANDS=
}
