/* SPDX-License-Identifier: Apache-2.0 */
/* test_shm_liar.c: a device of this user's that speaks well and lies: answers that are none
 * (E6, W6), or come late (W5). */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "fork.h"
#include "os.h"
#include "shm_child.h"

#define LIAR_NONCE UINT64_C(0x11a511a511a511a5)
#define LIAR_PID   1

enum { MANY_FDS = HAND_FDS_MAX + 4, MANY_IMPORTS = SHM_ASKED_MAX + 50 };

static uint8_t memory[REGION_BYTES];

static struct weir_qp_path liar_path(struct shm_blob *blob) {
    *blob = (struct shm_blob){.what = BLOB_QP, .pid = LIAR_PID, .nonce = LIAR_NONCE, .key = 1};
    return (struct weir_qp_path){.blob = (const uint8_t *)blob, .blob_length = sizeof *blob};
}

static void send_so(int socket, const void *text, size_t length, const int *fds, uint32_t count) {
    union {
        char bytes[CMSG_SPACE(MANY_FDS * sizeof(int))];
        struct cmsghdr align;
    } control = {{0}};
    struct iovec vector = {(void *)(uintptr_t)text, length};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
    if (count > 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(count * sizeof *fds);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(count * sizeof *fds);
        memcpy(CMSG_DATA(header), fds, count * sizeof *fds);
    }
    assert_int_equal(sendmsg(socket, &message, 0), length);
}

/* The side asks, is answered so, and hears how its connect ended. */
static int answered(struct side *side, const struct hand_answer *text, size_t length,
                    const int *fds, uint32_t count) {
    struct shm_blob blob;
    struct weir_qp_path path = liar_path(&blob);
    int listening = place_listen(&side->device->place, LIAR_NONCE);
    assert_true(listening >= 0);
    assert_int_equal(shm_device_ops.qp_connect(side->qp, &path), WEIR_EINPROGRESS);
    int socket = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
    assert_true(socket >= 0);
    struct hand_question question;
    assert_int_equal(recv(socket, &question, sizeof question, 0), sizeof question);
    send_so(socket, text, length, fds, count);
    close(socket);
    fork_close(listening);
    return side_event(side).error;
}

static void test_E6_an_answer_is_one_of_those_that_there_are(void **state) {
    static const int32_t lies[] = {INT32_MIN,        -100000,      -4096, -4095,    -1000,
                                   WEIR_EINPROGRESS, WEIR_ECLOSED, 1,     INT32_MAX};
    (void)state;
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        struct side side;
        struct hand_answer text = {.magic = HAND_MAGIC, .status = lies[i]};
        assert_int_equal(side_open(&side, memory), 0);
        int error = answered(&side, &text, sizeof text, NULL, 0);
        /* EAGAIN: after EINPROGRESS, which is nothing yet, comes the end. */
        assert_true(error == WEIR_EINVAL || error == WEIR_EAGAIN);
        side_close(&side);
    }
}

/* Descriptors that are too many or too few for their answer, or come with nothing that could be
 * one, are nothing: no lack of descriptors here, of which an application would be told; and none of
 * them stays. */
static void test_W6_descriptors_that_nobody_asked_for(void **state) {
    static const size_t lengths[] = {0, 1, sizeof(struct hand_answer)};
    (void)state;
    for (uint32_t i = 0; i < 3 * MANY_FDS; i++) {
        struct side side;
        uint32_t count = 1 + i / 3;
        struct hand_answer text = {.magic = HAND_MAGIC, .count = count};
        int pipes[MANY_FDS][2], ends[MANY_FDS];
        for (uint32_t k = 0; k < count; k++) {
            assert_int_equal(pipe2(pipes[k], O_CLOEXEC | O_NONBLOCK), 0);
            ends[k] = pipes[k][0];
        }
        assert_int_equal(side_open(&side, memory), 0);
        assert_int_equal(answered(&side, &text, lengths[i % 3], ends, count),
                         lengths[i % 3] == 0 ? WEIR_EAGAIN : WEIR_EINVAL);
        for (uint32_t k = 0; k < count; k++) {
            close(ends[k]);
            assert_int_equal(write(pipes[k][1], "", 1), -1); /* nobody can read it any more */
            close(pipes[k][1]);
        }
        side_close(&side);
    }
}

/* The same of questions. */
static void test_W6_descriptors_that_come_with_no_question(void **state) {
    const struct hand_question question = {.magic = HAND_MAGIC, .what = HAND_LINK};
    static const size_t lengths[] = {0, 1, sizeof question};
    struct side side;
    (void)state;
    assert_int_equal(side_open(&side, memory), 0);
    for (uint32_t i = 0; i < 3 * MANY_FDS; i++) {
        uint32_t count = 1 + i / 3;
        int ends[2], fds[MANY_FDS];
        int32_t pid;
        char byte;
        assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
        for (uint32_t k = 0; k < count; k++)
            fds[k] = ends[0];
        int socket = place_call(&side.device->place, side.device->nonce, &pid);
        assert_true(socket >= 0);
        send_so(socket, &question, lengths[i % 3], fds, count);
        struct pollfd polled = {.fd = socket, .events = POLLIN};
        while (poll(&polled, 1, 10000) == 1 && recv(socket, &byte, 1, 0) > 0) {
        }
        fork_close(socket); /* it was taken, and what came with it was let go of before */
        close(ends[0]);
        assert_int_equal(write(ends[1], "", 1), -1);
        close(ends[1]);
    }
    side_close(&side);
}

static int import_liar(struct side *side, uint32_t index) {
    const struct shm_blob blob = {
        .what = BLOB_MR, .pid = LIAR_PID, .nonce = LIAR_NONCE, .key = 1, .index = index};
    struct weir_rmr remote;
    return shm_device_ops.mr_import(side->device, (const uint8_t *)&blob, sizeof blob, REGION_BYTES,
                                    WEIR_ACCESS_ALL, 0, &remote);
}

static int question_to(int listening, uint32_t *what_out) {
    struct hand_question question;
    int socket = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
    assert_true(socket >= 0);
    assert_int_equal(recv(socket, &question, sizeof question, 0), sizeof question);
    *what_out = question.what;
    return socket;
}

static bool is_asked(int listening) {
    struct pollfd polled = {.fd = listening, .events = POLLIN};
    return poll(&polled, 1, 0) == 1;
}

/* Imports of a device that takes its time share one question, whose answer ends all of them, and
 * the link is tried anew by whoever comes next: an answer of "not now" is no death. */
static void test_W5_imports_wait_for_an_answer(void **state) {
    (void)state;
    struct side side;
    struct shm_blob blob;
    struct weir_qp_path path = liar_path(&blob);
    uint32_t what;
    assert_int_equal(side_open(&side, memory), 0);
    int listening = place_listen(&side.device->place, LIAR_NONCE);
    assert_true(listening >= 0);
    for (int round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < MANY_IMPORTS; i++)
            assert_int_equal(import_liar(&side, i), WEIR_EINPROGRESS);
        int socket = question_to(listening, &what);
        assert_int_equal(what, HAND_LINK);
        assert_false(is_asked(listening));
        const struct hand_answer later = {.magic = HAND_MAGIC, .status = WEIR_EAGAIN};
        send_so(socket, &later, sizeof later, NULL, 0);
        close(socket);
        if (round == 0) { /* the import itself takes the answer */
            assert_int_equal(import_liar(&side, MANY_IMPORTS - 1), WEIR_EAGAIN);
            close(accept4(listening, NULL, NULL, SOCK_CLOEXEC)); /* whether it lives: it does */
        } else {                                                 /* somebody else does */
            struct weir_async event;
            assert_int_equal(shm_device_ops.events(side.device, &event, 1), 0);
        }
        assert_false(is_asked(listening));
    }
    assert_int_equal(shm_device_ops.qp_connect(side.qp, &path), WEIR_EINPROGRESS);
    assert_true(is_asked(listening));
    fork_close(listening);
    side_close(&side);
}

int main(void) {
    struct weir_device_caps caps;
    if (shm_device_ops.probe(NULL, &caps) != 0)
        return 77; /* meson: skipped */
    if (os_env_init(&child_env) != 0)
        return 1;
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_E6_an_answer_is_one_of_those_that_there_are),
        cmocka_unit_test(test_W6_descriptors_that_nobody_asked_for),
        cmocka_unit_test(test_W6_descriptors_that_come_with_no_question),
        cmocka_unit_test(test_W5_imports_wait_for_an_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
