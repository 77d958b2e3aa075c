/* SPDX-License-Identifier: Apache-2.0 */
/* requests.c: requests and replies, as messages; and why does it wait? A client counts the bytes
 * of its texts at a server, and says what the library knows whenever it has to wait for long.
 *
 *     requests serve 127.0.0.1:7300
 *     requests ask 127.0.0.1:7300 1000
 *
 * The recipe:
 *
 *   1. Each side opens an inbox, and both know the numbers. Its options are the longest message
 *      and how many have room: nobody who sends ever finds out otherwise, for they wait.
 *   2. A message comes with its sender: the server answers to that, with the request's tag, by
 *      which the client knows what it is the answer to.
 *   3. A message that was taken is read where it lies, and given back; only then others have its
 *      room. The server gives a request back when its reply has ended, so a client that takes no
 *      replies gets no room for more requests, and a reply that it does not take in time is
 *      dropped: it holds up nobody else.
 *   4. STALLED tells that work for a peer is outstanding and none of it completes, and
 *      weir_stall_text says why, in a sentence for the log. It is news, no error: RESUMED
 *      follows, or GONE. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir.h>

enum { REQUESTS = 1, REPLIES = 2 }; /* the numbers of the inboxes */
enum { TEXT_MAX = 8000, AHEAD = 32 };
#define REPLY_NS UINT64_C(5000000000) /* for as long a reply waits for its client */

static void must(const char *what, int rc) {
    if (rc == WEIR_OK)
        return;
    fprintf(stderr, "requests: %s: %s\n", what, weir_strerror(rc));
    exit(1);
}

static void say_events(weir_engine *engine) {
    char text[WEIR_STALL_TEXT_MAX];
    weir_event event;
    while (weir_event_take(engine, &event) == WEIR_OK) {
        fprintf(stderr, "requests: %s\n", weir_event_name((int)event.type));
        if (event.type == WEIR_EVENT_STALLED &&
            weir_stall_text(engine, event.peer, text, sizeof(text)) == WEIR_OK)
            fprintf(stderr, "requests: %s\n", text);
    }
}

static weir_inbox inbox_of(weir_engine *engine, uint32_t number, uint64_t bytes_max) {
    weir_inbox_options options = WEIR_INBOX_OPTIONS_INIT;
    weir_inbox inbox;
    options.number = number;
    options.message_bytes_max = bytes_max;
    must("inbox", weir_inbox_open(engine, &options, &inbox));
    return inbox;
}

/* ---- the server ---- */

/* Replies that have ended, well or not: a client may be gone, or take none. */
static void take_replies(weir_engine *engine) {
    weir_completion ended;
    while (weir_completion_take(engine, &ended) == WEIR_OK) {
        weir_message *request = (weir_message *)(uintptr_t)ended.user_data;
        must("give back", weir_message_give_back(engine, request));
        free(request);
    }
}

/* The reply to one request. Short messages are copied at once, so nothing has to be kept but the
 * request. EAGAIN: too much is under way, and some of it has to end first, by its deadline at last.
 */
static void reply(weir_engine *engine, const weir_message *request) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_message *kept = malloc(sizeof(*kept));
    uint64_t length = request->length;
    weir_part part = {.base = &length, .length = sizeof(length)};
    int rc = WEIR_ENOMEM;
    if (kept != NULL) {
        *kept = *request;
        options.notify_tag = request->tag;
        options.flags = WEIR_TRANSFER_QUEUE;
        options.user_data = (uint64_t)(uintptr_t)kept;
        options.timeout_ns = REPLY_NS;
        while ((rc = weir_message_send(engine, request->from, REPLIES, &part, 1, &options, NULL)) ==
               WEIR_EAGAIN) {
            weir_engine_wait(engine, REPLY_NS);
            take_replies(engine);
            say_events(engine);
        }
    }
    if (rc != WEIR_OK) { /* the client is gone, perhaps */
        must("give back", weir_message_give_back(engine, request));
        free(kept);
    }
}

static void serve(weir_engine *engine) {
    weir_inbox inbox = inbox_of(engine, REQUESTS, TEXT_MAX);
    weir_message request;
    for (;;) {
        say_events(engine);
        take_replies(engine);
        if (weir_message_take(engine, inbox, &request) != WEIR_OK) {
            weir_engine_wait(engine, UINT64_MAX);
            continue;
        }
        reply(engine, &request);
    }
}

/* ---- the client ---- */

/* Takes the ends of all that was sent, with WEIR_TRANSFER_QUEUE; the first failure among them. */
static int take_ended(weir_engine *engine) {
    weir_completion ended;
    int failed = WEIR_OK;
    while (weir_completion_take(engine, &ended) == WEIR_OK)
        failed = failed == WEIR_OK ? ended.status : failed;
    return failed;
}

static uint64_t length_of(uint64_t number) {
    return number * 37 % TEXT_MAX;
}

/* Sends a text; it stays as it is until its reply has come. */
static void ask(weir_engine *engine, weir_peer server, weir_memory texts, uint64_t number) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_part part = {
        .local = texts, .offset = number % AHEAD * TEXT_MAX, .length = length_of(number)};
    options.notify_tag = number;
    options.flags = WEIR_TRANSFER_QUEUE;
    must("ask", weir_message_send(engine, server, REQUESTS, &part, 1, &options, NULL));
}

static int ask_all(weir_engine *engine, const char *address, uint64_t count) {
    weir_inbox inbox = inbox_of(engine, REPLIES, sizeof(uint64_t));
    uint64_t asked = 0, right = 0, answered = 0, length;
    weir_memory texts;
    weir_peer server;
    weir_message message;
    void *base;
    must("memory", weir_memory_allocate(engine, (uint64_t)AHEAD * TEXT_MAX, 0, &texts, &base));
    memset(base, 'w', (size_t)AHEAD * TEXT_MAX);
    must(address, weir_peer_open(engine, address, &server));
    while (answered < count) {
        say_events(engine);
        must("a request", take_ended(engine));
        for (; asked < count && asked < answered + AHEAD; asked++)
            ask(engine, server, texts, asked);
        if (weir_message_take(engine, inbox, &message) != WEIR_OK) {
            weir_engine_wait(engine, UINT64_MAX);
            continue;
        }
        memcpy(&length, message.data, sizeof(length));
        right += message.tag == answered && length == length_of(answered);
        answered++;
        must("give back", weir_message_give_back(engine, &message));
    }
    printf("%" PRIu64 " replies came, %" PRIu64 " are right\n", answered, right);
    weir_engine_close(engine);
    return right == count ? 0 : 1;
}

int main(int argc, char **argv) {
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
    char why[WEIR_OPEN_NOTE_MAX];
    weir_engine *engine;
    int serves = argc == 3 && strcmp(argv[1], "serve") == 0;
    if (!serves && (argc != 4 || strcmp(argv[1], "ask") != 0)) {
        fprintf(stderr, "usage: requests serve HOST:PORT | ask HOST:PORT COUNT\n");
        return 2;
    }
    if (serves)
        options.listen = argv[2];
    int rc = weir_engine_open(&options, &engine);
    if (rc != WEIR_OK) {
        weir_open_explain(&options, rc, why, sizeof(why));
        fprintf(stderr, "requests: %s\n", why);
        return 1;
    }
    if (!serves)
        return ask_all(engine, argv[2], strtoull(argv[3], NULL, 10));
    serve(engine);
}
