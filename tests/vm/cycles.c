/* SPDX-License-Identifier: Apache-2.0 */
/* cycles.c: connect, transfer, close, many times, and peers that are killed in the middle of
 * transfers. The remains are measured from outside: objects in the kernel's count, descriptors,
 * resident memory.
 *
 *     cycles cycles|kill-initiator|kill-target|fork-initiator|fork-target|exec-target COUNT DEVICE
 *
 * RDMA_A and RDMA_B name the RDMA devices of the two sides. Lines with "# " in front tell what
 * was seen; the exit status is 1, and one line says why, if something is not as promised. */
#define _GNU_SOURCE
#include <dirent.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actors.h"

enum { WITNESS_BYTES = 1024, ROUNDS_MAX = 10000 };
/* Memory may grow by this after the warm-up: what allocators and page tables keep. */
#define GROWTH_BYTES_MAX (1u << 20)
/* A dead peer's resources are back within the time that it is tried again, and 4 s; and some
 * for an emulated machine. */
#define BACK_NS (CONNECT_TIMEOUT_NS + 60 * SECOND)

static const char *device, *rdma_a, *rdma_b;
static bool has_librdmacm; /* whose own objects are not counted: children have them */

/* The resources held now. */
struct sample {
    char kernel[WITNESS_BYTES]; /* the kernel's RDMA objects; empty without them */
    uint64_t descriptors, resident;
};

/* Without the counts of contexts and protection domains. */
static void mask(char *counts) {
    static const char *const names[] = {" pd ", " ctx "};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        for (char *at = strstr(counts, names[i]); at != NULL; at = strstr(at, names[i])) {
            at += strlen(names[i]);
            while (*at >= '0' && *at <= '9')
                *at++ = '?';
        }
    }
}

static void witness(char *out) {
    size_t got = 0;

    out[0] = '\0';
    if (strcmp(device, "verbs") != 0)
        return;
    FILE *rdma = popen("rdma resource show", "r");
    if (rdma == NULL)
        fail("rdma resource show", 0);
    got = fread(out, 1, WITNESS_BYTES - 1, rdma);
    out[got] = '\0';
    pclose(rdma);
    if (has_librdmacm)
        mask(out);
}

static uint64_t descriptors_of(pid_t pid) {
    char path[64];
    uint64_t count = 0;

    snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    DIR *dir = opendir(path);
    while (dir != NULL && readdir(dir) != NULL)
        count++;
    if (dir != NULL)
        closedir(dir);
    return count;
}

static uint64_t resident_of(pid_t pid) {
    unsigned long long total = 0, resident = 0;
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/statm", (int)pid);
    FILE *file = fopen(path, "r");
    if (file == NULL || fscanf(file, "%llu %llu", &total, &resident) != 2)
        fail("statm", 0);
    fclose(file);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Us and the target, between two cycles. */
static struct sample sample_take(struct actor *target) {
    struct sample sample;

    witness(sample.kernel);
    sample.descriptors = descriptors_of(getpid()) + descriptors_of(target->pid);
    sample.resident = resident_of(getpid()) + resident_of(target->pid);
    return sample;
}

static void print_stats(const char *who, const weir_engine_info *stats) {
    printf("# %s: sessions up %" PRIu64 ", retired %" PRIu64 "; last-WQE events %" PRIu64
           ", beacons flushed %" PRIu64 ", forced teardowns %" PRIu64 ", destroy retries %" PRIu64
           ", stale completions %" PRIu64 "\n",
           who, stats->sessions_up, stats->sessions_retired, stats->last_wqe_events,
           stats->beacons_flushed, stats->teardown_forced, stats->destroy_retries,
           stats->completions_stale);
}

static int compare_u64(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

static void print_times(const char *what, uint64_t *ns, unsigned count) {
    qsort(ns, count, sizeof(*ns), compare_u64);
    printf("# %s: median %" PRIu64 " ms, longest %" PRIu64 " ms\n", what, ns[count / 2] / MS,
           ns[count - 1] / MS);
}

/* ---- cycles ---- */

/* Writes a pattern with a notification, reads it back, compares. */
static void transfer(weir_engine *engine, weir_peer peer, const struct actor_address *address,
                     unsigned cycle) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_transfer handle = {0};
    weir_memory memory;
    weir_remote remote;
    void *base;

    must(weir_memory_import(engine, peer, address->descriptor, (size_t)address->descriptor_length,
                            &remote),
         "import");
    must(weir_memory_allocate(engine, 2 * WRITE_BYTES, 0, &memory, &base), "memory");
    memset(base, (int)(cycle % 251) + 1, WRITE_BYTES);
    weir_segment segment = {.local = memory, .remote = remote, .length = WRITE_BYTES};
    options.flags = WEIR_TRANSFER_NOTIFY;
    options.notify_tag = cycle;
    must(weir_write(engine, peer, &segment, 1, &options, &handle), "write");
    must(weir_transfer_wait(engine, handle, PATIENCE_NS), "the end of a write");
    if (handle.id != 0)
        weir_transfer_release(engine, handle);
    segment.local_offset = WRITE_BYTES;
    handle.id = 0;
    must(weir_read(engine, peer, &segment, 1, NULL, &handle), "read");
    must(weir_transfer_wait(engine, handle, PATIENCE_NS), "the end of a read");
    if (handle.id != 0)
        weir_transfer_release(engine, handle);
    if (memcmp(base, (char *)base + WRITE_BYTES, WRITE_BYTES) != 0)
        fail("what was read back is not what was written", 0);
    must(weir_remote_release(engine, remote), "remote release");
}

/* Where the time of cycles went. */
struct phases {
    uint64_t open, transfer, close;
};

/* Every other cycle says good-bye to the peer before it closes the engine. */
static void cycle_once(const struct actor_address *address, unsigned cycle, struct phases *sum) {
    uint64_t begin = now_ns(), opened, done;
    weir_engine *engine = engine_open(device, rdma_a);
    weir_peer peer;

    opened = now_ns();
    must(weir_peer_open(engine, address->address, &peer), "peer");
    transfer(engine, peer, address, cycle);
    if (cycle % 2 == 0)
        must(weir_peer_close(engine, peer), "closing the peer");
    done = now_ns();
    weir_engine_close(engine);
    sum->open += opened - begin;
    sum->transfer += done - opened;
    sum->close += now_ns() - done;
}

/* The target has torn down as many sessions as there were. */
static weir_engine_info target_settled(struct actor *target, uint64_t sessions) {
    uint64_t until = now_ns() + BACK_NS;
    struct actor_report report;

    do {
        report = actor_ask(target);
        if (now_ns() > until)
            fail("the target keeps sessions of peers that left", 0);
    } while (report.stats.sessions_retired < sessions);
    return report.stats;
}

static void run_cycles(unsigned count) {
    unsigned warm = count / 10 > 0 ? count / 10 : 1;
    struct actor_address address;
    struct actor target = target_start(device, rdma_b, &address);
    struct sample first = {0}, last;
    struct phases sum = {0};
    weir_engine_info stats;

    for (unsigned i = 0; i < count; i++) {
        cycle_once(&address, i, &sum);
        if (i + 1 == warm) {
            target_settled(&target, i + 1);
            first = sample_take(&target);
        }
    }
    printf("# %u cycles; on average %.1f ms to open, %.1f to connect and transfer, %.1f to close\n",
           count, (double)sum.open / 1e6 / count, (double)sum.transfer / 1e6 / count,
           (double)sum.close / 1e6 / count);
    stats = target_settled(&target, count);
    last = sample_take(&target);
    print_stats("target", &stats);
    printf("# descriptors %" PRIu64 " and %" PRIu64 ", resident memory %" PRIu64 " and %" PRIu64
           " KiB, after %u and %u cycles\n",
           first.descriptors, last.descriptors, first.resident >> 10, last.resident >> 10, warm,
           count);
    actor_end(&target);
    if (strcmp(first.kernel, last.kernel) != 0) {
        printf("the kernel held\n%sand then\n%s", first.kernel, last.kernel);
        exit(EXIT_FAILURE);
    }
    if (last.descriptors != first.descriptors)
        fail("descriptors are not flat", 0);
    if (last.resident > first.resident + GROWTH_BYTES_MAX)
        fail("memory is not flat", 0);
}

/* ---- kills ---- */

/* Until the kernel counts what it did before, since `since`: how long that took. */
static uint64_t kernel_back(const char *before, uint64_t since) {
    char now[WITNESS_BYTES];

    for (;;) {
        witness(now);
        if (strcmp(now, before) == 0)
            return now_ns() - since;
        if (now_ns() > since + BACK_NS) {
            printf("the kernel held\n%sand long after the kill\n%s", before, now);
            exit(EXIT_FAILURE);
        }
        sleep_ms(5);
    }
}

/* Somewhere in the middle of transfers, elsewhere in each round. */
static void let_it_run(unsigned round) {
    sleep_ms((round * 7919u) % 97);
}

static void run_kill_initiator(unsigned rounds) {
    static uint64_t noticed[ROUNDS_MAX], back[ROUNDS_MAX];
    struct actor_address address;
    struct actor target = target_start(device, rdma_b, &address);
    struct actor_report report = {0};
    char before[WITNESS_BYTES];

    witness(before);
    for (unsigned i = 0; i < rounds; i++) {
        struct actor writer = writer_start(device, rdma_a);
        writer_begin(&writer, &address);
        let_it_run(i);
        uint64_t killed = now_ns();
        actor_kill(&writer);
        do {
            report = actor_ask(&target);
            if (now_ns() > killed + BACK_NS)
                fail("the target does not notice that its initiator is dead", 0);
        } while (report.gone_count < i + 1 || report.stats.sessions_retired < i + 1);
        noticed[i] = report.gone_ns - killed;
        back[i] = kernel_back(before, killed);
    }
    print_times("GONE after the kill", noticed, rounds);
    print_times("resources back after the kill", back, rounds);
    printf("# the last GONE said %s\n", weir_error_name((int)report.gone_error));
    print_stats("target", &report.stats);
    actor_end(&target);
}

static void run_kill_target(unsigned rounds) {
    static uint64_t terminal[ROUNDS_MAX], back[ROUNDS_MAX];
    struct actor writer = writer_start(device, rdma_a);
    struct actor_report report = {0};
    char before[WITNESS_BYTES];

    actor_ask(&writer); /* its engine is open when it answers */
    witness(before);
    for (unsigned i = 0; i < rounds; i++) {
        struct actor_address address;
        struct actor target = target_start(device, rdma_b, &address);
        writer_begin(&writer, &address);
        let_it_run(i);
        uint64_t killed = now_ns();
        actor_kill(&target);
        report = writer_result(&writer);
        terminal[i] = report.terminal_ns - killed;
        back[i] = kernel_back(before, killed);
        if (i == 0 || i == rounds - 1)
            printf("# round %u: %" PRIu64 " transfers failed, the first with %s\n", i,
                   report.failed, weir_error_name((int)report.first_failure));
    }
    print_times("all transfers terminal after the kill", terminal, rounds);
    print_times("resources back after the kill", back, rounds);
    report = actor_ask(&writer);
    printf("# %" PRIu64 " GONE events for %u dead targets\n", report.gone_count, rounds);
    print_stats("initiator", &report.stats);
    actor_end(&writer);
}

/* ---- processes that leave a child behind, or become another program (W4) ---- */

static void check_orphan(const struct actor_orphan *orphan) {
    if (orphan->status != WEIR_ECLOSED)
        fail("a call in a child of fork", (int)orphan->status);
    if (orphan->descriptors > 0 || orphan->mappings > 0 ||
        (orphan->devices > 0 && !has_librdmacm)) {
        printf("a child has descriptors (%" PRIu64 ", of devices %" PRIu64
               ") and mappings (%" PRIu64 "), the first is %s\n",
               orphan->descriptors, orphan->devices, orphan->mappings, orphan->first);
        exit(EXIT_FAILURE);
    }
}

static void must_live(const struct actor_orphan *orphan) {
    if (kill((pid_t)orphan->pid, 0) != 0)
        fail("the child is gone, too", 0);
}

/* The target is dead, or another program: the writer hears of it, and the kernel has nothing left
 * of it, while `after` lives. A new target listens where it did. */
static uint64_t end_of_target(struct actor *writer, const struct actor_address *address,
                              const char *before, uint64_t killed) {
    struct actor_address again;
    struct actor_report report = writer_result(writer);

    kernel_back(before, now_ns());
    struct actor next = target_start_at(device, rdma_b, address->address, &again);
    if (strcmp(again.address, address->address) != 0)
        fail("the new target is elsewhere", 0);
    actor_end(&next);
    return report.terminal_ns - killed;
}

/* librdmacm has devices open for itself, with a protection domain of each that it uses, and leaves
 * them to children. */
static void look_past_librdmacm(void) {
    has_librdmacm = rdma_a != NULL && strncmp(rdma_a, "siw", 3) == 0;
}

static void run_fork_target(unsigned rounds) {
    static uint64_t terminal[ROUNDS_MAX];
    struct actor writer = writer_start(device, rdma_a);
    char before[WITNESS_BYTES];

    look_past_librdmacm();
    actor_ask(&writer);
    witness(before);
    for (unsigned i = 0; i < rounds; i++) {
        struct actor_address address;
        struct actor target = target_start(device, rdma_b, &address);
        writer_begin(&writer, &address);
        struct actor_orphan orphan = target_leave_child(&target);
        check_orphan(&orphan);
        let_it_run(i);
        uint64_t killed = now_ns();
        actor_kill_alone(&target);
        terminal[i] = end_of_target(&writer, &address, before, killed);
        must_live(&orphan);
        actor_close(&target);
    }
    print_times("all transfers terminal after the kill", terminal, rounds);
    actor_end(&writer);
}

static void run_exec_target(unsigned rounds) {
    static uint64_t terminal[ROUNDS_MAX];
    struct actor writer = writer_start(device, rdma_a);
    char before[WITNESS_BYTES];

    actor_ask(&writer);
    witness(before);
    for (unsigned i = 0; i < rounds; i++) {
        struct actor_address address;
        struct actor target = target_start(device, rdma_b, &address);
        writer_begin(&writer, &address);
        let_it_run(i);
        uint64_t begun = now_ns();
        target_exec(&target);
        terminal[i] = end_of_target(&writer, &address, before, begun);
        actor_kill(&target);
    }
    print_times("all transfers terminal after the exec", terminal, rounds);
    actor_end(&writer);
}

static void run_fork_initiator(unsigned rounds) {
    static uint64_t noticed[ROUNDS_MAX];
    struct actor_address address;
    struct actor target = target_start(device, rdma_b, &address);
    struct actor_report report = {0};
    char before[WITNESS_BYTES];

    look_past_librdmacm();
    witness(before);
    for (unsigned i = 0; i < rounds; i++) {
        struct actor writer = writer_start(device, rdma_a);
        struct actor_orphan orphan = writer_begin_and_fork(&writer, &address);
        check_orphan(&orphan);
        let_it_run(i);
        uint64_t killed = now_ns();
        actor_kill_alone(&writer);
        do {
            report = actor_ask(&target);
            if (now_ns() > killed + BACK_NS)
                fail("the target does not notice that its initiator is dead", 0);
        } while (report.gone_count < i + 1 || report.stats.sessions_retired < i + 1);
        noticed[i] = report.gone_ns - killed;
        kernel_back(before, now_ns());
        must_live(&orphan);
        actor_close(&writer);
    }
    print_times("GONE after the kill", noticed, rounds);
    actor_end(&target);
}

static const struct {
    const char *name;
    void (*run)(unsigned count);
} ways[] = {
    {"cycles", run_cycles},           {"kill-initiator", run_kill_initiator},
    {"kill-target", run_kill_target}, {"fork-initiator", run_fork_initiator},
    {"fork-target", run_fork_target}, {"exec-target", run_exec_target},
};
enum { WAYS = sizeof(ways) / sizeof(ways[0]) };

int main(int argc, char **argv) {
    unsigned long count = argc == 4 ? strtoul(argv[2], NULL, 10) : 0;

    if (count == 0 || count > ROUNDS_MAX) {
        fprintf(stderr, "usage: cycles WAY COUNT DEVICE\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    device = argv[3];
    rdma_a = getenv("RDMA_A");
    rdma_b = getenv("RDMA_B");
    for (size_t i = 0; i < WAYS; i++) {
        if (strcmp(argv[1], ways[i].name) == 0) {
            ways[i].run((unsigned)count);
            return 0;
        }
    }
    return 2;
}
