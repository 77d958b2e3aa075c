#!/bin/sh
# tool.sh WEIR: the weir tool as its users run it: every command, briefly, every byte
# verified where the command can; and what it says to wrong usage.
set -u
weir=${1:?usage: $0 WEIR}
WORK=$(mktemp -d)
server=
trap '[ -n "$server" ] && kill "$server" 2>/dev/null; rm -rf "$WORK"' EXIT
failures=0

# expect STATUS COMMAND...: runs it, and shows what it said if its status is another.
expect() {
    wanted=$1
    shift
    timeout 60 "$@" >"$WORK/out" 2>"$WORK/err"
    status=$?
    if [ "$status" -ne "$wanted" ]; then
        echo "tool: $*: exit status $status, wanted $wanted"
        cat "$WORK/out" "$WORK/err"
        failures=$((failures + 1))
    fi
}

# said FILE PATTERN: the last command's output matches.
said() {
    grep -Eq -- "$2" "$WORK/$1" && return
    echo "tool: no \"$2\" in:"
    cat "$WORK/$1"
    failures=$((failures + 1))
}

expect 0 "$weir" --version
said out '^weir [0-9]+\.[0-9]+\.[0-9]+$'
expect 0 "$weir" --help
expect 0 "$weir" bench --help
for command in serve info 'bench limits' 'bench write' 'bench read' 'bench sweep' 'bench fill' \
    'bench replay' 'bench trace'; do
    # shellcheck disable=SC2086 # words
    expect 0 "$weir" $command --help
done
expect 2 "$weir"
said err .
expect 2 "$weir" nonsense
expect 2 "$weir" bench write --size
expect 2 "$weir" bench write --size 12Q
expect 2 "$weir" bench write --no-such-option
expect 0 "$weir" info
said out '^device shm'
expect 0 "$weir" info --json
python3 -m json.tool <"$WORK/out" >"$WORK/json" || failures=$((failures + 1))

expect 0 "$weir" bench write --seconds 0.2 --verify --json "$WORK/write.json"
said out 'verified'
python3 -m json.tool <"$WORK/write.json" >"$WORK/json" || failures=$((failures + 1))
expect 0 "$weir" bench read --seconds 0.2 --verify
expect 0 "$weir" bench write --seconds 0.2 --size 4K --segments 100 --qps 4 --depth 16 --verify
expect 0 "$weir" bench write --seconds 0.2 --threads 3 --notify --size 512
expect 0 "$weir" bench write --seconds 0.2 --memory own --verify
expect 0 "$weir" bench write --seconds 0.2 --latency
expect 0 "$weir" bench fill --pages 100 --page-size 4K --repeat 5
expect 0 "$weir" bench trace --requests 50 --output "$WORK/trace"
expect 0 "$weir" bench trace --describe "$WORK/trace"
expect 0 "$weir" bench replay --trace "$WORK/trace" --kv-bytes-per-token 16
expect 1 "$weir" bench replay --trace "$WORK/missing"
expect 1 "$weir" bench write --seconds 0.2 --peer 127.0.0.1:1

# One target for clients that come and go.
"$weir" serve >"$WORK/address" 2>"$WORK/server" &
server=$!
for _ in $(seq 100); do
    [ -s "$WORK/address" ] && break
    sleep 0.1
done
address=$(grep -Eo '127\.0\.0\.1:[0-9]+' "$WORK/address" | head -n 1)
expect 0 "$weir" bench write --seconds 0.2 --verify --peer "$address"
expect 0 "$weir" bench read --seconds 0.2 --verify --peer "$address"
kill -TERM "$server"
wait "$server"
status=$?
server=
if [ "$status" -ne 0 ]; then
    echo "tool: serve ended with $status on SIGTERM"
    failures=$((failures + 1))
fi
[ "$failures" -eq 0 ] && echo 'tool: fine'
exit $((failures > 0))
