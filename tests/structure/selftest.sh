#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# selftest.sh ROOT [CHECK.sh]: every structural test, or one of them, fails when its rule is broken.
# Each case copies the tree, sees the test pass or notes how it fails, breaks one thing, and expects
# a complaint that names it.
. "$(dirname "$0")/lib.sh"
only=${2:-}
CC=${CC:-cc}
cases=0

# rule NAME COMPLAINT COMMAND: COMMAND breaks a rule in the next copy of the tree.
rules=0
rule() {
    rules=$((rules + 1))
    printf '%s\n' "$1" "$2" "$3" >"$WORK/rule.$rules"
}
# seen_by CHECK: in a fresh copy, breaks the rules since the last such line; the check must then
# fail and say each COMPLAINT, which it must not have said before.
seen_by() {
    check=$1 broken_rules=$rules rules=0
    [ -z "$only" ] || [ "$only" = "${check%% *}" ] || return
    cases=$((cases + broken_rules))
    copy=$WORK/copy
    rm -rf "$copy" && mkdir "$copy" || exit 1
    tar -c --exclude=.git --exclude='build*' . | tar -x -C "$copy"
    before=$WORK/before.$(echo "$check" | tr -c 'a-z\n' _)
    # shellcheck disable=SC2086 # a check may come with an argument
    [ -f "$before" ] || (set -- $check && script=$1 && shift &&
        sh "$ROOT/tests/structure/$script" "$copy" "$@") >"$before" 2>&1
    for n in $(seq "$broken_rules"); do
        (cd "$copy" && eval "$(sed -n 3p "$WORK/rule.$n")") ||
            say "$(head -n 1 "$WORK/rule.$n"): could not break the copy"
    done
    # shellcheck disable=SC2086
    (set -- $check && script=$1 && shift &&
        sh "$ROOT/tests/structure/$script" "$copy" "$@") >"$WORK/after" 2>&1
    status=$?
    for n in $(seq "$broken_rules"); do
        name=$(head -n 1 "$WORK/rule.$n") complaint=$(sed -n 2p "$WORK/rule.$n")
        if [ "$status" -eq 77 ]; then
            echo "selftest: $name: skipped, $check cannot run here"
        elif [ "$status" -eq 0 ]; then
            say "$name: $check passes all the same"
        elif ! grep -qF "$complaint" "$WORK/after"; then
            say "$name: $check fails, but does not say \"$complaint\""
        elif grep -qF "$complaint" "$before"; then
            say "$name: $check said \"$complaint\" before anything was broken"
        fi
    done
}
# case NAME CHECK COMPLAINT COMMAND: one rule in a copy of its own.
case_() {
    rule "$1" "$3" "$4"
    seen_by "$2"
}

append() { # FILE TEXT, for the commands below
    printf '%s\n' "$2" >>"$1"
}

rule 'a system call in the core' 'the core calls getpid' \
    'append src/core/timer.c "int getpid(void); int timer_x(void); int timer_x(void) { return getpid(); }"'
rule 'allocation in the core' 'the core calls malloc' \
    'append src/core/rtt.c "void *malloc(unsigned long); void *rtt_x(void); void *rtt_x(void) { return malloc(1); }"'
rule 'a static counter in the core' 'writable data: groups_x_count' \
    'append src/core/groups.c "int groups_x(void); int groups_x(void) { static int groups_x_count; return groups_x_count++; }"'
rule 'an initialised global in the core' 'writable data: plan_x' \
    'append src/core/plan.c "extern int plan_x; int plan_x = 5;"'
rule 'a thread-local in the core' 'writable data: window_x' \
    'append src/core/window.c "extern _Thread_local int window_x; _Thread_local int window_x;"'
rule 'the core includes the engine' 'does not compile' \
    'append src/core/words.c "#include \"engine.h\""'
seen_by core.sh
case_ 'the core includes the engine, as text' layers.sh 'timer.c includes "engine.h"' \
    'append src/core/timer.c "#include \"engine.h\""'
case_ 'a path around the rule' layers.sh 'includes "../os/os.h"' \
    'append src/core/timer.c "#include \"../os/os.h\""'
case_ 'the core includes stdio' layers.sh 'includes <stdio.h>' \
    'append src/core/timer.c "#include <stdio.h>"'
case_ 'the tool includes a port' layers.sh 'host.c includes "ports.h"' \
    'append tool/host.c "#include \"ports.h\""'
case_ 'a device includes the core' layers.sh 'shm.c includes "ledger.h"' \
    'append src/device/shm/shm.c "#include \"ledger.h\""'
case_ 'the base includes a device' layers.sh 'pages.c includes "verbs.h"' \
    'append src/device/base/pages.c "#include \"verbs.h\""'
case_ 'the fabric includes a device over it' layers.sh 'regions.c includes "ofi.h"' \
    'append src/device/fabric/regions.c "#include \"ofi.h\""'
case_ 'a device includes the fabric of others' layers.sh 'memory.c includes "regions.h"' \
    'append src/device/verbs/memory.c "#include \"regions.h\""'
case_ 'the Mooncake adapter includes the engine' layers.sh 'api.c includes "engine.h"' \
    'append adapters/mooncake/src/api.c "#include \"engine.h\""'
case_ 'the build grants too much' layers.sh 'src/core/meson.build grants src/os' \
    'append src/core/meson.build "x = [inc_os]"'
case_ 'the build grants implicitly' layers.sh 'src/os/meson.build lets the compiler' \
    'sed -i /implicit_include/d src/os/meson.build'
rule 'a call that goes up' 'agenda calls engine_step, which' \
    'append src/engine/agenda.c "int engine_step(weir_engine *e, bool slow); int agenda_x(weir_engine *e); int agenda_x(weir_engine *e) { return engine_step(e, false); }"'
rule 'a call beside' 'complete calls effects_perform_all, which' \
    'append src/engine/complete.c "void effects_perform_all(weir_engine *e); void complete_x(weir_engine *e); void complete_x(weir_engine *e) { effects_perform_all(e); }"'
rule 'an include that goes up' 'agenda includes step.h, which' \
    'append src/engine/agenda.c "#include \"step.h\""'
rule 'a module without a floor' 'src/engine/unbuilt stands on no floor' \
    'append src/engine/unbuilt.c "/* unbuilt.c: x */"'
rule 'a floor without a module' 'nobody has a floor, and no file' \
    'sed -i "s/^    agenda found/    nobody agenda found/" docs/design.md'
seen_by floors.sh
rule 'a header that needs another' 'timer.h does not compile alone' \
    'sed -i "s/^#endif/int timer_x(struct tcp_unheard_of x[sizeof(struct y)]);\n#endif/" src/core/timer.h'
rule 'a public header that is no C++' 'weir.h as C++17' \
    'sed -i "s/^#define WEIR_H/#define WEIR_H\nextern int (*weir_new)(int *new);/" include/weir.h'
rule 'a public header that warns' 'weir.h as C11' \
    'sed -i "s/^#define WEIR_H/#define WEIR_H\nstatic inline char weir_narrow(int x) { return x; }/" include/weir.h'
seen_by headers.sh
case_ 'a file without a comment' comments.sh 'timer.c does not open' \
    'sed -i 2i\\int\ timer_x\; src/core/timer.c'
case_ 'a script without a comment' comments.sh 'lib.sh does not open' \
    'sed -i "/^# /d" tests/structure/lib.sh'
case_ 'a file without a licence' comments.sh 'timer.h does not name its licence' \
    'sed -i "/SPDX/d" src/core/timer.h'
case_ 'a long file' comments.sh 'src/core/timer.c has' \
    'for i in $(seq 800); do echo; done >>src/core/timer.c'
case_ 'a long line' comments.sh 'src/core/timer.c:' \
    'append src/core/timer.c "// $(printf %0100d 0)"'
case_ 'a file out of the build' comments.sh 'unbuilt.c is in no meson.build' \
    'append src/core/unbuilt.c "/* unbuilt.c: x */"'
case_ 'a file out of format' format.sh 'src/os/env.c: run make format' \
    'append src/os/env.c "int   x ( void ) ;"'
case_ 'a descriptor that children keep' forked.sh 'tcp.c opens a descriptor' \
    'append src/os/tcp.c "int tcp_x(void); int tcp_x(void) { return epoll_create1(0); }"'
case_ 'a descriptor that is closed only' forked.sh 'link.c closes a descriptor' \
    'append src/device/shm/link.c "void link_x(void); void link_x(void) { close(3); }"'
case_ 'a call that no child tried' forked.sh 'does not try weir_xyzzy(' \
    'sed -i "s/^WEIR_API int weir_event_take/WEIR_API int weir_xyzzy(weir_engine *engine);\n&/" include/weir.h'
case_ 'a manual that is no mdoc' manuals.sh 'man/weir.1' \
    'append man/weir.1 ".Xyzzy"'
case_ 'a function without a manual' manuals.sh 'does not document weir_xyzzy' \
    'sed -i "s/^WEIR_API const char .weir_version.*/&\nWEIR_API int weir_xyzzy(void);/" include/weir.h'
case_ 'a manual without a function' manuals.sh 'documents weir_xyzzy' \
    'append man/weir.3 ".Fn weir_xyzzy void"'
case_ 'a field without a manual' manuals.sh 'does not describe xyzzy of weir_event' \
    'sed -i "s/^    weir_event_type type;/&\n    int xyzzy;/" include/weir.h'
case_ 'a field that only the manual has' manuals.sh 'describes xyzzy of weir_event' \
    'sed -i "s/^\.Ss weir_event$/&\n.Bl -tag -width x\n.It Fa xyzzy\nX.\n.El/" man/weir.3'
case_ 'a macro that is no C++' headers.sh 'the public _INIT macros as c++17' \
    'sed -i "s/^#define WEIR_SIZED(type) weir_sized.*/#define WEIR_SIZED(type) { .size = sizeof(type) }/" include/weir.h'
case_ 'an error without a manual' manuals.sh 'does not name WEIR_EXYZZY' \
    'sed -i "s/^    X(WEIR_EAGAIN.*/&\n    X(WEIR_EXYZZY, -99, WEIR_CLASS_RETRY, \"x\") \\\\/" include/weir.h'
case_ 'an error without a word on what to do' manuals.sh 'table of weir(3) does not have WEIR_ENOTSUP' \
    'sed -i "s/^WEIR_ENOTSUP\tT{$/WEIR_EXYZZY\tT{/" man/weir.3'
case_ 'an error that only the header tells' errors.sh 'does not list EBUSY for weir_peer_close' \
    'sed -i -z "s/is GONE\.[ *\n]*Errors:[ *\n]*ESTALE/&, EBUSY/" include/weir.h'
case_ 'an error that only the manual tells' errors.sh 'lists EBUSY for weir_peer_close' \
    'sed -i "s/^weir_peer_close\tWEIR_ESTALE$/&, WEIR_EBUSY/" man/weir.3'
case_ 'a status that only the header tells' errors.sh 'does not list EBUSY for status' \
    'sed -i "s/ \* Statuses: ETIMEDOUT,/& EBUSY,/" include/weir.h'
case_ 'a function that does not tell its errors' errors.sh 'does not list NO_ERRORS for weir_qp_query' \
    'sed -i "s/Errors: EINVAL (past the last), ESTALE/EINVAL past the last/" include/weir.h'
case_ 'a test without a promise' promises.sh 'does not promise S77' \
    'append tests/test_timer.c "static void test_S77_xyzzy(void **state) {}"'
case_ 'a script with a test without a promise' promises.sh 'does not promise W78' \
    'append tests/vm/wire.sh "check W7_W78_xyzzy true"'
case_ 'a test of Python without a promise' promises.sh 'does not promise P79' \
    'append python/tests/test_leaks.py "    def test_P9_P79_xyzzy(self):"'
case_ 'a test that is turned off' promises.sh 'turns a test off' \
    'sed -i "s/^check wire_loss/: &/" tests/vm/wire.sh'
case_ 'an oracle without a promise' promises.sh 'does not promise T79, which is the name of a test in sim/nic.c' \
    'append sim/nic.c "void x(void) { sim_violation(world, \"T79 xyzzy\"); }"'
case_ 'a promise without a test' promises.sh 'promises S80, which no test' \
    'append docs/promises.md "| S80 | A promise of something that is not there. | | - |"'
case_ 'a promise whose tests are gone' promises.sh 'promises H14, which no test' \
    'sed -i "s/_H14_/_/" tests/test_endpoint_ends.c tests/test_endpoint_random.c'
case_ 'a promise without a sentence' promises.sh 'does not promise H6' \
    'sed -i "s/^| H6 | [^|]*|/| H6 | |/" docs/promises.md'
case_ 'a promise made twice' promises.sh 'S3 has two lines' \
    'sed -i "/^| S3 /p" docs/promises.md'
case_ 'a test file that is not there' promises.sh 'names tests/test_xyzzy.c for H6, which is not there' \
    'sed -i "s/^| H6 .*test_region.c./&, \`test_xyzzy.c\`/" docs/promises.md'
case_ 'a test file without the test' promises.sh 'names tests/test_timer.c for H6, of which' \
    'sed -i "s/^| H6 .*test_region.c./&, \`test_timer.c\`/" docs/promises.md'
case_ 'a test that the page does not name' promises.sh 'does not name tests/test_timer.c, which has a test of H6' \
    'append tests/test_timer.c "static void test_S13_H6_xyzzy(void **state) {}"'
case_ 'a device that a promise is not tested on' promises.sh 'whether H6 is tested on "rxe"' \
    'sed -i "/^| H6 /s/ |$/, rxe |/" docs/promises.md'
case_ 'a test that runs nobody knows where' promises.sh 'does not say on what tests/test_region.c runs' \
    'sed -i "/^| - | .test_credit/s/ .test_region.c.,//" docs/promises.md'

case_ 'a version that only the header has' version.sh 'include/weir.h says "0.7.0"' \
    'sed -i "s/^#define WEIR_VERSION_MINOR .*/#define WEIR_VERSION_MINOR 7/" include/weir.h'
case_ 'a version that is none' version.sh 'VERSION is not one line of three numbers: 0.1' \
    'echo 0.1 >VERSION'
case_ 'a version that the build does not read' version.sh 'meson.build does not read VERSION' \
    "sed -i \"s/files('VERSION')/'0.1.0'/\" meson.build"
case_ 'a changelog of another version' version.sh 'CHANGELOG.md says "0.9.0"' \
    'sed -i "0,/^## .*/s//## 0.9.0 (unreleased)/" CHANGELOG.md'

case_ 'a package of another version' version.sh 'debian/changelog says "0.9.0"' \
    'sed -i "1s/(.*)/(0.9.0-1)/" debian/changelog'
case_ 'a package of another library' version.sh 'debian/libweir7.install is not there' \
    "sed -i \"s/^soversion = .*/soversion = '7'/\" meson.build"

# symbols.sh needs a library: small ones are made to the copy's map.
stub_library() { # OUT EXTRA-SOURCE
    {
        api_functions | sed 's/.*/int &(void); int &(void) { return 0; }/'
        echo "$2"
    } >"$WORK/stub.c"
    $CC -shared -fPIC -Wl,--version-script="${3:-weir.map}" "$WORK/stub.c" -o "$1" 2>"$WORK/stub.err" ||
        say "the stub library did not link: $(cat "$WORK/stub.err")"
}
stub_library "$WORK/good.so" ''
sh tests/structure/symbols.sh . "$WORK/good.so" >"$WORK/after" 2>&1 ||
    say "symbols.sh refuses a library that is right: $(cat "$WORK/after")"
sed 's/^local:/    weir_extra;\nlocal:/' weir.map >"$WORK/extra.map"
stub_library "$WORK/extra.so" 'int weir_extra(void); int weir_extra(void) { return 0; }' \
    "$WORK/extra.map"
case_ 'an export that weir.h lacks' "symbols.sh $WORK/extra.so" \
    'weir_forgotten: in the map' \
    'sed -i "s/^local:/    weir_forgotten;\nlocal:/" weir.map'
case_ 'a function that the package does not know' "symbols.sh $WORK/good.so" \
    'weir_write: in the header, not in the package' 'sed -i "/^ weir_write@/d" debian/libweir0.symbols'
cases=$((cases + 1))
sh tests/structure/symbols.sh . "$WORK/extra.so" >"$WORK/after" 2>&1 &&
    say 'symbols.sh passes a library that exports more'
grep -q 'weir_extra: in the exported' "$WORK/after" || say 'symbols.sh does not name weir_extra'
stub_library "$WORK/loud.so" 'int puts(const char *); int loud(void); int loud(void) { return puts("x"); }'
cases=$((cases + 1))
sh tests/structure/symbols.sh . "$WORK/loud.so" >"$WORK/after" 2>&1 &&
    say 'symbols.sh passes a library that prints'
grep -q 'M9 the library calls puts' "$WORK/after" || say 'symbols.sh does not name puts'
sed '/weir_version;/d' weir.map >"$WORK/less.map"
stub_library "$WORK/less.so" '' "$WORK/less.map"
cases=$((cases + 1))
sh tests/structure/symbols.sh . "$WORK/less.so" >"$WORK/after" 2>&1 &&
    say 'symbols.sh passes a library that exports less'
grep -q 'weir_version: in the header, not in the exported' "$WORK/after" ||
    say 'symbols.sh does not name weir_version'

# abi.sh needs a library with its types: each function of the headers, with nothing in it.
printf '#include "%s"\n' include/*.h >"$WORK/typed.c"
$CC -E -P -Iinclude "$WORK/typed.c" -I. | tr '\n' ' ' | tr ';' '\n' |
    sed -n 's/.*__attribute__((visibility("default"))) \(.*)\)$/\1 { __builtin_trap(); }/p' >"$WORK/bodies"
cat "$WORK/bodies" >>"$WORK/typed.c"
$CC -g -I. -Iinclude -shared -fPIC -Wl,-soname,libweir.so.0 -Wl,--version-script=weir.map "$WORK/typed.c" \
    -o "$WORK/typed.so" || say 'the typed library did not link'
old=packaging/abi/libweir.so.0
case_ 'a function that is gone' "abi.sh $WORK/typed.so" "[D] weir_xyzzy" \
    "sed -i \"s/name='weir_write'/name='weir_xyzzy'/\" $old.xml"
narrow=$(sed -n "s/.*<typedef-decl name='uint32_t'.* id='\([^']*\)'.*/\1/p" $old.xml)
case_ 'a field of another type' "abi.sh $WORK/typed.so" "type of 'uint32_t notify_tag' changed" \
    "sed -i \"s/<var-decl name='notify_tag' type-id='[^']*'/<var-decl name='notify_tag' type-id='$narrow'/\" $old.xml"
case_ 'an enumerator of another value' "abi.sh $WORK/typed.so" "from value '99' to '10'" \
    "sed -i \"s/'WEIR_EVENT_RESUMED' value='10'/'WEIR_EVENT_RESUMED' value='99'/\" $old.xml"
case_ 'a constant of another value' "abi.sh $WORK/typed.so" 'WEIR_EAGAIN was -99: it is -1' \
    "sed -i 's/^WEIR_EAGAIN -1$/WEIR_EAGAIN -99/' $old.constants"
case_ 'a constant that is gone' "abi.sh $WORK/typed.so" 'WEIR_XYZZY was 7: ' \
    "append $old.constants 'WEIR_XYZZY 7'"
# grew STRUCTURE FIELD: the last release had it without that field, its last.
grew() {
    python3 -c 'import re, sys
path, structure, field = sys.argv[1:]
old = open(path).read()
begin = old.index("<class-decl name=%r size-in-bits" % structure)
end = old.index("</class-decl>", begin)
body = old[begin:end]
last = body.rindex("<data-member")
assert "name=%r" % field in body[last:]
bits = re.search(r"layout-offset-in-bits=.(\d+)", body[last:]).group(1)
body = re.sub(r"size-in-bits=.\d+.", "size-in-bits=\"%s\"" % bits, body[:last], count=1)
open(path, "w").write(old[:begin] + body + old[end:])' packaging/abi/libweir.so.0.xml "$@"
}
case_ 'a structure without a size that grew' "abi.sh $WORK/typed.so" "'uint64_t length', at offset 256" \
    'grew weir_segment length'
if [ -z "$only" ] || [ "$only" = abi.sh ]; then
    cases=$((cases + 1))
    (cd "$copy" && cp "$ROOT/$old.xml" "$old.xml" && grew weir_transfer_options user_data)
    sh tests/structure/abi.sh "$copy" "$WORK/typed.so" >"$WORK/after" 2>&1
    status=$?
    [ "$status" -eq 0 ] || [ "$status" -eq 77 ] ||
        say "abi.sh refuses a structure that grew behind its size: $(cat "$WORK/after")"
fi

echo "selftest: $cases broken rules"
finish
