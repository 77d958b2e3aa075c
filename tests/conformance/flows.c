/* SPDX-License-Identifier: Apache-2.0 */
/* flows.c: see flows.h. */
#include "flows.h"

#include <string.h>

/* ---- messages ----------------------------------------------------------- */

weir_inbox inbox_of(struct engines *engines, uint32_t index, uint32_t number, uint64_t longest,
                    uint32_t count) {
    weir_inbox_options options = WEIR_INBOX_OPTIONS_INIT;
    weir_inbox inbox;

    options.number = number;
    options.message_bytes_max = longest;
    options.peer_messages = options.messages = count;
    assert_status(weir_inbox_open(engines->of[index], &options, &inbox), WEIR_OK, "inbox");
    return inbox;
}

weir_inbox_info look(struct engines *engines, uint32_t index, weir_inbox inbox) {
    weir_inbox_info info = WEIR_INBOX_INFO_INIT;

    assert_status(weir_inbox_query(engines->of[index], inbox, &info), WEIR_OK, "inbox query");
    return info;
}

uint64_t tag_of(uint32_t from, uint64_t number) {
    return (uint64_t)from << 32 | number;
}

weir_transfer_options tagged(uint64_t tag, uint32_t flags) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;

    options.flags = flags;
    options.notify_tag = tag;
    return options;
}

/* Where in its sender's memory the bytes of a message lie. */
static uint64_t start_of(const struct engines *engines, uint64_t tag, uint64_t length) {
    uint64_t room = engines->options.bytes - length;

    return (tag & UINT32_MAX) * 97 % (room + 1);
}

int try_send(struct engines *engines, uint32_t from, uint32_t to, uint32_t number, uint64_t length,
             const weir_transfer_options *options, weir_transfer *transfer_out) {
    uint64_t start = start_of(engines, options->notify_tag, length);
    weir_part part = {.local = engines->memory[from], .offset = start, .length = length};
    uint8_t bytes[SHORT];

    if (length <= SHORT) { /* of any memory, which is the application's again after the call */
        memcpy(bytes, engines->bytes[from] + start, length);
        part = (weir_part){.base = bytes, .length = length};
    }
    int rc = weir_message_send(engines->of[from], engines->peers[from][to], number, &part, 1,
                               options, transfer_out);
    memset(bytes, 0x5a, sizeof(bytes));
    return rc;
}

/* Likewise, in a loan; EAGAIN: all is lent. */
static int try_loan(struct engines *engines, const struct flow *flow, uint64_t length,
                    const weir_transfer_options *options, weir_transfer *transfer_out) {
    weir_engine *engine = engines->of[flow->from];
    uint64_t start = start_of(engines, options->notify_tag, length);
    weir_loan loan;
    int rc = weir_message_loan(engine, engines->peers[flow->from][flow->to], flow->number, length,
                               &loan);
    if (rc != WEIR_OK)
        return rc;
    memcpy(loan.data, engines->bytes[flow->from] + start, length);
    rc = weir_loan_send(engine, &loan, options, transfer_out);
    assert_int_equal(weir_loan_return(engine, &loan), rc == WEIR_OK ? WEIR_ESTALE : WEIR_OK);
    return rc;
}

weir_transfer send_to(struct engines *engines, uint32_t from, uint32_t to, uint32_t number,
                      uint64_t tag, uint64_t length) {
    weir_transfer_options options = tagged(tag_of(from, tag), 0);
    weir_transfer transfer = {0};

    assert_status(try_send(engines, from, to, number, length, &options, &transfer), WEIR_OK,
                  "send");
    return transfer;
}

void assert_content(struct engines *engines, const weir_message *message) {
    const uint8_t *sent = engines->bytes[message->tag >> 32];

    sent += start_of(engines, message->tag, message->length);
    if (memcmp(message->data, sent, message->length) != 0)
        fail_msg("message %d of engine %d, of %d bytes, has others",
                 (int)(message->tag & UINT32_MAX), (int)(message->tag >> 32), (int)message->length);
}

static bool try_take(struct engines *engines, uint32_t index, weir_inbox inbox,
                     weir_message *message_out) {
    int rc = weir_message_take(engines->of[index], inbox, message_out);

    if (rc != WEIR_EAGAIN)
        assert_status(rc, WEIR_OK, "take");
    return rc == WEIR_OK;
}

weir_message take(struct engines *engines, uint32_t index, weir_inbox inbox, uint32_t from,
                  uint64_t tag, uint64_t length) {
    weir_message message;

    UNTIL(engines, try_take(engines, index, inbox, &message));
    assert_int_equal(message.tag, tag_of(from, tag));
    assert_int_equal(message.inbox.id, inbox.id);
    assert_int_equal(message.length, length);
    assert_int_equal((uintptr_t)message.data % 8, 0);
    assert_content(engines, &message);
    return message;
}

void give_back(struct engines *engines, uint32_t index, const weir_message *message) {
    assert_status(weir_message_give_back(engines->of[index], message), WEIR_OK, "give back");
}

void take_and_give_back(struct engines *engines, uint32_t index, weir_inbox inbox, uint32_t from,
                        uint64_t tag, uint64_t length) {
    weir_message message = take(engines, index, inbox, from, tag, length);

    give_back(engines, index, &message);
}

void assert_none(struct engines *engines, uint32_t index, weir_inbox inbox) {
    weir_message message;

    assert_status(weir_message_take(engines->of[index], inbox, &message), WEIR_EAGAIN, "take");
}

/* ---- flows -------------------------------------------------------------- */

/* Some beside their notes, most longer, a few of the longest. */
uint64_t length_of(uint64_t tag, uint64_t longest) {
    uint64_t number = tag & UINT32_MAX;

    if (number % 3 == 0 || longest <= SHORT)
        return number * 7 % ((longest < SHORT ? longest : SHORT) + 1);
    if (number % 17 == 1)
        return longest;
    return SHORT + 1 + number * 131 % (longest / 4 + 1);
}

/* The oldest has ended; waits for nothing. */
static bool retire(struct engines *engines, struct flow *flow) {
    weir_transfer oldest = flow->under_way[flow->ended % UNDER_WAY];

    if (flow->ended == flow->sent || status_of(engines, flow->from, oldest) == WEIR_EINPROGRESS)
        return false;
    assert_status(finish(engines, flow->from, oldest), WEIR_OK, "a message of a flow");
    flow->ended++;
    return true;
}

void flow_send(struct engines *engines, struct flow *flow) {
    uint32_t window = flow->window > 0 ? flow->window : UNDER_WAY;

    while (retire(engines, flow))
        continue;
    while (flow->sent < flow->total && flow->sent < flow->ended + window) {
        weir_transfer *place = &flow->under_way[flow->sent % UNDER_WAY];
        uint64_t tag = tag_of(flow->from, flow->sent);
        weir_transfer_options options = tagged(tag, 0);
        uint64_t length = length_of(tag, flow->longest);
        int rc = flow->loans ? try_loan(engines, flow, length, &options, place)
                             : try_send(engines, flow->from, flow->to, flow->number, length,
                                        &options, place);
        if (rc == WEIR_EAGAIN)
            return;
        assert_status(rc, WEIR_OK, "send");
        flow->sent++;
    }
}

static struct flow *flow_with(struct course *course, uint32_t to, uint32_t from) {
    for (uint32_t i = 0; i < course->count; i++) {
        if (course->flows[i].to == to && course->flows[i].from == from)
            return &course->flows[i];
    }
    fail_msg("a message of nobody");
    return NULL;
}

/* Takes what has come, as far as it may be held: the next one of its sender. */
static void take_all(struct engines *engines, struct course *course, uint32_t to,
                     weir_inbox inbox) {
    weir_message *message = &course->held[course->held_count];

    while ((course->hold == 0 || course->held_count < course->hold) &&
           try_take(engines, to, inbox, message)) {
        struct flow *flow = flow_with(course, to, (uint32_t)(message->tag >> 32));
        assert_int_equal(message->tag & UINT32_MAX, flow->taken);
        assert_int_equal(message->length, length_of(message->tag, flow->longest));
        assert_content(engines, message);
        flow->taken++;
        if (course->hold == 0) {
            give_back(engines, to, message);
            continue;
        }
        course->held_at[course->held_count++] = to;
        message = &course->held[course->held_count];
    }
}

/* Up to so many, in any order. Nothing has come over them meanwhile. */
static void give_some_back(struct engines *engines, struct course *course, uint32_t most) {
    for (uint32_t i = 0; i < most && course->held_count > 0; i++) {
        course->random = course->random * 1664525 + 1013904223;
        uint32_t which = (course->random >> 8) % course->held_count;
        assert_content(engines, &course->held[which]);
        give_back(engines, course->held_at[which], &course->held[which]);
        course->held_count--;
        course->held[which] = course->held[course->held_count];
        course->held_at[which] = course->held_at[course->held_count];
    }
}

/* One after the other, each on a session that is up. */
static void break_next(struct engines *engines, struct course *course) {
    const struct flow *flow = &course->flows[engines->breaks % course->count];

    if (engines->break_wrs > 0 || peer_of(engines, flow->from, flow->to).connected == 0)
        return;
    course->random = course->random * 1664525 + 1013904223;
    engines->break_wrs = course->break_every + (course->random >> 8) % course->break_every;
}

static bool is_done(const struct course *course) {
    for (uint32_t i = 0; i < course->count; i++) {
        const struct flow *flow = &course->flows[i];
        if (flow->taken < flow->total || flow->ended < flow->total)
            return false;
    }
    return true;
}

/* True when all is. */
static bool course_turn(struct engines *engines, struct course *course) {
    for (uint32_t i = 0; i < course->count; i++) {
        struct flow *flow = &course->flows[i];
        flow_send(engines, flow);
        take_all(engines, course, flow->to, flow->inbox);
    }
    give_some_back(engines, course, (course->random >> 16) % 4);
    course->random = course->random * 1664525 + 1013904223;
    if (course->break_every > 0)
        break_next(engines, course);
    return is_done(course);
}

static uint64_t progress_of(const struct course *course) {
    uint64_t sum = 0;

    for (uint32_t i = 0; i < course->count; i++)
        sum += course->flows[i].taken + course->flows[i].ended;
    return sum;
}

void course_run(struct engines *engines, struct course *course) {
    assert_true(course->hold < HELD_MAX);
    while (!is_done(course)) { /* patience is with the next message, and not with all */
        uint64_t before = progress_of(course);
        UNTIL(engines, course_turn(engines, course) || progress_of(course) != before);
    }
    engines->break_wrs = 0;
    give_some_back(engines, course, course->held_count);
    some_turns(engines);
    for (uint32_t i = 0; i < course->count; i++) {
        const struct flow *flow = &course->flows[i];
        assert_none(engines, flow->to, flow->inbox);
        assert_int_equal(look(engines, flow->to, flow->inbox).held, 0);
        assert_int_equal(look(engines, flow->to, flow->inbox).spoiled, 0);
    }
}
