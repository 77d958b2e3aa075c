/* SPDX-License-Identifier: Apache-2.0 */
/* test_tool_session.c: a bench's session with its target, from the bench's side: why it ended, and
 * that no answer is lost; the stream of writes that goes on through faults; and what a target
 * counts of messages. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* RTLD_NEXT */
#endif

#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "content.h"
#include "flow.h"
#include "host.h"
#include "session.h"
#include "target.h"

/* Of the process that serves: its engine drops the ends of its peers, and says that it dropped
 * something; or it gives no notification before it has told of an end. */
static bool drops_ends, ends_first;

int weir_event_take(weir_engine *engine, weir_event *event) {
    typedef int taker(weir_engine *, weir_event *);
    taker *take = (taker *)(uintptr_t)dlsym(RTLD_NEXT, "weir_event_take");
    int rc = take(engine, event);

    if (rc != 0 || event->type != WEIR_EVENT_GONE)
        return rc;
    ends_first = false;
    if (drops_ends)
        *event = (weir_event){.type = WEIR_EVENT_LOST, .value = 1};
    return rc;
}

int weir_notification_take(weir_engine *engine, weir_notification *message) {
    typedef int taker(weir_engine *, weir_notification *);
    taker *take = (taker *)(uintptr_t)dlsym(RTLD_NEXT, "weir_notification_take");

    return ends_first ? WEIR_EAGAIN : take(engine, message);
}

/* The fate of the next write with a segment and a notification. */
static enum { WRITE_WELL = 0, WRITE_NO_DATA, WRITE_TWICE } next_write;

int weir_write(weir_engine *engine, weir_peer peer, const weir_segment *segments,
               size_t segment_count, const weir_transfer_options *options,
               weir_transfer *transfer) {
    typedef int writer(weir_engine *, weir_peer, const weir_segment *, size_t,
                       const weir_transfer_options *, weir_transfer *);
    writer *write = (writer *)(uintptr_t)dlsym(RTLD_NEXT, "weir_write");
    int how = WRITE_WELL, rc;

    if (segment_count > 0 && options != NULL && (options->flags & WEIR_TRANSFER_NOTIFY) != 0) {
        how = next_write;
        next_write = WRITE_WELL;
    }
    rc = write(engine, peer, segments, how == WRITE_NO_DATA ? 0 : segment_count, options, transfer);
    if (rc != 0 || how != WRITE_TWICE)
        return rc;
    weir_transfer_release(engine, *transfer);
    return write(engine, peer, segments, segment_count, options, transfer);
}

/* A process that serves on shm: its address, and what it will say on its stderr. */
static pid_t serve(char *address_out, size_t size, FILE **said_out) {
    int out[2], err[2];

    assert_int_equal(pipe(out), 0);
    assert_int_equal(pipe(err), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct options options = {
            .command = CMD_SERVE, .device = "shm", .qps = 1, .memory_max = 1 << 20, .sessions = 64};
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(out[1], STDOUT_FILENO);
        dup2(err[1], STDERR_FILENO);
        close(out[0]);
        close(err[0]);
        host_catch_signals();
        _exit(target_serve(&options));
    }
    close(out[1]);
    close(err[1]);
    FILE *line = fdopen(out[0], "r");
    assert_non_null(line);
    assert_non_null(fgets(address_out, (int)size, line));
    address_out[strcspn(address_out, "\n")] = '\0';
    fclose(line);
    *said_out = fdopen(err[0], "r");
    assert_non_null(*said_out);
    return pid;
}

static void open_session_of(struct session *session, const struct options *options,
                            enum proto_kind kind, uint64_t pages) {
    struct proto_open open = {.kind = kind,
                              .page_bytes = 4096,
                              .page_stride = 4096,
                              .page_count = pages,
                              .lanes = pages,
                              .seed = FLOW_SEED};

    assert_int_equal(session_start(session, options), 0);
    assert_int_equal(session_open(session, &open, pages * 4096, SESSION_KEEP), 0);
}

static void open_session(struct session *session, const struct options *options) {
    open_session_of(session, options, PROTO_KIND_WRITE, 1);
}

/* Asks so many times whether the round's bytes are there; each is answered. */
static void ask(struct session *session, int count) {
    struct proto_round round = {.round = 0, .lane_count = 1};

    for (int i = 0; i < count; i++)
        assert_int_equal(
            session_send(session, proto_tag(PROTO_CHECK, 0), &round, sizeof(round), NULL, 0), 0);
}

static void end(pid_t pid, FILE *said) {
    int status;

    kill(pid, SIGTERM);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    fclose(said);
}

/* A message that the target cannot serve ends the session, and neither side has to guess why: not
 * the client's next wait, nor a transfer that failed, the memory being gone. Another session is
 * served afterwards, and ends as loudly. */
static void test_W10_a_session_that_the_target_ends_says_why(void **state) {
    char address[256], line[256];
    struct session session;
    FILE *said;

    (void)state;
    pid_t pid = serve(address, sizeof(address), &said);
    struct options options = {.device = "shm", .peer = address, .qps = 1, .threads = 1};
    for (int round = 0; round < 2; round++) {
        weir_notification message;
        open_session(&session, &options);
        /* It has to name a round. */
        assert_int_equal(session_send(&session, proto_tag(PROTO_CHECK, 0), NULL, 0, NULL, 0), 0);
        if (round == 0) {
            assert_int_equal(session_await(&session, PROTO_CHECKED, &message), -1);
        } else {
            while (session.ended == 0) {
                weir_engine_wait(session.engine, NS_PER_MS);
                assert_int_equal(session_take(&session, &message), 0);
            }
            assert_int_equal(session_fail(&session, "write", WEIR_EREMOTE), -1);
        }
        assert_int_equal(session.ended, WEIR_EINVAL);
        session_end(&session);
        assert_non_null(fgets(line, sizeof(line), said));
        assert_non_null(strstr(line, "its session ends"));
        assert_non_null(strstr(line, "WEIR_EINVAL"));
    }
    /* One that goes without a word is remarked on, too. */
    open_session(&session, &options);
    session_end(&session);
    assert_non_null(fgets(line, sizeof(line), said));
    assert_non_null(strstr(line, " is gone within its session"));
    end(pid, said);
}

/* A client asks for more answers than it has receives for, and takes none for longer than the
 * target waits for anything. It gets them all. */
static void test_W1_no_answer_is_dropped_for_a_slow_client(void **state) {
    enum { ASKED = 300, AWAY_S = 6 };
    const struct timespec away = {.tv_sec = AWAY_S};
    char address[256];
    struct session session;
    FILE *said;

    (void)state;
    pid_t pid = serve(address, sizeof(address), &said);
    struct options options = {.device = "shm", .peer = address, .qps = 1, .threads = 1};
    open_session(&session, &options);
    ask(&session, ASKED);
    nanosleep(&away, NULL);
    for (int i = 0; i < ASKED; i++) {
        weir_notification message;
        assert_int_equal(session_await(&session, PROTO_CHECKED, &message), 0);
    }
    assert_int_equal(session_close(&session), 0);
    session_end(&session);
    end(pid, said);
}

static void is_served(const struct options *options) {
    weir_notification message;
    struct session session;

    open_session(&session, options);
    for (int i = 0; i < 10; i++) {
        ask(&session, 1);
        assert_int_equal(session_await(&session, PROTO_CHECKED, &message), 0);
    }
    assert_int_equal(session_close(&session), 0);
    session_end(&session);
}

/* A stranger asks for sessions, wrongly and without end, and takes no answer: more than the target
 * has transfers. Others are served, and the target ends when it is told to. */
static void test_W6_who_takes_no_answers_keeps_nobody_else(void **state) {
    enum { ASKED = 20000 };
    char address[256];
    weir_engine *engine;
    weir_peer peer;
    FILE *said;

    (void)state;
    pid_t pid = serve(address, sizeof(address), &said);
    assert_int_equal(weir_engine_open(NULL, &engine), 0);
    assert_int_equal(weir_peer_open(engine, address, &peer), 0);
    for (int i = 0; i < ASKED;) {
        weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
        weir_transfer transfer;
        options.flags = WEIR_TRANSFER_NOTIFY;
        options.notify_tag = proto_tag(PROTO_OPEN, 0);
        int rc = weir_write(engine, peer, NULL, 0, &options, &transfer);
        if (rc == 0) {
            i++;
            weir_transfer_release(engine, transfer);
        } else {
            assert_int_equal(rc, WEIR_EAGAIN);
            weir_engine_wait(engine, NS_PER_MS);
        }
    }
    for (uint32_t pending = 1; pending != 0;) {
        weir_peer_info info = WEIR_PEER_INFO_INIT;
        weir_engine_wait(engine, NS_PER_MS);
        assert_int_equal(weir_peer_query(engine, peer, &info), 0);
        pending = info.pending;
    }
    struct options options = {.device = "shm", .peer = address, .qps = 1, .threads = 1};
    is_served(&options);
    end(pid, said);
    weir_engine_close(engine);
}

/* Likewise with a session: it ends, and says why. */
static void test_W6_a_session_without_an_end_of_answers_ends(void **state) {
    enum { ASKED_MOST = 20000 };
    char address[256], line[256];
    struct session session;
    FILE *said;

    (void)state;
    pid_t pid = serve(address, sizeof(address), &said);
    struct options options = {.device = "shm", .peer = address, .qps = 1, .threads = 1};
    open_session(&session, &options);
    ask(&session, ASKED_MOST);
    assert_non_null(fgets(line, sizeof(line), said));
    assert_non_null(strstr(line, "its session ends"));
    assert_non_null(strstr(line, "WEIR_EAGAIN"));
    is_served(&options);
    session_end(&session);
    end(pid, said);
}

/* All that this side submitted has arrived. */
static void send_all(struct session *session) {
    for (uint32_t pending = 1; pending != 0;) {
        weir_peer_info info = WEIR_PEER_INFO_INIT;
        weir_engine_wait(session->engine, NS_PER_MS);
        assert_int_equal(weir_peer_query(session->engine, session->peer, &info), 0);
        pending = info.pending;
    }
}

/* Clients ask for as much as they have room for and may leave unread besides, and close their
 * sessions, one after the other. What they leave counts on, so that one that behaves gets its
 * answers, however many came before.
 */
static void test_W6_what_closed_sessions_leave_unread_is_counted(void **state) {
    enum { CLIENTS = 24, ASKED = 8100, HONEST = 20, AT_ONCE = 256 };
    static struct session sessions[CLIENTS];
    struct session honest;
    char address[256];
    FILE *said;

    (void)state;
    pid_t pid = serve(address, sizeof(address), &said);
    struct options options = {.device = "shm", .peer = address, .qps = 1, .threads = 1};
    for (int i = 0; i < CLIENTS; i++) {
        open_session(&sessions[i], &options);
        ask(&sessions[i], ASKED);
        assert_int_equal(session_send(&sessions[i], proto_tag(PROTO_CLOSE, 0), NULL, 0, NULL, 0),
                         0);
        send_all(&sessions[i]);
    }
    open_session(&honest, &options);
    /* Fewer at once than its share, so that it is never too slow for what it asked. */
    for (int i = 0; i < HONEST; i++) {
        ask(&honest, AT_ONCE);
        for (int k = 0; k < AT_ONCE; k++) {
            weir_notification message;
            assert_int_equal(session_await(&honest, PROTO_CHECKED, &message), 0);
        }
    }
    assert_int_equal(session_close(&honest), 0);
    session_end(&honest);
    for (int i = 0; i < CLIENTS; i++)
        session_end(&sessions[i]);
    end(pid, said);
}

/* That a client is gone was among the events that the target did not take in time. */
static void test_W6_a_client_whose_end_was_dropped_leaves_no_session(void **state) {
    char address[256], line[256];
    struct session session;
    FILE *said;

    (void)state;
    drops_ends = true;
    pid_t pid = serve(address, sizeof(address), &said);
    drops_ends = false;
    struct options options = {.device = "shm", .peer = address, .qps = 1, .threads = 1};
    open_session(&session, &options);
    session_end(&session);
    assert_non_null(fgets(line, sizeof(line), said));
    assert_non_null(strstr(line, " is gone within its session"));
    end(pid, said);
}

/* A client asks for a session, and dies. The target hears of that first. */
static void test_W6_who_is_gone_before_it_is_heard_has_no_session(void **state) {
    struct proto_open open = {.magic = PROTO_MAGIC,
                              .kind = PROTO_KIND_WRITE,
                              .page_bytes = 4096,
                              .page_stride = 4096,
                              .page_count = 1,
                              .lanes = 1};
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    char address[256], line[256];
    weir_transfer transfer;
    weir_engine *engine;
    weir_peer peer;
    FILE *said;

    (void)state;
    ends_first = true;
    pid_t pid = serve(address, sizeof(address), &said);
    ends_first = false;
    assert_int_equal(weir_engine_open(NULL, &engine), 0);
    assert_int_equal(weir_peer_open(engine, address, &peer), 0);
    options.flags = WEIR_TRANSFER_NOTIFY;
    options.notify_tag = proto_tag(PROTO_OPEN, 0);
    options.notify_payload = &open;
    options.notify_length = sizeof(open);
    assert_int_equal(weir_write(engine, peer, NULL, 0, &options, &transfer), 0);
    assert_int_equal(weir_transfer_wait(engine, transfer, UINT64_MAX), 0);
    weir_engine_close(engine);
    assert_non_null(fgets(line, sizeof(line), said));
    assert_non_null(strstr(line, "a client is gone before its session began"));
    end(pid, said);
}

/* Some more writes, of which the next one ends as that. All are answered. */
static struct flow_counts flow_on(struct flow *flow, int how) {
    enum { WRITES = 100 };
    struct flow_counts counts = {0};

    flow->counts = &counts;
    next_write = how;
    while (counts.writes < WRITES)
        assert_int_equal(flow_pass(flow), 0);
    assert_int_equal(flow_drain(flow), 0);
    assert_int_equal(next_write, WRITE_WELL);
    assert_int_equal(counts.ended + counts.unanswered, 0);
    return counts;
}

/* A stream counts what it is there to find: a write without its bytes, and a notification that
 * comes again, each once and for good. */
static void test_B8_a_write_that_is_lost_or_repeated_is_counted(void **state) {
    static struct histogram latency;
    char address[256];
    struct session session;
    uint64_t writes = 0;
    FILE *said;

    (void)state;
    pid_t pid = serve(address, sizeof(address), &said);
    struct options options = {
        .device = "shm", .peer = address, .qps = 1, .threads = 1, .size = 4096, .window = 4};
    struct flow flow = {.session = &session, .stride = 4096, .latency = &latency};
    open_session_of(&session, &options, PROTO_KIND_FAULTS, options.window);
    assert_int_equal(flow_begin(&flow, NS_PER_MS), 0);
    for (int how = WRITE_WELL; how <= WRITE_TWICE; how++) {
        struct flow_counts counts = flow_on(&flow, how);
        assert_int_equal(counts.lost, how == WRITE_NO_DATA);
        assert_int_equal(counts.wrong_bytes > 0, how == WRITE_NO_DATA);
        assert_int_equal(counts.checked_bytes, counts.writes * options.size);
        writes += counts.writes;
        /* Answers that come behind the drain. */
        struct flow_counts after = flow_on(&flow, WRITE_WELL);
        assert_int_equal(counts.twice + after.twice, how == WRITE_TWICE);
        assert_int_equal(after.lost + after.wrong_bytes, 0);
        writes += after.writes;
    }
    assert_int_equal(latency.count, writes);
    for (uint64_t i = 0; i < flow.timeline.count; i++)
        writes -= flow.timeline.steps[i] / options.size;
    assert_int_equal(writes, 0);
    flow_free(&flow);
    assert_int_equal(session_close(&session), 0);
    session_end(&session);
    end(pid, said);
}

/* Sends so many bytes with this tag, and waits until they have arrived. */
static void post(weir_engine *engine, weir_peer peer, uint32_t inbox, uint64_t tag,
                 const void *bytes, uint64_t length) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_part part = {.base = bytes, .length = length};
    weir_transfer transfer;

    options.notify_tag = tag;
    assert_int_equal(weir_message_send(engine, peer, inbox, &part, 1, &options, &transfer), 0);
    if (transfer.id == 0)
        return;
    assert_int_equal(weir_transfer_wait(engine, transfer, 600 * NS_PER_S), 0);
    assert_int_equal(weir_transfer_release(engine, transfer), 0);
}

/* The session's messages are those of its client; each is looked at for its number, its length and
 * its bytes. A stranger's go back uncounted. */
static void test_B10_messages_that_are_wrong_are_counted(void **state) {
    enum { BYTES = 64, SEATS = 2 };
    struct proto_open open = {.kind = PROTO_KIND_SEND,
                              .page_bytes = 64,
                              .page_stride = 64,
                              .page_count = 1,
                              .lanes = 1,
                              .seats = SEATS,
                              .seed = FLOW_SEED,
                              .message_bytes = BYTES,
                              .waiting = 1,
                              .hold = 2,
                              .verify = 1};
    unsigned char bytes[BYTES] = {0};
    struct proto_drained drained;
    struct proto_inbox inbox;
    struct session session;
    weir_engine *stranger;
    weir_peer target;
    char address[256];
    FILE *said;

    (void)state;
    pid_t pid = serve(address, sizeof(address), &said);
    struct options options = {.device = "shm", .peer = address, .qps = 1, .threads = 1};
    assert_int_equal(session_start(&session, &options), 0);
    assert_int_equal(session_open(&session, &open, 4096, SESSION_KEEP), 0);
    assert_int_equal(session_inbox(&session, &inbox), 0);
    assert_int_equal(weir_engine_open(NULL, &stranger), 0);
    assert_int_equal(weir_peer_open(stranger, address, &target), 0);
    for (uint64_t i = 0; i < 5; i++) {
        uint64_t tag = proto_message_tag(i % SEATS, i / SEATS);
        content_fill(bytes, BYTES, content_key(FLOW_SEED, tag));
        post(session.engine, session.peer, inbox.number, tag, bytes, BYTES);
        post(stranger, target, inbox.number, tag, bytes, BYTES);
    }
    assert_int_equal(session_drain(&session, 5, &drained), 0);
    assert_int_equal(drained.taken, 5);
    assert_int_equal(drained.misplaced, 0);
    assert_int_equal(drained.checked_bytes, 5 * BYTES);
    assert_int_equal(drained.wrong_bytes, 0);
    /* One that came before, one of a seat that is not there, and a shorter one. */
    uint64_t wrong[] = {proto_message_tag(1, 0), proto_message_tag(SEATS, 0),
                        proto_message_tag(0, 3)};
    for (int i = 0; i < 3; i++) {
        content_fill(bytes, BYTES, content_key(FLOW_SEED, wrong[i]));
        post(session.engine, session.peer, inbox.number, wrong[i], bytes, BYTES - (i == 2));
        assert_int_equal(session_drain(&session, 6 + (uint64_t)i, &drained), 0);
        assert_int_equal(drained.misplaced, i + 1);
        assert_int_equal(drained.wrong_bytes, 0);
    }
    content_fill(bytes, BYTES, content_key(FLOW_SEED, proto_message_tag(0, 4)));
    bytes[BYTES - 1] ^= 1;
    post(session.engine, session.peer, inbox.number, proto_message_tag(0, 4), bytes, BYTES);
    assert_int_equal(session_drain(&session, 9, &drained), 0);
    assert_int_equal(drained.misplaced, 3);
    assert_int_equal(drained.wrong_bytes, 1);
    weir_engine_close(stranger);
    assert_int_equal(session_close(&session), 0);
    session_end(&session);
    end(pid, said);
}

/* A session that has no inbox is asked for one; and one whose messages would be too many. */
static void test_B10_a_session_without_an_inbox_has_no_messages(void **state) {
    struct proto_open open = {.kind = PROTO_KIND_SEND,
                              .page_bytes = 64,
                              .page_stride = 64,
                              .page_count = 1,
                              .lanes = 1,
                              .seats = 1,
                              .hold = PROTO_MESSAGES_MAX + 1};
    struct proto_drained drained;
    struct proto_inbox inbox;
    struct session session;
    char address[256];
    FILE *said;

    (void)state;
    pid_t pid = serve(address, sizeof(address), &said);
    struct options options = {.device = "shm", .peer = address, .qps = 1, .threads = 1};
    open_session(&session, &options);
    assert_int_equal(session_drain(&session, 1, &drained), -1);
    assert_int_equal(session.ended, WEIR_EINVAL);
    session_end(&session);
    open_session(&session, &options);
    assert_int_equal(session_inbox(&session, &inbox), -1);
    assert_int_equal(session.ended, WEIR_EINVAL);
    session_end(&session);
    assert_int_equal(session_start(&session, &options), 0);
    assert_int_equal(session_open(&session, &open, 64, SESSION_KEEP), -1);
    session_end(&session);
    is_served(&options);
    end(pid, said);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_W6_who_takes_no_answers_keeps_nobody_else),
        cmocka_unit_test(test_W6_a_session_without_an_end_of_answers_ends),
        cmocka_unit_test(test_W6_what_closed_sessions_leave_unread_is_counted),
        cmocka_unit_test(test_W6_a_client_whose_end_was_dropped_leaves_no_session),
        cmocka_unit_test(test_W6_who_is_gone_before_it_is_heard_has_no_session),
        cmocka_unit_test(test_W10_a_session_that_the_target_ends_says_why),
        cmocka_unit_test(test_W1_no_answer_is_dropped_for_a_slow_client),
        cmocka_unit_test(test_B10_messages_that_are_wrong_are_counted),
        cmocka_unit_test(test_B10_a_session_without_an_inbox_has_no_messages),
        cmocka_unit_test(test_B8_a_write_that_is_lost_or_repeated_is_counted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
