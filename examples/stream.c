/* SPDX-License-Identifier: Apache-2.0 */
/* stream.c: many small records in few calls, and large pictures that are made where they are sent
 * from.
 *
 *     stream take 127.0.0.1:7300
 *     stream give 127.0.0.1:7300 100000
 *
 * The recipe:
 *
 *   1. Small records go by weir_message_send_many, some dozens in a call: one costs a fraction
 *      of a call then, and over a NIC they share doorbells. They are copied in the call. Handles
 *      of a few calls are kept, and the oldest are waited for and released before the next call.
 *   2. A call may send fewer than it was asked to; the next one begins where it stopped. EAGAIN
 *      is no failure: some of what is under way has to end first.
 *   3. A picture is made in a loan. Where none is free, sleep until there is news, and ask
 *      again. A loan that could not be sent is returned.
 *   4. WEIR_TRANSFER_QUEUE is for transfers that nobody wants to keep a handle of, like the
 *      pictures': what has ended comes from weir_completion_take.
 *   5. The taker gets several messages in a call, reads them where they lie, and gives them
 *      back.
 *   6. The last record says how many messages there are. Messages of two inboxes have no order
 *      among each other, and GONE may come before the last ones. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir.h>

enum { RECORDS = 1, PICTURES = 2 }; /* the numbers of the inboxes */
enum { RECORD_BYTES = 64, BATCH = 32, CALLS = 8, GIVERS = 8 };
enum { PICTURE_BYTES = 256 << 10, RECORDS_A_PICTURE = 1000 };
#define END UINT64_MAX /* the last record's tag: it has the numbers of records and of pictures */

static void must(const char *what, int rc) {
    if (rc == WEIR_OK)
        return;
    fprintf(stderr, "stream: %s: %s\n", what, weir_strerror(rc));
    exit(1);
}

/* ---- the giver ---- */

/* Handles of one call. */
struct call {
    weir_transfer transfers[BATCH];
    size_t count;
};

struct giver {
    weir_engine *engine;
    weir_peer taker;
    struct call calls[CALLS]; /* one after the other, and round again */
    unsigned turn;            /* the next one's, so the oldest */
    uint64_t pictures_ended;
};

static void end_call(const struct giver *giver, struct call *call) {
    for (size_t i = 0; i < call->count; i++) {
        must("a record", weir_transfer_wait(giver->engine, call->transfers[i], UINT64_MAX));
        weir_transfer_release(giver->engine, call->transfers[i]);
    }
    call->count = 0;
}

/* The handles of the oldest call are free for another then. */
static struct call *next_call(struct giver *giver) {
    struct call *call = &giver->calls[giver->turn];
    giver->turn = (giver->turn + 1) % CALLS;
    end_call(giver, call);
    return call;
}

static void give_end(struct giver *giver, uint64_t records, uint64_t pictures) {
    const uint64_t counts[RECORD_BYTES / sizeof(uint64_t)] = {records, pictures};
    const weir_part part = {.base = counts, .length = RECORD_BYTES};
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_transfer transfer;
    options.notify_tag = END;
    must("the end",
         weir_message_send(giver->engine, giver->taker, RECORDS, &part, 1, &options, &transfer));
    must("the end", weir_transfer_wait(giver->engine, transfer, UINT64_MAX));
    weir_transfer_release(giver->engine, transfer);
}

/* So many records, BATCH at most. */
static void give_records(struct giver *giver, uint64_t first, size_t count) {
    uint64_t records[BATCH][RECORD_BYTES / sizeof(uint64_t)];
    weir_outgoing messages[BATCH];
    weir_part parts[BATCH];
    for (size_t i = 0; i < count; i++) {
        memset(records[i], 0, RECORD_BYTES);
        records[i][0] = first + i;
        parts[i] = (weir_part){.base = records[i], .length = RECORD_BYTES};
        messages[i] = (weir_outgoing){.parts = &parts[i], .part_count = 1, .tag = first + i};
    }
    for (size_t done = 0; done < count;) {
        struct call *call = next_call(giver);
        int rc = weir_message_send_many(giver->engine, giver->taker, RECORDS, messages + done,
                                        count - done, NULL, call->transfers, &call->count);
        if (rc == WEIR_EAGAIN) {
            call->count = 0;
            continue; /* the next call waits for the one that is the oldest now */
        }
        must("records", rc);
        done += call->count;
    }
}

static void take_ended(struct giver *giver) {
    weir_completion ended;
    while (weir_completion_take(giver->engine, &ended) == WEIR_OK) {
        must("a picture", ended.status);
        giver->pictures_ended++;
    }
}

static void wait_for_pictures(struct giver *giver) {
    weir_engine_wait(giver->engine, UINT64_MAX);
    take_ended(giver);
}

static void give_picture(struct giver *giver, uint64_t number) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_loan loan;
    int rc;
    while ((rc = weir_message_loan(giver->engine, giver->taker, PICTURES, PICTURE_BYTES, &loan)) ==
           WEIR_EAGAIN)
        wait_for_pictures(giver);
    must("a loan", rc);
    memset(loan.data, (int)(number % 251), PICTURE_BYTES); /* the picture is made here */
    options.flags = WEIR_TRANSFER_QUEUE;
    options.notify_tag = number;
    while ((rc = weir_loan_send(giver->engine, &loan, &options, NULL)) == WEIR_EAGAIN)
        wait_for_pictures(giver);
    if (rc != WEIR_OK)
        weir_loan_return(giver->engine, &loan);
    must("a picture", rc);
    take_ended(giver);
}

static int give(weir_engine *engine, const char *address, uint64_t count) {
    struct giver giver = {.engine = engine};
    uint64_t given = 0, pictures = 0;
    must(address, weir_peer_open(engine, address, &giver.taker));
    while (given < count) {
        size_t most = count - given < BATCH ? (size_t)(count - given) : BATCH;
        give_records(&giver, given, most);
        given += most;
        for (; pictures < given / RECORDS_A_PICTURE; pictures++)
            give_picture(&giver, pictures);
    }
    for (int i = 0; i < CALLS; i++)
        end_call(&giver, &giver.calls[i]);
    take_ended(&giver);
    while (giver.pictures_ended < pictures)
        wait_for_pictures(&giver);
    give_end(&giver, given, pictures);
    printf("%" PRIu64 " records and %" PRIu64 " pictures have arrived\n", given, pictures);
    weir_engine_close(engine);
    return 0;
}

/* ---- the taker ---- */

static weir_inbox inbox_of(weir_engine *engine, uint32_t number, uint64_t bytes_max) {
    weir_inbox_options options = WEIR_INBOX_OPTIONS_INIT;
    weir_inbox inbox;
    options.number = number;
    options.message_bytes_max = bytes_max;
    must("inbox", weir_inbox_open(engine, &options, &inbox));
    return inbox;
}

/* Messages of one giver, so far. */
struct taken {
    weir_peer giver; /* id 0: this place is free */
    uint64_t records, pictures;
    uint64_t records_all, pictures_all; /* END until it has said that */
};

static struct taken *taken_of(struct taken *all, weir_peer giver) {
    struct taken *free_one = NULL;
    for (int i = 0; i < GIVERS; i++) {
        if (all[i].giver.id == giver.id)
            return &all[i];
        if (all[i].giver.id == 0)
            free_one = &all[i];
    }
    must("another giver", free_one != NULL ? WEIR_OK : WEIR_EFULL);
    *free_one = (struct taken){.giver = giver, .records_all = END, .pictures_all = END};
    return free_one;
}

/* Whether it is the next one of its giver. */
static bool is_right(const weir_message *message, uint64_t next, uint64_t bytes) {
    const unsigned char *data = message->data;
    uint64_t first;
    if (message->length != bytes || message->tag != next)
        return false;
    memcpy(&first, data, sizeof(first));
    return bytes == RECORD_BYTES ? first == next
                                 : data[0] == next % 251 && data[bytes - 1] == data[0];
}

static void look_at(const weir_message *message, uint64_t bytes, struct taken *taken) {
    if (message->tag == END) {
        memcpy(&taken->records_all, message->data, sizeof(uint64_t));
        memcpy(&taken->pictures_all, (const unsigned char *)message->data + sizeof(uint64_t),
               sizeof(uint64_t));
    } else if (!is_right(message, bytes == RECORD_BYTES ? taken->records++ : taken->pictures++,
                         bytes)) {
        fprintf(stderr, "stream: message %" PRIu64 " is not the next one\n", message->tag);
        exit(1);
    }
    if (taken->records != taken->records_all || taken->pictures != taken->pictures_all)
        return;
    printf("%" PRIu64 " records and %" PRIu64 " pictures were taken, in their order\n",
           taken->records, taken->pictures);
    fflush(stdout);
    taken->giver.id = 0;
}

/* Takes what waits in the inbox, which has messages of so many bytes; whether there was any. */
static bool take_some(weir_engine *engine, weir_inbox inbox, uint64_t bytes, struct taken *all) {
    weir_message messages[BATCH];
    size_t count;
    if (weir_message_take_many(engine, inbox, messages, BATCH, &count) != WEIR_OK)
        return false;
    for (size_t i = 0; i < count; i++)
        look_at(&messages[i], bytes, taken_of(all, messages[i].from));
    must("give back", weir_message_give_back_many(engine, messages, count));
    return true;
}

static void take(weir_engine *engine) {
    weir_inbox records = inbox_of(engine, RECORDS, RECORD_BYTES);
    weir_inbox pictures = inbox_of(engine, PICTURES, PICTURE_BYTES);
    struct taken all[GIVERS] = {0};
    for (;;) {
        bool some = take_some(engine, records, RECORD_BYTES, all);
        some |= take_some(engine, pictures, PICTURE_BYTES, all);
        if (!some)
            weir_engine_wait(engine, UINT64_MAX);
    }
}

int main(int argc, char **argv) {
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
    char why[WEIR_OPEN_NOTE_MAX];
    weir_engine *engine;
    bool takes = argc == 3 && strcmp(argv[1], "take") == 0;
    if (!takes && (argc != 4 || strcmp(argv[1], "give") != 0)) {
        fprintf(stderr, "usage: stream take HOST:PORT | give HOST:PORT RECORDS\n");
        return 2;
    }
    if (takes)
        options.listen = argv[2];
    int rc = weir_engine_open(&options, &engine);
    if (rc != WEIR_OK) {
        weir_open_explain(&options, rc, why, sizeof(why));
        fprintf(stderr, "stream: %s\n", why);
        return 1;
    }
    if (!takes)
        return give(engine, argv[2], strtoull(argv[3], NULL, 10));
    take(engine);
}
