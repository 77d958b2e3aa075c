#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# hosts.sh: weir between two hosts, over TCP: a target in one network namespace and benches in
# another one, with a wire between them (wire.c) that loses, delays, reorders and repeats frames,
# is slow, or is cut. Its arguments are the build directory and, if it is elsewhere, the wire.
#
# It needs root, ip(8) and /dev/net/tun, and a weir that has device ofi. Each check prints one
# line, "ok NAME" or "not ok NAME: why", and what it saw when it failed; the last line counts. No
# check depends on the machine's speed: a time-out ends what hangs, and nothing else.
#
# `weir bench faults` has a target of its own, and so is not here.
# shellcheck disable=SC2317 # functions through check
set -u
usage="usage: $0 BUILD [WIRE]"
BUILD=${1:?$usage}
weir=$(readlink -f "$BUILD/weir")
wire=$(readlink -f "${2:-$BUILD/tests/hosts/wire}")
here=weir-hosts-$$-a # of the benches
there=weir-hosts-$$-b
ipv4=10.77.0
ipv6=fd00:77::
# A session comes up as slowly as the machine and the wire are; cut_for_good waits for that to end.
export WEIR_CONNECT_TIMEOUT_MS=60000
wiring=

skipped() {
    echo "skipped: $1"
    exit 77
}
[ "$(id -u)" = 0 ] || skipped 'network namespaces need root'
command -v ip >/dev/null || skipped 'no ip(8)'
[ -c /dev/net/tun ] || skipped 'no /dev/net/tun'
[ -x "$weir" ] || { echo "$usage: no $BUILD/weir"; exit 2; }
[ -x "$wire" ] || { echo "$usage: no wire"; exit 2; }
"$weir" info | grep -q '^device ofi: available' || skipped 'this weir has no device ofi'

device=ofi
at_target() { exec ip netns exec "$there" "$@"; }
at_bench() { exec ip netns exec "$here" "$@"; }
# shellcheck source=tests/bench_lib.sh
. "$(dirname "$0")/../bench_lib.sh"
clean_up() {
    end "$wiring"
    end_all
    ip netns del "$here" 2>/dev/null
    ip netns del "$there" 2>/dev/null
}
trap clean_up EXIT
trap 'exit 1' HUP INT TERM
trap : PIPE # a wire that has ended

# ---- the wire ----

# plug_in ADDRESS ADDRESS: a wire between the two, which obeys descriptor 9.
plug_in() {
    rm -f "$WORK/commands"
    mkfifo "$WORK/commands" || return 1
    "$wire" "$here" eth0 "$1" "$there" eth0 "$2" \
        <"$WORK/commands" >"$WORK/wire" 2>"$WORK/wire.err" &
    wiring=$!
    exec 9>"$WORK/commands"
    for _ in $(seq 300); do
        ! grep -q ready "$WORK/wire" || return 0
        kill -0 "$wiring" 2>/dev/null || break
        sleep 0.1
    done
    cat "$WORK/wire.err"
    return 1
}
unplug() {
    exec 9>&-
    wait "$wiring"
    unplugged=$?
    wiring=
    cat "$WORK/wire.err"
    return $unplugged
}

answers() { grep -c '^ok$' "$WORK/wire"; }
# tell COMMAND...: and the wire has obeyed.
tell() {
    answered=$(answers)
    echo "$*" >&9
    until [ "$(answers)" -gt "$answered" ]; do
        kill -0 "$wiring" 2>/dev/null || { cat "$WORK/wire.err"; return 1; }
        sleep 0.02
    done
}
# count NAME: frames of that kind, both ways, since the wire began.
count() {
    tell stats
    tail -n 3 "$WORK/wire" | awk -v name="$1" '
        { for (i = 2; i < NF; i++) if ($i == name) sum += $(i + 1) }
        END { print sum + 0 }'
}

# ---- the benches ----

# With weir's own time-outs.
bench_given_up() {
    unset WEIR_CONNECT_TIMEOUT_MS
    bench_begin "$@"
    export WEIR_CONNECT_TIMEOUT_MS=60000
}

# in_the_middle COMMAND...: when the bench is in full swing.
in_the_middle() {
    middle_from=$(count passed)
    until [ $(($(count passed) - middle_from)) -ge 500 ]; do
        kill -0 "$benching" 2>/dev/null || { why='it ended before its middle'; return 1; }
        sleep 0.05
    done
    "$@"
}

# ---- checks ----

# holds "AWK EXPRESSION": of the result's bytes, each second, and p50, in ns.
holds() {
    awk '/^  "bytes_per_s"/ { bytes = $2 + 0 }
        /^    "p50"/ { p50 = $2 + 0 }
        END { print "bytes " bytes ", p50 " p50; exit !(bytes > 0 && p50 > 0 && '"$1"') }' \
        "$WORK/json" || { why="not so: $1"; return 1; }
}
# counts NAME COMMAND...: it succeeds, and the wire counts such frames meanwhile.
counts() {
    counted=$1 counted_before=$(count "$1")
    shift
    "$@" || return 1
    [ "$(count "$counted")" -gt "$counted_before" ] && return 0
    why="the wire counts no frames $counted"
    return 1
}
delayed() { "$1" && holds 'p50 > 3e6'; }
slowed() { "$1" && holds 'bytes < 13.5e6'; }
reordered() { counts reordered counts duplicated "$1"; }
# all_on NAME COMMAND...: write, read and send with that, on a wire as it is set.
all_on() {
    on=$1
    shift
    check "write_$on" "$@" write
    check "read_$on" "$@" read_
    check "send_$on" "$@" send
    tell clear
}
nothing_lost() {
    [ "$(count lost) $(count overflowed)" = '0 0' ] || { why='the wire lost frames'; return 1; }
}

for_a_while() { tell cut && sleep 1 && tell join; }
stopped_for_a_while() { kill -STOP "$serving" && sleep 1 && kill -CONT "$serving"; }
# ends_well BREAK BENCH: broken in the middle for a second, which it gets over.
ends_well() {
    bench_begin "$2" --verify --size 16K --seconds 4
    in_the_middle "$1"
    broken=$?
    bench_end 0 'verified: all .*[1-9][0-9]* bytes' && [ $broken -eq 0 ]
}

# cut_for_good BENCH: it ends with an error that says why, and the target serves others afterwards.
cut_for_good() {
    bench_given_up "$1" --verify --size 16K --seconds 3600
    in_the_middle tell cut
    bench_end 1 'timed out\|the peer is gone\|the peer left\|does not answer'
    cut_good=$?
    echo "it took $bench_took s in all"
    tell join
    is_serving && write && [ $cut_good -eq 0 ]
}

# killed BENCH: its target is, and it says so within seconds.
killed() {
    bench_begin "$1" --verify --size 16K --seconds 3600
    in_the_middle kill -KILL "$serving"
    killed_at=$(uptime_s)
    bench_end 1 'the peer is gone'
    killed_good=$?
    killed_took=$(($(uptime_s) - killed_at))
    wait "$serving"
    serving=
    [ $killed_good -eq 0 ] || return 1
    [ $killed_took -lt 30 ] || { why="the bench ended only after $killed_took s"; return 1; }
}

# Both hosts have one more network, of the same addresses and without a way out, as containers make
# one. The target listens at its address of the wire, and benches have their way out there.
add_networks() {
    for host in "$here" "$there"; do
        ip -n "$host" link add aside0 type veth peer name aside1 &&
            ip -n "$host" address add 10.1.0.1/24 dev aside0 &&
            ip -n "$host" link set aside0 up && ip -n "$host" link set aside1 up || return 1
    done
    ip -n "$here" route add default via "$ipv4.2"
}
tells_the_wires_address() {
    ip netns exec "$here" "$weir" info >"$WORK/info" 2>&1
    grep -F "address $ipv4.1;" "$WORK/info" || { grep 'device ofi' -A9 "$WORK/info"; return 1; }
}

if ! ip netns add "$here" || ! ip netns add "$there"; then
    skipped 'no network namespaces can be made here'
fi
ip -n "$here" link set lo up
ip -n "$there" link set lo up
begin wire_begins plug_in "$ipv4.1/24" "$ipv4.2/24"
begin target_begins serve "$ipv4.2"
for kind in write read_ send fill replay; do
    check "${kind%_}" "$kind"
done
check wire_is_whole nothing_lost
tell loss 1
all_on loss counts lost
tell delay 5000 2000
all_on delay delayed
tell reorder 10
tell duplicate 1
all_on reorder reordered
tell rate 12500000
all_on rate slowed
for kind in write read send; do
    check "${kind}_cut_1s" counts cut ends_well for_a_while "$kind"
    check "${kind}_stopped_1s" ends_well stopped_for_a_while "$kind"
done
for kind in write read send; do
    check "${kind}_cut_for_good" cut_for_good "$kind"
done
check target_ends serve_end
for kind in write read send; do
    begin "target_of_${kind}_begins" serve "$ipv4.2"
    check "${kind}_target_killed" killed "$kind"
done
begin networks_beside add_networks
begin target_begins_beside serve "$ipv4.2"
check address_beside tells_the_wires_address
for kind in write read_ send; do
    check "${kind%_}_beside" "$kind"
done
check target_ends_beside serve_end
check wire_ends unplug
begin wire_begins_ipv6 plug_in "${ipv6}1/64" "${ipv6}2/64"
# The IPv4 network beside it is still there.
begin way_out_ipv6 ip -n "$here" route add default via "${ipv6}2"
begin target_begins_ipv6 serve "[${ipv6}2]"
for kind in write read_ send; do
    check "${kind%_}_ipv6" "$kind"
done
check target_ends_ipv6 serve_end
check wire_ends_ipv6 unplug
count_checks
