/* SPDX-License-Identifier: Apache-2.0 */
/* faulted.c: transfers under the faults of faulty.c, which is preloaded.
 *
 *     faulted calm|einval|never COUNT DEPTH DEVICE
 *
 * RDMA_A and RDMA_B name the RDMA devices of the two sides, DEPTH is that of the send queues.
 * COUNT notified transfers, a write and a read of the same bytes in turn, each of hundreds of
 * segments on several QPs, several at once.
 *
 *  - calm: faults that nobody but weir need notice, on both sides. All transfers end well.
 *  - einval, never: on the first side only, work requests that the provider will never take, or
 *    QPs that stop doing anything. Transfers fail, no more than they must. Under `never` a third
 *    of them has a deadline, a third is cancelled when it takes long, and a third is given time
 *    to come through with a new session; only one that is alone on its QP cannot.
 *
 * Then, without faults: nothing is left in the queues, all transfers end well, and the target
 * has got the notifications of those that ended well, once. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "actors.h"
#include "faults_plan.h"

enum { WINDOW = 6, QPS = 3, SEGMENTS = 200, PIECE = 96, TAGS = 4096, QUIET = 24 };
enum { SLOT_BYTES = SEGMENTS * PIECE, BYTES = 2 * WINDOW * SLOT_BYTES };
#define SOON_NS    (400 * MS) /* deadlines, and the first cancels */
#define AT_LAST_NS (3 * SECOND)

enum mode { MODE_CALM, MODE_EINVAL, MODE_NEVER };

static const char *device;
static enum mode mode;
static uint32_t depth;

static weir_engine *open_engine(const char *rdma_device, uint32_t flags) {
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
    weir_engine *engine;

    if (rdma_device != NULL)
        setenv("WEIR_VERBS_DEVICE", rdma_device, 1);
    options.device = device;
    options.flags = flags;
    options.transfers_max = 64;
    options.segments_max = 4096;
    options.peers_max = 16;
    options.memories_max = 16;
    options.remotes_max = 16;
    options.qp_count = QPS;
    options.sq_depth = depth;
    options.connect_timeout_ns = 5 * SECOND;
    if (mode != MODE_NEVER) { /* no session breaks because an emulated machine is slow */
        options.stall_timeout_ns = 300 * SECOND;
        setenv("WEIR_VERBS_TIMEOUT", "18", 0);
    }
    must(weir_engine_open(&options, &engine), "engine");
    return engine;
}

/* ---- the target: a process of its own ---- */

struct target_says {
    uint8_t arrivals[TAGS]; /* notifications with this tag */
};

/* Each byte from the parent is a question, the last one is the end of the file. */
static void target_run(int questions, int answers) {
    weir_engine *engine = open_engine(getenv("RDMA_B"), WEIR_ENGINE_THREAD);
    struct actor_address self = {.descriptor_length = WEIR_DESCRIPTOR_MAX};
    size_t length = sizeof(self.descriptor);
    struct target_says says = {0};
    weir_notification notification;
    weir_memory memory;
    void *base;
    char question;

    must(weir_memory_allocate(engine, BYTES, WEIR_ACCESS_ALL, &memory, &base), "memory");
    must(weir_memory_export(engine, memory, self.descriptor, &length), "export");
    must(weir_engine_address(engine, self.address, sizeof(self.address)), "address");
    self.descriptor_length = length;
    pipe_write(answers, &self, sizeof(self));
    while (read(questions, &question, 1) == 1) {
        while (weir_notification_take(engine, &notification) == WEIR_OK)
            says.arrivals[notification.tag % TAGS]++;
        for (size_t at = 0; at < sizeof(says); at += 1024)
            pipe_write(answers, (char *)&says + at, 1024);
    }
    weir_engine_close(engine);
}

static struct actor target_fork(struct actor_address *address_out) {
    int questions[2], answers[2];
    struct actor target;

    if (pipe(questions) != 0 || pipe(answers) != 0 || (target.pid = fork()) < 0)
        fail("fork", 0);
    if (target.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (mode != MODE_CALM)
            unsetenv("FAULTS");
        close(questions[1]);
        target_run(questions[0], answers[1]);
        exit(EXIT_SUCCESS); /* with the report */
    }
    close(questions[0]);
    close(answers[1]);
    target.commands = questions[1];
    target.answers = answers[0];
    pipe_read(target.answers, address_out, sizeof(*address_out));
    return target;
}

static void target_end(struct actor *target) {
    int status = 0;

    close(target->commands);
    waitpid(target->pid, &status, 0);
    if (status != 0)
        fail("the target ended badly", 0);
}

/* ---- the other side ---- */

enum kind { KIND_PLAIN, KIND_DEADLINE, KIND_CANCEL, KIND_CANCEL_LATE };

struct slot {
    weir_transfer transfer;
    bool live, reads, cancelled;
    enum kind kind;
    uint64_t begun_ns;
    unsigned tag;
};

struct side {
    weir_engine *engine;
    weir_peer peer;
    weir_remote remote;
    weir_memory memory;
    uint8_t *bytes; /* for each slot what is written, then what is read */
    struct slot slots[WINDOW];
    unsigned begun, ended[2]; /* well, and not */
    unsigned slow;            /* ended well, but not soon */
    uint8_t well[TAGS];       /* by tag */
};

static void fill(uint8_t *bytes, unsigned seed) {
    for (unsigned i = 0; i < SLOT_BYTES; i++)
        bytes[i] = (uint8_t)((i * 2654435761u + seed * 40503u) >> 11);
}

static uint8_t *bytes_of(struct side *side, const struct slot *slot, bool reads) {
    return side->bytes + (2 * (size_t)(slot - side->slots) + reads) * SLOT_BYTES;
}

static void begin(struct side *side, struct slot *slot, bool reads, enum kind kind) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_segment segments[SEGMENTS];
    uint8_t *bytes = bytes_of(side, slot, reads);

    if (side->begun == TAGS)
        fail("transfers go on for ever", 0);
    *slot = (struct slot){
        .live = true, .reads = reads, .kind = kind, .begun_ns = now_ns(), .tag = side->begun++};
    if (!reads)
        fill(bytes, slot->tag);
    for (unsigned i = 0; i < SEGMENTS; i++) {
        segments[i] = (weir_segment){
            .local = side->memory,
            .remote = side->remote,
            .local_offset = (uint64_t)(bytes - side->bytes) + i * PIECE,
            .remote_offset = (uint64_t)(slot - side->slots) * SLOT_BYTES + i * PIECE,
            .length = PIECE,
        };
    }
    options.flags = WEIR_TRANSFER_NOTIFY;
    options.notify_tag = slot->tag;
    options.timeout_ns = kind == KIND_DEADLINE ? SOON_NS : 0;
    must((reads ? weir_read : weir_write)(side->engine, side->peer, segments, SEGMENTS, &options,
                                          &slot->transfer),
         "submit");
}

/* Whether a transfer may end so under these faults. */
static bool may_end(const struct slot *slot, int status) {
    switch (status) {
    case WEIR_OK:
        return true;
    case WEIR_EINVAL:
        return mode == MODE_EINVAL && slot->kind != KIND_PLAIN;
    case WEIR_ETIMEDOUT:
        return slot->kind == KIND_DEADLINE;
    case WEIR_ECANCELED:
        return slot->cancelled;
    default:
        return false;
    }
}

static void look_at_live(struct side *side, struct slot *slot) {
    uint64_t age = now_ns() - slot->begun_ns;

    if ((slot->kind == KIND_CANCEL && age > SOON_NS) ||
        (slot->kind == KIND_CANCEL_LATE && age > AT_LAST_NS)) {
        slot->cancelled = true;
        must(weir_transfer_cancel(side->engine, slot->transfer), "cancel");
    }
    if (age < PATIENCE_NS)
        return;
    printf("transfer %u, %s, kind %d, waits for %s\n", slot->tag, slot->reads ? "read" : "write",
           (int)slot->kind,
           weir_waiting_name(weir_transfer_waiting_for(side->engine, slot->transfer)));
    fail("a transfer is never terminal", 0);
}

/* True: the slot is free now. */
static bool look_at(struct side *side, struct slot *slot) {
    int status = weir_transfer_status(side->engine, slot->transfer);

    if (status == WEIR_EINPROGRESS) {
        look_at_live(side, slot);
        return false;
    }
    if (!may_end(slot, status))
        fail("a transfer ended as it may not", status);
    if (slot->transfer.id != 0)
        weir_transfer_release(side->engine, slot->transfer);
    slot->live = false;
    side->ended[status != WEIR_OK]++;
    side->well[slot->tag] = status == WEIR_OK;
    if (status != WEIR_OK)
        return true;
    side->slow += now_ns() - slot->begun_ns > SOON_NS;
    if (slot->reads &&
        memcmp(bytes_of(side, slot, false), bytes_of(side, slot, true), SLOT_BYTES) != 0)
        fail("what was read back is not what was written", 0);
    return true;
}

static enum kind kind_of(unsigned tag) {
    static const enum kind kinds[] = {KIND_DEADLINE, KIND_CANCEL, KIND_CANCEL_LATE};

    return mode == MODE_CALM ? KIND_PLAIN : mode == MODE_EINVAL ? KIND_CANCEL_LATE : kinds[tag % 3];
}

/* Bytes that were written well are read back. */
static void run(struct side *side, unsigned count, bool quiet) {
    unsigned until = side->begun + count, live;

    do {
        live = 0;
        for (size_t i = 0; i < WINDOW; i++) {
            struct slot *slot = &side->slots[i];
            bool wrote = slot->live && !slot->reads;
            if (slot->live && !look_at(side, slot)) {
                live++;
                continue;
            }
            if (side->begun == until)
                continue;
            begin(side, slot, wrote && side->well[slot->tag],
                  quiet ? KIND_PLAIN : kind_of(side->begun));
            live++;
        }
        /* Asleep until something is done: a wake-up that is missed costs time, and the test. */
        if (live > 0)
            weir_engine_wait(side->engine, mode == MODE_CALM ? PATIENCE_NS : 5 * MS);
    } while (live > 0);
}

/* Nothing is in the queues any more: all slots came back. */
static void must_be_quiet(struct side *side) {
    uint64_t until = now_ns() + PATIENCE_NS;
    weir_peer_info info = WEIR_PEER_INFO_INIT;

    do {
        weir_engine_wait(side->engine, MS);
        must(weir_peer_query(side->engine, side->peer, &info), "query");
        if (now_ns() > until) {
            printf("%" PRIu32 " slots taken, %" PRIu32 " transfers wait\n", info.sq_used,
                   info.pending);
            fail("slots do not come back", 0);
        }
    } while (info.sq_used > 0 || info.pending > 0);
}

/* A notification of a transfer that ended well arrives once; others may have arrived if the
 * transfer ended early, and have not if it was refused. The first that did otherwise, or -1. */
static int arrived_wrongly(const struct side *side, const struct target_says *says) {
    for (unsigned tag = 0; tag < side->begun; tag++) {
        unsigned least = side->well[tag], most = side->well[tag] || mode == MODE_NEVER;
        if (says->arrivals[tag] < least || says->arrivals[tag] > most)
            return (int)tag;
    }
    return -1;
}

/* The target polls in its own time. */
static void must_have_arrived(const struct side *side, struct actor *target) {
    uint64_t until = now_ns() + PATIENCE_NS;
    static struct target_says says;
    int wrong;

    do {
        sleep_ms(20);
        pipe_write(target->commands, "", 1);
        pipe_read(target->answers, &says, sizeof(says));
        wrong = arrived_wrongly(side, &says);
    } while (wrong >= 0 && says.arrivals[wrong] == 0 && now_ns() < until);
    if (wrong < 0)
        return;
    printf("notification %d of a transfer that %s arrived %u times\n", wrong,
           side->well[wrong] ? "ended well" : "failed", says.arrivals[wrong]);
    fail("notifications are not delivered exactly once", 0);
}

static void *symbol(const char *name) {
    void *address = dlsym(RTLD_DEFAULT, name);

    if (address == NULL)
        fail("faulty.c is not preloaded", 0);
    return address;
}

/* The statistics must agree with the faults. `failed` did not end well before the faults
 * stopped. */
static void must_add_up(struct side *side, unsigned failed) {
    faults_count_fn injected = (faults_count_fn)symbol("faults_count");
    weir_engine_info stats = WEIR_ENGINE_INFO_INIT;

    must(weir_engine_query(side->engine, &stats), "stats");
    printf("# %u ended well, %u not; partial posts %" PRIu64 ", orphans %" PRIu64
           " (healed %" PRIu64 "), sessions broken %" PRIu64 ", replays %" PRIu64
           ", %u took long, settled %" PRIu64 "\n",
           side->ended[0], side->ended[1], stats.partial_posts, stats.orphans, stats.orphans_healed,
           stats.sessions_failed, stats.replays, side->slow, stats.settled_remote);
    if (stats.teardown_forced > 0)
        fail("QPs were destroyed on the time bound", 0);
    if (mode == MODE_NEVER) {
        if (stats.sessions_retired == 0 || stats.replays == 0)
            fail("nothing came of QPs that stopped", 0);
        return;
    }
    if (stats.sessions_failed > 0 || stats.sessions_up != 1)
        fail("a session broke", 0);
    if (failed != injected("einval"))
        fail("refusals are not the transfers that failed, one for one", 0);
    if (stats.orphans != stats.orphans_healed)
        fail("orphans are not healed", 0);
    if (injected("partial") + injected("einval") > 0 &&
        (stats.orphans == 0 || stats.partial_posts == 0))
        fail("partial posts are not noticed", 0);
}

static void open_side(struct side *side, const struct actor_address *address) {
    void *base;

    side->engine = open_engine(getenv("RDMA_A"), 0);
    must(weir_memory_allocate(side->engine, BYTES, 0, &side->memory, &base), "memory");
    side->bytes = base;
    must(weir_peer_open(side->engine, address->address, &side->peer), "peer");
    must(weir_memory_import(side->engine, side->peer, address->descriptor,
                            (size_t)address->descriptor_length, &side->remote),
         "import");
}

int main(int argc, char **argv) {
    static const char *const modes[] = {"calm", "einval", "never"};
    static struct side side;
    struct actor_address address;
    unsigned which = 0, count = 0;

    if (argc == 5) {
        while (which < 3 && strcmp(argv[1], modes[which]) != 0)
            which++;
        count = (unsigned)strtoul(argv[2], NULL, 10);
        depth = (uint32_t)strtoul(argv[3], NULL, 10);
        device = argv[4];
    }
    if (count == 0 || depth == 0 || which == 3) {
        fprintf(stderr, "usage: faulted calm|einval|never COUNT DEPTH DEVICE\n");
        return 2;
    }
    mode = (enum mode)which;
    setvbuf(stdout, NULL, _IOLBF, 0);
    struct actor target = target_fork(&address);
    open_side(&side, &address);
    run(&side, count, false);
    must_be_quiet(&side);
    ((faults_stop_fn)symbol("faults_stop"))();
    unsigned failed = side.ended[1];
    run(&side, QUIET, true);
    must_be_quiet(&side);
    must_have_arrived(&side, &target);
    must_add_up(&side, failed);
    weir_engine_close(side.engine);
    target_end(&target);
    return 0;
}
