/* SPDX-License-Identifier: Apache-2.0 */
/* test_shm_world.c: the shm device among other users, in namespaces and sandboxes, and with
 * strangers at the door (W6, W9, W10).
 *
 * Much of it takes root; what cannot be had here says so and is skipped. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "held.h"
#include "os.h"
#include "shm_child.h"
#include "tracer.h"

#define SOMEBODY 64999 /* a user and a group that nothing belongs to */

/* True: the child says that it cannot be what it should. */
static bool cannot(struct child *child, const struct ticket *ticket, const char *what) {
    if (ticket->rc != WEIR_ENOTSUP)
        return false;
    child_end(child);
    print_message("skipped: %s cannot be had here\n", what);
    return true;
}

static bool need_root(void) {
    if (geteuid() != 0)
        print_message("skipped: not root\n");
    return geteuid() == 0;
}

/* ---- W10: users ---- */

static bool become_somebody(void) {
    return setgroups(0, NULL) == 0 && setresgid(SOMEBODY, SOMEBODY, SOMEBODY) == 0 &&
           setresuid(SOMEBODY, SOMEBODY, SOMEBODY) == 0;
}

/* Root with the group that somebody is of. */
static bool become_friend(void) {
    setenv("WEIR_SHM_GROUP", "64999", 1);
    return become_somebody();
}

/* Connecting and importing here and at a child of another kind; *there_out is the child's. */
static struct outcome meet(become_fn *become, struct outcome *there_out, bool *skipped_out,
                           const char *what) {
    static uint8_t memory[REGION_BYTES];
    struct outcome here = {{WEIR_EAGAIN, WEIR_EAGAIN, WEIR_EAGAIN}};
    struct side side;
    struct ticket ticket;
    struct child child = child_start(become, NULL, &ticket);
    *skipped_out = cannot(&child, &ticket, what);
    if (*skipped_out)
        return here;
    assert_int_equal(ticket.rc, 0);
    assert_int_equal(side_open(&side, memory), 0);
    *there_out = child_connect(&child, &side);
    here.rc[0] = side_connect(&side, &ticket);
    for (int i = 0; i < 2; i++) {
        here.rc[1 + i] = side_import(&side, &ticket, i);
        if (here.rc[0] == 0 && here.rc[1 + i] == 0)
            assert_int_equal(run_wr(&side, WEIR_OP_WRITE, i), WEIR_CQE_OK);
    }
    child_end(&child);
    side_close(&side);
    return here;
}

static void test_W10_two_users_are_told_why(void **state) {
    (void)state;
    bool skipped;
    struct outcome there;
    if (!need_root())
        return;
    struct outcome here = meet(become_somebody, &there, &skipped, "another user");
    if (skipped)
        return;
    assert_outcome(&here, WEIR_EDENIED, WEIR_EDENIED, WEIR_EDENIED);
    assert_outcome(&there, WEIR_EDENIED, WEIR_EDENIED, WEIR_EDENIED);
}

/* Allocated memory works between users who allow it; registered memory also takes the right
 * to trace, which root has and the other has not. */
static void test_W10_two_users_of_a_group_meet(void **state) {
    (void)state;
    bool skipped;
    struct outcome there;
    if (!need_root())
        return;
    gid_t before[64], with[1] = {SOMEBODY};
    int count = getgroups(64, before);
    assert_true(count >= 0);
    setenv("WEIR_SHM_GROUP", "64999", 1);
    assert_int_equal(setgroups(1, with), 0);
    struct outcome here = meet(become_friend, &there, &skipped, "another user");
    unsetenv("WEIR_SHM_GROUP");
    assert_int_equal(setgroups((size_t)count, before), 0);
    if (skipped)
        return;
    assert_outcome(&here, 0, 0, 0);
    assert_outcome(&there, 0, 0, WEIR_EDENIED);
}

/* ---- W10: namespaces ---- */

/* The first process of a pid namespace of its own: its parent's end is its own. */
static bool become_pid_1(void) {
    if (unshare(CLONE_NEWPID) != 0)
        return false;
    pid_t pid = fork();
    if (pid > 0) {
        int status = 0;
        waitpid(pid, &status, 0);
        _exit(0);
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    return pid == 0 && getpid() == 1;
}

/* Root here sees the process there, which does not see this one. */
static void test_W10_pid_namespaces_meet(void **state) {
    (void)state;
    bool skipped;
    struct outcome there;
    struct outcome here = meet(become_pid_1, &there, &skipped, "a pid namespace");
    if (skipped)
        return;
    assert_outcome(&here, 0, 0, 0);
    assert_outcome(&there, 0, 0, WEIR_EDENIED);
}

static bool become_network(void) {
    return unshare(CLONE_NEWNET) == 0;
}

/* Two containers: nothing in common but a directory. */
static bool become_container(void) {
    return become_network() && become_pid_1();
}

static void test_W10_network_namespaces_meet_in_a_directory(void **state) {
    (void)state;
    char directory[] = "/tmp/weir-test-XXXXXX";
    bool skipped;
    struct outcome there;
    struct ticket ticket;
    uint8_t fabric[WEIR_FABRIC_ID_SIZE];
    const struct shm_place place = {.directory = ""};

    /* Without one they do not meet, and their fabrics say so before anything is tried. */
    struct child child = child_start(become_network, NULL, &ticket);
    if (cannot(&child, &ticket, "a network namespace"))
        return;
    assert_int_equal(place_fabric(&place, fabric), 0);
    assert_memory_not_equal(fabric, ticket.fabric, sizeof fabric);
    child_end(&child);

    assert_non_null(mkdtemp(directory));
    setenv("WEIR_SHM_DIRECTORY", directory, 1);
    struct outcome here = meet(become_container, &there, &skipped, "a pid namespace");
    unsetenv("WEIR_SHM_DIRECTORY");
    if (!skipped) {
        assert_outcome(&here, 0, 0, 0);
        assert_outcome(&there, 0, 0, WEIR_EDENIED);
    }
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", directory);
    assert_int_equal(system(command), 0);
}

static time_t time_ahead; /* of the device's clock for the age of files */

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out != NULL)
        *out = now.tv_sec + time_ahead;
    return now.tv_sec + time_ahead;
}

static int sockets_in(const char *path) {
    DIR *directory = opendir(path);
    struct dirent *entry;
    int count = 0;
    assert_non_null(directory);
    while ((entry = readdir(directory)) != NULL)
        count += entry->d_name[0] != '.';
    closedir(directory);
    return count;
}

/* The next engine removes the socket that a killed one leaves in the directory: not at once, as it
 * might only just be there, and never that of a live one. */
static void test_W4_a_killed_engine_leaves_no_socket(void **state) {
    (void)state;
    static uint8_t memory[REGION_BYTES];
    char directory[] = "/tmp/weir-test-XXXXXX";
    struct side side;
    struct ticket ticket;
    assert_non_null(mkdtemp(directory));
    setenv("WEIR_SHM_DIRECTORY", directory, 1);
    struct child live = child_start(NULL, NULL, &ticket);
    struct child killed = child_start(NULL, NULL, &ticket);
    assert_int_equal(sockets_in(directory), 2);
    child_end(&killed);
    for (int later = 0; later < 2; later++) {
        time_ahead = later * 60;
        assert_int_equal(side_open(&side, memory), 0);
        assert_int_equal(sockets_in(directory), later ? 2 : 3);
        side_close(&side);
    }
    time_ahead = 0;
    unsetenv("WEIR_SHM_DIRECTORY");
    child_end(&live);
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", directory);
    assert_int_equal(system(command), 0);
}

/* ---- W10: sandboxes ---- */

/* These system calls are refused, as a container's profile does. */
static bool forbid(const int *calls, size_t count) {
    struct sock_filter filter[32];
    unsigned short at = 0;
    filter[at++] =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < count; i++) {
        filter[at++] =
            (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)calls[i], 0, 1);
        filter[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
    }
    filter[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {.len = at, .filter = filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0;
}

static bool become_docker(void) {
    static const int calls[] = {SYS_pidfd_getfd, SYS_ptrace};
    return forbid(calls, sizeof calls / sizeof calls[0]);
}

static bool become_strict(void) {
    static const int calls[] = {SYS_pidfd_getfd, SYS_pidfd_open, SYS_ptrace, SYS_process_vm_readv,
                                SYS_process_vm_writev};
    return forbid(calls, sizeof calls / sizeof calls[0]);
}

static void test_W10_docker_profile_forbids_nothing_that_is_needed(void **state) {
    (void)state;
    bool skipped;
    struct outcome there;
    struct outcome here = meet(become_docker, &there, &skipped, "seccomp");
    if (skipped)
        return;
    assert_outcome(&here, 0, 0, 0);
    assert_outcome(&there, 0, 0, 0);
}

static void test_W10_stricter_profile_forbids_registered_memory(void **state) {
    (void)state;
    bool skipped;
    struct outcome there;
    struct outcome here = meet(become_strict, &there, &skipped, "seccomp");
    if (skipped)
        return;
    assert_outcome(&here, 0, 0, 0);
    assert_outcome(&there, 0, 0, WEIR_EDENIED);
}

/* ---- W10: the probe's answer ---- */

static bool become_without_memfd(void) {
    static const int calls[] = {SYS_memfd_create};
    return forbid(calls, 1);
}

static bool become_without_sockets(void) {
    static const int calls[] = {SYS_bind};
    return forbid(calls, 1);
}

/* The answer of shm_probe to a process that became something: its note, and its code. */
static int probe_as(become_fn *become, char note_out[WEIR_DEVICE_NOTE_MAX]) {
    struct {
        int rc;
        char note[WEIR_DEVICE_NOTE_MAX];
    } told = {.rc = WEIR_EAGAIN};
    int pipes[2];
    assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct weir_device_caps caps;
        told.rc = become() ? shm_device_ops.probe(NULL, &caps) : WEIR_ENOTSUP;
        memcpy(told.note, caps.note, sizeof told.note);
        put(pipes[1], &told, sizeof told);
        _exit(0);
    }
    close(pipes[1]);
    assert_true(get(pipes[0], &told, sizeof told));
    close(pipes[0]);
    waitpid(pid, NULL, 0);
    memcpy(note_out, told.note, sizeof told.note);
    return told.rc;
}

static bool become_in_no_directory(void) {
    return setenv("WEIR_SHM_DIRECTORY", "/nonexistent", 1) == 0;
}

static bool become_of_no_group(void) {
    return setenv("WEIR_SHM_GROUP", "no such group", 1) == 0;
}

static bool become_no_member(void) {
    return setenv("WEIR_SHM_GROUP", "64999", 1) == 0;
}

static bool become_member(void) {
    static const gid_t groups[] = {64998, 64999};
    return setgroups(2, groups) == 0 && become_no_member();
}

/* Of a directory that only root may write to. */
static bool become_nobody_there(void) {
    return setenv("WEIR_SHM_DIRECTORY", "/root", 1) == 0 && setresuid(65534, 65534, 65534) == 0;
}

static void test_W10_the_probe_says_before_what_will_not_work(void **state) {
    (void)state;
    static const struct {
        become_fn *become;
        int rc;
        const char *words;
    } cases[] = {
        {become_docker, 0, "in this network namespace"},
        {become_strict, 0, "no registered memory: process_vm_readv: Operation not permitted"},
        {become_member, 0, "or of group 64999"},
        {become_no_member, 0, "is not in group 64999 itself"},
        {become_without_memfd, WEIR_ENODEVICE, "memfd_create: Operation not permitted"},
        {become_without_sockets, WEIR_ENODEVICE, "listening on a socket (unix(7)): Operation not"},
        {become_nobody_there, WEIR_ENODEVICE, "user 65534 can make no socket there: Permission"},
        {become_in_no_directory, WEIR_EINVAL, "WEIR_SHM_DIRECTORY=/nonexistent: No such file"},
        {become_of_no_group, WEIR_EINVAL, "WEIR_SHM_GROUP=no such group: no group of that name"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char note[WEIR_DEVICE_NOTE_MAX] = "";
        int rc = probe_as(cases[i].become, note);
        if (rc == WEIR_ENOTSUP) {
            print_message("skipped: that cannot be had here\n");
            continue;
        }
        assert_int_equal(rc, cases[i].rc);
        if (strstr(note, cases[i].words) == NULL)
            fail_msg("the note is \"%s\", without \"%s\"", note, cases[i].words);
    }
}

/* ---- W10: Yama ---- */

/* The arguments with which a thread of the device called PR_SET_PTRACER. */
static _Atomic long traced[8];
static _Atomic int traced_count;

/* The device's call of prctl(2): the kernel here may have no Yama to ask. */
int prctl(int option, ...) {
    unsigned long arguments[4];
    va_list list;
    va_start(list, option);
    for (int i = 0; i < 4; i++)
        arguments[i] = va_arg(list, unsigned long);
    va_end(list);
    if (option == PR_SET_PTRACER && traced_count < 8) {
        traced[traced_count] = (long)arguments[0];
        traced_count++;
        return 0;
    }
    return (int)syscall(SYS_prctl, option, arguments[0], arguments[1], arguments[2], arguments[3]);
}

static bool write_file(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    bool good = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
        close(fd);
    return good;
}

/* A world of its own in which Yama's scope is 1; the boot is the same. */
static bool become_yama(void) {
    char boot[64] = "";
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    bool good = fd >= 0 && read(fd, boot, sizeof boot - 1) > 0;
    close(fd);
    return good && unshare(CLONE_NEWNS) == 0 &&
           mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("none", "/proc/sys/kernel", "tmpfs", 0, NULL) == 0 &&
           mkdir("/proc/sys/kernel/random", 0755) == 0 &&
           mkdir("/proc/sys/kernel/yama", 0755) == 0 &&
           write_file("/proc/sys/kernel/random/boot_id", boot) &&
           write_file("/proc/sys/kernel/yama/ptrace_scope", "1\n");
}

/* `t`: says whom it has let in; `x`: closes and says it again. */
static bool obey_yama(struct side *side, char letter, int from, int to) {
    (void)from;
    if (letter == 'x')
        side_close(side);
    int count = traced_count;
    long who[8];
    for (int i = 0; i < 8; i++)
        who[i] = traced[i];
    put(to, &count, sizeof count);
    put(to, who, sizeof who);
    return true;
}

static int child_traced(struct child *child, char letter, long traced_out[8]) {
    int count = -1;
    put(child->to, &letter, 1);
    assert_true(get(child->from, &count, sizeof count));
    assert_true(get(child->from, traced_out, 8 * sizeof *traced_out));
    return count;
}

/* Asks another process for its registered memory as one that may not reach into it yet. */
static bool ask_to_trace(struct side *side, const struct ticket *ticket) {
    struct shm_asked asked = {.socket = -1};
    int fd = 0, rc;
    if (blob_read(ticket->blobs[1], ticket->blob_lengths[1], BLOB_MR, SHM_MRS_MAX, &asked.blob) !=
        0)
        return false;
    rc = link_get(side->device, &asked.blob, NULL, &asked.link);
    if (rc != 0 && rc != WEIR_EINPROGRESS)
        return false;
    do {
        asked.until_ms = hand_now_ms() + 1000;
        rc = link_wait(side->device, &asked);
    } while (rc == WEIR_EINPROGRESS);
    while (rc == 0) {
        asked.until_ms = hand_now_ms() + 1000;
        rc = link_fetch(side->device, &asked, -1, &fd);
        if (rc != WEIR_EINPROGRESS && rc != WEIR_EAGAIN)
            break;
        rc = 0;
    }
    link_put(side->device, asked.link);
    return rc == 0 && fd == -1;
}

/* `a`: asks for the registered memory of the ticket that follows. */
static bool obey_ask(struct side *side, char letter, int from, int to) {
    struct ticket ticket;
    (void)letter, (void)to;
    return get(from, &ticket, sizeof ticket) && ask_to_trace(side, &ticket);
}

/* Nobody is let in before registered memory is asked for, then who asked, then, when another
 * asks, all; and nobody any more after the close. */
static void test_W10_who_may_trace_is_who_has_to(void **state) {
    (void)state;
    static uint8_t memory[REGION_BYTES];
    struct side side;
    struct ticket ticket;
    long who[8];
    struct child other = child_start(NULL, obey_ask, &ticket);
    struct child child = child_start(become_yama, obey_yama, &ticket);
    if (cannot(&child, &ticket, "a mount namespace")) {
        child_end(&other);
        return;
    }
    assert_int_equal(ticket.rc, 0);
    assert_int_equal(side_open(&side, memory), 0);
    assert_int_equal(side_connect(&side, &ticket), 0);
    assert_int_equal(side_import(&side, &ticket, 0), 0);
    assert_int_equal(child_traced(&child, 't', who), 0);
    assert_true(ask_to_trace(&side, &ticket));
    assert_int_equal(child_traced(&child, 't', who), 1);
    assert_int_equal(who[0], getpid());
    put(other.to, "a", 1);
    put(other.to, &ticket, sizeof ticket);
    int count = 1;
    while (count == 1)
        count = child_traced(&child, 't', who);
    assert_int_equal(count, 2);
    assert_int_equal(who[1], (long)PR_SET_PTRACER_ANY);
    assert_int_equal(child_traced(&child, 'x', who), 3);
    assert_int_equal(who[2], 0);
    child_end(&other);
    child_end(&child);
    side_close(&side);
}

/* ---- W6: strangers and bores at the door ---- */

static int knock(const struct side *side) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int length = snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "weir-shm-%016llx",
                          (unsigned long long)side->device->nonce);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(
        connect(fd, (struct sockaddr *)&address,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length)),
        0);
    return fd;
}

/* Visitors who say nothing take HAND_VISITORS descriptors at most, and delay nobody. Descriptors
 * that callers bring, unused since they are not called back, are bounded and do not stay. */
static void test_W6_silent_visitors_keep_nobody_out(void **state) {
    (void)state;
    enum { BORES = 64, CALLERS = 8 };
    static uint8_t memory[REGION_BYTES];
    struct side side;
    struct child children[CALLERS];
    struct ticket ticket;
    int bores[BORES];
    for (int i = 0; i < CALLERS; i++)
        children[i] = child_start(NULL, NULL, &ticket);
    assert_int_equal(side_open(&side, memory), 0);
    int before = held_fds();
    for (int i = 0; i < BORES; i++)
        bores[i] = knock(&side);
    for (int i = 0; i < CALLERS; i++) {
        struct outcome there = child_connect(&children[i], &side);
        assert_outcome(&there, 0, 0, 0);
    }
    assert_in_range(held_fds(), before + BORES,
                    before + BORES + HAND_VISITORS + HAND_BROUGHT * HAND_FDS_MAX);
    for (int i = 0; i < BORES; i++) {
        char byte; /* it was let go, sooner or later */
        assert_true(recv(bores[i], &byte, 1, 0) <= 0);
        close(bores[i]);
    }
    for (int tries = 0; held_fds() != before && tries < 60000; tries++)
        usleep(1000);
    assert_int_equal(held_fds(), before);
    for (int i = 0; i < CALLERS; i++)
        child_end(&children[i]);
    side_close(&side);
}

/* Nonsense, or a question about nothing, gets no descriptor. */
static void test_W6_nonsense_at_the_door(void **state) {
    (void)state;
    static uint8_t memory[REGION_BYTES];
    struct side side;
    assert_int_equal(side_open(&side, memory), 0);
    uint64_t key = mr_at(side.device, side.mrs[0].cookie)->key;
    const struct hand_question good = {.magic = HAND_MAGIC,
                                       .nonce = side.device->nonce,
                                       .key = key,
                                       .what = HAND_MEMORY,
                                       .index = side.mrs[0].cookie};
    for (int lie = 0; lie <= 7; lie++) {
        struct hand_question question = good;
        int fds[HAND_FDS_MAX], socket = knock(&side);
        size_t length = sizeof question;
        if (lie == 1)
            question.magic++;
        else if (lie == 2)
            question.nonce++;
        else if (lie == 3)
            question.key++;
        else if (lie == 4)
            question.what = 9;
        else if (lie == 5)
            question.index = UINT32_MAX;
        else if (lie == 6)
            question.index++;
        else if (lie == 7)
            length--;
        assert_int_equal(send(socket, &question, length, 0), length);
        struct pollfd polled = {.fd = socket, .events = POLLIN};
        assert_int_equal(poll(&polled, 1, 10000), 1);
        int rc = hand_take(socket, fds);
        if (lie == 0) {
            assert_int_equal(rc, 1);
            close(fds[0]);
        } else {
            assert_true(rc < 0);
        }
        close(socket);
    }
    side_close(&side);
}

/* A side that was asked by the other one has what it needs and does not ask back. */
static void test_W8_one_question_connects_both(void **state) {
    (void)state;
    static uint8_t memory[REGION_BYTES];
    struct side side;
    struct ticket ticket;
    struct child child = child_start(NULL, NULL, &ticket);
    assert_int_equal(side_open(&side, memory), 0);
    int before = held_fds();
    struct outcome there = child_connect(&child, &side);
    assert_outcome(&there, 0, 0, 0);
    struct weir_qp_path path = {.blob_length = ticket.granted.blob_length,
                                .blob = ticket.granted.blob};
    assert_int_equal(shm_device_ops.qp_connect(side.qp, &path), 0);
    /* Bell, life, pidfd; the socket that the question came over is closed a moment later. */
    for (int tries = 0; held_fds() != before + 3 && tries < 60000; tries++)
        usleep(1000);
    assert_int_equal(held_fds(), before + 3);
    for (int which = 0; which < 2; which++) {
        assert_int_equal(side_import(&side, &ticket, which), 0);
        assert_int_equal(run_wr(&side, WEIR_OP_WRITE, which), WEIR_CQE_OK);
    }
    child_end(&child);
    assert_int_equal(side_event(&side).type, WEIR_ASYNC_PEER_DEAD);
    side_close(&side);
}

/* A question in the name of a QP, with descriptors that are nothing of the kind, or those of a
 * segment that says it is the QP's. */
static void bring(const struct side *to, const struct shm_blob *blob, uint64_t key,
                  bool is_segment) {
    struct hand_question question = {.magic = HAND_MAGIC,
                                     .nonce = to->device->nonce,
                                     .what = HAND_LINK,
                                     .from_nonce = blob->nonce,
                                     .from_key = key,
                                     .from_pid = blob->pid,
                                     .from_index = blob->index};
    int ends[2], bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), map_fd = bell;
    struct seg_map *map;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    if (is_segment) {
        assert_int_equal(seg_create(blob->nonce, 0, bell, false, &map, &map_fd), 0);
        map->head.pid = blob->pid;
    }
    int fds[HAND_FDS_MAX - 1] = {map_fd, bell, ends[0]};
    char control[CMSG_SPACE(sizeof fds)] = {0};
    struct iovec vector = {&question, sizeof question};
    struct msghdr message = {.msg_iov = &vector,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fds);
    memcpy(CMSG_DATA(header), fds, sizeof fds);
    int socket = knock(to);
    assert_int_equal(sendmsg(socket, &message, 0), sizeof question);
    int fds_got[HAND_FDS_MAX];
    int count = WEIR_EINPROGRESS;
    while (count == WEIR_EINPROGRESS)
        count = hand_wait(socket, hand_now_ms() + 1000, fds_got);
    assert_true(count >= 3);
    for (int i = 0; i < count; i++)
        close(fds_got[i]);
    close(socket);
    if (is_segment) {
        seg_unmap(map);
        close(map_fd);
    }
    close(bell);
    close(ends[0]);
    close(ends[1]);
}

/* Descriptors that a stranger brings in a peer's name are not used; nor, if it knows the key, ones
 * of no segment. The peer is asked, and is met. */
static void test_W6_what_strangers_bring_is_not_used(void **state) {
    (void)state;
    static uint8_t memory[REGION_BYTES];
    for (int lie = 0; lie < 3; lie++) {
        struct side side;
        struct ticket ticket;
        struct shm_blob blob;
        struct child child = child_start(NULL, NULL, &ticket);
        assert_int_equal(side_open(&side, memory), 0);
        assert_int_equal(
            blob_read(ticket.granted.blob, ticket.granted.blob_length, BLOB_QP, SHM_QPS_MAX, &blob),
            0);
        bring(&side, &blob, lie == 0 ? blob.key : blob.key + (uint64_t)lie, lie != 0);
        assert_int_equal(side_connect(&side, &ticket), 0);
        assert_int_equal(side.qp->link->base, ticket.base);
        assert_int_equal(atomic_load(&side.qp->remote->key), blob.key);
        child_end(&child);
        side_close(&side);
    }
}

int main(void) {
    struct weir_device_caps caps;
    if (shm_device_ops.probe(NULL, &caps) != 0)
        return 77; /* meson: skipped */
    if (os_env_init(&child_env) != 0)
        return EXIT_FAILURE;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_W10_two_users_are_told_why),
        cmocka_unit_test(test_W10_two_users_of_a_group_meet),
        cmocka_unit_test(test_W10_pid_namespaces_meet),
        cmocka_unit_test(test_W10_network_namespaces_meet_in_a_directory),
        cmocka_unit_test(test_W4_a_killed_engine_leaves_no_socket),
        cmocka_unit_test(test_W10_docker_profile_forbids_nothing_that_is_needed),
        cmocka_unit_test(test_W10_stricter_profile_forbids_registered_memory),
        cmocka_unit_test(test_W10_the_probe_says_before_what_will_not_work),
        cmocka_unit_test(test_W10_who_may_trace_is_who_has_to),
        cmocka_unit_test(test_W6_silent_visitors_keep_nobody_out),
        cmocka_unit_test(test_W6_nonsense_at_the_door),
        cmocka_unit_test(test_W8_one_question_connects_both),
        cmocka_unit_test(test_W6_what_strangers_bring_is_not_used),
    };
    return cmocka_run_group_tests_name("shm device in the world", tests, NULL, NULL);
}
