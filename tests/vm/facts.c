/* SPDX-License-Identifier: Apache-2.0 */
/* facts.c: the answers of this kernel's verbs driver where specification, manual pages and drivers
 * differ, one question after the other, straight on libibverbs.
 *
 *     facts DEVICE [OTHER-DEVICE]
 *
 * Prints "fact NAME VALUE" lines; facts.sh compares them with what docs and code rely on.
 * A question whose set-up fails ends the program. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "verbs_pair.h"

enum { SRQ_DEPTH = 64, CHAIN = 400, WAIT_MS = 20000, MORE_MS = 300, EVENT_MS = 700 };

/* Two connected queue pairs. */
struct pair {
    struct side *a, *b;
    struct ibv_qp *qa, *qb;
};

static struct side side_a, side_b;

static void pair_open(struct pair *pair, const struct qp_options *options) {
    *pair = (struct pair){.a = &side_a, .b = &side_b};
    pair->qa = qp_open(pair->a, options, NULL);
    pair->qb = qp_open(pair->b, options, NULL);
    qp_connect(pair->a, pair->qa, pair->b, pair->qb->qp_num, options);
    qp_connect(pair->b, pair->qb, pair->a, pair->qa->qp_num, options);
}

/* And forgets what the question left in queues, for the next one. */
static void pair_close(struct pair *pair) {
    struct ibv_wc wc;

    if (pair->qa != NULL)
        ibv_destroy_qp(pair->qa);
    if (pair->qb != NULL)
        ibv_destroy_qp(pair->qb);
    while (completion(pair->a, &wc, 1) || completion(pair->b, &wc, 1))
        ;
    events(pair->a, IBV_EVENT_QP_FATAL, 1, 0);
    events(pair->b, IBV_EVENT_QP_FATAL, 1, 0);
}

static void text(const char *name, const char *value) {
    printf("fact %s %s\n", name, value);
}

static void number(const char *name, long value) {
    printf("fact %s %ld\n", name, value);
}

/* Whether the device raises an event of this type, where none may come. How often it does is a race
 * of the driver's threads on some, so that no number is a fact. */
static void raises(const char *name, struct side *side, enum ibv_event_type type) {
    text(name, events(side, type, EVENT_MS, 0) > 0 ? "raised" : "never");
}

/* Counts the completions with this status until the wanted number has come, or none for WAIT_MS;
 * and what comes after it. *in_order_out, if wanted: whether their ids go up by one from first. */
static int completions(struct side *side, enum ibv_wc_status wanted_status, int wanted,
                       uint64_t first, int *in_order_out) {
    struct ibv_wc wc;
    int count = 0, in_order = 1;

    while (completion(side, &wc, count < wanted ? WAIT_MS : MORE_MS)) {
        in_order = in_order && wc.wr_id == first + (uint64_t)count;
        count += wc.status == wanted_status;
    }
    if (in_order_out != NULL)
        *in_order_out = in_order;
    return count;
}

/* As one word. */
static void status(const char *name, enum ibv_wc_status value) {
    printf("fact %s ", name);
    for (const char *at = ibv_wc_status_str(value); *at != '\0'; at++)
        putchar(*at == ' ' ? '-' : *at);
    putchar('\n');
}

static const char *state_name(enum ibv_qp_state state) {
    static const char *const names[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};

    return state < sizeof(names) / sizeof(names[0]) ? names[state] : "unknown";
}

static const char *errno_name(int error) {
    return error == ENOMEM ? "ENOMEM" : error == EINVAL ? "EINVAL" : error == 0 ? "0" : "other";
}

/* A write of 8 bytes: its status; *seen_out 0 when it never completed. */
static enum ibv_wc_status write_now(struct pair *pair, uint32_t offset, int *seen_out) {
    struct ibv_sge sge;
    struct ibv_send_wr wr = write_wr(pair->a, pair->b, 1, &sge, offset, 8), *bad;
    struct ibv_wc wc = {.status = IBV_WC_GENERAL_ERR};
    int rc = ibv_post_send(pair->qa, &wr, &bad);

    if (rc != 0)
        die("a plain write", rc);
    *seen_out = completion(pair->a, &wc, WAIT_MS);
    return wc.status;
}

/* The device attributes that weir sizes itself by. */
static void ask_limits(void) {
    number("srq_granted_of_64", side_a.srq_granted);
    number("active_mtu_bytes", 128L << side_a.port.active_mtu);
    number("max_sge", side_a.device.max_sge);
    number("max_message_bytes", side_a.port.max_msg_sz);
}

/* Bytes that were written arrived, and the writer's completion says so. */
static void ask_write(void) {
    struct qp_options options = QP_OPTIONS_DEFAULT;
    struct pair pair;
    int seen;

    pair_open(&pair, &options);
    memset(side_a.bytes, 0x5a, 8);
    memset(side_b.bytes, 0, 8);
    status("write", write_now(&pair, 0, &seen));
    number("write_bytes_arrived", memcmp(side_a.bytes, side_b.bytes, 8) == 0 ? 8 : 0);
    pair_close(&pair);
}

/* How many sends fit a queue that was asked for 16. One chain, so that nothing completes while
 * it is posted; its first is a read of 1 MiB for the same reason. */
static void ask_overrun(void) {
    static struct ibv_send_wr wrs[CHAIN];
    static struct ibv_sge sges[CHAIN];
    struct qp_options options = QP_OPTIONS_DEFAULT;
    struct ibv_send_wr *bad = NULL;
    struct ibv_qp_cap cap;
    struct ibv_wc wc;
    struct pair pair;
    unsigned ok = 0;
    int rc;

    struct ibv_qp *qp = qp_open(&side_a, &options, &cap);
    number("sq_granted_of_16", cap.max_send_wr);
    ibv_destroy_qp(qp);
    pair_open(&pair, &options);
    for (unsigned i = 0; i < CHAIN; i++) {
        wrs[i] = write_wr(&side_a, &side_b, i, &sges[i], 0, i == 0 ? SIDE_BYTES / 2 : 8);
        wrs[i].next = i + 1 < CHAIN ? &wrs[i + 1] : NULL;
    }
    wrs[0].opcode = IBV_WR_RDMA_READ;
    rc = ibv_post_send(pair.qa, &wrs[0], &bad);
    text("sq_overrun_errno", errno_name(rc));
    long accepted = bad == NULL ? CHAIN : bad - wrs;
    number("sq_overrun_accepted", accepted);
    while (ok < accepted && completion(&side_a, &wc, WAIT_MS) && wc.status == IBV_WC_SUCCESS)
        ok++;
    text("sq_overrun_accepted_complete", ok == accepted ? "all" : "not-all");
    text("sq_overrun_qp_after", state_name(qp_state(pair.qa)));
    pair_close(&pair);
}

/* ibv_post_send(3): on an error, all before *bad_wr was posted, and nothing from it on. */
static void ask_bad_chain(void) {
    struct qp_options options = QP_OPTIONS_DEFAULT;
    struct ibv_send_wr wrs[4], *bad = NULL;
    struct ibv_sge sges[4], many[64];
    struct pair pair;
    int rc, arrived = 0, completed, seen;

    pair_open(&pair, &options);
    memset(side_a.bytes, 0x77, 64);
    memset(side_b.bytes, 0, 64);
    for (unsigned i = 0; i < 4; i++) {
        wrs[i] = write_wr(&side_a, &side_b, i, &sges[i], i * 8, 8);
        wrs[i].next = i < 3 ? &wrs[i + 1] : NULL;
    }
    for (unsigned i = 0; i < 64; i++)
        many[i] = (struct ibv_sge){(uintptr_t)side_a.bytes, 1, side_a.mr->lkey};
    wrs[2].sg_list = many;
    wrs[2].num_sge = 64;
    rc = ibv_post_send(pair.qa, wrs, &bad);
    text("bad_third_errno", errno_name(rc));
    number("bad_third_bad_wr", bad == NULL ? -1 : bad - wrs);
    completed = completions(&side_a, IBV_WC_SUCCESS, 2, 0, NULL);
    for (unsigned i = 0; i < 4; i++)
        arrived += side_b.bytes[i * 8] == 0x77;
    number("bad_third_completed", completed);
    number("bad_third_arrived", arrived);
    /* Whether the queue pair still works: its next write. */
    status("bad_third_next_write", write_now(&pair, 0, &seen));
    pair_close(&pair);
}

/* Access with a key that is none. */
static void ask_wrong_rkey(void) {
    struct qp_options options = QP_OPTIONS_DEFAULT;
    struct ibv_sge sge;
    struct ibv_wc wc = {.status = IBV_WC_GENERAL_ERR};
    struct pair pair;

    pair_open(&pair, &options);
    struct ibv_send_wr wr = write_wr(&side_a, &side_b, 1, &sge, 0, 8), *bad;
    wr.wr.rdma.rkey ^= 0x5a00;
    if (ibv_post_send(pair.qa, &wr, &bad) != 0)
        die("a write with a wrong rkey", errno);
    completion(&side_a, &wc, WAIT_MS);
    status("wrong_rkey", wc.status);
    raises("wrong_rkey_last_wqe_initiator", &side_a, IBV_EVENT_QP_LAST_WQE_REACHED);
    raises("wrong_rkey_last_wqe_target", &side_b, IBV_EVENT_QP_LAST_WQE_REACHED);
    text("wrong_rkey_initiator", state_name(qp_state(pair.qa)));
    text("wrong_rkey_target", state_name(qp_state(pair.qb)));
    pair_close(&pair);
}

/* The three habits of LAST_WQE_REACHED, and what a beacon can rely on. */
static void ask_error_state(void) {
    struct qp_options options = QP_OPTIONS_DEFAULT;
    struct ibv_sge sges[8];
    struct ibv_send_wr *bad;
    struct ibv_wc wc;
    struct pair pair;
    int in_order, seen;

    pair_open(&pair, &options);
    write_now(&pair, 0, &seen);
    qp_to_error(pair.qb);
    raises("error_last_wqe", &side_b, IBV_EVENT_QP_LAST_WQE_REACHED);
    /* Posted after the transition: must flush, in order, or no beacon works. */
    for (unsigned i = 0; i < 8; i++) {
        struct ibv_send_wr wr = write_wr(&side_b, &side_a, 100 + i, &sges[i], 0, 8);
        int rc = ibv_post_send(pair.qb, &wr, &bad);
        if (rc != 0)
            break;
    }
    number("error_posted_flush_of_8", completions(&side_b, IBV_WC_WR_FLUSH_ERR, 8, 100, &in_order));
    text("error_flush_order", in_order ? "kept" : "lost");
    /* A peer that goes on sending to it. */
    for (unsigned i = 0; i < 4; i++) {
        struct ibv_send_wr wr = write_wr(&side_a, &side_b, i, &sges[i], 0, 8);
        wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
        if (ibv_post_send(pair.qa, &wr, &bad) != 0)
            break;
    }
    status("error_peer_write", completion(&side_a, &wc, WAIT_MS) ? wc.status : IBV_WC_GENERAL_ERR);
    raises("error_last_wqe_again", &side_b, IBV_EVENT_QP_LAST_WQE_REACHED);
    pair_close(&pair);
}

/* Unsignalled work is reported when it is flushed (man ibv_post_send: IBV_SEND_SIGNALED). */
static void ask_unsignalled_flush(void) {
    struct qp_options options = QP_OPTIONS_DEFAULT;
    struct ibv_sge sges[4];
    struct ibv_send_wr *bad;
    struct pair pair;

    options.signal_all = 0;
    pair_open(&pair, &options);
    qp_to_error(pair.qa);
    for (unsigned i = 0; i < 4; i++) {
        struct ibv_send_wr wr = write_wr(&side_a, &side_b, i, &sges[i], 0, 8);
        if (ibv_post_send(pair.qa, &wr, &bad) != 0)
            break;
    }
    number("unsignalled_flush_of_4", completions(&side_a, IBV_WC_WR_FLUSH_ERR, 4, 0, NULL));
    pair_close(&pair);
}

/* Immediate data takes a receive of the target's SRQ. */
static void ask_immediate(void) {
    struct qp_options options = QP_OPTIONS_DEFAULT;
    struct ibv_sge sge;
    struct ibv_send_wr *bad;
    struct ibv_wc wc = {0};
    struct pair pair;

    side_receive(&side_b, 1);
    pair_open(&pair, &options);
    struct ibv_send_wr wr = write_wr(&side_a, &side_b, 1, &sge, 0, 8);
    wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    wr.imm_data = 0x01020304;
    if (ibv_post_send(pair.qa, &wr, &bad) != 0)
        die("a write with immediate data", errno);
    int took = completion(&side_b, &wc, WAIT_MS) && wc.wr_id >= 1000 &&
               wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.imm_data == 0x01020304;
    text("immediate_takes_receive", took ? "yes" : "no");
    pair_close(&pair);
}

/* A SEND that nobody waits for, with no patience. */
static void ask_no_receive(void) {
    struct qp_options options = QP_OPTIONS_DEFAULT;
    struct ibv_sge sge;
    struct ibv_send_wr *bad;
    struct ibv_wc wc = {.status = IBV_WC_GENERAL_ERR};
    struct pair pair;

    options.rnr_retry = 0;
    pair_open(&pair, &options);
    struct ibv_send_wr wr = write_wr(&side_a, &side_b, 1, &sge, 0, 8);
    wr.opcode = IBV_WR_SEND;
    if (ibv_post_send(pair.qa, &wr, &bad) != 0)
        die("a send", errno);
    completion(&side_a, &wc, WAIT_MS);
    status("send_without_receive", wc.status);
    pair_close(&pair);
}

/* The target's queue pair is gone. */
static void ask_destroyed(void) {
    struct qp_options options = QP_OPTIONS_DEFAULT;
    struct pair pair;
    int seen;

    pair_open(&pair, &options);
    ibv_destroy_qp(pair.qb);
    pair.qb = NULL;
    status("write_to_destroyed", write_now(&pair, 0, &seen));
    text("write_to_destroyed_qp_after", state_name(qp_state(pair.qa)));
    pair_close(&pair);
}

/* Whether numbers of destroyed queue pairs come back at once. */
static void ask_numbers(void) {
    struct qp_options options = QP_OPTIONS_DEFAULT;
    uint32_t seen[32];
    int again = 0;

    for (unsigned i = 0; i < 32; i++) {
        struct ibv_qp *qp = qp_open(&side_a, &options, NULL);
        seen[i] = qp->qp_num;
        for (unsigned j = 0; j < i; j++)
            again += seen[j] == seen[i];
        ibv_destroy_qp(qp);
    }
    text("qp_number_reused_within_32", again > 0 ? "yes" : "no");
}

static void ask_post_in_init(void) {
    struct qp_options options = QP_OPTIONS_DEFAULT;
    struct ibv_qp *qp = qp_open(&side_a, &options, NULL);
    struct ibv_sge sge;
    struct ibv_send_wr wr = write_wr(&side_a, &side_b, 1, &sge, 0, 8), *bad;

    text("post_in_init", errno_name(ibv_post_send(qp, &wr, &bad)));
    ibv_destroy_qp(qp);
}

static void ask_inline(void) {
    struct qp_options options = QP_OPTIONS_DEFAULT;
    struct ibv_qp_cap cap;

    options.inline_bytes = 200;
    ibv_destroy_qp(qp_open(&side_a, &options, &cap));
    number("inline_granted_of_200", cap.max_inline_data);
}

/* How a page with this protection is registered by one that may not write it. */
static const char *registered(int protection, int kind) {
    void *page = mmap(NULL, 4096, protection, kind | MAP_ANONYMOUS, -1, 0);
    struct ibv_mr *mr;

    if (page == MAP_FAILED)
        return "no-mapping";
    mr = ibv_reg_mr(side_a.pd, page, 4096, IBV_ACCESS_REMOTE_READ);
    int error = mr == NULL ? errno : ibv_dereg_mr(mr);
    munmap(page, 4096);
    return error == EFAULT ? "EFAULT" : errno_name(error);
}

static void ask_mappings(void) {
    text("register_private", registered(PROT_READ | PROT_WRITE, MAP_PRIVATE));
    text("register_shared", registered(PROT_READ | PROT_WRITE, MAP_SHARED));
    text("register_private_read_only", registered(PROT_READ, MAP_PRIVATE));
    text("register_shared_read_only", registered(PROT_READ, MAP_SHARED));
    text("register_no_protection", registered(PROT_NONE, MAP_PRIVATE));
}

int main(int argc, char **argv) {
    if (argc < 2 || argc > 3) {
        fprintf(stderr, "usage: facts DEVICE [OTHER-DEVICE]\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    side_open(&side_a, argv[1], SRQ_DEPTH);
    side_open(&side_b, argv[argc - 1], SRQ_DEPTH);
    ask_limits();
    ask_write();
    ask_overrun();
    ask_bad_chain();
    ask_wrong_rkey();
    ask_error_state();
    ask_unsignalled_flush();
    ask_immediate();
    ask_no_receive();
    ask_destroyed();
    ask_numbers();
    ask_post_in_init();
    ask_inline();
    ask_mappings();
    side_close(&side_a);
    side_close(&side_b);
    return 0;
}
