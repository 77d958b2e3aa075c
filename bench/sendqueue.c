/* SPDX-License-Identifier: Apache-2.0 */
/* sendqueue.c: the cost of the send queue: many threads that submit against one, threads that wait,
 * batches far deeper than the queue. Run by sendqueue.sh.
 *
 *   sendqueue [ROUNDS [MILLISECONDS [threads|waits|batches]]]
 *
 * ROUNDS of MILLISECONDS of each measurement; JSON goes to $SENDQUEUE_JSON.
 *
 * Both engines of a measurement are in this process, over shm. The first one's device can be a
 * queue: WRs then wait, in order, until they are polled for, and give completions, as those of a
 * NIC do. It can also stand still, or refuse. Rates to be compared are measured in turns, and the
 * ratio is the median of those of the rounds. One thread and many do not share a machine with
 * others alike; rounds in which others took processors are measured again. */
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "device.h"
#include "engine.h"
#include "os.h"
#include "sleep.h"
#include "state.h"

#define MS     UINT64_C(1000000)
#define SECOND (1000 * MS)

enum {
    ROUNDS_MAX = 101,
    DISTURBED_MAX = 2, /* rounds thrown away for one that counts */
    THREADS = 16,
    WINDOW = 32,           /* transfers that a thread has under way */
    AREA = 64 * 1024,      /* of one thread */
    STRIDE = AREA + 192,   /* areas do not share the sets of a cache */
    SEGMENTS = 100 * 1000, /* of a batch */
    SEGMENT_BYTES = 64,
    SHALLOW = 64,
    DEEP = 1024,
    WORLDS = 2, /* open at a time */
    QPS = 4,
    CQES = 4096,
    CHAIN = 16 /* WRs that the queue hands on together: as many at every depth */
};

static uint32_t rounds = 7;
static uint64_t slice_ns = 200 * MS;
static FILE *json;
static uint32_t json_rows;

static void die(const char *what, int rc) {
    fprintf(stderr, "sendqueue: %s: %s\n", what, weir_strerror(rc));
    exit(1);
}

static void must(int rc, const char *what) {
    if (rc != WEIR_OK)
        die(what, rc);
}

static uint64_t clock_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

/* ---- allocations ------------------------------------------------------- */

static _Atomic bool counting;
static _Atomic uint64_t allocations;

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
static const bool sees_allocations = true;

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *memory, size_t bytes);

static void note(void) {
    if (atomic_load_explicit(&counting, memory_order_relaxed))
        atomic_fetch_add(&allocations, 1);
}

void *malloc(size_t bytes) {
    note();
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes) {
    note();
    return __libc_calloc(count, bytes);
}

void *realloc(void *memory, size_t bytes) {
    note();
    return __libc_realloc(memory, bytes);
}
#else
static const bool sees_allocations = false;
#endif

/* ---- a device that queues ---------------------------------------------- */

struct queued {
    struct weir_qp *qp; /* NULL: free */
    struct weir_wr *wrs;
    uint32_t size, head, count;
};

struct world {
    struct weir_ports ports[2];
    weir_engine *engines[2];
    weir_peer peer;
    weir_memory memory;
    weir_remote remote;
    bool queues;  /* the first one's device does */
    bool stalled; /* it completes nothing, */
    bool refuses; /* takes nothing */
    struct queued qps[QPS];
    struct weir_cqe cqes[CQES];
    uint32_t cqe_head, cqe_count;
};

static struct world worlds[WORLDS];
static const struct weir_device_ops *real;
static struct weir_device_ops queue_ops;

static struct world *world_of(const struct weir_device *device) {
    struct world *world = worlds;
    while (world->ports[0].device != device)
        world++;
    return world;
}

static struct queued *queued_of(const struct weir_qp *qp, struct world **world_out) {
    for (uint32_t w = 0; w < WORLDS; w++) {
        for (uint32_t i = 0; i < QPS; i++) {
            if (worlds[w].qps[i].qp == qp) {
                *world_out = &worlds[w];
                return &worlds[w].qps[i];
            }
        }
    }
    abort();
}

static void complete(struct world *world, uint64_t wr_id, uint32_t status) {
    if (world->cqe_count == CQES)
        abort();
    world->cqes[(world->cqe_head + world->cqe_count++) % CQES] =
        (struct weir_cqe){.wr_id = wr_id, .status = status};
}

static int queue_create(struct weir_device *device, const struct weir_qp_options *options,
                        struct weir_qp_granted *granted, struct weir_qp **qp_out) {
    struct queued *queued = world_of(device)->qps;
    int rc = real->qp_create(device, options, granted, qp_out);
    if (rc != WEIR_OK)
        return rc;
    while (queued->qp != NULL)
        queued++;
    *queued = (struct queued){.qp = *qp_out, .size = 2 * granted->sq_depth};
    queued->wrs = calloc(queued->size, sizeof(*queued->wrs));
    return queued->wrs != NULL ? WEIR_OK : WEIR_ENOMEM;
}

static int queue_destroy(struct weir_qp *qp) {
    struct world *world;
    struct queued *queued = queued_of(qp, &world);
    int rc = real->qp_destroy(qp);
    if (rc == WEIR_OK) {
        free(queued->wrs);
        *queued = (struct queued){0};
    }
    return rc;
}

static int queue_error(struct weir_qp *qp) {
    struct world *world;
    struct queued *queued = queued_of(qp, &world);
    for (; queued->count > 0; queued->count--)
        complete(world, queued->wrs[queued->head++ % queued->size].wr_id, WEIR_CQE_FLUSHED);
    return real->qp_error(qp);
}

/* Messages, and what flushes, are the real device's. */
static int post_on(struct world *world, struct weir_qp *qp, const struct weir_wr *wrs,
                   uint32_t count, struct weir_post *post_out) {
    int rc = real->post_send(qp, wrs, count, post_out);
    for (uint32_t i = 0; i < post_out->done; i++) {
        if ((wrs[i].flags & WEIR_WR_SIGNALED) != 0)
            complete(world, wrs[i].wr_id, WEIR_CQE_OK);
    }
    post_out->done = 0;
    return rc;
}

static int queue_post(struct weir_qp *qp, const struct weir_wr *wrs, uint32_t count,
                      struct weir_post *post_out) {
    struct world *world;
    struct queued *queued = queued_of(qp, &world);
    *post_out = (struct weir_post){0};
    if (wrs->opcode == WEIR_OP_SEND || wrs->length == 0)
        return post_on(world, qp, wrs, count, post_out);
    if (world->refuses)
        return WEIR_EAGAIN;
    for (uint32_t i = 0; i < count; i++)
        queued->wrs[(queued->head + queued->count++) % queued->size] = wrs[i];
    post_out->accepted = count;
    return WEIR_OK;
}

static void run_queue(struct world *world, struct queued *queued) {
    while (queued->count > 0) {
        struct weir_post post;
        uint32_t at = queued->head % queued->size;
        uint32_t count = queued->size - at < queued->count ? queued->size - at : queued->count;
        count = count < CHAIN ? count : CHAIN;
        must(real->post_send(queued->qp, queued->wrs + at, count, &post), "post");
        if (post.done != count)
            abort();
        for (uint32_t i = 0; i < count; i++) {
            if ((queued->wrs[at + i].flags & WEIR_WR_SIGNALED) != 0)
                complete(world, queued->wrs[at + i].wr_id, WEIR_CQE_OK);
        }
        queued->head = (at + count) % queued->size;
        queued->count -= count;
    }
}

static int queue_poll(struct weir_device *device, struct weir_cqe *cqes_out, int max) {
    struct world *world = world_of(device);
    int count = 0;
    if (world->stalled)
        return 0;
    for (uint32_t i = 0; i < QPS; i++)
        run_queue(world, &world->qps[i]);
    for (; count < max && world->cqe_count > 0; world->cqe_count--)
        cqes_out[count++] = world->cqes[world->cqe_head++ % CQES];
    int more = count < max ? real->poll(device, cqes_out + count, max - count) : 0;
    return more < 0 ? more : count + more;
}

static int queue_arm(struct weir_device *device) {
    const struct world *world = world_of(device);
    for (uint32_t i = 0; i < QPS && !world->stalled; i++) {
        if (world->qps[i].count > 0)
            return WEIR_EAGAIN;
    }
    int rc = real->arm(device);
    return world->stalled ? WEIR_OK : rc;
}

static void queue_query(struct weir_device *device, struct weir_device_caps *caps_out) {
    real->query(device, caps_out);
    caps_out->completes_inline = false;
    caps_out->inline_bytes_max = 0;
    caps_out->post_bytes_max = UINT64_MAX;
}

static void make_queue_ops(void) {
    real = device_table[0];
    queue_ops = *real;
    queue_ops.query = queue_query;
    queue_ops.qp_create = queue_create;
    queue_ops.qp_destroy = queue_destroy;
    queue_ops.qp_error = queue_error;
    queue_ops.post_send = queue_post;
    queue_ops.poll = queue_poll;
    queue_ops.arm = queue_arm;
}

/* ---- worlds ------------------------------------------------------------ */

static void turn(struct world *world) {
    for (int i = 0; i < 2; i++)
        weir_engine_progress(world->engines[i]);
}

static void finish(struct world *world, weir_transfer transfer) {
    while (weir_transfer_status(world->engines[0], transfer) == WEIR_EINPROGRESS)
        turn(world);
    must(weir_transfer_status(world->engines[0], transfer), "transfer");
    weir_transfer_release(world->engines[0], transfer);
}

static void open_side(struct world *world, int side, const weir_engine_options *options,
                      weir_memory *memory_out) {
    struct weir_ports *ports = &world->ports[side];
    void *base;
    ports->device_ops = side == 0 && world->queues ? &queue_ops : real;
    must(os_env_init(&ports->env), "environment");
    must(real->open(&ports->env, &ports->device), "device");
    must(tcp_open(&ports->env, 0, &ports->control), "control");
    must(wait_open(&ports->env, &ports->wait), "wait");
    must(engine_create(options, ports, &world->engines[side]), "engine");
    must(weir_memory_allocate(world->engines[side], THREADS * STRIDE, WEIR_ACCESS_ALL, memory_out,
                              &base),
         "memory");
    memset(base, side + 1, THREADS * STRIDE);
}

/* The first engine is ready, but nobody may sleep in it until engine_sleeping_open. */
static void open_world(struct world *world, const weir_engine_options *options, bool queues) {
    weir_engine_options other = WEIR_ENGINE_OPTIONS_INIT;
    char address[WEIR_ADDRESS_MAX];
    uint8_t descriptor[WEIR_DESCRIPTOR_MAX];
    size_t length = sizeof(descriptor);
    weir_memory target;
    *world = (struct world){.queues = queues};
    other.sq_depth = options->sq_depth;
    open_side(world, 0, options, &world->memory);
    open_side(world, 1, &other, &target);
    weir_engine *engine = world->engines[0];
    must(weir_engine_address(world->engines[1], address, sizeof(address)), "address");
    must(weir_peer_open(engine, address, &world->peer), "peer");
    must(weir_memory_export(world->engines[1], target, descriptor, &length), "export");
    must(weir_memory_import(engine, world->peer, descriptor, length, &world->remote), "import");
    while (weir_peer_connect(engine, world->peer) != WEIR_OK)
        turn(world);
}

static void close_world(struct world *world) {
    engine_thread_stop(world->engines[0]);
    world->stalled = false;
    for (int i = 0; i < 2; i++) {
        weir_engine_close(world->engines[i]);
        wait_close(&world->ports[i].wait);
        tcp_close(&world->ports[i].control);
        real->close(world->ports[i].device);
    }
    *world = (struct world){0};
}

static weir_segment segment_at(const struct world *world, uint64_t offset, uint64_t length) {
    return (weir_segment){.local = world->memory,
                          .remote = world->remote,
                          .local_offset = offset,
                          .remote_offset = offset,
                          .length = length};
}

/* ---- what else runs ---------------------------------------------------- */

struct moment {
    uint64_t wall_ns, own_ns, all_ns; /* processor time of this process, and of the machine */
};

static struct moment moment_now(void) {
    unsigned long long ticks[8] = {0};
    struct moment now = {clock_ns(CLOCK_MONOTONIC), clock_ns(CLOCK_PROCESS_CPUTIME_ID), 0};
    FILE *stat = fopen("/proc/stat", "r"); /* proc(5): user nice system idle iowait irq ... */
    if (stat == NULL)
        return now;
    if (fscanf(stat, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &ticks[0], &ticks[1], &ticks[2],
               &ticks[3], &ticks[4], &ticks[5], &ticks[6], &ticks[7]) == 8)
        now.all_ns = (ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6] + ticks[7]) * SECOND /
                     (uint64_t)sysconf(_SC_CLK_TCK);
    fclose(stat);
    return now;
}

/* Others took more than a tenth of a processor since then. */
static bool disturbed_since(struct moment begin) {
    struct moment now = moment_now();
    uint64_t own = now.own_ns - begin.own_ns, all = now.all_ns - begin.all_ns;
    return all > own && (all - own) * 10 > now.wall_ns - begin.wall_ns;
}

/* ---- figures ----------------------------------------------------------- */

struct spread {
    double least, median, most;
};

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static struct spread spread_of(const double *values) {
    double sorted[ROUNDS_MAX];
    memcpy(sorted, values, rounds * sizeof(*sorted));
    qsort(sorted, rounds, sizeof(*sorted), by_size);
    return (struct spread){sorted[0], sorted[rounds / 2], sorted[rounds - 1]};
}

static void json_row(const char *name, const char *format, ...) {
    va_list arguments;
    if (json == NULL)
        return;
    fprintf(json, "%s\n  {\"name\": \"%s\", ", json_rows++ == 0 ? "[" : ",", name);
    va_start(arguments, format);
    vfprintf(json, format, arguments);
    va_end(arguments);
    fputs("}", json);
}

/* Rates of two ways in operations a second, of the same rounds. */
static void show_rates(const char *name, const double *first, const double *second, double bar) {
    double ratios[ROUNDS_MAX];
    for (uint32_t i = 0; i < rounds; i++)
        ratios[i] = second[i] / first[i];
    struct spread a = spread_of(first), b = spread_of(second), ratio = spread_of(ratios);
    printf("%-44s %9.0f %9.0f k/s %6.2f (%.2f to %.2f) %s %.2f\n", name, a.median / 1e3,
           b.median / 1e3, ratio.median, ratio.least, ratio.most,
           ratio.median >= bar ? "meets" : "MISSES", bar);
    json_row(name,
             "\"first_per_s\": %.0f, \"second_per_s\": %.0f, \"ratio\": %.4f, "
             "\"ratio_least\": %.4f, \"ratio_most\": %.4f, \"bar\": %.2f",
             a.median, b.median, ratio.median, ratio.least, ratio.most, bar);
}

static void show_cpu(const char *name, const double *percents) {
    const double bar = 2;
    struct spread cpu = spread_of(percents);
    printf("%-44s %20.2f %% CPU (%.2f to %.2f) %s %.0f\n", name, cpu.median, cpu.least, cpu.most,
           cpu.median < bar ? "meets" : "MISSES", bar);
    json_row(name, "\"cpu_percent\": %.3f, \"least\": %.3f, \"most\": %.3f, \"bar\": %.0f",
             cpu.median, cpu.least, cpu.most, bar);
}

/* ---- many threads ------------------------------------------------------ */

struct crowd {
    struct world *world;
    uint64_t length;
    bool recorded;
    uint32_t threads;
    pthread_barrier_t begin;
    _Atomic bool stop;
    struct worker {
        _Alignas(64) pthread_t thread;
        struct crowd *crowd;
        uint32_t number;
        uint64_t done;
    } workers[THREADS];
};

static void end_oldest(weir_engine *engine, weir_transfer transfer) {
    must(weir_transfer_wait(engine, transfer, UINT64_MAX), "transfer");
    weir_transfer_release(engine, transfer);
}

static void *work(void *argument) {
    struct worker *worker = argument;
    struct crowd *crowd = worker->crowd;
    weir_engine *engine = crowd->world->engines[0];
    weir_transfer_options once = WEIR_TRANSFER_OPTIONS_INIT;
    weir_transfer under_way[WINDOW] = {{0}};
    once.flags = WEIR_TRANSFER_ONCE; /* recorded, with a handle, whatever the device can do */
    pthread_barrier_wait(&crowd->begin);
    for (uint64_t i = 0; !atomic_load_explicit(&crowd->stop, memory_order_relaxed); i++) {
        weir_transfer *place = &under_way[i % WINDOW];
        uint64_t area = crowd->threads == 1 ? i % THREADS : worker->number; /* the same bytes */
        weir_segment segment = segment_at(crowd->world, area * STRIDE, crowd->length);
        int rc;
        if (place->id != 0)
            end_oldest(engine, *place);
        while ((rc = weir_write(engine, crowd->world->peer, &segment, 1,
                                crowd->recorded ? &once : NULL, place)) == WEIR_EAGAIN)
            weir_engine_progress(engine);
        must(rc, "write");
        worker->done++;
    }
    for (int i = 0; i < WINDOW; i++) {
        if (under_way[i].id != 0)
            end_oldest(engine, under_way[i]);
    }
    return NULL;
}

/* Writes a second of so many threads together. */
static double crowd_rate(struct world *world, uint64_t length, bool recorded, uint32_t threads) {
    static struct crowd crowd;
    struct timespec pause = {.tv_sec = (time_t)(slice_ns / SECOND),
                             .tv_nsec = (long)(slice_ns % SECOND)};
    uint64_t done = 0;
    crowd =
        (struct crowd){.world = world, .length = length, .recorded = recorded, .threads = threads};
    pthread_barrier_init(&crowd.begin, NULL, threads + 1);
    for (uint32_t i = 0; i < threads; i++) {
        crowd.workers[i].crowd = &crowd;
        crowd.workers[i].number = i;
        pthread_create(&crowd.workers[i].thread, NULL, work, &crowd.workers[i]);
    }
    pthread_barrier_wait(&crowd.begin);
    uint64_t begin = clock_ns(CLOCK_MONOTONIC);
    nanosleep(&pause, NULL);
    atomic_store(&crowd.stop, true);
    for (uint32_t i = 0; i < threads; i++) {
        pthread_join(crowd.workers[i].thread, NULL);
        done += crowd.workers[i].done;
    }
    uint64_t took = clock_ns(CLOCK_MONOTONIC) - begin;
    pthread_barrier_destroy(&crowd.begin);
    return (double)done * 1e9 / (double)took;
}

static void bench_threads(void) {
    static const struct {
        const char *name;
        uint64_t length;
    } sizes[] = {{"8 B", 8}, {"4 KiB", 4096}, {"64 KiB", 65536}};
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
    double one[ROUNDS_MAX], many[ROUNDS_MAX];
    printf("\n%-44s %9s %9s     %6s\n", "threads that submit to one peer", "1", "16", "ratio");
    open_world(&worlds[0], &options, false);
    must(engine_sleeping_open(worlds[0].engines[0]), "sleeping");
    for (int recorded = 0; recorded < 2; recorded++) {
        for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
            char name[64];
            crowd_rate(&worlds[0], sizes[s].length, recorded == 1, 1);
            uint32_t disturbed = 0, again = DISTURBED_MAX * rounds;
            for (uint32_t i = 0; i < rounds; i++) {
                struct moment begin = moment_now();
                one[i] = crowd_rate(&worlds[0], sizes[s].length, recorded == 1, 1);
                many[i] = crowd_rate(&worlds[0], sizes[s].length, recorded == 1, THREADS);
                if (!disturbed_since(begin))
                    continue;
                if (again > 0) {
                    again--;
                    i--;
                } else {
                    disturbed++;
                }
            }
            snprintf(name, sizeof(name), "writes of %s, %s", sizes[s].name,
                     recorded == 1 ? "recorded" : "done in the post");
            show_rates(name, one, many, 0.8);
            if (disturbed > 0)
                printf("  in %u rounds others took processors\n", disturbed);
        }
    }
    close_world(&worlds[0]);
}

/* ---- those who wait ---------------------------------------------------- */

enum waiting { WAIT_ROOM, WAIT_TRANSFER, WAIT_ANYTHING };

/* Per cent of one processor that this process takes while one thread waits. */
static double wait_cpu(struct world *world, enum waiting waiting, weir_transfer transfer) {
    weir_engine *engine = world->engines[0];
    weir_transfer_options block = WEIR_TRANSFER_OPTIONS_INIT;
    weir_segment one = segment_at(world, 0, 64);
    weir_transfer another;
    block.flags = WEIR_TRANSFER_BLOCK;
    uint64_t wall = clock_ns(CLOCK_MONOTONIC), cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    if (waiting == WAIT_ROOM &&
        weir_write(engine, world->peer, &one, 1, &block, &another) != WEIR_EAGAIN)
        die("there was room", WEIR_OK);
    if (waiting == WAIT_TRANSFER &&
        weir_transfer_wait(engine, transfer, slice_ns) != WEIR_EINPROGRESS)
        die("it ended", WEIR_OK);
    while (clock_ns(CLOCK_MONOTONIC) - wall < slice_ns)
        weir_engine_wait(engine, slice_ns);
    cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    return 100 * (double)cpu / (double)(clock_ns(CLOCK_MONOTONIC) - wall);
}

static void bench_wait(const char *name, enum waiting waiting, weir_transfer transfer) {
    double cpu[ROUNDS_MAX];
    for (uint32_t i = 0; i < rounds; i++)
        cpu[i] = wait_cpu(&worlds[0], waiting, transfer);
    show_cpu(name, cpu);
}

/* All places for transfers taken by those that go nowhere. */
static weir_transfer open_full(uint32_t flags, bool refuses) {
    struct world *world = &worlds[0];
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
    weir_transfer last = {0};
    options.transfers_max = 4;
    options.backoff_timeout_ns = slice_ns;
    options.flags = flags;
    options.connect_timeout_ns = 3600 * SECOND;
    open_world(world, &options, true);
    world->stalled = true;
    world->refuses = refuses;
    weir_segment one = segment_at(world, 0, 64);
    while (weir_write(world->engines[0], world->peer, &one, 1, NULL, &last) == WEIR_OK)
        continue;
    must(engine_sleeping_open(world->engines[0]), "sleeping");
    return last;
}

/* The QP breaks, and the peer does not say what arrived. */
static void park(struct world *world, weir_transfer transfer) {
    queue_error(world->qps[0].qp);
    world->stalled = false;
    while (weir_transfer_waiting_for(world->engines[0], transfer) != WEIR_WAITING_SETTLE)
        weir_engine_progress(world->engines[0]);
}

static void bench_waits(void) {
    printf("\n%s\n", "a thread that waits for what does not come");
    weir_transfer last = open_full(0, false);
    bench_wait("submit, no room", WAIT_ROOM, last);
    bench_wait("wait, the transfer is posted", WAIT_TRANSFER, last);
    bench_wait("wait for anything", WAIT_ANYTHING, last);
    park(&worlds[0], last);
    bench_wait("wait, the transfer is parked", WAIT_TRANSFER, last);
    bench_wait("submit, no room, all are parked", WAIT_ROOM, last);
    close_world(&worlds[0]);
    last = open_full(WEIR_ENGINE_THREAD, false);
    bench_wait("submit, no room, beside the engine's thread", WAIT_ROOM, last);
    bench_wait("wait, beside the engine's thread", WAIT_TRANSFER, last);
    close_world(&worlds[0]);
    last = open_full(0, true);
    bench_wait("wait, the device refuses", WAIT_TRANSFER, last);
    close_world(&worlds[0]);
}

/* ---- batches deeper than the queue ------------------------------------- */

static weir_segment batch[SEGMENTS];

/* Segments of one transfer in a second of this thread, which does all of the work. */
static double batch_rate(struct world *world) {
    weir_engine *engine = world->engines[0];
    weir_transfer transfer;
    for (uint64_t i = 0; i < SEGMENTS; i++)
        batch[i] = segment_at(world, i * SEGMENT_BYTES % (THREADS * (uint64_t)AREA), SEGMENT_BYTES);
    atomic_store(&counting, true);
    uint64_t begin = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    must(weir_write(engine, world->peer, batch, SEGMENTS, NULL, &transfer), "batch");
    while (weir_transfer_status(engine, transfer) == WEIR_EINPROGRESS)
        weir_engine_progress(engine);
    uint64_t took = clock_ns(CLOCK_THREAD_CPUTIME_ID) - begin;
    atomic_store(&counting, false);
    finish(world, transfer);
    return SEGMENTS * 1e9 / (double)took;
}

static void bench_batch(const char *name, bool queues) {
    static const uint32_t depths[WORLDS] = {DEEP, SHALLOW};
    double rates[WORLDS][ROUNDS_MAX];
    for (uint32_t w = 0; w < WORLDS; w++) {
        weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
        options.sq_depth = depths[w];
        open_world(&worlds[w], &options, queues);
        batch_rate(&worlds[w]);
    }
    atomic_store(&allocations, 0);
    for (uint32_t i = 0; i < rounds; i++) {
        for (uint32_t turns = 0; turns < WORLDS; turns++) {
            uint32_t w = (turns + i) % WORLDS; /* each is first as often */
            double best = 0;
            for (uint64_t end = clock_ns(CLOCK_MONOTONIC) + slice_ns / 4;
                 clock_ns(CLOCK_MONOTONIC) < end;) {
                double rate = batch_rate(&worlds[w]);
                best = rate > best ? rate : best;
            }
            rates[w][i] = best;
        }
    }
    show_rates(name, rates[0], rates[1], 0.95);
    if (sees_allocations)
        printf("  allocations meanwhile: %llu\n", (unsigned long long)atomic_load(&allocations));
    for (uint32_t w = 0; w < WORLDS; w++)
        close_world(&worlds[w]);
}

static void bench_batches(void) {
    printf("\n%-44s %9s %9s     %6s\n", "segments of a batch of 100,000, by depth", "1024", "64",
           "ratio");
    bench_batch("64 B each, shm as a device that queues", true);
    bench_batch("64 B each, shm as it is", false);
}

int main(int argc, char **argv) {
    const char *path = getenv("SENDQUEUE_JSON");
    struct weir_device_caps caps;
    if (argc > 1)
        rounds = (uint32_t)atoi(argv[1]);
    if (argc > 2)
        slice_ns = (uint64_t)atoi(argv[2]) * MS;
    const char *part = argc > 3 ? argv[3] : "";
    bool threads = strcmp(part, "threads") == 0, waits = strcmp(part, "waits") == 0;
    bool batches = strcmp(part, "batches") == 0, all = !threads && !waits && !batches;
    if (argc > 4 || (all && argc > 3) || rounds < 1 || rounds > ROUNDS_MAX || slice_ns < MS ||
        slice_ns > 60 * SECOND) {
        fputs("usage: sendqueue [ROUNDS [MILLISECONDS [threads|waits|batches]]]\n", stderr);
        return 2;
    }
    make_queue_ops();
    must(real->probe(NULL, &caps), "shm");
    json = path != NULL ? fopen(path, "w") : NULL;
    printf("%u rounds of %llu ms; medians, and the least and the most in brackets\n", rounds,
           (unsigned long long)(slice_ns / MS));
    if (all || threads)
        bench_threads();
    if (all || waits)
        bench_waits();
    if (all || batches)
        bench_batches();
    if (json != NULL) {
        fputs("\n]\n", json);
        fclose(json);
    }
    return 0;
}
