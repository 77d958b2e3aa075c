/* SPDX-License-Identifier: Apache-2.0 */
/* messages.c: messages and notifications between two processes, of which one is stopped for a
 * while, or killed and started again at its address.
 *
 *     messages kill-receiver|kill-sender|stop-receiver COUNT DEVICE
 *
 * RDMA_A and RDMA_B name the RDMA devices of sender and receiver. Messages carry numbers, and
 * bytes that follow from them. Each receiver gets them whole, and in their order, each once; one
 * that ended well at the sender is taken, unless its receiver was killed; and one that did not is
 * sent again to the next receiver. Lines with "# " in front tell what was seen; the exit status is
 * 1, and one line says why, if something is not as promised. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "actors.h"

enum { INBOX = 5, LONGEST = 20000, WINDOW = 16, NUMBERS = 1 << 22, ROUNDS_MAX = 1000, HELD = 4 };
enum { LIVES_MAX = ROUNDS_MAX + 3 };
/* A tag is {the sender's life, which of its messages this is, number}. A number is sent again when
 * its message did not end well, behind others by then. */
enum { NUMBER_BITS = 22, ORDER_BITS = 26, LIFE_SHIFT = NUMBER_BITS + ORDER_BITS };
_Static_assert(NUMBERS == 1 << NUMBER_BITS, "every number has a tag");

enum { RECEIVER, SENDER, SIDES };

/* What the processes tell each other, and their parent. */
static struct board {
    char address[WEIR_ADDRESS_MAX];
    _Atomic bool stop[SIDES];
    _Atomic uint32_t lives[SIDES]; /* from 1, when it is ready */
    _Atomic uint64_t taken, notified;
    _Atomic uint64_t numbers; /* below which all were sent */
    _Atomic uint64_t failed;
    _Atomic int first_failure;
    _Atomic uint64_t events[SIDES][16];
    _Atomic uint64_t sessions;
    uint16_t well[NUMBERS]; /* the receiver's life in which it ended well; 0: it has not */
    uint16_t came[NUMBERS]; /* the one in which it was taken last */
    uint16_t sender_of[NUMBERS];
} * board;

static const char *device;

static uint64_t length_of(uint64_t number) {
    return number % 3 == 0 ? number * 7 % (WEIR_MESSAGE_COPY_MAX + 1) : number * 131 % LONGEST;
}

static uint64_t word_of(uint64_t number, uint64_t at) {
    return (number << 20 ^ at) * UINT64_C(0x9e3779b97f4a7c15);
}

static void fill(uint8_t *bytes, uint64_t number, uint64_t length) {
    for (uint64_t at = 0; at < length; at += 8) {
        uint64_t word = word_of(number, at);
        memcpy(bytes + at, &word, length - at < 8 ? length - at : 8);
    }
}

static bool is_filled(const uint8_t *bytes, uint64_t number, uint64_t length) {
    for (uint64_t at = 0; at < length; at += 8) {
        uint64_t word = word_of(number, at);
        if (memcmp(bytes + at, &word, length - at < 8 ? length - at : 8) != 0)
            return false;
    }
    return true;
}

static weir_engine *open_engine(int side, const char *rdma_device, const char *listen) {
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
    weir_engine *engine;

    if (rdma_device != NULL)
        setenv("WEIR_VERBS_DEVICE", rdma_device, 1);
    options.device = device;
    options.listen = listen;
    options.transfers_max = 64;
    options.segments_max = 1024;
    options.peers_max = 16;
    options.memories_max = options.remotes_max = 16;
    options.sq_depth = 32;
    options.notifications_max = 64;
    options.connect_timeout_ns = CONNECT_TIMEOUT_NS;
    must(weir_engine_open(&options, &engine), side == SENDER ? "sender" : "receiver");
    return engine;
}

/* Not of the other one's leaving, once both may. */
static void count_events(weir_engine *engine, int side) {
    weir_event event;

    while (weir_event_take(engine, &event) == WEIR_OK) {
        if (!board->stop[RECEIVER])
            board->events[side][event.type % 16]++;
    }
}

/* ---- the receiver --------------------------------------------------------- */

/* A killed sender's messages may come behind those of the next one: each has an order of its own.
 */
static void check_message(const weir_message *message, uint16_t life) {
    static uint64_t last_tag[LIVES_MAX];
    uint64_t number = message->tag % NUMBERS, sender = message->tag >> LIFE_SHIFT;

    if (sender >= LIVES_MAX || message->tag <= last_tag[sender])
        fail("a message came out of order", 0);
    last_tag[sender] = message->tag;
    if (board->came[number] == life && board->sender_of[number] == sender)
        fail("a message came twice", 0);
    board->sender_of[number] = (uint16_t)sender;
    if (message->length != length_of(number))
        fail("a message has another length", 0);
    if (!is_filled(message->data, number, message->length))
        fail("a message has other bytes", 0);
    board->came[number] = life;
    board->taken++;
}

static void receive(void) {
    weir_engine *engine =
        open_engine(RECEIVER, getenv("RDMA_B"), board->address[0] != '\0' ? board->address : NULL);
    weir_inbox_options options = WEIR_INBOX_OPTIONS_INIT;
    uint16_t life = (uint16_t)(board->lives[RECEIVER] + 1);
    weir_message held[HELD];
    uint64_t taken = 0;
    weir_inbox inbox;

    options.number = INBOX;
    options.message_bytes_max = LONGEST;
    options.peer_messages = 9;
    options.messages = 18;
    must(weir_inbox_open(engine, &options, &inbox), "inbox");
    must(weir_engine_address(engine, board->address, sizeof(board->address)), "address");
    board->lives[RECEIVER] = life;
    while (!board->stop[RECEIVER]) {
        weir_notification notification;
        weir_engine_wait(engine, 5 * MS);
        count_events(engine, RECEIVER);
        while (weir_notification_take(engine, &notification) == WEIR_OK)
            board->notified++;
        for (weir_message message; weir_message_take(engine, inbox, &message) == WEIR_OK;) {
            check_message(&message, life);
            if (taken >= HELD) { /* those of four are held, and given back in another order */
                weir_message *oldest = &held[taken * 7 / 4 % HELD];
                must(weir_message_give_back(engine, oldest), "give back");
                *oldest = message;
            } else {
                held[taken] = message;
            }
            taken++;
        }
    }
    for (uint64_t i = 0; i < HELD && i < taken; i++)
        must(weir_message_give_back(engine, &held[i]), "give back");
    weir_inbox_info info = WEIR_INBOX_INFO_INIT;
    must(weir_inbox_query(engine, inbox, &info), "inbox query");
    if (info.spoiled != 0 || info.held != 0)
        fail("an inbox was spoiled, or holds what was given back", 0);
    weir_engine_close(engine);
}

/* ---- the sender ------------------------------------------------------------ */

struct sending {
    weir_engine *engine;
    weir_peer peer;
    weir_memory memory;
    uint8_t *bytes;
    uint64_t life;  /* its own */
    uint16_t to;    /* the receiver's */
    uint64_t order; /* of the next message, from 1 */
    uint64_t next;  /* the number of the next one that was never sent */
    uint64_t numbers[WINDOW];
    weir_transfer transfers[WINDOW];
    bool is_under_way[WINDOW];
    uint64_t again[WINDOW]; /* those that have to be sent again, in order */
    uint32_t again_count;
    weir_transfer note;
    bool has_failed; /* something to this receiver has */
};

static void put_again(struct sending *s, uint64_t number, int status) {
    uint32_t at = s->again_count++;

    if (status != WEIR_EPEER && status != WEIR_EUNKNOWN && status != WEIR_ECONNECT)
        fail("a message", status);
    s->has_failed = true;
    if (board->failed++ == 0)
        board->first_failure = status;
    for (; at > 0 && s->again[at - 1] > number; at--)
        s->again[at] = s->again[at - 1];
    s->again[at] = number;
}

/* Takes up ends; how many are under way. */
static uint32_t look(struct sending *s) {
    uint32_t under_way = 0;

    for (uint32_t i = 0; i < WINDOW; i++) {
        if (!s->is_under_way[i])
            continue;
        int status = weir_transfer_status(s->engine, s->transfers[i]);
        if (status == WEIR_EINPROGRESS) {
            under_way++;
            continue;
        }
        must(weir_transfer_release(s->engine, s->transfers[i]), "release");
        s->is_under_way[i] = false;
        if (status == WEIR_OK)
            board->well[s->numbers[i]] = s->to;
        else
            put_again(s, s->numbers[i], status);
    }
    return under_way;
}

static int send_number(struct sending *s, uint32_t slot, uint64_t number) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_part part = {
        .local = s->memory, .offset = (uint64_t)slot * LONGEST, .length = length_of(number)};

    options.notify_tag = s->life << LIFE_SHIFT | s->order << NUMBER_BITS | number;
    fill(s->bytes + part.offset, number, part.length);
    int rc = weir_message_send(s->engine, s->peer, INBOX, &part, 1, &options, &s->transfers[slot]);
    s->numbers[slot] = number;
    s->is_under_way[slot] = rc == WEIR_OK;
    s->order += rc == WEIR_OK;
    return rc;
}

/* What failed goes first, to the receiver that is there now. */
static void send_more(struct sending *s) {
    for (uint32_t i = 0; i < WINDOW; i++) {
        bool is_again = s->again_count > 0;
        uint64_t number = is_again ? s->again[0] : s->next;
        if (s->is_under_way[i])
            continue;
        if (!is_again && (board->stop[SENDER] || number >= NUMBERS))
            return;
        int rc = send_number(s, i, number);
        if (rc == WEIR_EAGAIN)
            return;
        if (is_again)
            memmove(s->again, s->again + 1, --s->again_count * sizeof(s->again[0]));
        else
            board->numbers = ++s->next;
        if (rc != WEIR_OK)
            put_again(s, number, rc == WEIR_ESTALE ? WEIR_EPEER : rc); /* the handle is */
        if (rc != WEIR_OK)
            return;
    }
}

/* One notification at a time, whatever becomes of it. */
static void notify(struct sending *s) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;

    if (s->note.id != 0) {
        if (weir_transfer_status(s->engine, s->note) == WEIR_EINPROGRESS)
            return;
        weir_transfer_release(s->engine, s->note);
    }
    s->note.id = 0;
    options.flags = WEIR_TRANSFER_NOTIFY;
    (void)weir_write(s->engine, s->peer, NULL, 0, &options, &s->note);
}

static void meet(struct sending *s) {
    s->to = (uint16_t)board->lives[RECEIVER];
    must(weir_peer_open(s->engine, board->address, &s->peer), "peer");
    s->has_failed = false;
    s->note.id = 0;
}

static void send_on(struct sending *s) {
    uint32_t under_way = look(s);

    if (s->has_failed && (under_way > 0 || board->lives[RECEIVER] == s->to))
        return;
    if (s->has_failed) {
        weir_peer_close(s->engine, s->peer);
        meet(s);
    }
    send_more(s);
    notify(s);
}

static void send(void) {
    struct sending s = {.engine = open_engine(SENDER, getenv("RDMA_A"), NULL)};
    void *base;

    s.life = board->lives[SENDER] + 1;
    s.order = 1;
    s.next = board->numbers; /* those of one that was killed are nobody's */
    must(weir_memory_allocate(s.engine, (uint64_t)WINDOW * LONGEST, 0, &s.memory, &base), "memory");
    s.bytes = base;
    meet(&s);
    board->lives[SENDER] = (uint32_t)s.life;
    for (uint64_t until = 0;;) {
        send_on(&s);
        weir_engine_wait(s.engine, MS);
        count_events(s.engine, SENDER);
        if (!board->stop[SENDER])
            continue;
        if (until == 0)
            until = now_ns() + PATIENCE_NS;
        if (look(&s) == 0 && s.again_count == 0)
            break;
        if (now_ns() > until)
            fail("messages never end", 0);
    }
    weir_peer_info info = WEIR_PEER_INFO_INIT;
    if (weir_peer_query(s.engine, s.peer, &info) == WEIR_OK)
        board->sessions = info.sessions;
    board->lives[SENDER]++;        /* all has ended */
    while (!board->stop[RECEIVER]) /* it is there for those that are to be taken */
        weir_engine_wait(s.engine, 5 * MS);
    weir_engine_close(s.engine);
}

/* ---- the parent ------------------------------------------------------------ */

static pid_t pids[SIDES];

static void start(int side, void (*run)(void)) {
    uint32_t lives = board->lives[side];

    fflush(NULL);
    pids[side] = fork();
    if (pids[side] == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        run();
        exit(EXIT_SUCCESS);
    }
    for (uint64_t until = now_ns() + PATIENCE_NS; board->lives[side] == lives; sleep_ms(5)) {
        if (now_ns() > until || waitpid(pids[side], NULL, WNOHANG) != 0)
            fail("a process did not begin", 0);
    }
}

static void must_live(void) {
    for (int i = 0; i < SIDES; i++) {
        if (waitpid(pids[i], NULL, WNOHANG) != 0)
            fail("a process has ended", 0);
    }
}

static void until_above(const _Atomic uint64_t *count, uint64_t goal, const char *what) {
    for (uint64_t until = now_ns() + PATIENCE_NS; *count < goal; sleep_ms(2)) {
        must_live();
        if (now_ns() > until)
            fail(what, 0);
    }
}

static void some_messages(void) {
    until_above(&board->taken, board->taken + 40, "no message comes any more");
}

static void end_process(int side) {
    int status = 1;

    if (waitpid(pids[side], &status, 0) != pids[side] || status != 0)
        fail(side == SENDER ? "the sender ended badly" : "the receiver ended badly", 0);
}

/* Nothing new is sent; all has ended, and what ended well with this receiver was taken. */
static void end_all(void) {
    uint32_t lives = board->lives[SENDER];
    uint64_t well = 0, lost = 0;

    board->stop[SENDER] = true;
    for (uint64_t until = now_ns() + 2 * PATIENCE_NS; board->lives[SENDER] == lives; sleep_ms(5)) {
        must_live();
        if (now_ns() > until)
            fail("the messages never end", 0);
    }
    uint16_t life = (uint16_t)board->lives[RECEIVER];
    for (uint64_t number = 0, until = now_ns() + PATIENCE_NS; number < board->numbers; number++) {
        if (board->well[number] != 0)
            well++;
        else if (board->came[number] == 0)
            lost++; /* of a sender that was killed */
        while (board->well[number] == life && *(volatile uint16_t *)&board->came[number] != life) {
            must_live();
            if (now_ns() > until)
                fail("a message that ended well never comes", 0);
            sleep_ms(2);
        }
    }
    board->stop[RECEIVER] = true;
    end_process(SENDER);
    end_process(RECEIVER);
    printf("# %" PRIu64 " messages sent, %" PRIu64 " ended well, %" PRIu64
           " were sent again (the first ended with %s), %" PRIu64
           " of killed senders never came; %" PRIu64 " taken, %" PRIu64 " notifications\n",
           board->numbers, well, board->failed,
           board->failed > 0 ? weir_error_name(board->first_failure) : "nothing", lost,
           board->taken, board->notified);
}

static void kill_one(int side) {
    kill(pids[side], SIGKILL);
    waitpid(pids[side], NULL, 0);
}

static void run_kill_receiver(unsigned rounds) {
    for (unsigned i = 0; i < rounds; i++) {
        some_messages();
        sleep_ms(i * 7919u % 97);
        kill_one(RECEIVER);
        start(RECEIVER, receive);
    }
    some_messages();
    end_all();
    for (uint64_t number = 0; number < board->numbers; number++) {
        if (board->well[number] == 0)
            fail("a message has not ended well with any receiver", 0);
    }
}

static void run_kill_sender(unsigned rounds) {
    for (unsigned i = 0; i < rounds; i++) {
        some_messages();
        sleep_ms(i * 7919u % 97);
        kill_one(SENDER);
        start(SENDER, send);
    }
    some_messages();
    end_all();
}

/* A process that is stopped is no reason for anything: no session breaks, and nobody is gone. */
static void run_stop_receiver(unsigned rounds) {
    for (unsigned i = 0; i < rounds; i++) {
        some_messages();
        until_above(&board->notified, board->notified + 2, "no notification comes any more");
        kill(pids[RECEIVER], SIGSTOP);
        sleep_ms(1000);
        kill(pids[RECEIVER], SIGCONT);
    }
    some_messages();
    end_all();
    for (int i = 0; i < SIDES; i++) {
        if (board->events[i][WEIR_EVENT_DEGRADED] > 0)
            fail("a session broke", 0);
    }
    if (board->events[SENDER][WEIR_EVENT_GONE] > 0)
        fail("the receiver was given up", 0);
    if (board->sessions != 1)
        fail("there was another session", 0);
}

static const struct {
    const char *name;
    void (*run)(unsigned rounds);
} ways[] = {
    {"kill-receiver", run_kill_receiver},
    {"kill-sender", run_kill_sender},
    {"stop-receiver", run_stop_receiver},
};
enum { WAYS = sizeof(ways) / sizeof(ways[0]) };

int main(int argc, char **argv) {
    unsigned long count = argc == 4 ? strtoul(argv[2], NULL, 10) : 0;

    if (count == 0 || count > ROUNDS_MAX) {
        fprintf(stderr, "usage: messages WAY COUNT DEVICE\n");
        return 2;
    }
    device = argv[3];
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED)
        fail("mmap", 0);
    for (size_t i = 0; i < WAYS; i++) {
        if (strcmp(argv[1], ways[i].name) != 0)
            continue;
        start(RECEIVER, receive);
        start(SENDER, send);
        ways[i].run((unsigned)count);
        return 0;
    }
    return 2;
}
