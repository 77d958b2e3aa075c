/* SPDX-License-Identifier: Apache-2.0 */
/* test_descriptors.c: file descriptors run out, at every point at which one is needed (W7): the
 * one who asked is told so, and whoever serves; all else goes on; and it works again when there
 * is room. How many are needed is what weir(3) says. On shm. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine_side.h"
#include "held.h"

/* The descriptors that each takes, as weir(3) says. */
enum { OF_ENGINE = 16, OF_PEER = 4, OF_MEMORY = 1 };
enum { MEMORIES = 16, BYTES = 4096 };

static struct rlimit usual;

/* From now on `spare` more can be opened. They are given out from the lowest free number on. */
static void leave_descriptors(unsigned spare) {
    struct rlimit tight = usual;
    int fds[1024], count = 0;

    assert_true(spare < 1024);
    for (unsigned i = 0; i < spare; i++)
        fds[count++] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int next = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_true(next >= 0);
    close(next);
    while (count > 0)
        close(fds[--count]);
    tight.rlim_cur = (rlim_t)next;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
}

/* Also fewer than are open. */
static void leave_none(void) {
    struct rlimit none = {.rlim_cur = 0, .rlim_max = usual.rlim_max};

    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
}

static void leave_all(void) {
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &usual), 0);
}

static int after_each(void **state) {
    (void)state;
    return setrlimit(RLIMIT_NOFILE, &usual);
}

/* ---- memory ---- */

static void test_W7_memory_runs_out_of_descriptors(void **state) {
    struct side a, b;
    weir_memory memories[MEMORIES], local, own;
    static uint8_t bytes[BYTES];
    void *base;
    int count = 0, rc;

    (void)state;
    pair_open(&a, &b, NULL);
    leave_descriptors(3);
    do
        rc = weir_memory_allocate(a.engine, BYTES, WEIR_ACCESS_ALL, &memories[count], &base);
    while (rc == WEIR_OK && ++count < MEMORIES);
    assert_int_equal(rc, WEIR_EMFILE);
    assert_int_equal(count, 3);
    assert_int_equal(weir_error_class(rc), WEIR_CLASS_TRANSFER);
    /* Nothing else is affected. */
    assert_int_equal(weir_memory_allocate(a.engine, BYTES, 0, &local, &base), WEIR_OK);
    assert_int_equal(weir_memory_register(a.engine, bytes, BYTES, WEIR_ACCESS_ALL, &own), WEIR_OK);
    memset(base, 9, BYTES);
    weir_segment segment = {.local = local, .remote = a.remote, .length = BYTES};
    assert_int_equal(write_now(&a, &b, &segment, 1, NULL), WEIR_OK);
    assert_memory_equal(b.bytes, base, BYTES);
    /* It works again when there is room. */
    assert_int_equal(weir_memory_release(a.engine, memories[1]), WEIR_OK);
    assert_int_equal(weir_memory_allocate(a.engine, BYTES, WEIR_ACCESS_ALL, &memories[1], &base),
                     WEIR_OK);
    leave_all();
    pair_close(&a, &b);
}

/* An import needs one for a moment, and holds none. */
static void test_W7_imports_hold_no_descriptors(void **state) {
    uint8_t descriptor[WEIR_DESCRIPTOR_MAX];
    size_t length = sizeof(descriptor);
    weir_memory memory;
    weir_remote remote;
    struct side a, b;
    void *base;

    (void)state;
    pair_open(&a, &b, NULL);
    int before = held_fds();
    assert_int_equal(weir_memory_allocate(b.engine, BYTES, WEIR_ACCESS_ALL, &memory, &base),
                     WEIR_OK);
    assert_int_equal(held_fds(), before + OF_MEMORY);
    assert_int_equal(weir_memory_export(b.engine, memory, descriptor, &length), WEIR_OK);
    for (int none = 0; none < 2; none++) {
        if (none)
            leave_none();
        else
            leave_descriptors(0);
        assert_int_equal(weir_memory_import(a.engine, a.peer, descriptor, length, &remote),
                         WEIR_EMFILE);
        leave_all();
    }
    assert_int_equal(weir_memory_import(a.engine, a.peer, descriptor, length, &remote), WEIR_OK);
    assert_int_equal(held_fds(), before + OF_MEMORY);
    pair_close(&a, &b);
}

/* ---- engines ---- */

static void test_W7_engines_run_out_of_descriptors(void **state) {
    weir_engine_options options = side_options();
    int before = held_fds(), rc = WEIR_EMFILE;
    weir_engine *engine = NULL;
    unsigned spare = 0;

    (void)state;
    for (; rc != WEIR_OK; spare++) {
        assert_in_range(spare, 0, 50);
        leave_descriptors(spare);
        rc = weir_engine_open(&options, &engine);
        leave_all();
        if (rc != WEIR_OK)
            assert_int_equal(rc, WEIR_EMFILE);
        if (rc != WEIR_OK)
            assert_int_equal(held_fds(), before);
    }
    assert_int_equal(held_fds(), before + OF_ENGINE);
    weir_engine_close(engine);
    assert_int_equal(held_fds(), before);
}

static weir_engine_options short_options(void) {
    weir_engine_options options = side_options();

    options.connect_timeout_ns = 300 * MS;
    return options;
}

/* An application that has none to call with is told so, and not that nobody answered. */
static void test_W7_no_descriptor_to_call_with(void **state) {
    weir_engine_options options = short_options();
    struct side a, b;

    (void)state;
    side_open(&a, &options);
    side_open(&b, &options);
    side_join(&a, &b);
    leave_descriptors(0);
    assert_int_equal(weir_peer_connect(a.engine, a.peer), WEIR_ENOTREADY);
    assert_int_equal(next_event(&a, &b, WEIR_EVENT_GONE).error, WEIR_EMFILE);
    leave_all();
    connect_now(&a, &b);
    pair_close(&a, &b);
}

/* ---- another process ---- */

struct caller {
    pid_t pid;
    int to, from;
};

/* Forks, with a pipe each way. In the child: pid 0; it ends with its parent. It begins before there
 * are threads here: such a child may have some of its own, for sanitizers too. */
static struct caller other_begin(void) {
    int down[2], up[2];

    assert_int_equal(pipe2(down, O_CLOEXEC), 0);
    assert_int_equal(pipe2(up, O_CLOEXEC), 0);
    struct caller other = {.pid = fork()};
    bool child = other.pid == 0;
    assert_true(other.pid >= 0);
    other.to = child ? up[1] : down[1];
    other.from = child ? down[0] : up[0];
    close(child ? up[0] : up[1]);
    close(child ? down[1] : down[0]);
    if (child)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    else
        assert_int_equal(fcntl(other.from, F_SETFL, O_NONBLOCK), 0);
    return other;
}

/* ---- a server ---- */

/* A process that connects to the address that it is told, says when it knows that there is no
 * descriptor for it, and ends when it is told to. */
static struct caller caller_begin(void) {
    char address[WEIR_ADDRESS_MAX];
    char byte;
    struct side side;

    struct caller parent = other_begin();
    if (parent.pid != 0)
        return parent;
    if (read(parent.from, address, sizeof(address)) != (ssize_t)sizeof(address))
        _exit(4);
    weir_engine_options options = side_options();
    options.connect_timeout_ns = PATIENCE_NS;
    leave_all();
    side_open(&side, &options);
    if (weir_peer_open(side.engine, address, &side.peer) != WEIR_OK ||
        weir_peer_connect(side.engine, side.peer) != WEIR_ENOTREADY)
        _exit(2);
    bool told = false;
    for (weir_event event = {0}; event.type != WEIR_EVENT_UP;) {
        if (!told && info_of(&side).refusal == WEIR_EMFILE)
            told = write(parent.to, "", 1) == 1;
        if (weir_event_take(side.engine, &event) != WEIR_OK)
            step(&side, NULL);
    }
    if (read(parent.from, &byte, 1) != 0) /* until the parent closes its end */
        _exit(3);
    side_close(&side);
    _exit(0);
}

static void call(struct caller caller, const char *address) {
    char text[WEIR_ADDRESS_MAX] = "";

    snprintf(text, sizeof(text), "%s", address);
    assert_int_equal(write(caller.to, text, sizeof(text)), sizeof(text));
}

static void hang_up(struct side *server, struct caller caller) {
    int status;

    close(caller.to);
    close(caller.from);
    STEP_UNTIL(server, NULL, waitpid(caller.pid, &status, WNOHANG) == caller.pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* Whatever is lacking, from the connection on, the server is told once, and who waits, too, as
 * soon as there is a connection to tell him on; he comes in when there is room. */
static void test_W7_a_server_is_told_who_it_cannot_serve(void **state) {
    unsigned spare = 0;
    bool served = false;

    (void)state;
    for (; !served; spare++) {
        struct side server;
        weir_event event = {0};

        assert_in_range(spare, 0, 20);
        struct caller caller = caller_begin();
        side_open(&server, NULL);
        call(caller, server.address);
        int before = held_fds();
        leave_descriptors(spare);
        STEP_UNTIL(&server, NULL, weir_event_take(server.engine, &event) == WEIR_OK);
        served = event.type == WEIR_EVENT_UP;
        if (!served) {
            assert_int_equal(event.type, WEIR_EVENT_REFUSED);
            assert_int_equal(event.error, WEIR_EMFILE);
            assert_int_equal(event.peer.id != 0, spare > 0);
            char byte;
            if (spare > 0)
                STEP_UNTIL(&server, NULL, read(caller.from, &byte, 1) == 1);
            assert_int_equal(weir_event_take(server.engine, &event), WEIR_EAGAIN);
            leave_all();
            assert_int_equal(next_event(&server, NULL, WEIR_EVENT_UP).error, 0);
        }
        leave_all();
        STEP_UNTIL(&server, NULL, held_fds() == before + OF_PEER);
        hang_up(&server, caller);
        side_close(&server);
    }
    assert_true(spare > OF_PEER);
}

/* ---- a caller, and an exporter ---- */

struct offer {
    char address[WEIR_ADDRESS_MAX];
    uint8_t descriptor[WEIR_DESCRIPTOR_MAX];
    size_t length;
};

/* A process that offers memory. With each byte that it is sent, no descriptor is left to it; it
 * says so, and goes on until the parent closes its end. */
static struct caller server_begin(struct offer *offer_out) {
    struct side side;
    struct offer offer = {.length = WEIR_DESCRIPTOR_MAX};
    char byte;

    struct caller parent = other_begin();
    if (parent.pid != 0) {
        ssize_t length;
        while ((length = read(parent.from, offer_out, sizeof(*offer_out))) < 0)
            assert_int_equal(errno, EAGAIN);
        assert_int_equal(length, sizeof(*offer_out));
        return parent;
    }
    leave_all();
    side_open(&side, NULL);
    memcpy(offer.address, side.address, sizeof(offer.address));
    if (weir_memory_export(side.engine, side.memory, offer.descriptor, &offer.length) != WEIR_OK ||
        write(parent.to, &offer, sizeof(offer)) != (ssize_t)sizeof(offer) ||
        fcntl(parent.from, F_SETFL, O_NONBLOCK) != 0)
        _exit(2);
    for (ssize_t length = 1; length != 0;) {
        length = read(parent.from, &byte, 1);
        if (length == 1) {
            if (byte == 'n')
                leave_none();
            else
                leave_descriptors(0);
            if (write(parent.to, "", 1) != 1)
                _exit(3);
        }
        step(&side, NULL);
    }
    side_close(&side);
    _exit(0);
}

/* A caller learns that descriptors are what it lacks, whichever of those that a connection takes
 * it is, and although the other side may be the first to meet the lack. */
static void test_W7_a_caller_is_told_what_it_lacks(void **state) {
    uint64_t timeout_ns = 500 * MS;
    unsigned spare = 0;
    bool connected = false;

    (void)state;
    while (!connected) {
        weir_engine_options options = side_options();
        struct offer offer;
        struct side side;
        weir_event event = {0};

        assert_in_range(spare, 0, 20);
        struct caller server = server_begin(&offer);
        options.connect_timeout_ns = timeout_ns;
        side_open(&side, &options);
        assert_int_equal(weir_peer_open(side.engine, offer.address, &side.peer), WEIR_OK);
        leave_descriptors(spare);
        assert_int_equal(weir_peer_connect(side.engine, side.peer), WEIR_ENOTREADY);
        STEP_UNTIL(&side, NULL, weir_event_take(side.engine, &event) == WEIR_OK);
        leave_all();
        hang_up(&side, server);
        side_close(&side);
        connected = event.type == WEIR_EVENT_UP;
        if (connected)
            break;
        assert_int_equal(event.type, WEIR_EVENT_GONE);
        /* A machine that is too slow for this time-out is given more time. */
        if (event.error == WEIR_ECONNECT && timeout_ns < 60 * SECOND) {
            timeout_ns *= 2;
            continue;
        }
        assert_int_equal(event.error, WEIR_EMFILE);
        spare++;
    }
    assert_true(spare >= OF_PEER);
}

/* Nothing is left to look a name up with: that is no word on the name. */
/* However few there are, they are what lacks, not the name that is listened at. */
static void test_W7_to_listen_at_a_name_needs_descriptors(void **state) {
    weir_engine_options options = side_options();
    int rc = WEIR_EMFILE;

    (void)state;
    options.listen = "localhost:0";
    for (unsigned spare = 0; rc != WEIR_OK; spare++) {
        weir_engine *engine = NULL;
        assert_in_range(spare, 0, 64);
        leave_descriptors(spare);
        rc = weir_engine_open(&options, &engine);
        leave_all();
        if (rc == WEIR_OK)
            weir_engine_close(engine);
        else
            assert_int_equal(rc, WEIR_EMFILE);
    }
}

static void test_W7_a_name_needs_descriptors(void **state) {
    weir_engine_options options = side_options();
    struct side side;
    weir_event event;

    (void)state;
    options.connect_timeout_ns = 500 * MS;
    do { /* a look-up that takes longer than the time-out is given more time */
        options.connect_timeout_ns *= 2;
        side_open(&side, &options);
        assert_int_equal(weir_peer_open(side.engine, "localhost:7", &side.peer), WEIR_OK);
        leave_descriptors(0);
        assert_int_equal(weir_peer_connect(side.engine, side.peer), WEIR_ENOTREADY);
        event = next_event(&side, NULL, WEIR_EVENT_GONE);
        leave_all();
        side_close(&side);
    } while (event.error == WEIR_ECONNECT && options.connect_timeout_ns < 60 * SECOND);
    assert_int_equal(event.error, WEIR_EMFILE);
}

/* An exporter that has no descriptor left hands out what it has. */
static void test_W7_an_exporter_without_descriptors_answers(void **state) {
    struct offer offer;
    struct side side;
    weir_remote remote;
    char byte;

    (void)state;
    struct caller server = server_begin(&offer);
    side_open(&side, NULL);
    assert_int_equal(weir_peer_open(side.engine, offer.address, &side.peer), WEIR_OK);
    assert_int_equal(weir_peer_connect(side.engine, side.peer), WEIR_ENOTREADY);
    assert_int_equal(next_event(&side, NULL, WEIR_EVENT_UP).error, 0);
    assert_int_equal(write(server.to, "", 1), 1);
    STEP_UNTIL(&side, NULL, read(server.from, &byte, 1) == 1);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(
            weir_memory_import(side.engine, side.peer, offer.descriptor, offer.length, &remote),
            WEIR_OK);
        assert_int_equal(weir_remote_release(side.engine, remote), WEIR_OK);
    }
    hang_up(&side, server);
    side_close(&side);
}

/* The limit is lowered to 0 while they talk, on either side: data goes on, and either end is seen.
 * The server is asked for memory meanwhile, and can let nobody in to answer. */
static void test_W7_a_limit_below_what_is_open(void **state) {
    struct offer offer;
    struct side side;
    weir_event event;
    weir_remote remote;
    char byte;

    (void)state;
    for (int killed = 0; killed < 2; killed++) {
        struct caller server = server_begin(&offer);
        side_open(&side, NULL);
        assert_int_equal(weir_peer_open(side.engine, offer.address, &side.peer), WEIR_OK);
        assert_int_equal(weir_peer_connect(side.engine, side.peer), WEIR_ENOTREADY);
        assert_int_equal(next_event(&side, NULL, WEIR_EVENT_UP).error, 0);
        assert_int_equal(
            weir_memory_import(side.engine, side.peer, offer.descriptor, offer.length, &remote),
            WEIR_OK);
        if (killed) {
            leave_none();
        } else {
            assert_int_equal(write(server.to, "n", 1), 1);
            STEP_UNTIL(&side, NULL, read(server.from, &byte, 1) == 1);
            weir_remote none;
            int rc =
                weir_memory_import(side.engine, side.peer, offer.descriptor, offer.length, &none);
            assert_int_equal(rc, WEIR_EAGAIN);
        }
        side.remote = remote;
        for (int i = 0; i < 3; i++) {
            weir_segment segment = segment_of(&side, 0, 0, 64);
            assert_int_equal(write_now(&side, NULL, &segment, 1, NULL), WEIR_OK);
        }
        if (killed) {
            assert_int_equal(kill(server.pid, SIGKILL), 0);
            assert_int_equal(waitpid(server.pid, NULL, 0), server.pid);
            event = next_event(&side, NULL, WEIR_EVENT_GONE);
            assert_int_equal(event.error, WEIR_EPEER);
            close(server.to);
            close(server.from);
        } else {
            hang_up(&side, server);
        }
        side_close(&side);
        leave_all();
    }
}

/* WEIR_TEST_USER, where it is set. */
static bool become_user(void) {
    const char *text = getenv("WEIR_TEST_USER");
    if (text == NULL)
        return true;
    uid_t user = (uid_t)strtoul(text, NULL, 10);
    if (geteuid() == user)
        return true;
    return setgroups(0, NULL) == 0 && setresgid(user, user, user) == 0 &&
           setresuid(user, user, user) == 0 && prctl(PR_SET_DUMPABLE, 1) == 0;
}

int main(void) {
#define TEST(name) cmocka_unit_test_teardown(name, after_each)
    const struct CMUnitTest tests[] = {
        TEST(test_W7_memory_runs_out_of_descriptors),
        TEST(test_W7_imports_hold_no_descriptors),
        TEST(test_W7_engines_run_out_of_descriptors),
        TEST(test_W7_no_descriptor_to_call_with),
        TEST(test_W7_a_server_is_told_who_it_cannot_serve),
        TEST(test_W7_a_caller_is_told_what_it_lacks),
        TEST(test_W7_a_name_needs_descriptors),
        TEST(test_W7_to_listen_at_a_name_needs_descriptors),
        TEST(test_W7_an_exporter_without_descriptors_answers),
        TEST(test_W7_a_limit_below_what_is_open),
    };

    if (!become_user())
        return 77; /* only root becomes another */
    if (getrlimit(RLIMIT_NOFILE, &usual) != 0)
        return EXIT_FAILURE;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
