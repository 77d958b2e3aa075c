/* SPDX-License-Identifier: Apache-2.0 */
/* test_loans.c: messages that are made in place, through weir.h over shm: what is lent, what its
 * receiver reads, and when it is back; ends of either side in between (M12). */
#define _GNU_SOURCE
#include "message_side.h"
#include "state.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { BOX = 5, SIZE = 100000 };

static weir_engine_info stats(struct side *side) {
    weir_engine_info info = WEIR_ENGINE_INFO_INIT;
    assert_int_equal(weir_engine_query(side->engine, &info), WEIR_OK);
    return info;
}

static int try_loan(struct side *side, uint64_t length, weir_loan *loan) {
    return weir_message_loan(side->engine, side->peer, BOX, length, loan);
}

static weir_loan loan_of(struct side *side, uint64_t length) {
    weir_loan loan = {0};
    assert_int_equal(try_loan(side, length, &loan), WEIR_OK);
    assert_int_equal((uintptr_t)loan.data % 64, 0);
    assert_int_equal(loan.length, length);
    return loan;
}

/* What a message of this length looks like: see message_side.c. */
static void fill(const weir_loan *loan, uint64_t tag) {
    if (loan->length <= WEIR_MESSAGE_COPY_MAX)
        fill_pattern(loan->data, loan->length, tag);
    else
        fill_pattern(loan->data, loan->length, 0);
}

static weir_transfer send_loan(struct side *side, const weir_loan *loan, uint64_t tag) {
    weir_transfer_options options = tagged(tag, 0);
    weir_transfer transfer = {0};
    fill(loan, tag);
    assert_int_equal(weir_loan_send(side->engine, loan, &options, &transfer), WEIR_OK);
    return transfer;
}

static weir_transfer lend(struct side *side, uint64_t tag, uint64_t length) {
    weir_loan loan = loan_of(side, length);
    return send_loan(side, &loan, tag);
}

/* An inbox of b's that a's loans are read from where they are. */
static weir_inbox open_lent(struct side *a, struct side *b, uint64_t longest) {
    open_pair(a, b);
    weir_inbox inbox = inbox_of(b, BOX, longest, 16);
    send_one(a, BOX, 1, 10);
    take_and_give_back(b, a, inbox, 1, 10);
    weir_loan loan = loan_of(a, 1000); /* tells b where it is */
    some_steps(a, b);
    assert_int_equal(weir_loan_return(a->engine, &loan), WEIR_OK);
    return inbox;
}

static void close_both(struct side *a, struct side *b) {
    side_close(a);
    side_close(b);
}

static void test_M12_a_loan_is_read_where_it_is(void **state) {
    (void)state;
    struct side a, b;
    weir_inbox inbox = open_lent(&a, &b, SIZE);
    uint64_t before = stats(&a).messages_lent;
    for (uint64_t tag = 10; tag < 200; tag++) {
        weir_transfer transfer = lend(&a, tag, SIZE);
        assert_int_equal(transfer.id, 0); /* done in the call */
        take_and_give_back(&b, &a, inbox, tag, SIZE);
    }
    assert_int_equal(stats(&a).messages_lent - before, 190);
    assert_int_equal(stats(&b).data_malformed, 0);
    assert_int_equal(look(&b, inbox).held, 0);
    close_both(&a, &b);
}

/* Loans of the first hour: nobody knows the inbox yet, or there is none, or no session. They are
 * sent as any message is. */
static void test_M12_loans_before_the_inbox_is_known(void **state) {
    (void)state;
    struct side a, b;
    open_pair(&a, &b);
    weir_transfer transfers[3];
    for (int i = 0; i < 3; i++)
        transfers[i] = lend(&a, (uint64_t)i, 1000 << (4 * i)); /* memory for longer ones is had */
    some_steps(&a, &b);
    assert_int_equal(status_of(&a, transfers[0]), WEIR_EINPROGRESS);
    weir_inbox inbox = inbox_of(&b, BOX, 1 << 20, 4);
    for (int i = 0; i < 3; i++) {
        take_and_give_back(&b, &a, inbox, (uint64_t)i, 1000 << (4 * i));
        STEP_UNTIL(&a, &b, status_of(&a, transfers[i]) == WEIR_OK);
    }
    assert_int_equal(stats(&a).messages_lent, 0);
    lend(&a, 7, SIZE); /* now it is told where they are */
    take_and_give_back(&b, &a, inbox, 7, SIZE);
    some_steps(&a, &b);
    lend(&a, 8, SIZE);
    take_and_give_back(&b, &a, inbox, 8, SIZE);
    assert_int_equal(stats(&a).messages_lent, 1);
    close_both(&a, &b);
}

/* A transfer goes on when its handle is released, and has its loan until it ends. */
static void test_M12_loans_of_transfers_without_handles(void **state) {
    (void)state;
    struct side a, b;
    weir_loan more;
    open_pair(&a, &b);
    for (uint64_t i = 0; i < 4; i++)
        assert_int_equal(weir_transfer_release(a.engine, lend(&a, i, SIZE)), WEIR_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(try_loan(&a, SIZE, &more), WEIR_EAGAIN);
        some_steps(&a, &b);
    }
    weir_inbox inbox = inbox_of(&b, BOX, SIZE, 8);
    for (uint64_t i = 0; i < 4; i++)
        take_and_give_back(&b, &a, inbox, i, SIZE);
    STEP_UNTIL(&a, &b, try_loan(&a, SIZE, &more) == WEIR_OK);
    assert_int_equal(weir_loan_return(a.engine, &more), WEIR_OK);
    assert_int_equal(stats(&a).messages_sent, 4);
    close_both(&a, &b);
}

/* All that the application has back itself wakes who waits for it, also a moment later. */
static void test_M12_what_is_back_here_wakes(void **state) {
    (void)state;
    struct side a, b;
    weir_loan loans[4], more;
    open_lent(&a, &b, SIZE);
    for (int i = 0; i < 4; i++)
        loans[i] = loan_of(&a, SIZE);
    assert_int_equal(try_loan(&a, SIZE, &more), WEIR_EAGAIN);
    assert_int_equal(weir_loan_return(a.engine, &loans[0]), WEIR_OK);
    assert_int_equal(weir_engine_wait(a.engine, UINT64_MAX), WEIR_OK);
    loans[0] = loan_of(&a, SIZE);
    for (int i = 0; i < 4; i++)
        assert_int_equal(weir_loan_return(a.engine, &loans[i]), WEIR_OK);
    close_both(&a, &b);
}

/* A shorter loan that there is room for does not put an end to the wait for a longer one. */
static void test_M12_a_shorter_loan_ends_no_wait(void **state) {
    (void)state;
    struct side a, b;
    weir_loan more;
    weir_inbox inbox = open_lent(&a, &b, SIZE);
    for (uint64_t i = 0; i < 3; i++)
        lend(&a, i, SIZE);
    lend(&a, 3, SIZE / 2);
    assert_int_equal(try_loan(&a, SIZE, &more), WEIR_EAGAIN);
    more = loan_of(&a, 1000);
    assert_int_equal(weir_loan_return(a.engine, &more), WEIR_OK);
    some_steps(&a, &b);
    while (weir_engine_wait(a.engine, 0) == WEIR_OK) /* what there is to hear is heard */
        continue;
    for (uint64_t i = 0; i < 3; i++)
        take_and_give_back(&b, &a, inbox, i, SIZE);
    for (int i = 0; i < 50; i++)
        weir_engine_progress(b.engine);
    assert_int_equal(weir_engine_wait(a.engine, PATIENCE_NS), WEIR_OK);
    more = loan_of(&a, SIZE);
    assert_int_equal(weir_loan_return(a.engine, &more), WEIR_OK);
    close_both(&a, &b);
}

/* Lent until it is given back, and not before; in any order. */
static void test_M12_what_is_lent_is_bounded(void **state) {
    (void)state;
    struct side a, b;
    weir_loan more;
    weir_message held[4];
    weir_inbox inbox = open_lent(&a, &b, SIZE);
    for (uint64_t i = 0; i < 4; i++)
        lend(&a, i, SIZE);
    assert_int_equal(try_loan(&a, SIZE, &more), WEIR_EAGAIN);
    for (uint64_t i = 0; i < 4; i++)
        held[i] = take(&b, &a, inbox, i, SIZE);
    assert_int_equal(try_loan(&a, SIZE, &more), WEIR_EAGAIN);
    give_back(&b, &held[2]);
    more = loan_of(&a, SIZE);
    memset(more.data, 0x77, SIZE); /* others are as they were */
    for (int i = 0; i < 4; i++) {
        if (i != 2)
            assert_content(&held[i], SIZE);
    }
    assert_int_equal(try_loan(&a, 1000, &more), WEIR_EAGAIN);
    for (int i = 0; i < 4; i++) {
        if (i != 2)
            give_back(&b, &held[i]);
        assert_int_equal(weir_message_give_back(b.engine, &held[i]), WEIR_ESTALE);
    }
    weir_loan small[WEIR_LOANS_MAX];
    for (int i = 0; i < WEIR_LOANS_MAX - 1; i++)
        small[i] = loan_of(&a, 1);
    assert_int_equal(try_loan(&a, 1, &more), WEIR_EAGAIN); /* as many as there may be */
    for (int i = 0; i < WEIR_LOANS_MAX - 1; i++)
        assert_int_equal(weir_loan_return(a.engine, &small[i]), WEIR_OK);
    close_both(&a, &b);
}

/* A write to memory that the other process may not write itself breaks the session. */
static void break_session(struct side *a, struct side *b) {
    weir_memory memory;
    void *base = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(base, MAP_FAILED);
    assert_int_equal(weir_memory_register(b->engine, base, 4096, WEIR_ACCESS_REMOTE_WRITE, &memory),
                     WEIR_OK);
    weir_remote remote = side_import(a, a->peer, b, memory);
    weir_segment segment = {a->memory, remote, 0, 0, 64};
    weir_transfer transfer;
    assert_int_equal(weir_write(a->engine, a->peer, &segment, 1, NULL, &transfer), WEIR_OK);
    weir_transfer_release(a->engine, transfer);
    uint64_t end = now_ns() + PATIENCE_NS;
    while (is_connected(a) && now_ns() < end)
        weir_engine_progress(a->engine);
    assert_false(is_connected(a));
}

/* All is lent, and there is no session, on which its receiver would say that some is back: asking
 * for more is no work, so an application's loop sleeps. */
static void test_M7_waiting_for_a_loan_without_a_session_sleeps(void **state) {
    (void)state;
    struct side a, b;
    weir_loan more;
    weir_inbox inbox = open_lent(&a, &b, SIZE);
    for (uint64_t i = 0; i < 4; i++)
        lend(&a, i, SIZE);
    for (uint64_t i = 0; i < 4; i++) {
        weir_message held = take(&b, &a, inbox, i, SIZE);
        if (i > 0)
            give_back(&b, &held);
        else
            assert_int_equal(held.length, SIZE); /* b keeps it */
    }
    for (int i = 0; i < 3; i++)
        loan_of(&a, SIZE);
    assert_int_equal(try_loan(&a, SIZE, &more), WEIR_EAGAIN);
    break_session(&a, &b);
    uint32_t asked = 0, slept = 0;
    uint64_t timeout_ns;
    while (slept < 20 && asked < 1000) {
        assert_int_equal(try_loan(&a, SIZE, &more), WEIR_EAGAIN);
        asked++;
        if (weir_engine_arm(a.engine, &timeout_ns) == WEIR_OK)
            slept++;
        weir_engine_progress(a.engine);
    }
    print_message("%u times asked, %u slept\n", asked, slept);
    assert_int_equal(slept, 20);
    close_both(&a, &b);
}

static void test_M12_arguments(void **state) {
    (void)state;
    struct side a, b;
    weir_loan loan, none = {0};
    weir_transfer transfer;
    weir_inbox inbox = open_lent(&a, &b, SIZE);
    assert_int_equal(weir_message_loan(NULL, a.peer, BOX, 1, &loan), WEIR_EINVAL);
    assert_int_equal(weir_message_loan(a.engine, a.peer, BOX, 1, NULL), WEIR_EINVAL);
    assert_int_equal(weir_message_loan(a.engine, (weir_peer){77}, BOX, 1, &loan), WEIR_ESTALE);
    assert_int_equal(try_loan(&a, SIZE + 1, &loan), WEIR_ETOOBIG);
    assert_int_equal(try_loan(&a, UINT64_C(1) << 31, &loan), WEIR_ETOOBIG);
    assert_int_equal(weir_loan_return(a.engine, NULL), WEIR_EINVAL);
    assert_int_equal(weir_loan_return(a.engine, &none), WEIR_ESTALE);
    assert_int_equal(weir_loan_send(a.engine, NULL, NULL, &transfer), WEIR_EINVAL);
    assert_int_equal(weir_loan_send(a.engine, &none, NULL, &transfer), WEIR_ESTALE);
    loan = loan_of(&a, 5000);
    assert_int_equal(weir_loan_send(a.engine, &loan, NULL, NULL), WEIR_EINVAL);
    weir_loan longer = loan;
    longer.length = 5001;
    assert_int_equal(weir_loan_send(a.engine, &longer, NULL, &transfer), WEIR_EBOUNDS);
    loan.length = 4000; /* less was needed */
    send_loan(&a, &loan, 3);
    assert_int_equal(weir_loan_send(a.engine, &loan, NULL, &transfer), WEIR_ESTALE);
    assert_int_equal(weir_loan_return(a.engine, &loan), WEIR_ESTALE);
    take_and_give_back(&b, &a, inbox, 3, 4000);
    loan = loan_of(&a, 0);
    send_loan(&a, &loan, 4);
    take_and_give_back(&b, &a, inbox, 4, 0);
    loan = loan_of(&a, 1000);
    assert_int_equal(weir_loan_return(a.engine, &loan), WEIR_OK);
    assert_int_equal(weir_loan_return(a.engine, &loan), WEIR_ESTALE);
    close_both(&a, &b);
}

/* Loans and other messages, in the order of their sends, and completions of each. */
static void test_M3_loans_keep_the_order(void **state) {
    (void)state;
    struct side a, b;
    weir_inbox inbox = open_lent(&a, &b, SIZE);
    for (uint64_t tag = 0; tag < 120; tag += 4) {
        send_one(&a, BOX, tag, 100);
        lend(&a, tag + 1, SIZE / 2);
        weir_loan loan = loan_of(&a, SIZE / 2);
        weir_transfer_options options = tagged(tag + 2, WEIR_TRANSFER_QUEUE);
        fill(&loan, tag + 2);
        assert_int_equal(weir_loan_send(a.engine, &loan, &options, NULL), WEIR_OK);
        send_one(&a, BOX, tag + 3, SIZE / 4);
        take_and_give_back(&b, &a, inbox, tag, 100);
        take_and_give_back(&b, &a, inbox, tag + 1, SIZE / 2);
        take_and_give_back(&b, &a, inbox, tag + 2, SIZE / 2);
        take_and_give_back(&b, &a, inbox, tag + 3, SIZE / 4);
        weir_completion completion;
        STEP_UNTIL(&a, &b, weir_completion_take(a.engine, &completion) == WEIR_OK);
        assert_int_equal(completion.user_data, tag + 2);
        assert_int_equal(completion.status, WEIR_OK);
    }
    assert_int_equal(stats(&a).messages_lent, 60);
    close_both(&a, &b);
}

/* A message that was sent stays as it is when its sender has closed, or takes other memory. */
static void test_M12_the_end_of_a_sender(void **state) {
    (void)state;
    struct side a, b;
    weir_message held[2], late;
    weir_inbox inbox = open_lent(&a, &b, SIZE);
    lend(&a, 1, SIZE);
    lend(&a, 2, SIZE);
    lend(&a, 3, SIZE);
    loan_of(&a, SIZE); /* never sent */
    held[0] = take(&b, &a, inbox, 1, SIZE);
    held[1] = take(&b, &a, inbox, 2, SIZE);
    side_close(&a);
    for (int i = 0; i < 100; i++)
        step(&b, &b);
    assert_int_equal(weir_message_take(b.engine, inbox, &late), WEIR_OK);
    assert_content(&late, SIZE);
    assert_content(&held[0], SIZE);
    assert_content(&held[1], SIZE);
    give_back(&b, &held[0]);
    assert_content(&held[1], SIZE);
    give_back(&b, &held[1]);
    give_back(&b, &late);
    assert_int_equal(look(&b, inbox).held, 0);
    side_close(&b);
}

/* The receiver closes the inbox: what was taken stays, and the sender's loans are its own. */
static void test_M12_the_end_of_an_inbox(void **state) {
    (void)state;
    struct side a, b;
    weir_inbox inbox = open_lent(&a, &b, SIZE);
    lend(&a, 1, SIZE);
    lend(&a, 2, SIZE);
    weir_loan mine = loan_of(&a, SIZE);
    weir_message held = take(&b, &a, inbox, 1, SIZE);
    assert_int_equal(weir_inbox_close(b.engine, inbox), WEIR_OK);
    some_steps(&a, &b);
    memset(mine.data, 0x55, SIZE);
    assert_content(&held, SIZE);
    inbox = inbox_of(&b, BOX, SIZE, 8);
    weir_transfer transfer = send_loan(&a, &mine, 3); /* of memory that was left: copied */
    take_and_give_back(&b, &a, inbox, 3, SIZE);
    STEP_UNTIL(&a, &b, status_of(&a, transfer) != WEIR_EINPROGRESS);
    lend(&a, 4, SIZE);
    take_and_give_back(&b, &a, inbox, 4, SIZE);
    some_steps(&a, &b);
    uint64_t before = stats(&a).messages_lent;
    lend(&a, 5, SIZE);
    take_and_give_back(&b, &a, inbox, 5, SIZE);
    assert_int_equal(stats(&a).messages_lent - before, 1);
    assert_content(&held, SIZE);
    give_back(&b, &held);
    close_both(&a, &b);
}

/* A sender that says of a loan what cannot be: it is dropped, and nothing else is. */
static void test_M12_a_loan_in_no_memory_of_its_sender(void **state) {
    (void)state;
    static const struct room_loan lies[] = {
        {0, 1, 0},          {LOANS_HEAD, 0, 0},        {LOANS_HEAD, 1, LOANS_MAX},
        {UINT64_MAX, 1, 0}, {UINT64_C(1) << 40, 1, 0}, {4 * SIZE, 1, 3},
    };
    for (uint64_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        struct side a, b;
        weir_inbox inbox = open_lent(&a, &b, SIZE);
        const struct inbox_entry *entry = &b.engine->inboxes[0];
        weir_message got;
        lend(&a, 7, SIZE);
        uint64_t words[3], *line = NULL;
        for (uint64_t at = 0; line == NULL && at < entry->mr.length; at += ROOM_LINE) {
            uint64_t *head = (uint64_t *)(void *)((uint8_t *)entry->mr.base + at);
            if (head[2] == 7 && head[1] == (SIZE | UINT64_C(2) << 32))
                line = head;
        }
        assert_non_null(line);
        room_loan_encode(&lies[i], words);
        memcpy(line + 3, words, sizeof(words));
        some_steps(&a, &b);
        assert_int_equal(weir_message_take(b.engine, inbox, &got), WEIR_EAGAIN);
        assert_int_equal(look(&b, inbox).spoiled, 1);
        assert_int_equal(look(&b, inbox).held, 0);
        lend(&a, 8, 500);
        take_and_give_back(&b, &a, inbox, 8, 500);
        close_both(&a, &b);
    }
}

/* ---- a sender that waits for a loan ------------------------------------ */

struct taker {
    struct side *side;
    weir_inbox inbox;
    uint32_t total;
    const char *wrong;
};

static void *taker_main(void *argument) {
    struct taker *taker = argument;
    uint64_t end = now_ns() + PATIENCE_NS;
    for (uint32_t taken = 0; taken < taker->total && taker->wrong == NULL;) {
        weir_message got;
        if (weir_message_take(taker->side->engine, taker->inbox, &got) == WEIR_OK) {
            if (got.tag != taken)
                taker->wrong = "order";
            for (uint64_t i = 0; i < got.length; i += 4096)
                if (((const uint8_t *)got.data)[i] != (uint8_t)(got.tag + i / 4096))
                    taker->wrong = "content";
            if (weir_message_give_back(taker->side->engine, &got) != WEIR_OK)
                taker->wrong = "give back";
            taken++;
        } else if (now_ns() > end) {
            taker->wrong = "never";
        } else {
            weir_engine_wait(taker->side->engine, PATIENCE_NS);
        }
    }
    return NULL;
}

static void test_M12_a_sender_that_waits_is_woken(void **state) {
    (void)state;
    struct side a, b;
    pthread_t thread;
    enum { MESSAGES = 2000 };
    if (getenv("WEIR_TEST_SERIAL") != NULL)
        skip();
    weir_inbox inbox = open_lent(&a, &b, SIZE);
    struct taker taker = {.side = &b, .inbox = inbox, .total = MESSAGES};
    assert_int_equal(pthread_create(&thread, NULL, taker_main, &taker), 0);
    uint32_t waits = 0;
    for (uint32_t tag = 0; tag < MESSAGES; tag++) {
        weir_loan loan;
        int rc;
        while ((rc = try_loan(&a, SIZE, &loan)) == WEIR_EAGAIN) {
            weir_engine_wait(a.engine, PATIENCE_NS);
            waits++;
        }
        assert_int_equal(rc, WEIR_OK);
        for (uint32_t i = 0; i < SIZE; i += 4096)
            ((uint8_t *)loan.data)[i] = (uint8_t)(tag + i / 4096);
        weir_transfer_options options = tagged(tag, 0);
        weir_transfer transfer;
        assert_int_equal(weir_loan_send(a.engine, &loan, &options, &transfer), WEIR_OK);
        weir_transfer_release(a.engine, transfer);
    }
    uint64_t end = now_ns() + PATIENCE_NS;
    while (weir_engine_progress(a.engine) > 0 && now_ns() < end)
        continue;
    pthread_join(thread, NULL);
    assert_null(taker.wrong);
    print_message("%u waits for %u loans\n", waits, (unsigned)MESSAGES);
    close_both(&a, &b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_M12_a_loan_is_read_where_it_is),
        cmocka_unit_test(test_M12_loans_before_the_inbox_is_known),
        cmocka_unit_test(test_M12_loans_of_transfers_without_handles),
        cmocka_unit_test(test_M12_what_is_back_here_wakes),
        cmocka_unit_test(test_M12_a_shorter_loan_ends_no_wait),
        cmocka_unit_test(test_M12_what_is_lent_is_bounded),
        cmocka_unit_test(test_M7_waiting_for_a_loan_without_a_session_sleeps),
        cmocka_unit_test(test_M12_arguments),
        cmocka_unit_test(test_M3_loans_keep_the_order),
        cmocka_unit_test(test_M12_the_end_of_a_sender),
        cmocka_unit_test(test_M12_the_end_of_an_inbox),
        cmocka_unit_test(test_M12_a_loan_in_no_memory_of_its_sender),
        cmocka_unit_test(test_M12_a_sender_that_waits_is_woken),
    };
    return cmocka_run_group_tests_name("loans", tests, NULL, NULL);
}
