/* SPDX-License-Identifier: Apache-2.0 */
/* instructions.c: a loop of transfers between two engines of one process, for
 * counting instructions: run it under callgrind twice with different counts; the
 * difference divided by the difference of the counts is the cost of one. Run by
 * instructions.sh.
 *
 *   instructions KIND COUNT      KIND: write8, write4k, segment8, notify8, message8, messages8,
 *                                      message4k, loan8, loan1m
 *
 * With the name of a device behind, over that instead of shm.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "weir.h"

enum { MEMORY_BYTES = 1 << 20, SEGMENTS = 64, BATCH = 32 };

static void must(int rc, const char *what) {
    if (rc == WEIR_OK)
        return;
    fprintf(stderr, "instructions: %s: %s\n", what, weir_strerror(rc));
    exit(1);
}

struct pair {
    weir_engine *from, *to;
    weir_peer peer;
    weir_memory memory;
    weir_remote remote;
};

static void finish(struct pair *pair, weir_transfer transfer) {
    while (weir_transfer_status(pair->from, transfer) == WEIR_EINPROGRESS) {
        weir_engine_progress(pair->from);
        weir_engine_progress(pair->to);
    }
    must(weir_transfer_status(pair->from, transfer), "transfer");
    weir_transfer_release(pair->from, transfer);
}

static void open_pair(struct pair *pair, const weir_engine_options *options) {
    char address[WEIR_ADDRESS_MAX];
    uint8_t descriptor[WEIR_DESCRIPTOR_MAX];
    size_t length = sizeof(descriptor);
    weir_memory target;
    void *base;
    weir_transfer transfer;
    must(weir_engine_open(options, &pair->from), "open");
    must(weir_engine_open(options, &pair->to), "open");
    must(weir_engine_address(pair->to, address, sizeof(address)), "address");
    must(weir_peer_open(pair->from, address, &pair->peer), "peer");
    must(weir_memory_allocate(pair->from, MEMORY_BYTES, 0, &pair->memory, &base), "allocate");
    must(weir_memory_allocate(pair->to, MEMORY_BYTES, WEIR_ACCESS_ALL, &target, &base), "allocate");
    must(weir_memory_export(pair->to, target, descriptor, &length), "export");
    must(weir_memory_import(pair->from, pair->peer, descriptor, length, &pair->remote), "import");
    weir_segment segment = {.local = pair->memory, .remote = pair->remote, .length = 8};
    must(weir_write(pair->from, pair->peer, &segment, 1, NULL, &transfer), "first write");
    finish(pair, transfer);
}

/* Messages of this part, one after the other, each taken and given back. */
static void run_messages(struct pair *pair, weir_part part, long count) {
    weir_inbox_options options = WEIR_INBOX_OPTIONS_INIT;
    weir_inbox inbox;
    weir_message message;
    weir_transfer transfer;
    options.message_bytes_max = part.length;
    must(weir_inbox_open(pair->to, &options, &inbox), "inbox");
    for (long i = 0; i < count; i++) {
        must(weir_message_send(pair->from, pair->peer, 0, &part, 1, NULL, &transfer), "send");
        if (transfer.id != 0)
            finish(pair, transfer);
        while (weir_message_take(pair->to, inbox, &message) != WEIR_OK)
            weir_engine_progress(pair->to);
        must(weir_message_give_back(pair->to, &message), "give back");
    }
}

/* Likewise, each made in a loan of so many bytes, of which nothing is written. */
static void run_loans(struct pair *pair, uint64_t length, long count) {
    weir_inbox_options options = WEIR_INBOX_OPTIONS_INIT;
    weir_inbox inbox;
    weir_message message;
    weir_transfer transfer;
    weir_loan loan;
    options.message_bytes_max = length;
    must(weir_inbox_open(pair->to, &options, &inbox), "inbox");
    for (long i = 0; i < count; i++) {
        int rc;
        while ((rc = weir_message_loan(pair->from, pair->peer, 0, length, &loan)) == WEIR_EAGAIN) {
            weir_engine_progress(pair->from);
            weir_engine_progress(pair->to);
        }
        must(rc, "loan");
        must(weir_loan_send(pair->from, &loan, NULL, &transfer), "send");
        if (transfer.id != 0)
            finish(pair, transfer);
        while (weir_message_take(pair->to, inbox, &message) != WEIR_OK)
            weir_engine_progress(pair->to);
        must(weir_message_give_back(pair->to, &message), "give back");
    }
}

/* Messages as run_messages has them, BATCH in each call, and progress on either side beside it. */
static void run_batches(struct pair *pair, long count) {
    weir_inbox_options options = WEIR_INBOX_OPTIONS_INIT;
    weir_part part = {.base = "message8", .length = 8};
    weir_outgoing out[BATCH];
    weir_inbox inbox;
    weir_message messages[BATCH];
    weir_transfer transfers[BATCH];
    options.message_bytes_max = 8;
    must(weir_inbox_open(pair->to, &options, &inbox), "inbox");
    for (int i = 0; i < BATCH; i++)
        out[i] = (weir_outgoing){&part, 1, 0};
    for (long done = 0; done < count;) {
        size_t most = count - done < BATCH ? (size_t)(count - done) : BATCH;
        size_t sent, taken;
        must(weir_message_send_many(pair->from, pair->peer, 0, out, most, NULL, transfers, &sent),
             "send");
        for (size_t i = 0; i < sent; i++) {
            if (transfers[i].id != 0)
                finish(pair, transfers[i]);
        }
        weir_engine_progress(pair->from);
        while (sent > 0) {
            weir_engine_progress(pair->to);
            if (weir_message_take_many(pair->to, inbox, messages, sent, &taken) != WEIR_OK)
                continue;
            must(weir_message_give_back_many(pair->to, messages, taken), "give back");
            sent -= taken;
            done += (long)taken;
        }
    }
}

int main(int argc, char **argv) {
    bool serial = argc == 4 && strcmp(argv[3], "serial") == 0;
    if (argc != 3 && argc != 4) {
        fputs("usage: instructions write8|write4k|segment8|notify8|message8|messages8|message4k|"
              "loan8|loan1m COUNT [serial|DEVICE]\n",
              stderr);
        return 2;
    }
    long count = atol(argv[2]);
    struct pair pair;
    weir_engine_options engine = WEIR_ENGINE_OPTIONS_INIT;
    engine.flags = serial ? WEIR_ENGINE_SERIAL : 0;
    engine.device = argc == 4 && !serial ? argv[3] : NULL;
    open_pair(&pair, &engine);
    weir_segment segments[SEGMENTS];
    for (size_t i = 0; i < SEGMENTS; i++)
        segments[i] = (weir_segment){.local = pair.memory,
                                     .remote = pair.remote,
                                     .local_offset = i * 8192,
                                     .remote_offset = i * 8192,
                                     .length = strcmp(argv[1], "write4k") == 0 ? 4096 : 8};
    weir_transfer_options notify = WEIR_TRANSFER_OPTIONS_INIT;
    notify.flags = WEIR_TRANSFER_NOTIFY;
    const weir_transfer_options *options = strcmp(argv[1], "notify8") == 0 ? &notify : NULL;
    weir_transfer transfer;
    weir_notification notification;
    /* segment8: one write with COUNT segments, in the end: two counts up to 64. */
    if (strcmp(argv[1], "message8") == 0) {
        run_messages(&pair, (weir_part){.base = "message8", .length = 8}, count);
        return 0;
    }
    if (strcmp(argv[1], "message4k") == 0) {
        run_messages(&pair, (weir_part){.local = pair.memory, .length = 4096}, count);
    } else if (strcmp(argv[1], "loan1m") == 0) {
        run_loans(&pair, 1 << 20, count);
    } else if (strcmp(argv[1], "loan8") == 0) {
        run_loans(&pair, 8, count);
    } else if (strcmp(argv[1], "messages8") == 0) {
        run_batches(&pair, count);
    } else if (strcmp(argv[1], "segment8") == 0) {
        for (int i = 0; i < 1000; i++)
            must(weir_write(pair.from, pair.peer, segments, (size_t)count, NULL, &transfer),
                 "write");
    } else {
        for (long i = 0; i < count; i++) {
            must(weir_write(pair.from, pair.peer, segments, 1, options, &transfer), "write");
            if (transfer.id != 0)
                finish(&pair, transfer);
            if (options != NULL) {
                while (weir_notification_take(pair.to, &notification) != WEIR_OK)
                    weir_engine_progress(pair.to);
            }
        }
    }
    weir_engine_close(pair.from);
    weir_engine_close(pair.to);
    return 0;
}
