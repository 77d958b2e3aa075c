/* actors.c: see actors.h. */
#define _GNU_SOURCE
#include "actors.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { COMMAND_ASK = 'a', COMMAND_END = 'e', COMMAND_BEGIN = 'b' };
/* What a writer answers to BEGIN at first, if all is well. A report begins otherwise. */
enum { WRITES_COME = 0 };
_Static_assert(sizeof(weir_stats) % 256 != WRITES_COME, "its first byte, size, tells them apart");

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

weir_engine *engine_open(const char *device, const char *rdma_device) {
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
    weir_engine *engine;

    if (rdma_device != NULL)
        setenv("WEIR_VERBS_DEVICE", rdma_device, 1);
    options.device = device;
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
    report->stats = (weir_stats)WEIR_STATS_INIT;
    must(weir_engine_stats(engine, &report->stats), "stats");
    pipe_write(fd, report, sizeof(*report));
}

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

/* Writes until transfers fail; all of them are terminal when it returns. */
static void write_on(struct writing *w, struct actor_report *report, int answers) {
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
                pipe_write(answers, &(char){WRITES_COME}, 1);
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
    struct writing w = {.engine = engine};
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
        if (command != COMMAND_BEGIN)
            continue;
        pipe_read(commands, &target, sizeof(target));
        must(weir_peer_open(engine, target.address, &w.peer), "peer");
        must(weir_memory_import(engine, w.peer, target.descriptor, (size_t)target.descriptor_length,
                                &w.remote),
             "import");
        w.ended_well = 0;
        write_on(&w, &report, answers);
        weir_remote_release(engine, w.remote);
        must(weir_peer_close(engine, w.peer), "closing a dead peer");
        answer(engine, answers, &report);
    }
}

/* ---- their parent's side ---- */

static struct actor actor_start(void (*run)(weir_engine *, int, int), const char *device,
                                const char *rdma_device) {
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
        weir_engine *engine = engine_open(device, rdma_device);
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

struct actor target_start(const char *device, const char *rdma_device,
                          struct actor_address *address_out) {
    struct actor actor = actor_start(target_run, device, rdma_device);

    pipe_read(actor.answers, address_out, sizeof(*address_out));
    return actor;
}

struct actor writer_start(const char *device, const char *rdma_device) {
    return actor_start(writer_run, device, rdma_device);
}

void writer_begin(struct actor *writer, const struct actor_address *target) {
    char first;

    pipe_write(writer->commands, &(char){COMMAND_BEGIN}, 1);
    pipe_write(writer->commands, target, sizeof(*target));
    pipe_read(writer->answers, &first, 1);
    if (first != WRITES_COME)
        fail("transfers failed before one had ended well", 0);
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

static int actor_reap(struct actor *actor) {
    int status = 0;

    waitpid(actor->pid, &status, 0);
    close(actor->commands);
    close(actor->answers);
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
