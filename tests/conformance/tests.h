/* SPDX-License-Identifier: Apache-2.0 */
/* tests.h: the tests of the conformance suite: the one list of them, in the order in which
 * they run. */
#ifndef WEIR_CONFORMANCE_TESTS_H
#define WEIR_CONFORMANCE_TESTS_H

#define CONFORMANCE_TESTS(X)                                                                       \
    X(test_write_sizes_allocated)                                                                  \
    X(test_write_sizes_registered)                                                                 \
    X(test_read_sizes_allocated)                                                                   \
    X(test_read_sizes_registered)                                                                  \
    X(test_S2_chain_lengths_allocated)                                                             \
    X(test_S2_writes_that_gather)                                                                  \
    X(test_S2_a_gather_from_elsewhere)                                                             \
    X(test_S2_chain_lengths_registered)                                                            \
    X(test_unsignalled_gives_no_cqe)                                                               \
    X(test_pieces_allocated)                                                                       \
    X(test_pieces_registered)                                                                      \
    X(test_S7_empty_write_needs_no_keys)                                                           \
    X(test_S15_bounds_allocated)                                                                   \
    X(test_S15_bounds_registered)                                                                  \
    X(test_bad_keys)                                                                               \
    X(test_rights_allocated)                                                                       \
    X(test_rights_registered)                                                                      \
    X(test_release_allocated)                                                                      \
    X(test_release_registered)                                                                     \
    X(test_S6_chain_error_every_index)                                                             \
    X(test_T1_error_flushes)                                                                       \
    X(test_S1_full_queue_is_eagain)                                                                \
    X(test_peer_gone_is_retry)                                                                     \
    X(test_T8_destroy_is_final)                                                                    \
    X(test_calls_that_are_refused)                                                                 \
    X(test_M2_messages_of_all_sizes)                                                               \
    X(test_inline_payload)                                                                         \
    X(test_ordered_write_before_message)                                                           \
    X(test_M2_receives_are_credits)                                                                \
    X(test_delivered_before_flushed)                                                               \
    X(test_message_too_long)                                                                       \
    X(test_H13_damaged_blobs)                                                                      \
    X(test_import_claims_too_much)                                                                 \
    X(test_arm_and_wake)                                                                           \
    X(test_T2_arm_hears_connected)                                                                 \
    X(test_S18_poll_is_fair)                                                                       \
    X(test_no_events_by_itself)                                                                    \
    X(test_S2_mixed_chains)                                                                        \
    X(test_S2_a_queue_of_reads)                                                                    \
    X(test_ordered_effects)                                                                        \
    X(test_done_has_landed_allocated)                                                              \
    X(test_done_has_landed_registered)                                                             \
    X(test_pieces_need_rights)                                                                     \
    X(test_rights_none_allocated)                                                                  \
    X(test_rights_none_registered)                                                                 \
    X(test_regions_overlap)                                                                        \
    X(test_T8_stale_keys_allocated)                                                                \
    X(test_T8_stale_keys_registered)                                                               \
    X(test_allocated_memory_is_zeroed)                                                             \
    X(test_S6_full_queue_splits_a_chain)                                                           \
    X(test_S1_completion_frees_a_slot)                                                             \
    X(test_S7_empty_write_closes_a_run)                                                            \
    X(test_S2_chain_over_post_bytes)                                                               \
    X(test_S6_refused_wr_every_index)                                                              \
    X(test_S14_wr_ids_come_back)                                                                   \
    X(test_S6_unsignalled_errors_are_told)                                                         \
    X(test_T1_unsignalled_flush)                                                                   \
    X(test_T1_late_receives_flush)                                                                 \
    X(test_T2_error_before_connect)                                                                \
    X(test_S9_failures_are_isolated)                                                               \
    X(test_T6_siblings_go_on)                                                                      \
    X(test_M2_no_receive_is_rnr)                                                                   \
    X(test_S13_destroy_ends_access)                                                                \
    X(test_S13_drained_is_quiet)                                                                   \
    X(test_T2_destroy_before_connect)                                                              \
    X(test_T2_destroy_while_connecting)                                                            \
    X(test_T1_error_while_connecting)                                                              \
    X(test_H2_both_connect_at_once)                                                                \
    X(test_H9_capabilities_agree)                                                                  \
    X(test_M6_depths_over_the_limits)                                                              \
    X(test_receives_have_one_place)                                                                \
    X(test_inline_limits)                                                                          \
    X(test_H8_receives_before_connect)                                                             \
    X(test_T5_buffers_in_order)                                                                    \
    X(test_S18_poll_gives_no_more_than_asked)                                                      \
    X(test_arm_hears_sends)                                                                        \
    X(test_arm_again_and_again)                                                                    \
    X(test_T4_events_of_an_error)                                                                  \
    X(test_T7_events_wake)                                                                         \
    X(test_direct_content)                                                                         \
    X(test_direct_registered)                                                                      \
    X(test_S15_direct_bounds)                                                                      \
    X(test_direct_needs_rights)                                                                    \
    X(test_T6_direct_needs_both_qps)                                                               \
    X(test_direct_several)                                                                         \
    X(test_direct_read)                                                                            \
    X(test_direct_among_others)

#define CONFORMANCE_TEST_DECLARE(name) void name(void **state);
CONFORMANCE_TESTS(CONFORMANCE_TEST_DECLARE)
#undef CONFORMANCE_TEST_DECLARE

#endif
