/* SPDX-License-Identifier: Apache-2.0 */
/* kit.c: see kit.h. The program that is a target is that of MC_TARGET. */
#include "kit.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static uint64_t word(uint64_t at, uint64_t seed) {
    uint64_t x = (at + 1) * UINT64_C(0x9e3779b97f4a7c15) + seed * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    return x ^ x >> 27;
}

void fill(void *bytes, uint64_t place, size_t length, uint64_t seed) {
    uint8_t *at = bytes;
    for (size_t i = 0; i < length; i++)
        at[i] = (uint8_t)(word((place + i) / 8, seed) >> (place + i) % 8 * 8);
}

int64_t differs(const void *bytes, uint64_t place, size_t length, uint64_t seed) {
    const uint8_t *at = bytes;
    for (size_t i = 0; i < length; i++) {
        if (at[i] != (uint8_t)(word((place + i) / 8, seed) >> (place + i) % 8 * 8))
            return (int64_t)i;
    }
    return -1;
}

uint8_t *map_bytes(size_t length) {
    void *bytes = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(bytes, MAP_FAILED);
    return bytes;
}

void wait_shortly(void) {
    setenv("MC_WEIR_TIMEOUT_MS", "500", 1);
    setenv("WEIR_CONNECT_TIMEOUT_MS", "400", 1);
}

void wait_long(void) {
    setenv("MC_WEIR_TIMEOUT_MS", "240000", 1);
    setenv("WEIR_CONNECT_TIMEOUT_MS", "240000", 1);
}

transfer_engine_t open_engine(void) {
    transfer_engine_t engine = createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "", 0, 1);
    assert_non_null(engine);
    return engine;
}

const char *name_of(transfer_engine_t engine) {
    static _Thread_local char name[512];
    assert_int_equal(getLocalIpAndPort(engine, name, sizeof(name)), 0);
    return name;
}

uint64_t seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec;
}

void pause_ms(void) {
    struct timespec pause = {.tv_nsec = 1000000};
    nanosleep(&pause, NULL);
}

/* ---- other processes ----------------------------------------------------------- */

void child_start(struct child *child) {
    int to[2], from[2];
    const char *program = getenv("MC_TARGET");
    assert_non_null(program);
    assert_int_equal(pipe(to), 0);
    assert_int_equal(pipe(from), 0);
    *child = (struct child){.pid = fork()};
    assert_true(child->pid >= 0);
    if (child->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(to[0], STDIN_FILENO);
        dup2(from[1], STDOUT_FILENO);
        for (int i = 0; i < 2; i++) {
            close(to[i]);
            close(from[i]);
        }
        execl(program, program, (char *)NULL);
        _exit(127);
    }
    close(to[0]);
    close(from[1]);
    child->to = to[1];
    child->from = fdopen(from[0], "r");
    assert_non_null(child->from);
}

const char *child_say(struct child *child, const char *format, ...) {
    static _Thread_local char answer[1 << 16];
    char line[2048];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(line, sizeof(line) - 1, format, args);
    va_end(args);
    line[length++] = '\n';
    assert_int_equal(write(child->to, line, (size_t)length), length);
    if (fgets(answer, sizeof(answer), child->from) == NULL || strncmp(answer, "ok", 2) != 0)
        fail_msg("%.*s of the child: %s", length - 1, line, answer);
    answer[strcspn(answer, "\n")] = '\0';
    return answer[2] == ' ' ? answer + 3 : answer + 2;
}

void child_open(struct child *child, const char *metadata, const char *name) {
    snprintf(child->name, sizeof(child->name), "%s",
             child_say(child, "open %s %s", metadata, name));
}

void child_map(struct child *child, uint64_t count, uint64_t length, uint64_t seed) {
    const char *answer = child_say(child, "map %llu %llu %llu", (unsigned long long)count,
                                   (unsigned long long)length, (unsigned long long)seed);
    child->base = strtoull(answer, NULL, 16);
    child->length = length;
    child->count = count;
}

static void child_end(struct child *child) {
    close(child->to);
    fclose(child->from);
    child->pid = 0;
}

void process_stop(pid_t pid) {
    int status;
    assert_int_equal(kill(pid, SIGSTOP), 0);
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    assert_true(WIFSTOPPED(status));
}

void child_kill(struct child *child) {
    int status;
    kill(child->pid, SIGKILL);
    assert_int_equal(waitpid(child->pid, &status, 0), child->pid);
    child_end(child);
}

void child_quit(struct child *child) {
    int status;
    child_say(child, "quit");
    assert_int_equal(waitpid(child->pid, &status, 0), child->pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    child_end(child);
}

/* ---- transfers ------------------------------------------------------------------- */

transfer_request_t request(int opcode, void *source, segment_id_t target, uint64_t offset,
                           uint64_t length) {
    return (transfer_request_t){opcode, source, target, offset, length};
}

int wait_task(transfer_engine_t engine, batch_id_t batch, size_t task) {
    transfer_status_t status = {STATUS_WAITING, 0};
    uint64_t end = seconds() + PATIENCE_S;
    for (;;) {
        assert_int_equal(getTransferStatus(engine, batch, task, &status), 0);
        if (status.status != STATUS_WAITING)
            return status.status;
        if (seconds() > end)
            fail_msg("task %zu is under way for ever", task);
    }
}

int transfer(transfer_engine_t engine, transfer_request_t *entries, size_t count) {
    batch_id_t batch = allocateBatchID(engine, count);
    int worst = STATUS_COMPLETED;
    assert_true(batch != INVALID_BATCH);
    assert_int_equal(submitTransfer(engine, batch, entries, count), 0);
    for (size_t i = 0; i < count; i++) {
        int status = wait_task(engine, batch, i);
        worst = status != STATUS_COMPLETED ? status : worst;
    }
    assert_int_equal(freeBatchID(engine, batch), 0);
    return worst;
}
