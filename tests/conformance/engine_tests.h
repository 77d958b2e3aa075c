/* SPDX-License-Identifier: Apache-2.0 */
/* engine_tests.h: the one list of the tests of messages on every device, in the order in which they
 * run. */
#ifndef WEIR_CONFORMANCE_ENGINE_TESTS_H
#define WEIR_CONFORMANCE_ENGINE_TESTS_H

#define ENGINE_TESTS(X)                                                                            \
    X(test_M2_beside_their_notes)                                                                  \
    X(test_M3_notes_that_share_a_send)                                                             \
    X(test_M3_messages_that_share_a_write)                                                         \
    X(test_M2_as_long_as_a_chunk)                                                                  \
    X(test_M2_gathered_from_many_parts)                                                            \
    X(test_M3_one_sender_in_order)                                                                 \
    X(test_M3_one_sender_in_order_over_many_qps)                                                   \
    X(test_M3_both_ways_in_order)                                                                  \
    X(test_M5_two_senders_share_an_inbox)                                                          \
    X(test_M5_S13_held_and_given_back_in_any_order)                                                \
    X(test_M5_room_comes_back_in_any_order)                                                        \
    X(test_M5_a_full_inbox_holds_up_nobody_else)                                                   \
    X(test_M1_no_inbox_and_no_wait)                                                                \
    X(test_M5_no_room_and_now)                                                                     \
    X(test_M5_now_ends_whatever_the_lengths_are)                                                   \
    X(test_M1_no_inbox_until_one_is_opened)                                                        \
    X(test_M1_no_inbox_until_the_deadline)                                                         \
    X(test_M1_a_closed_inbox)                                                                      \
    X(test_M1_too_long_for_the_inbox)                                                              \
    X(test_M5_late_while_waiting_for_room)                                                         \
    X(test_M5_cancelled_while_waiting_for_room)                                                    \
    X(test_M5_cancelled_at_any_time)                                                               \
    X(test_M5_late_at_any_time)                                                                    \
    X(test_S9_over_sessions_that_break)                                                            \
    X(test_S9_over_many_qps_that_break)                                                            \
    X(test_S9_both_ways_over_sessions_that_break)                                                  \
    X(test_S9_two_senders_over_sessions_that_break)                                                \
    X(test_M12_loans)                                                                              \
    X(test_M12_loans_over_sessions_that_break)                                                     \
    X(test_W1_a_receiver_that_does_not_look)                                                       \
    X(test_T10_the_sender_is_closed)                                                               \
    X(test_T10_H5_the_receiver_is_another_one)                                                     \
    X(test_H16_itself_reads_and_writes)                                                            \
    X(test_H16_itself_is_a_peer_like_others)                                                       \
    X(test_H16_itself_notifies)                                                                    \
    X(test_H16_itself_completes_in_order)                                                          \
    X(test_H16_itself_is_refused_as_others_are)                                                    \
    X(test_H16_itself_sends_messages)                                                              \
    X(test_H16_its_messages_end_as_others_do)                                                      \
    X(test_H16_itself_lends)                                                                       \
    X(test_H16_itself_beside_another_peer)                                                         \
    X(test_H16_T10_closed_with_its_own_work)

#define ENGINE_TEST_DECLARE(name) void name(void **state);
ENGINE_TESTS(ENGINE_TEST_DECLARE)
#undef ENGINE_TEST_DECLARE

#endif
