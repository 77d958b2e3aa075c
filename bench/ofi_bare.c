/* SPDX-License-Identifier: Apache-2.0 */
/* ofi_bare.c: the least that a program can do over libfabric's connected endpoints, as a yardstick
 * for the ofi device: one loop that posts writes and polls, or plays ping-pong, and one that serves
 * it. ofi-compare.py runs it beside weir.
 *
 *   ofi_bare serve [--address A] [--region BYTES] [--wait spin|sleep] [--spin US]
 *   ofi_bare write --peer P [--size N] [--depth D] [--seconds S] [--cold BYTES]
 *                  [--every N] [--no-inject]
 *   ofi_bare latency --peer P [--seconds S]
 *
 * serve prints one word that a client takes as its peer, and serves one client after the other
 * until its standard input is closed. With --wait sleep it sleeps in poll(2) after US idle
 * microseconds, as `weir serve` does by itself: 50, of a ping-pong 10,000.
 *
 * write: each of D writes in flight has a place of its own on either side, as in `weir bench
 * write`; with --cold a random one of as many as make up so many bytes. Each has a completion of
 * delivery, or with --every one in N, which says as much of those in front of it; the next is
 * posted when that is taken. Writes that fit are injected. Only completed writes are counted, over
 * the time until the last one.
 *
 * latency: 8 bytes are written, without a completion, and a message of 32 bytes behind it, with a
 * completion of delivery; the other side answers with the same. So do two engines of weir for a
 * notified write. Half of a round trip is reported, the median and others.
 *
 * Owns all of it: hints, queues and flags are those of the device, src/device/ofi. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <poll.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S       UINT64_C(1000000000)
#define HUGE_BYTES     (UINT64_C(2) << 20)
#define BATCH          32   /* completions taken at once */
#define RECEIVES       64   /* kept posted, of messages */
#define MESSAGE        32   /* bytes of one */
#define DEPTH_MAX      1000 /* of the provider, 1024 are asked for */
#define CHORES_EVERY   1024 /* idle passes between two looks at all but completions */
#define YIELD_LEAST    16
#define YIELD_MOST     4096
#define YIELD_ALONE_NS 2000 /* a sched_yield(2) that took no longer found nobody else to run */
#define ANSWER_MS      5000
#define WARM_UP        1000
#define SAMPLES_MAX    (UINT64_C(1) << 24)
#define SPIN_US_WRITE  50
#define SPIN_US_PING   10000
#define CONTEXT_SEND   ((void *)(uintptr_t)(1u << 20)) /* less: receives, writes */

struct settings {
    const char *address, *peer;
    uint64_t region, size, depth, every, cold, spin_us;
    double seconds;
    bool sleeps, no_inject, spin_given;
};

/* A peer's memory; also what a client tells of its own when it connects. */
struct memory {
    uint64_t key, raddr, length;
    uint64_t plays; /* it is a client's who wants answers */
};

struct bare {
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_eq *eq;
    struct fid_cq *cq;
    struct fid_pep *pep;
    struct fid_ep *ep;
    struct fid_mr *mr;
    void *desc;
    uint8_t *base;
    struct memory own, there;
    int cq_fd, eq_fd;
    uint8_t messages[RECEIVES][MESSAGE];
    uint8_t message[MESSAGE]; /* that is sent */
    uint64_t random;
    bool is_down;
};

static _Noreturn void fail(const char *what, long error) {
    fprintf(stderr, "ofi_bare: %s: %s\n", what, fi_strerror((int)(error < 0 ? -error : error)));
    exit(1);
}

static void check(const char *what, long rc) {
    if (rc != 0)
        fail(what, rc);
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static uint64_t random_below(uint64_t *state, uint64_t bound) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state % bound;
}

/* ---- objects ---- */

static void get_info(struct bare *bare, const char *node, const char *service, uint64_t flags) {
    struct fi_info *hints = fi_allocinfo();
    if (hints == NULL)
        fail("no memory", FI_ENOMEM);
    hints->caps = FI_MSG | FI_RMA;
    hints->ep_attr->type = FI_EP_MSG;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->domain_attr->threading = FI_THREAD_SAFE;
    hints->tx_attr->msg_order = FI_ORDER_WAW | FI_ORDER_RAW | FI_ORDER_SAW | FI_ORDER_SAS;
    hints->tx_attr->size = hints->rx_attr->size = 1024;
    hints->fabric_attr->prov_name = strdup("tcp");
    check("fi_getinfo",
          fi_getinfo(FI_VERSION(1, 17), node, service, flags | FI_NUMERICHOST, hints, &bare->info));
    fi_freeinfo(hints);
}

static void open_queues(struct bare *bare) {
    struct fi_eq_attr eq = {.wait_obj = FI_WAIT_FD};
    struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_MSG, .wait_obj = FI_WAIT_FD};
    check("fi_fabric", fi_fabric(bare->info->fabric_attr, &bare->fabric, NULL));
    check("fi_domain", fi_domain(bare->fabric, bare->info, &bare->domain, NULL));
    check("fi_eq_open", fi_eq_open(bare->fabric, &eq, &bare->eq, NULL));
    check("fi_cq_open", fi_cq_open(bare->domain, &cq, &bare->cq, NULL));
    check("fi_control", fi_control(&bare->cq->fid, FI_GETWAIT, &bare->cq_fd));
    check("fi_control", fi_control(&bare->eq->fid, FI_GETWAIT, &bare->eq_fd));
}

/* On a huge-page boundary, populated, and registered. */
static void open_memory(struct bare *bare, uint64_t length) {
    uint64_t bytes = (length + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES;
    uint8_t *map =
        mmap(NULL, bytes + HUGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        fail("mmap", errno);
    bare->base = map + (-(uintptr_t)map & (HUGE_BYTES - 1));
    madvise(bare->base, bytes, MADV_HUGEPAGE);
    memset(bare->base, 0, bytes);
    check("fi_mr_reg",
          fi_mr_reg(bare->domain, bare->base, bytes,
                    FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE, 0,
                    now_ns(), 0, &bare->mr, NULL));
    bool is_virtual = (bare->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0;
    bare->desc = fi_mr_desc(bare->mr);
    bare->own = (struct memory){.key = fi_mr_key(bare->mr),
                                .raddr = is_virtual ? (uint64_t)(uintptr_t)bare->base : 0,
                                .length = length};
}

static void open_endpoint(struct bare *bare, struct fi_info *info) {
    check("fi_endpoint", fi_endpoint(bare->domain, info, &bare->ep, NULL));
    check("fi_ep_bind", fi_ep_bind(bare->ep, &bare->eq->fid, 0));
    check("fi_ep_bind",
          fi_ep_bind(bare->ep, &bare->cq->fid, FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION));
    check("fi_enable", fi_enable(bare->ep));
    bare->is_down = false;
}

/* The context of a receive is its number, plus one. */
static void post_receive(struct bare *bare, uintptr_t number) {
    struct iovec to = {.iov_base = bare->messages[number], .iov_len = MESSAGE};
    struct fi_msg message = {.msg_iov = &to, .iov_count = 1, .context = (void *)(number + 1)};
    check("fi_recvmsg", fi_recvmsg(bare->ep, &message, FI_COMPLETION));
}

static void post_receives(struct bare *bare) {
    for (uintptr_t i = 0; i < RECEIVES; i++)
        post_receive(bare, i);
}

static void close_all(struct bare *bare) {
    if (bare->ep != NULL)
        fi_close(&bare->ep->fid);
    if (bare->pep != NULL)
        fi_close(&bare->pep->fid);
    fi_close(&bare->mr->fid);
    fi_close(&bare->cq->fid);
    fi_close(&bare->eq->fid);
    fi_close(&bare->domain->fid);
    fi_close(&bare->fabric->fid);
    fi_freeinfo(bare->info);
}

/* ---- events and completions ---- */

union eq_entry {
    struct fi_eq_cm_entry cm;
    uint8_t bytes[sizeof(struct fi_eq_cm_entry) + 512];
};

/* The next event; 0: none within that time. A connection that ends is noted. */
static uint32_t next_event(struct bare *bare, union eq_entry *entry, int timeout_ms) {
    uint32_t event = 0;
    ssize_t got = timeout_ms == 0
                      ? fi_eq_read(bare->eq, &event, entry, sizeof *entry, 0)
                      : fi_eq_sread(bare->eq, &event, entry, sizeof *entry, timeout_ms, 0);
    if (got == -FI_EAVAIL) {
        struct fi_eq_err_entry error = {.err = 0};
        fi_eq_readerr(bare->eq, &error, 0);
        event = FI_SHUTDOWN;
        entry->cm.fid = error.fid;
    } else if (got < 0) {
        return 0;
    }
    if (event != FI_SHUTDOWN)
        return event;
    if (bare->ep == NULL || entry->cm.fid != &bare->ep->fid)
        return 0; /* of the client before */
    bare->is_down = true;
    return event;
}

/* A look found nothing. The CPU is offered to others, as weir's benches do: often while somebody
 * takes it, else seldom. */
static void pause_idle(void) {
    static uint64_t passes, every = YIELD_LEAST;
    if (++passes < every)
        return;
    uint64_t start = now_ns();
    sched_yield();
    if (now_ns() - start > YIELD_ALONE_NS)
        every = YIELD_LEAST;
    else if (every < YIELD_MOST)
        every *= 2;
    passes = 0;
}

/* How many; 0: none, or an error, after which the connection is down. */
static ssize_t take(struct bare *bare, struct fi_cq_msg_entry entries[BATCH]) {
    ssize_t got = fi_cq_read(bare->cq, entries, BATCH);
    if (got == -FI_EAVAIL) {
        struct fi_cq_err_entry error = {.err = 0};
        fi_cq_readerr(bare->cq, &error, 0);
        bare->is_down = true;
        return 0;
    }
    if (got < 0 && got != -FI_EAGAIN)
        fail("fi_cq_read", got);
    if (got > 0)
        return got;
    pause_idle();
    return 0;
}

static ssize_t post_write(struct bare *bare, uint64_t from, uint64_t to, uint64_t size,
                          void *context, uint64_t flags) {
    struct iovec local = {.iov_base = bare->base + from, .iov_len = size};
    struct fi_rma_iov remote = {
        .addr = bare->there.raddr + to, .len = size, .key = bare->there.key};
    struct fi_msg_rma write = {.msg_iov = &local,
                               .desc = &bare->desc,
                               .iov_count = 1,
                               .rma_iov = &remote,
                               .rma_iov_count = 1,
                               .context = context};
    return fi_writemsg(bare->ep, &write, flags);
}

/* The word at 1024 to the other side's at 0, and a message behind it. */
static void post_ball(struct bare *bare, uint64_t word) {
    struct iovec local = {.iov_base = bare->message, .iov_len = MESSAGE};
    struct fi_msg message = {.msg_iov = &local, .iov_count = 1, .context = CONTEXT_SEND};
    memcpy(bare->base + 1024, &word, sizeof word);
    check("fi_writemsg", post_write(bare, 1024, 0, sizeof word, CONTEXT_SEND, FI_INJECT));
    check("fi_sendmsg",
          fi_sendmsg(bare->ep, &message, FI_COMPLETION | FI_DELIVERY_COMPLETE | FI_INJECT));
}

/* Gives the message's receive back. False: it was no message's completion. */
static bool was_message(struct bare *bare, const struct fi_cq_msg_entry *entry) {
    uintptr_t number = (uintptr_t)entry->op_context - 1;
    if (number >= RECEIVES)
        return false;
    post_receive(bare, number);
    return true;
}

/* ---- serve ---- */

static bool input_is_closed(void) {
    struct pollfd input = {.fd = 0, .events = POLLIN};
    char byte;
    return poll(&input, 1, 0) > 0 && read(0, &byte, 1) <= 0;
}

static void sleep_on_all(struct bare *bare) {
    struct fid *fids[2] = {&bare->cq->fid, &bare->eq->fid};
    struct pollfd fds[3] = {{.fd = bare->cq_fd, .events = POLLIN},
                            {.fd = bare->eq_fd, .events = POLLIN},
                            {.fd = 0, .events = POLLIN}};
    if (fi_trywait(bare->fabric, fids, 2) == 0)
        poll(fds, 3, -1);
}

/* The looks besides those at completions. */
static void do_chores(struct bare *bare) {
    union eq_entry entry;
    next_event(bare, &entry, 0);
    if (input_is_closed())
        exit(0);
}

static void serve_client(struct bare *bare, const struct settings *settings) {
    uint64_t spin_us = settings->spin_given     ? settings->spin_us
                       : bare->there.plays != 0 ? SPIN_US_PING
                                                : SPIN_US_WRITE;
    struct fi_cq_msg_entry entries[BATCH];
    uint64_t idle = 0, since = 0, word = 0;
    while (!bare->is_down) {
        ssize_t got = take(bare, entries);
        for (ssize_t i = 0; i < got; i++) {
            if (was_message(bare, &entries[i]))
                post_ball(bare, ++word);
        }
        if (got > 0) {
            idle = since = 0;
            continue;
        }
        if (++idle % CHORES_EVERY == 0)
            do_chores(bare);
        if (!settings->sleeps || idle % 16 != 0)
            continue;
        uint64_t now = now_ns();
        since = since == 0 ? now : since;
        if (now - since > spin_us * 1000) {
            do_chores(bare);
            if (!bare->is_down)
                sleep_on_all(bare);
            since = 0;
        }
    }
}

/* The caller's information is the provider's until the endpoint has it. */
static bool accept_client(struct bare *bare, union eq_entry *entry) {
    memcpy(&bare->there, entry->cm.data, sizeof bare->there);
    open_endpoint(bare, entry->cm.info);
    if (bare->there.plays != 0)
        post_receives(bare);
    check("fi_accept", fi_accept(bare->ep, NULL, 0));
    fi_freeinfo(entry->cm.info);
    return next_event(bare, entry, ANSWER_MS) == FI_CONNECTED;
}

static void print_peer(const struct bare *bare, const struct settings *settings) {
    struct sockaddr_storage at = {0};
    size_t size = sizeof at;
    check("fi_getname", fi_getname(&bare->pep->fid, &at, &size));
    uint16_t port = at.ss_family == AF_INET ? ((struct sockaddr_in *)&at)->sin_port
                                            : ((struct sockaddr_in6 *)&at)->sin6_port;
    printf("%s,%u,%" PRIx64 ",%" PRIx64 ",%" PRIx64 "\n", settings->address, ntohs(port),
           bare->own.key, bare->own.raddr, bare->own.length);
    fflush(stdout);
}

/* Of a client that hung up, its receives come back with errors. */
static void drop_client(struct bare *bare) {
    struct fi_cq_msg_entry entries[BATCH];
    fi_close(&bare->ep->fid);
    bare->ep = NULL;
    do
        bare->is_down = false;
    while (take(bare, entries) > 0 || bare->is_down);
}

static int run_serve(struct bare *bare, const struct settings *settings) {
    union eq_entry entry;
    get_info(bare, settings->address, NULL, FI_SOURCE);
    open_queues(bare);
    open_memory(bare, settings->region);
    check("fi_passive_ep", fi_passive_ep(bare->fabric, bare->info, &bare->pep, NULL));
    check("fi_pep_bind", fi_pep_bind(bare->pep, &bare->eq->fid, 0));
    check("fi_listen", fi_listen(bare->pep));
    print_peer(bare, settings);
    for (;;) {
        while (next_event(bare, &entry, 100) != FI_CONNREQ) {
            if (input_is_closed())
                return 0;
        }
        if (accept_client(bare, &entry))
            serve_client(bare, settings);
        drop_client(bare);
    }
}

/* ---- clients ---- */

static void dial(struct bare *bare, const struct settings *settings, uint64_t length, bool plays) {
    char host[64], port[8];
    union eq_entry entry;
    if (settings->peer == NULL ||
        sscanf(settings->peer, "%63[^,],%7[^,],%" SCNx64 ",%" SCNx64 ",%" SCNx64, host, port,
               &bare->there.key, &bare->there.raddr, &bare->there.length) != 5)
        fail("--peer has to be what serve printed", FI_EINVAL);
    get_info(bare, host, port, 0);
    open_queues(bare);
    open_memory(bare, length);
    bare->own.plays = plays;
    open_endpoint(bare, bare->info);
    if (plays)
        post_receives(bare);
    check("fi_connect", fi_connect(bare->ep, bare->info->dest_addr, &bare->own, sizeof bare->own));
    if (next_event(bare, &entry, ANSWER_MS) != FI_CONNECTED)
        fail("no connection", FI_ECONNREFUSED);
}

/* Writes complete in their order, so those in flight are the last of those posted. */
struct stream {
    uint64_t size, stride, depth, pages; /* pages: places of each write in flight */
    uint64_t every, flags;
    uint64_t posted, done;
};

/* False: the provider has no room. */
static bool post_next(struct bare *bare, struct stream *stream) {
    bool is_last = (stream->posted + 1) % stream->every == 0;
    uint64_t first = stream->posted % stream->depth * stream->pages, here = 0, there = 0;
    if (stream->pages > 1) {
        here = random_below(&bare->random, stream->pages);
        there = random_below(&bare->random, stream->pages);
    }
    ssize_t rc = post_write(bare, (first + here) * stream->stride, (first + there) * stream->stride,
                            stream->size, (void *)(uintptr_t)stream->posted,
                            stream->flags | (is_last ? FI_COMPLETION | FI_DELIVERY_COMPLETE : 0));
    if (rc == -FI_EAGAIN)
        return false;
    check("fi_writemsg", rc);
    stream->posted++;
    return true;
}

static void take_writes(struct bare *bare, struct stream *stream) {
    struct fi_cq_msg_entry entries[BATCH];
    ssize_t got = take(bare, entries);
    if (bare->is_down)
        fail("the connection ended", FI_ECONNRESET);
    if (got > 0)
        stream->done = (uint64_t)(uintptr_t)entries[got - 1].op_context + 1;
}

/* The clock is read once for 64 KiB of writes, and for 64 of them. Returns how long it took. */
static double stream_run(struct bare *bare, struct stream *stream, double seconds) {
    uint64_t look = 0, start = now_ns(), end = start + (uint64_t)(seconds * 1e9);
    uint64_t step = stream->size < 1024 ? 64 : stream->size < 65536 ? 65536 / stream->size : 1;
    bool over = false;
    while (!over || stream->done != stream->posted) {
        while ((!over || stream->posted % stream->every != 0) &&
               stream->posted - stream->done < stream->depth && post_next(bare, stream))
            continue;
        take_writes(bare, stream);
        if (!over && stream->done >= look) {
            over = now_ns() >= end;
            look = stream->done + step;
        }
    }
    return (double)(now_ns() - start) / 1e9;
}

static int run_write(struct bare *bare, const struct settings *settings) {
    struct stream stream = {.size = settings->size,
                            .stride = (settings->size + 63) & ~UINT64_C(63),
                            .depth = settings->depth,
                            .every = settings->every};
    uint64_t pages = settings->cold / stream.stride / stream.depth;
    stream.pages = pages == 0 ? 1 : pages;
    uint64_t length = stream.depth * stream.pages * stream.stride;
    dial(bare, settings, length, false);
    if (length > bare->there.length)
        fail("the region of serve is too small", FI_ETOOSMALL);
    if (!settings->no_inject && stream.size <= bare->info->tx_attr->inject_size)
        stream.flags |= FI_INJECT;
    double took = stream_run(bare, &stream, settings->seconds);
    double rate = (double)stream.done / took;
    printf("operations/s %.6g\nbytes/s %.6g\n", rate, rate * (double)stream.size);
    return 0;
}

/* ---- latency ---- */

static void await_message(struct bare *bare) {
    struct fi_cq_msg_entry entries[BATCH];
    for (bool came = false; !came;) {
        ssize_t got = take(bare, entries);
        if (bare->is_down)
            fail("the connection ended", FI_ECONNRESET);
        for (ssize_t i = 0; i < got; i++)
            came = was_message(bare, &entries[i]) || came;
    }
}

static int compare(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static int run_latency(struct bare *bare, const struct settings *settings) {
    uint64_t *samples = malloc(SAMPLES_MAX * sizeof *samples);
    uint64_t count = 0, word = 0;
    if (samples == NULL)
        fail("no memory", FI_ENOMEM);
    dial(bare, settings, 4096, true);
    for (int i = 0; i < WARM_UP; i++) {
        post_ball(bare, ++word);
        await_message(bare);
    }
    uint64_t last = now_ns(), end = last + (uint64_t)(settings->seconds * 1e9);
    while (last < end && count < SAMPLES_MAX) {
        post_ball(bare, ++word);
        await_message(bare);
        uint64_t now = now_ns();
        samples[count++] = now - last;
        last = now;
    }
    qsort(samples, count, sizeof *samples, compare);
    printf("us %.3f\np99 %.3f\nround trips %" PRIu64 "\n", (double)samples[count / 2] / 2e3,
           (double)samples[count * 99 / 100] / 2e3, count);
    free(samples);
    return 0;
}

/* ---- the command line ---- */

static int usage(void) {
    fputs("usage: ofi_bare serve [--address A] [--region BYTES] [--wait spin|sleep] [--spin US]\n"
          "       ofi_bare write --peer P [--size N] [--depth D] [--seconds S] [--cold BYTES]\n"
          "                      [--every N] [--no-inject]\n"
          "       ofi_bare latency --peer P [--seconds S]\n",
          stderr);
    return 2;
}

static bool read_settings(int argc, char **argv, struct settings *out) {
    enum { ADDRESS = 1, PEER, REGION, SIZE, DEPTH, SECONDS, COLD, WAIT, SPIN, NO_INJECT, EVERY };
    static const struct option names[] = {
        {"address", 1, NULL, ADDRESS},     {"peer", 1, NULL, PEER},   {"region", 1, NULL, REGION},
        {"size", 1, NULL, SIZE},           {"depth", 1, NULL, DEPTH}, {"seconds", 1, NULL, SECONDS},
        {"cold", 1, NULL, COLD},           {"wait", 1, NULL, WAIT},   {"spin", 1, NULL, SPIN},
        {"no-inject", 0, NULL, NO_INJECT}, {"every", 1, NULL, EVERY}, {NULL, 0, NULL, 0}};
    for (int name; (name = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        uint64_t number = optarg != NULL ? strtoull(optarg, NULL, 10) : 0;
        switch (name) {
        case ADDRESS:
            out->address = optarg;
            break;
        case PEER:
            out->peer = optarg;
            break;
        case REGION:
            out->region = number;
            break;
        case SIZE:
            out->size = number;
            break;
        case DEPTH:
            out->depth = number;
            break;
        case SECONDS:
            out->seconds = strtod(optarg, NULL);
            break;
        case EVERY:
            out->every = number;
            break;
        case COLD:
            out->cold = number;
            break;
        case WAIT:
            out->sleeps = strcmp(optarg, "sleep") == 0;
            break;
        case SPIN:
            out->spin_us = number, out->spin_given = true;
            break;
        case NO_INJECT:
            out->no_inject = true;
            break;
        default:
            return false;
        }
    }
    return out->size > 0 && out->depth > 0 && out->depth <= DEPTH_MAX && out->every > 0 &&
           out->every <= out->depth && out->region > 0 && optind == argc;
}

int main(int argc, char **argv) {
    static struct bare bare = {.random = UINT64_C(0x7765697200000001)};
    struct settings settings = {.address = "127.0.0.1",
                                .region = UINT64_C(64) << 20,
                                .size = 65536,
                                .depth = 16,
                                .every = 1,
                                .seconds = 2};
    static const struct {
        const char *name;
        int (*run)(struct bare *, const struct settings *);
    } commands[] = {{"serve", run_serve}, {"write", run_write}, {"latency", run_latency}};
    if (argc < 2 || !read_settings(argc - 1, argv + 1, &settings))
        return usage();
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        if (strcmp(argv[1], commands[i].name) != 0)
            continue;
        int rc = commands[i].run(&bare, &settings);
        close_all(&bare);
        return rc;
    }
    return usage();
}
