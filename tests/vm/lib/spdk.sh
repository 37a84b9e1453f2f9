# Steering by SPDK's names.

CONTROL_SOCKET=${CONTROL_SOCKET:-/run/cairn/target.sock}

# spdk_rpc METHOD PARAMETERS ARGUMENT...: by SPDK's rpc.py with these arguments if `cargo xtask vm --spdk-client DIR`
# brought it; else by what rpc.py sends for them, PARAMETERS as JSON: a request over several lines and without an
# end, and an answer that is read until it is whole.
spdk_rpc() {
    local method=$1 parameters=$2
    shift 2
    if [ -d /cairn/bin/spdk-client ]; then
        PYTHONPATH=/cairn/bin/spdk-client python3 -m spdk.spdk_rpc -s "$CONTROL_SOCKET" "$method" "$@" ||
            fail "rpc.py $method $*"
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
