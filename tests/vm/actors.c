/* SPDX-License-Identifier: Apache-2.0 */
/* actors.c: see actors.h. */
#define _GNU_SOURCE
#include "actors.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    COMMAND_ASK = 'a',
    COMMAND_END = 'e',
    COMMAND_BEGIN = 'b',
    COMMAND_BEGIN_AND_FORK = 'B',
    COMMAND_FORK = 'f',
    COMMAND_EXEC = 'x'
};
/* A writer's first answer to BEGIN, if all is well. A report begins otherwise. */
enum { WRITES_COME = 0 };
_Static_assert(sizeof(weir_engine_info) % 256 != WRITES_COME,
               "its first byte, size, tells them apart");

uint64_t now_ns(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

void sleep_ms(uint64_t ms) {
    struct timespec pause = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000 * MS)};

    nanosleep(&pause, NULL);
}

void fail(const char *what, int error) {
    if (error != 0)
        printf("%s: %s %s\n", what, weir_error_name(error), weir_strerror(error));
    else
        printf("%s\n", what);
    fflush(stdout);
    _exit(EXIT_FAILURE);
}

void must(int rc, const char *what) {
    if (rc != WEIR_OK)
        fail(what, rc);
}

void pipe_read(int fd, void *bytes, size_t size) {
    uint64_t until = now_ns() + PATIENCE_NS;
    size_t have = 0;

    while (have < size) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        if (now_ns() > until)
            fail("an actor does not answer", 0);
        if (poll(&wait, 1, 1000) <= 0)
            continue;
        ssize_t got = read(fd, (char *)bytes + have, size - have);
        if (got <= 0)
            fail("an actor is gone", 0);
        have += (size_t)got;
    }
}

void pipe_write(int fd, const void *bytes, size_t size) {
    if (write(fd, bytes, size) != (ssize_t)size) /* below PIPE_BUF: whole or not */
        fail("an actor cannot be told", 0);
}

static weir_engine *engine_open_at(const char *device, const char *rdma_device,
                                   const char *listen) {
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
    weir_engine *engine;

    if (rdma_device != NULL)
        setenv("WEIR_VERBS_DEVICE", rdma_device, 1);
    options.device = device;
    options.listen = listen;
    options.transfers_max = 64;
    options.segments_max = 1024;
    options.peers_max = 16;
    options.memories_max = 16;
    options.remotes_max = 16;
    options.sq_depth = 32;
    options.notifications_max = 256;
    options.connect_timeout_ns = CONNECT_TIMEOUT_NS;
    must(weir_engine_open(&options, &engine), "engine");
    return engine;
}

weir_engine *engine_open(const char *device, const char *rdma_device) {
    return engine_open_at(device, rdma_device, NULL);
}

/* ---- inside the actors ---- */

/* Progress, and what the engine has to tell. */
static void attend(weir_engine *engine, struct actor_report *report) {
    weir_notification notification;
    weir_event event;

    weir_engine_wait(engine, 5 * MS);
    while (weir_notification_take(engine, &notification) == WEIR_OK)
        ;
    while (weir_event_take(engine, &event) == WEIR_OK) {
        if (event.type != WEIR_EVENT_GONE)
            continue;
        report->gone_count++;
        report->gone_ns = now_ns();
        report->gone_error = event.error;
    }
}

/* The next command, 0 when none is there. */
static char next_command(int fd) {
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    char command;

    if (poll(&wait, 1, 0) <= 0)
        return 0;
    return read(fd, &command, 1) == 1 ? command : COMMAND_END;
}

static void answer(weir_engine *engine, int fd, struct actor_report *report) {
    report->stats = (weir_engine_info)WEIR_ENGINE_INFO_INIT;
    must(weir_engine_query(engine, &report->stats), "stats");
    pipe_write(fd, report, sizeof(*report));
}

/* ---- children of actors ---- */

/* Counts one, and keeps the first. */
static void found(struct actor_orphan *orphan, uint64_t *count, const char *what) {
    if (orphan->first[0] == '\0')
        snprintf(orphan->first, sizeof(orphan->first), "%.90s", what);
    ++*count;
}

/* All that an engine has, and nothing else of this process: its pipes and standard files. */
static void look_at_descriptors(struct actor_orphan *orphan) {
    static const char *const kinds[] = {"/dev/infiniband/uverbs",
                                        "anon_inode:[infinibandevent]",
                                        "socket:",
                                        "anon_inode:",
                                        "/dev/infiniband",
                                        "/memfd:"};
    enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };
    char path[64], file[PATH_MAX_SHOWN];

    for (int fd = 0; fd < 1024; fd++) {
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        ssize_t length = readlink(path, file, sizeof(file) - 1);
        file[length > 0 ? length : 0] = '\0';
        size_t kind = 0;
        while (kind < KINDS && strncmp(file, kinds[kind], strlen(kinds[kind])) != 0)
            kind++;
        if (kind < KINDS)
            found(orphan, kind < 2 ? &orphan->devices : &orphan->descriptors, file);
    }
}

static void look_at_mappings(struct actor_orphan *orphan) {
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");

    while (maps != NULL && fgets(line, sizeof(line), maps) != NULL) {
        if (strstr(line, "/dev/infiniband") != NULL || strstr(line, "/memfd:") != NULL)
            found(orphan, &orphan->mappings, strchr(line, '/'));
    }
    if (maps != NULL)
        fclose(maps);
}

static void actor_fork(weir_engine *engine, int commands, int answers) {
    struct actor_orphan orphan = {0};
    char none;

    fflush(stdout);
    if (fork() != 0)
        return;
    orphan.pid = getpid();
    look_at_descriptors(&orphan);
    look_at_mappings(&orphan);
    orphan.status = weir_engine_progress(engine);
    pipe_write(answers, &orphan, sizeof(orphan));
    while (read(commands, &none, 1) > 0) /* the actor is killed before it is told anything more */
        continue;
    _exit(EXIT_SUCCESS);
}

static void actor_exec(void) {
    execlp("sleep", "sleep", "1000", (char *)NULL);
    fail("execlp", 0);
}

/* ---- targets and writers ---- */

static void target_run(weir_engine *engine, int commands, int answers) {
    struct actor_report report = {0};
    struct actor_address self = {.descriptor_length = WEIR_DESCRIPTOR_MAX};
    size_t length = sizeof(self.descriptor);
    weir_memory memory;
    void *base;
    char command;

    must(weir_memory_allocate(engine, ACTOR_BYTES, WEIR_ACCESS_ALL, &memory, &base), "memory");
    must(weir_memory_export(engine, memory, self.descriptor, &length), "export");
    must(weir_engine_address(engine, self.address, sizeof(self.address)), "address");
    self.descriptor_length = length;
    pipe_write(answers, &self, sizeof(self));
    while ((command = next_command(commands)) != COMMAND_END) {
        attend(engine, &report);
        if (command == COMMAND_ASK)
            answer(engine, answers, &report);
        if (command == COMMAND_FORK)
            actor_fork(engine, commands, answers);
        if (command == COMMAND_EXEC)
            actor_exec();
    }
}

/* One target until it is gone. */
struct writing {
    weir_engine *engine;
    weir_peer peer;
    weir_remote remote;
    weir_memory memory;
    weir_transfer in_flight[IN_FLIGHT];
    uint64_t ended_well;
    int commands, answers;
    bool forks; /* when the first write has ended well */
};

static int write_one(struct writing *w, size_t slot) {
    weir_segment segment = {
        .local = w->memory,
        .remote = w->remote,
        .local_offset = slot * WRITE_BYTES,
        .remote_offset = slot * WRITE_BYTES,
        .length = WRITE_BYTES,
    };
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;

    options.flags = WEIR_TRANSFER_NOTIFY;
    options.notify_tag = slot;
    return weir_write(w->engine, w->peer, &segment, 1, &options, &w->in_flight[slot]);
}

/* Counts what failed; 0 while nothing has. */
static void note_failure(struct actor_report *report, int status) {
    if (report->failed++ == 0)
        report->first_failure = status;
    report->terminal_ns = now_ns();
}

static void first_ended(struct writing *w) {
    pipe_write(w->answers, &(char){WRITES_COME}, 1);
    if (w->forks)
        actor_fork(w->engine, w->commands, w->answers);
}

/* Writes until transfers fail; all of them are terminal when it returns. */
static void write_on(struct writing *w, struct actor_report *report) {
    uint64_t until = now_ns() + PATIENCE_NS;
    unsigned live = 0;

    memset(w->in_flight, 0, sizeof(w->in_flight));
    report->failed = 0;
    do {
        live = 0;
        for (size_t i = 0; i < IN_FLIGHT; i++) {
            int status = weir_transfer_status(w->engine, w->in_flight[i]);
            if (status == WEIR_EINPROGRESS) {
                live++;
                continue;
            }
            if (w->in_flight[i].id != 0)
                weir_transfer_release(w->engine, w->in_flight[i]);
            w->in_flight[i].id = 0;
            if (status != WEIR_OK)
                note_failure(report, status);
            else if (w->ended_well++ == IN_FLIGHT) /* the first ones were only empty slots */
                first_ended(w);
            if (report->failed > 0)
                continue;
            status = write_one(w, i);
            live += status == WEIR_OK;
            if (status != WEIR_OK && weir_error_class(status) != WEIR_CLASS_RETRY)
                note_failure(report, status);
        }
        if (now_ns() > until)
            fail("a transfer to a dead target is never terminal", 0);
        attend(w->engine, report);
    } while (live > 0 || report->failed == 0);
}

static void writer_run(weir_engine *engine, int commands, int answers) {
    struct writing w = {.engine = engine, .commands = commands, .answers = answers};
    struct actor_report report = {0};
    struct actor_address target;
    void *base;
    char command;

    must(weir_memory_allocate(engine, ACTOR_BYTES, 0, &w.memory, &base), "memory");
    memset(base, 0x5a, ACTOR_BYTES);
    while ((command = next_command(commands)) != COMMAND_END) {
        attend(engine, &report);
        if (command == COMMAND_ASK)
            answer(engine, answers, &report);
        if (command != COMMAND_BEGIN && command != COMMAND_BEGIN_AND_FORK)
            continue;
        w.forks = command == COMMAND_BEGIN_AND_FORK;
        pipe_read(commands, &target, sizeof(target));
        must(weir_peer_open(engine, target.address, &w.peer), "peer");
        must(weir_memory_import(engine, w.peer, target.descriptor, (size_t)target.descriptor_length,
                                &w.remote),
             "import");
        w.ended_well = 0;
        write_on(&w, &report);
        weir_remote_release(engine, w.remote);
        must(weir_peer_close(engine, w.peer), "closing a dead peer");
        answer(engine, answers, &report);
    }
}

/* ---- their parent's side ---- */

static struct actor actor_start(void (*run)(weir_engine *, int, int), const char *device,
                                const char *rdma_device, const char *listen) {
    int commands[2], answers[2];
    struct actor actor;

    if (pipe2(commands, O_CLOEXEC) != 0 || pipe2(answers, O_CLOEXEC) != 0)
        fail("pipe", 0);
    fflush(stdout);
    actor.pid = fork();
    if (actor.pid < 0)
        fail("fork", 0);
    if (actor.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(commands[1]);
        close(answers[0]);
        weir_engine *engine = engine_open_at(device, rdma_device, listen);
        run(engine, commands[0], answers[1]);
        weir_engine_close(engine);
        fflush(stdout);
        _exit(EXIT_SUCCESS);
    }
    close(commands[0]);
    close(answers[1]);
    actor.commands = commands[1];
    actor.answers = answers[0];
    return actor;
}

struct actor target_start_at(const char *device, const char *rdma_device, const char *listen,
                             struct actor_address *address_out) {
    struct actor actor = actor_start(target_run, device, rdma_device, listen);

    pipe_read(actor.answers, address_out, sizeof(*address_out));
    return actor;
}

struct actor writer_start(const char *device, const char *rdma_device) {
    return actor_start(writer_run, device, rdma_device, NULL);
}

struct actor target_start(const char *device, const char *rdma_device,
                          struct actor_address *address_out) {
    return target_start_at(device, rdma_device, NULL, address_out);
}

static void begin(struct actor *writer, const struct actor_address *target, char command) {
    char first;

    pipe_write(writer->commands, &command, 1);
    pipe_write(writer->commands, target, sizeof(*target));
    pipe_read(writer->answers, &first, 1);
    if (first != WRITES_COME)
        fail("transfers failed before one had ended well", 0);
}

void writer_begin(struct actor *writer, const struct actor_address *target) {
    begin(writer, target, COMMAND_BEGIN);
}

static struct actor_orphan orphan_of(const struct actor *actor) {
    struct actor_orphan orphan;

    pipe_read(actor->answers, &orphan, sizeof(orphan));
    return orphan;
}

struct actor_orphan writer_begin_and_fork(struct actor *writer,
                                          const struct actor_address *target) {
    begin(writer, target, COMMAND_BEGIN_AND_FORK);
    return orphan_of(writer);
}

struct actor_orphan target_leave_child(struct actor *target) {
    pipe_write(target->commands, &(char){COMMAND_FORK}, 1);
    return orphan_of(target);
}

void target_exec(struct actor *target) {
    pipe_write(target->commands, &(char){COMMAND_EXEC}, 1);
}

struct actor_report writer_result(struct actor *writer) {
    struct actor_report report;

    pipe_read(writer->answers, &report, sizeof(report));
    return report;
}

struct actor_report actor_ask(struct actor *actor) {
    pipe_write(actor->commands, &(char){COMMAND_ASK}, 1);
    return writer_result(actor);
}

void actor_close(const struct actor *actor) {
    close(actor->commands);
    close(actor->answers);
}

void actor_kill_alone(const struct actor *actor) {
    kill(actor->pid, SIGKILL);
    waitpid(actor->pid, NULL, 0);
}

static int actor_reap(struct actor *actor) {
    int status = 0;

    waitpid(actor->pid, &status, 0);
    actor_close(actor);
    return status;
}

void actor_kill(struct actor *actor) {
    kill(actor->pid, SIGKILL);
    actor_reap(actor);
}

void actor_end(struct actor *actor) {
    pipe_write(actor->commands, &(char){COMMAND_END}, 1);
    if (actor_reap(actor) != 0)
        fail("an actor ended badly", 0);
}
