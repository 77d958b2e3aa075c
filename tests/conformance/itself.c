/* SPDX-License-Identifier: Apache-2.0 */
/* itself.c: the peer that is the engine itself, on every device: reads, writes, notifications and
 * messages to oneself end, and come, as those to another do (H16). */
#include <string.h>

#include "engine_tests.h"
#include "flows.h"
#include "state.h"

enum { BOX = 9, HALF = ENGINE_BYTES / 2, MANY = 100 };

/* Engine 1, which knows itself and its own memory. */
struct self {
    struct engines e;
    weir_engine *engine;
    weir_peer peer;
    weir_remote remote;
};

static int import_own(struct self *self, weir_memory memory, weir_remote *remote_out) {
    uint8_t descriptor[WEIR_DESCRIPTOR_MAX];
    size_t length = sizeof(descriptor);

    assert_status(weir_memory_export(self->engine, memory, descriptor, &length), WEIR_OK, "export");
    return weir_memory_import(self->engine, self->peer, descriptor, length, remote_out);
}

static void self_open(struct self *self, void **state) {
    engines_open(&self->e, state, NULL);
    self->engine = self->e.of[1];
    assert_status(weir_peer_self(self->engine, &self->peer), WEIR_OK, "self");
    self->e.peers[1][1] = self->peer;
    assert_status(import_own(self, self->e.memory[1], &self->remote), WEIR_OK, "import");
}

static weir_segment segment(const struct self *self, uint64_t from, uint64_t to, uint64_t length) {
    return (weir_segment){.local = self->e.memory[1],
                          .remote = self->remote,
                          .local_offset = from,
                          .remote_offset = to,
                          .length = length};
}

static weir_transfer begin(struct self *self, bool read, const weir_segment *segments, size_t count,
                           const weir_transfer_options *options) {
    weir_transfer transfer = {0};
    int rc = (read ? weir_read : weir_write)(self->engine, self->peer, segments, count, options,
                                             &transfer);
    assert_status(rc, WEIR_OK, "submit");
    return transfer;
}

static int end(struct self *self, weir_transfer transfer) {
    return finish(&self->e, 1, transfer);
}

/* Every length in one transfer, one after the other, and a long one that takes several turns. */
void test_H16_itself_reads_and_writes(void **state) {
    static const uint64_t lengths[] = {0, 1, 8, 63, 4096, 65536};
    static uint8_t before[ENGINE_BYTES];
    enum { COUNT = sizeof(lengths) / sizeof(lengths[0]) };
    struct self self;

    self_open(&self, state);
    uint8_t *bytes = self.e.bytes[1];
    memcpy(before, bytes, ENGINE_BYTES);
    for (int read = 0; read < 2; read++) {
        weir_segment segments[COUNT];
        uint64_t at = 0;
        for (uint32_t i = 0; i < COUNT; at += lengths[i++])
            segments[i] = read ? segment(&self, HALF + at, at, lengths[i])
                               : segment(&self, at, HALF + at, lengths[i]);
        assert_status(end(&self, begin(&self, read, segments, COUNT, NULL)), WEIR_OK, "transfer");
        assert_memory_equal(bytes + HALF, before, at);
        assert_memory_equal(bytes, before, at);
        memcpy(bytes + HALF, before + HALF, HALF);
        weir_segment whole = read ? segment(&self, HALF, 0, HALF) : segment(&self, 0, HALF, HALF);
        assert_status(end(&self, begin(&self, read, &whole, 1, NULL)), WEIR_OK, "transfer");
        assert_memory_equal(bytes + HALF, before, HALF);
        memcpy(bytes + HALF, before + HALF, HALF);
    }
    weir_segment over = segment(&self, 0, 1000, 50000); /* as memmove(3) does */
    assert_status(end(&self, begin(&self, false, &over, 1, NULL)), WEIR_OK, "transfer");
    assert_memory_equal(bytes + 1000, before, 50000);
    weir_engine_info stats = engine_stats(&self.e, 1);
    assert_int_equal(stats.sessions_up, 0);
    assert_int_equal(stats.wrs_posted, 0);
    assert_int_equal(stats.transfers_ok, 5);
    engines_close(&self.e);
}

/* The handle is one, it is there at once, and what it is asked it says as any other. */
void test_H16_itself_is_a_peer_like_others(void **state) {
    weir_peer_info info = WEIR_PEER_INFO_INIT;
    weir_peer again = {0}, opened = {0};
    weir_event event;
    struct self self;

    self_open(&self, state);
    assert_status(weir_event_take(self.engine, &event), WEIR_OK, "event");
    assert_int_equal(event.type, WEIR_EVENT_UP);
    assert_int_equal(event.peer.id, self.peer.id);
    assert_status(weir_peer_self(self.engine, &again), WEIR_OK, "self");
    assert_int_equal(again.id, self.peer.id);
    assert_status(weir_peer_connect(self.engine, self.peer), WEIR_OK, "connect");
    assert_status(weir_peer_query(self.engine, self.peer, &info), WEIR_OK, "query");
    assert_int_equal(info.connected, 1);
    assert_int_equal(info.peer.id, self.peer.id);
    assert_memory_equal(info.instance, self.engine->instance, sizeof(info.instance));
    assert_string_equal(info.address, self.e.address[1]);
    assert_status(weir_peer_close(self.engine, self.peer), WEIR_ESTALE, "close");
    /* Its own address gives the same peer, with a reference. */
    assert_status(weir_peer_open(self.engine, self.e.address[1], &opened), WEIR_OK, "open");
    assert_int_equal(opened.id, self.peer.id);
    assert_status(weir_peer_close(self.engine, opened), WEIR_OK, "close");
    assert_status(weir_peer_close(self.engine, opened), WEIR_ESTALE, "close");
    weir_segment one = segment(&self, 0, 8, 8);
    assert_status(end(&self, begin(&self, false, &one, 1, NULL)), WEIR_OK, "transfer");
    assert_status(weir_peer_flush(self.engine, self.peer, 0), WEIR_OK, "flush");
    some_turns(&self.e);
    assert_status(weir_event_take(self.engine, &event), WEIR_EAGAIN, "event");
    engines_close(&self.e);
}

static weir_transfer_options note_of(uint64_t tag, uint32_t flags) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    options.flags = WEIR_TRANSFER_NOTIFY | flags;
    options.notify_tag = tag;
    options.user_data = tag;
    options.notify_payload = "own";
    options.notify_length = 3;
    return options;
}

/* More than the application's queue has room for: the rest waits, and each comes once, in order. */
void test_H16_itself_notifies(void **state) {
    weir_transfer transfers[MANY];
    weir_notification got;
    struct self self;
    uint32_t waited = 0;

    self_open(&self, state);
    for (uint32_t i = 0; i < MANY; i++) {
        weir_transfer_options options = note_of(i, 0);
        weir_segment one = segment(&self, i, HALF + i, 1);
        transfers[i] = begin(&self, i % 2 == 1, &one, 1, &options);
    }
    some_turns(&self.e);
    for (uint32_t i = 0; i < MANY; i++)
        waited += weir_transfer_waiting_for(self.engine, transfers[i]) == WEIR_WAITING_CREDITS;
    assert_int_equal(waited, MANY - 64);
    assert_status(weir_peer_flush(self.engine, self.peer, 0), WEIR_EINPROGRESS, "flush");
    weir_segment plain = segment(&self, 0, HALF, 64); /* what tells nothing is not held up */
    assert_status(end(&self, begin(&self, false, &plain, 1, NULL)), WEIR_OK, "transfer");
    for (uint32_t i = 0; i < MANY; i++) {
        UNTIL(&self.e, weir_notification_take(self.engine, &got) == WEIR_OK);
        assert_int_equal(got.tag, i);
        assert_int_equal(got.from.id, self.peer.id);
        assert_int_equal(got.length, 3);
        assert_memory_equal(got.payload, "own", 3);
    }
    for (uint32_t i = 0; i < MANY; i++)
        assert_status(end(&self, transfers[i]), WEIR_OK, "transfer");
    assert_status(weir_notification_take(self.engine, &got), WEIR_EAGAIN, "notification");
    assert_int_equal(engine_stats(&self.e, 1).notifications_sent, MANY);
    engines_close(&self.e);
}

/* Completions come in the order in which the transfers ended. */
void test_H16_itself_completes_in_order(void **state) {
    weir_completion done;
    struct self self;

    self_open(&self, state);
    for (uint32_t i = 0; i < 20; i++) {
        weir_transfer_options options = note_of(i, WEIR_TRANSFER_QUEUE);
        weir_segment one = segment(&self, i, HALF + i, 8);
        begin(&self, false, &one, 1, &options);
    }
    for (uint32_t i = 0; i < 20; i++) {
        UNTIL(&self.e, weir_completion_take(self.engine, &done) == WEIR_OK);
        assert_int_equal(done.user_data, i);
        assert_status(done.status, WEIR_OK, "completion");
    }
    engines_close(&self.e);
}

/* Errors of the submit, of the import, and of memory that is gone, are those of any peer. */
void test_H16_itself_is_refused_as_others_are(void **state) {
    weir_remote there = {0}, of_peer = {0};
    weir_memory memory;
    weir_transfer transfer;
    struct self self;
    void *base;

    self_open(&self, state);
    weir_segment one = segment(&self, 1, 0, ENGINE_BYTES);
    assert_status(weir_write(self.engine, self.peer, &one, 1, NULL, &transfer), WEIR_EBOUNDS,
                  "bounds");
    assert_status(weir_memory_allocate(self.engine, 4096, WEIR_ACCESS_REMOTE_READ, &memory, &base),
                  WEIR_OK, "memory");
    assert_status(import_own(&self, memory, &there), WEIR_OK, "import");
    one = segment(&self, 0, 0, 8);
    one.remote = there;
    assert_status(weir_write(self.engine, self.peer, &one, 1, NULL, &transfer), WEIR_EACCESS,
                  "access");
    assert_status(end(&self, begin(&self, true, &one, 1, NULL)), WEIR_OK, "read");
    assert_status(weir_write(self.engine, self.e.peers[1][0], &one, 1, NULL, &transfer),
                  WEIR_EINVAL, "of another peer");
    uint8_t descriptor[WEIR_DESCRIPTOR_MAX];
    size_t length = sizeof(descriptor);
    assert_status(weir_memory_export(self.engine, memory, descriptor, &length), WEIR_OK, "export");
    assert_status(weir_memory_release(self.engine, memory), WEIR_OK, "release");
    assert_status(end(&self, begin(&self, true, &one, 1, NULL)), WEIR_EREMOTE, "released");
    assert_status(weir_memory_import(self.engine, self.peer, descriptor, length, &of_peer),
                  WEIR_ESTALE, "import of what is gone");
    assert_status(weir_remote_release(self.engine, there), WEIR_OK, "remote");
    assert_status(weir_read(self.engine, self.peer, &one, 1, NULL, &transfer), WEIR_ESTALE,
                  "stale");
    one = segment(&self, 0, 0, 8);
    assert_status(end(&self, begin(&self, true, &one, 1, NULL)), WEIR_OK, "others go on");
    /* Another engine's memory is not this one's. */
    length = sizeof(descriptor);
    assert_status(weir_memory_export(self.e.of[0], self.e.memory[0], descriptor, &length), WEIR_OK,
                  "export");
    assert_status(weir_memory_import(self.engine, self.peer, descriptor, length, &of_peer),
                  WEIR_ESTALE, "import of another's");
    engines_close(&self.e);
}

/* ---- messages ----------------------------------------------------------- */

/* Short and long ones, more than there is room for, in their order. */
void test_H16_itself_sends_messages(void **state) {
    weir_transfer transfers[UNDER_WAY];
    struct self self;

    self_open(&self, state);
    weir_inbox inbox = inbox_of(&self.e, 1, BOX, 20000, 4);
    for (uint32_t round = 0; round < 4; round++) {
        uint32_t first = round * UNDER_WAY;
        for (uint32_t i = 0; i < UNDER_WAY; i++)
            transfers[i] = send_to(&self.e, 1, 1, BOX, first + i, i % 3 == 0 ? 20000 - i : i * 7);
        for (uint32_t i = 0; i < UNDER_WAY; i++)
            take_and_give_back(&self.e, 1, inbox, 1, first + i, i % 3 == 0 ? 20000 - i : i * 7);
        for (uint32_t i = 0; i < UNDER_WAY; i++)
            assert_status(end(&self, transfers[i]), WEIR_OK, "a message");
    }
    some_turns(&self.e);
    assert_none(&self.e, 1, inbox);
    assert_int_equal(engine_stats(&self.e, 1).messages_taken, 4 * UNDER_WAY);
    engines_close(&self.e);
}

static weir_transfer send_with(struct self *self, const weir_transfer_options *options) {
    static const uint8_t bytes[16];
    const weir_part part = {.base = bytes, .length = sizeof(bytes)};
    weir_transfer transfer = {0};
    assert_status(weir_message_send(self->engine, self->peer, BOX, &part, 1, options, &transfer),
                  WEIR_OK, "send");
    return transfer;
}

/* Messages that find no inbox, none in time, a cancel, an inbox that is closed. */
void test_H16_its_messages_end_as_others_do(void **state) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    struct self self;

    self_open(&self, state);
    options.flags = WEIR_TRANSFER_NO_WAIT;
    assert_status(end(&self, send_with(&self, &options)), WEIR_ENOTREADY, "no inbox");
    options.flags = 0;
    options.timeout_ns = MS;
    assert_status(end(&self, send_with(&self, &options)), WEIR_ENOTREADY, "late");
    weir_transfer transfer = send_with(&self, NULL);
    assert_status(weir_transfer_cancel(self.engine, transfer), WEIR_OK, "cancel");
    assert_status(end(&self, transfer), WEIR_ECANCELED, "cancelled");
    weir_transfer waits = send_with(&self, NULL);
    some_turns(&self.e);
    assert_status(status_of(&self.e, 1, waits), WEIR_EINPROGRESS, "without an inbox");
    weir_inbox inbox = inbox_of(&self.e, 1, BOX, 64, 2);
    assert_status(end(&self, waits), WEIR_OK, "with one");
    do
        waits = send_with(&self, NULL);
    while (waits.id == 0 || (some_turns(&self.e), status_of(&self.e, 1, waits) == WEIR_OK));
    assert_status(weir_inbox_close(self.engine, inbox), WEIR_OK, "close");
    assert_status(end(&self, waits), WEIR_ESTALE, "closed");
    some_turns(&self.e);
    inbox = inbox_of(&self.e, 1, BOX, 64, 2); /* there is none of the other's number any more */
    assert_status(end(&self, send_with(&self, NULL)), WEIR_OK, "another inbox");
    engines_close(&self.e);
}

void test_H16_itself_lends(void **state) {
    struct self self;

    self_open(&self, state);
    weir_inbox inbox = inbox_of(&self.e, 1, BOX, 4096, 8);
    for (uint32_t i = 0; i < 20; i++) {
        weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
        weir_transfer transfer = {0};
        weir_message message;
        weir_loan loan;
        options.notify_tag = i;
        UNTIL(&self.e, weir_message_loan(self.engine, self.peer, BOX, 4096, &loan) == WEIR_OK);
        memset(loan.data, (int)i, 4096);
        assert_status(weir_loan_send(self.engine, &loan, &options, &transfer), WEIR_OK, "send");
        UNTIL(&self.e, weir_message_take(self.engine, inbox, &message) == WEIR_OK);
        assert_int_equal(message.tag, i);
        assert_int_equal(message.length, 4096);
        assert_int_equal(((const uint8_t *)message.data)[4095], i);
        assert_status(weir_message_give_back(self.engine, &message), WEIR_OK, "give back");
        assert_status(end(&self, transfer), WEIR_OK, "a loan");
    }
    engines_close(&self.e);
}

/* ---- beside others ------------------------------------------------------ */

/* Another peer's messages and its own come to one inbox, in turns, and both go on. */
void test_H16_itself_beside_another_peer(void **state) {
    struct self self;
    uint32_t own = 0, other = 0;

    self_open(&self, state);
    weir_inbox inbox = inbox_of(&self.e, 1, BOX, 300, 8);
    for (uint32_t i = 0; i < 20; i++) {
        weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
        options.flags = WEIR_TRANSFER_QUEUE;
        for (uint32_t from = 0; from < 2; from++) {
            const weir_part part = {.local = self.e.memory[from], .length = 300};
            assert_status(weir_message_send(self.e.of[from], self.e.peers[from][1], BOX, &part, 1,
                                            &options, NULL),
                          WEIR_OK, "send");
        }
    }
    while (own + other < 40) {
        weir_message message;
        UNTIL(&self.e, weir_message_take(self.engine, inbox, &message) == WEIR_OK);
        bool is_own = message.from.id == self.peer.id;
        assert_memory_equal(message.data, self.e.bytes[is_own ? 1 : 0], 300);
        own += is_own;
        other += !is_own;
        assert_status(weir_message_give_back(self.engine, &message), WEIR_OK, "give back");
    }
    assert_int_equal(own, 20);
    engines_close(&self.e);
}

/* Closed with work for itself under way: a status each, and an end. */
void test_H16_T10_closed_with_its_own_work(void **state) {
    struct self self;

    self_open(&self, state);
    for (uint32_t i = 0; i < MANY; i++) {
        weir_transfer_options options = note_of(i, 0);
        begin(&self, false, NULL, 0, &options);
    }
    send_with(&self, NULL);
    some_turns(&self.e);
    engines_close(&self.e);
}
