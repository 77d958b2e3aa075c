/* SPDX-License-Identifier: Apache-2.0 */
/* test_stopped_ofi.c: transfers over the ofi device to a process that is stopped, and goes on (S11,
 * W4). Bytes sent to it lie in its host's buffers, where nobody can take them back. Two processes,
 * over loopback. Skipped where there is no libfabric. */
#define _GNU_SOURCE
#include "engine_side.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FIRST = 1, LATE, CANCELLED, LAST, TAGS };

struct other {
    pid_t pid;
    int from;
};

/* The other process tells this of itself. */
struct offer {
    char address[WEIR_ADDRESS_MAX];
    uint8_t descriptor[WEIR_DESCRIPTOR_MAX];
    size_t length;
};

static weir_engine_options ofi_options(uint64_t connect_timeout_ns) {
    weir_engine_options options = side_options();
    options.device = "ofi";
    options.connect_timeout_ns = connect_timeout_ns;
    return options;
}

/* The other process tells what it offers, and from then on the tag of each notification. */
static void tell_tags(int to) {
    weir_engine_options options = ofi_options(0);
    struct offer offer = {.length = sizeof(offer.descriptor)};
    weir_notification notification;
    weir_engine *engine;
    weir_memory memory;
    void *base;
    if (weir_engine_open(&options, &engine) != WEIR_OK ||
        weir_memory_allocate(engine, SIDE_BYTES, WEIR_ACCESS_ALL, &memory, &base) != WEIR_OK ||
        weir_memory_export(engine, memory, offer.descriptor, &offer.length) != WEIR_OK ||
        weir_engine_address(engine, offer.address, sizeof(offer.address)) != WEIR_OK ||
        write(to, &offer, sizeof(offer)) != (ssize_t)sizeof(offer))
        _exit(2);
    for (;;) {
        weir_engine_wait(engine, SECOND);
        while (weir_notification_take(engine, &notification) == WEIR_OK) {
            uint64_t tag = notification.tag;
            if (write(to, &tag, sizeof(tag)) != (ssize_t)sizeof(tag))
                _exit(3);
        }
    }
}

static void get(int fd, void *bytes, size_t length) {
    for (size_t done = 0; done < length;) {
        ssize_t n = read(fd, (char *)bytes + done, length - done);
        assert_true(n > 0 || (n < 0 && errno == EINTR));
        done += n > 0 ? (size_t)n : 0;
    }
}

static void other_start(struct other *other) {
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    other->pid = fork();
    assert_true(other->pid >= 0);
    if (other->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        tell_tags(ends[1]);
    }
    close(ends[1]);
    other->from = ends[0];
}

static void other_stop(const struct other *other) {
    int status;
    assert_int_equal(kill(other->pid, SIGSTOP), 0);
    assert_int_equal(waitpid(other->pid, &status, WUNTRACED), other->pid);
    assert_true(WIFSTOPPED(status));
}

static void other_end(struct other *other) {
    kill(other->pid, SIGKILL);
    assert_int_equal(waitpid(other->pid, NULL, 0), other->pid);
    close(other->from);
}

static weir_transfer submit(struct side *side, uint64_t length, uint64_t tag, uint64_t timeout_ns) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_segment segment = segment_of(side, 0, 0, length);
    weir_transfer transfer;
    options.flags = WEIR_TRANSFER_NOTIFY;
    options.notify_tag = tag;
    options.timeout_ns = timeout_ns;
    assert_int_equal(
        weir_write(side->engine, side->peer, &segment, length > 0, &options, &transfer), WEIR_OK);
    return transfer;
}

static int end_of(struct side *side, weir_transfer transfer) {
    int status = weir_transfer_wait(side->engine, transfer, PATIENCE_NS);
    assert_int_equal(weir_transfer_release(side->engine, transfer), WEIR_OK);
    return status;
}

/* A notification without data arrives, if it takes several: the machine may be slow. */
static void notify(struct side *side, uint64_t tag) {
    uint64_t end = now_ns() + PATIENCE_NS;
    while (end_of(side, submit(side, 0, tag, 0)) != WEIR_OK)
        assert_true(now_ns() < end);
}

/* The two know each other, and the other one is stopped. */
static void meet_and_stop(struct other *other, struct side *side, uint64_t connect_timeout_ns) {
    weir_engine_options options = ofi_options(connect_timeout_ns);
    struct offer offer;
    uint64_t tag;
    other_start(other);
    get(other->from, &offer, sizeof(offer));
    side_open(side, &options);
    assert_int_equal(weir_peer_open(side->engine, offer.address, &side->peer), WEIR_OK);
    notify(side, FIRST);
    get(other->from, &tag, sizeof(tag));
    assert_int_equal(tag, FIRST);
    assert_int_equal(
        weir_memory_import(side->engine, side->peer, offer.descriptor, offer.length, &side->remote),
        WEIR_OK);
    other_stop(other);
}

/* The other one goes on. Counts what it is notified of, up to the LAST. */
static void go_on(struct other *other, struct side *side, uint32_t counts[TAGS]) {
    uint64_t tag = 0;
    assert_int_equal(kill(other->pid, SIGCONT), 0);
    notify(side, LAST);
    while (tag != LAST) {
        get(other->from, &tag, sizeof(tag));
        assert_in_range(tag, FIRST, LAST);
        counts[tag]++;
    }
}

/* The other one says nothing for as long as this side waits. So nobody knows: what was posted may
 * arrive when it goes on, and does. */
static void test_S11_what_lies_at_a_stopped_process_is_unknown(void **state) {
    struct other other;
    struct side side;
    uint32_t counts[TAGS] = {0};

    (void)state;
    meet_and_stop(&other, &side, SECOND);
    weir_transfer cancelled = submit(&side, 64, CANCELLED, 0);
    weir_transfer late = submit(&side, 64, LATE, 20 * MS);
    assert_int_equal(weir_transfer_cancel(side.engine, cancelled), WEIR_OK);
    assert_int_equal(end_of(&side, cancelled), WEIR_EUNKNOWN);
    assert_int_equal(end_of(&side, late), WEIR_EUNKNOWN);
    go_on(&other, &side, counts);
    assert_true(counts[LATE] <= 1 && counts[CANCELLED] <= 1);
    side_close(&side);
    other_end(&other);
}

/* The other one goes on while it is waited for, and says what has arrived: the status is true. */
static void test_S11_a_process_that_goes_on_says_what_has_arrived(void **state) {
    struct other other;
    struct side side;
    uint32_t counts[TAGS] = {0};

    (void)state;
    meet_and_stop(&other, &side, PATIENCE_NS);
    weir_transfer late = submit(&side, 64, LATE, 20 * MS);
    STEP_UNTIL(&side, NULL, weir_transfer_waiting_for(side.engine, late) == WEIR_WAITING_SETTLE);
    assert_int_equal(kill(other.pid, SIGCONT), 0);
    int status = end_of(&side, late);
    assert_true(status == WEIR_OK || status == WEIR_ETIMEDOUT);
    go_on(&other, &side, counts);
    assert_int_equal(counts[LATE], status == WEIR_OK);
    side_close(&side);
    other_end(&other);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_S11_what_lies_at_a_stopped_process_is_unknown),
        cmocka_unit_test(test_S11_a_process_that_goes_on_says_what_has_arrived),
    };
    setenv("WEIR_OFI_ADDRESS", "127.0.0.1", 1);
    weir_engine_options options = ofi_options(0);
    weir_engine *engine;
    int rc = weir_engine_open(&options, &engine);
    if (rc == WEIR_ENODEVICE) {
        fprintf(stderr, "skipped: no ofi device\n");
        return 77;
    }
    if (rc != WEIR_OK)
        return EXIT_FAILURE;
    weir_engine_close(engine);
    return cmocka_run_group_tests_name("stopped processes on ofi", tests, NULL, NULL);
}
