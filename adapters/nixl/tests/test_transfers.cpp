/* SPDX-License-Identifier: Apache-2.0 */
/* test_transfers.cpp: bytes between agents, and within one. */
#include "agent.h"

#include <cstring>
#include <thread>

namespace {

/* Two agents that know each other, with a piece of memory each. */
struct Pair {
    static constexpr size_t length = 1 << 20;
    std::vector<char> here = std::vector<char>(length), there = std::vector<char>(length);
    Agent one{"one"}, two{"two"};

    Pair() {
        one.add(here.data(), length);
        two.add(there.data(), length);
        assert_int_equal(one.load(two.metadata()), NIXL_SUCCESS);
        assert_int_equal(two.load(one.metadata()), NIXL_SUCCESS);
    }
};

void test_X3_a_write_and_a_read(void **) {
    Pair pair;
    fill(pair.here.data(), pair.length, 1);
    Pieces local = {{pair.here.data(), pair.length}}, remote = {{pair.there.data(), pair.length}};
    assert_int_equal(pair.one.move(NIXL_WRITE, local, "two", remote), NIXL_SUCCESS);
    expect(pair.there.data(), pair.length, 1);
    fill(pair.there.data(), pair.length, 2);
    assert_int_equal(pair.one.move(NIXL_READ, local, "two", remote), NIXL_SUCCESS);
    expect(pair.here.data(), pair.length, 2);
    assert_true(pair.two.notifications().empty()); /* nobody asked for one */
}

/* Every second piece of 97 bytes goes, to places in the opposite order; the rest stays. */
void test_X3_a_list_of_pieces(void **) {
    Pair pair;
    const size_t piece = 97, count = 5000;
    fill(pair.here.data(), pair.length, 3);
    std::memset(pair.there.data(), 0, pair.length);
    Pieces local, remote;
    for (size_t i = 0; i < count; i++) {
        local.push_back({pair.here.data() + 2 * piece * i, piece});
        remote.push_back({pair.there.data() + 2 * piece * (count - 1 - i), piece});
    }
    assert_int_equal(pair.one.move(NIXL_WRITE, local, "two", remote), NIXL_SUCCESS);
    for (size_t i = 0; i < count; i++) {
        assert_memory_equal(local[i].at, remote[i].at, piece);
        const char *gap = static_cast<const char *>(remote[i].at) + piece;
        for (size_t k = 0; k < piece; k++)
            assert_int_equal(gap[k], 0);
    }
}

void test_X3_within_one_agent(void **) {
    Pair pair;
    const size_t half = pair.length / 2;
    char *first = pair.here.data(), *second = first + half;
    fill(first, half, 4);
    std::string text = "to myself";
    assert_int_equal(pair.one.move(NIXL_WRITE, {{first, half}}, "one", {{second, half}}, &text),
                     NIXL_SUCCESS);
    expect(second, half, 4);
    fill(second, half, 5);
    assert_int_equal(pair.one.move(NIXL_READ, {{first, half}}, "one", {{second, half}}),
                     NIXL_SUCCESS);
    expect(first, half, 5);
    notif_list_t came = pair.one.notifications(1);
    assert_string_equal(came[0].first.c_str(), "one");
    assert_string_equal(came[0].second.c_str(), "to myself");
}

/* One handle, posted again and again, as agents do; and not while it is under way. */
void test_X3_a_handle_is_posted_again(void **) {
    Pair pair;
    Transfer transfer(pair.one, NIXL_WRITE, {{pair.here.data(), 4096}}, "two",
                      {{pair.there.data(), 4096}});
    assert_int_equal(transfer.prepared, NIXL_SUCCESS);
    assert_int_equal(transfer.check(), NIXL_ERR_NOT_POSTED);
    for (uint64_t i = 0; i < 200; i++) {
        fill(pair.here.data(), 4096, i);
        std::string text = std::to_string(i);
        nixl_status_t status = transfer.post(i % 2 == 0 ? &text : nullptr);
        assert_true(status == NIXL_SUCCESS || status == NIXL_IN_PROG);
        assert_int_equal(transfer.wait(), NIXL_SUCCESS);
        expect(pair.there.data(), 4096, i);
    }
    notif_list_t came = pair.two.notifications(100);
    for (size_t i = 0; i < 100; i++)
        assert_string_equal(came[i].second.c_str(), std::to_string(2 * i).c_str());
    assert_int_equal(transfer.release(), NIXL_SUCCESS);
}

/* More transfers than weir has handles for wait in the plug-in, and none is refused. */
void test_X3_more_than_the_pools_hold(void **) {
    Pair pair;
    Agent small("small", {{"transfers_max", "4"}, {"segments_max", "16"}});
    std::vector<char> memory(64 * 64);
    small.add(memory.data(), memory.size());
    assert_int_equal(small.load(pair.two.metadata()), NIXL_SUCCESS);
    fill(memory.data(), memory.size(), 6);
    std::vector<std::unique_ptr<Transfer>> all;
    for (size_t i = 0; i < 64; i++) { /* no session is up yet: they have to wait */
        Pieces local, remote;
        for (size_t k = 0; k < 8; k++) {
            local.push_back({memory.data() + 64 * i + 8 * k, 8});
            remote.push_back({pair.there.data() + 64 * i + 8 * k, 8});
        }
        all.push_back(std::make_unique<Transfer>(small, NIXL_WRITE, local, "two", remote));
        std::string text = i % 3 == 0 ? text_of(600, i) : std::to_string(i);
        nixl_status_t status = all.back()->post(&text);
        assert_true(status == NIXL_SUCCESS || status == NIXL_IN_PROG);
    }
    for (auto &transfer : all)
        assert_int_equal(transfer->wait(), NIXL_SUCCESS);
    expect(pair.there.data(), memory.size(), 6);
    assert_int_equal(pair.two.notifications(64).size(), 64);
}

/* A transfer that is released before it has begun never comes; one of weir's pools' queue too. */
void test_X6_released_in_the_queue(void **) {
    Pair pair;
    Agent small("small", {{"transfers_max", "1"}});
    small.add(pair.here.data(), pair.length);
    assert_int_equal(small.load(pair.two.metadata()), NIXL_SUCCESS);
    std::string text = "x";
    Transfer first(small, NIXL_WRITE, {{pair.here.data(), 8}}, "two", {{pair.there.data(), 8}});
    Transfer second(small, NIXL_WRITE, {{pair.here.data(), 8}}, "two", {{pair.there.data(), 8}});
    first.post(&text);
    second.post(&text);
    assert_int_equal(second.release(), NIXL_SUCCESS);
    assert_int_equal(first.wait(), NIXL_SUCCESS);
    pair.two.notifications(1);
    assert_int_equal(small.say("two", "end"), NIXL_SUCCESS);
    assert_string_equal(pair.two.notifications(1)[0].second.c_str(), "end");
}

void test_X9_many_threads(void **) {
    Pair pair;
    const size_t threads = 8, rounds = many(100), piece = 4096;
    std::vector<std::thread> all;
    std::vector<size_t> good(threads);
    for (size_t t = 0; t < threads; t++)
        all.emplace_back([&, t] {
            char *from = pair.here.data() + t * piece, *to = pair.there.data() + t * piece;
            for (size_t i = 0; i < rounds; i++) {
                fill(from, piece, t * rounds + i);
                std::string text = std::to_string(t * rounds + i);
                text.resize(i % 4 == 0 ? 1000 : text.size());
                Agent &agent = pair.one;
                bool sent = agent.move(NIXL_WRITE, {{from, piece}}, "two", {{to, piece}}, &text) ==
                                NIXL_SUCCESS &&
                            agent.say("two", "said") == NIXL_SUCCESS;
                std::memset(from, 0, piece);
                sent = sent &&
                       agent.move(NIXL_READ, {{from, piece}}, "two", {{to, piece}}) == NIXL_SUCCESS;
                std::vector<char> same(piece);
                fill(same.data(), piece, t * rounds + i);
                good[t] += sent && std::memcmp(from, same.data(), piece) == 0;
            }
        });
    for (std::thread &thread : all)
        thread.join();
    for (size_t t = 0; t < threads; t++)
        assert_int_equal(good[t], rounds);
    std::vector<size_t> seen(threads * rounds);
    size_t said = 0;
    for (const auto &[from, text] : pair.two.notifications(2 * threads * rounds))
        if (text == "said")
            said++;
        else
            seen.at(std::strtoull(text.c_str(), nullptr, 10))++;
    assert_int_equal(said, threads * rounds);
    for (size_t count : seen)
        assert_int_equal(count, 1);
}

void test_X8_ten_thousand_registrations(void **) {
    const size_t count = many(10000), piece = 64;
    std::vector<char> from(count * piece), to(count * piece);
    Agent one("one"), two("two");
    for (size_t i = 0; i < count; i++) {
        one.add(from.data() + i * piece, piece);
        two.add(to.data() + i * piece, piece);
    }
    assert_int_equal(one.load(two.metadata()), NIXL_SUCCESS);
    fill(from.data(), from.size(), 7);
    Pieces local, remote;
    for (size_t i = 0; i < count; i += 10) {
        local.push_back({from.data() + i * piece, piece});
        remote.push_back({to.data() + i * piece, piece});
    }
    assert_int_equal(one.move(NIXL_WRITE, local, "two", remote), NIXL_SUCCESS);
    for (size_t i = 0; i < count; i += 10)
        assert_memory_equal(from.data() + i * piece, to.data() + i * piece, piece);
}

/* Memory that was deregistered is not written; registered anew it is, once that was told. */
void test_X8_registered_anew(void **) {
    Pair pair;
    Pieces local = {{pair.here.data(), 4096}}, remote = {{pair.there.data(), 4096}};
    for (uint64_t i = 0; i < 3; i++) {
        fill(pair.here.data(), 4096, 10 + i);
        assert_int_equal(pair.one.move(NIXL_WRITE, local, "two", remote), NIXL_SUCCESS);
        expect(pair.there.data(), 4096, 10 + i);
        assert_int_equal(pair.two.remove(pair.there.data()), NIXL_SUCCESS);
        fill(pair.here.data(), 4096, 20 + i);
        assert_true(pair.one.move(NIXL_WRITE, local, "two", remote) < 0);
        pair.two.add(pair.there.data(), pair.length);
        assert_true(pair.one.move(NIXL_WRITE, local, "two", remote) < 0);
        expect(pair.there.data(), 4096, 10 + i);
        if (pair.one.knows("two") && i % 2 == 0)
            pair.one.forget("two");
        assert_int_equal(pair.one.load(pair.two.metadata()), NIXL_SUCCESS);
    }
    assert_int_equal(pair.one.move(NIXL_WRITE, local, "two", remote), NIXL_SUCCESS);
    expect(pair.there.data(), 4096, 22);
}

} // namespace

int main() {
    need_device();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_X3_a_write_and_a_read),
        cmocka_unit_test(test_X3_a_list_of_pieces),
        cmocka_unit_test(test_X3_within_one_agent),
        cmocka_unit_test(test_X3_a_handle_is_posted_again),
        cmocka_unit_test(test_X3_more_than_the_pools_hold),
        cmocka_unit_test(test_X6_released_in_the_queue),
        cmocka_unit_test(test_X9_many_threads),
        cmocka_unit_test(test_X8_ten_thousand_registrations),
        cmocka_unit_test(test_X8_registered_anew),
    };
    return cmocka_run_group_tests_name("nixl_transfers", tests, nullptr, nullptr);
}
