/* SPDX-License-Identifier: Apache-2.0 */
/* test_notifications.cpp: notifications, of transfers and by themselves. */
#include "agent.h"

#include <algorithm>
#include <atomic>
#include <thread>

namespace {

/* Sizes around each limit: of weir's notifications, of copied messages, of a message. */
const size_t sizes[] = {0,   1,   100,  169,  170,  171,  180,  240,  246,   250,    255,
                        256, 257, 4096, 8177, 8178, 8179, 8180, 8192, 16384, 100000, 1 << 20};

struct Pair {
    std::vector<char> here = std::vector<char>(1 << 16), there = std::vector<char>(1 << 16);
    Agent one, two{"two"};

    explicit Pair(const std::string &name = "one") : one(name) {
        one.add(here.data(), here.size());
        two.add(there.data(), there.size());
        assert_int_equal(one.load(two.metadata()), NIXL_SUCCESS); /* two knows nothing of one */
    }
    nixl_status_t write(uint64_t seed, const std::string *text) {
        fill(here.data(), 4096, seed);
        return one.move(NIXL_WRITE, {{here.data(), 4096}}, "two", {{there.data(), 4096}}, text);
    }
};

void test_X4_of_any_length(void **) {
    for (const std::string &name : {std::string("one"), std::string(200, 'n'), text_of(4000, 9)}) {
        Pair pair(name);
        for (size_t size : sizes) {
            std::string text = text_of(size, size);
            assert_int_equal(pair.write(size, &text), NIXL_SUCCESS);
            notif_list_t came = pair.two.notifications(1);
            expect(pair.there.data(), 4096, size); /* it comes behind its data */
            assert_true(came[0].first == name);
            assert_true(came[0].second == text);
            assert_int_equal(pair.one.say("two", text), NIXL_SUCCESS);
            came = pair.two.notifications(1);
            assert_true(came[0].first == name);
            assert_true(came[0].second == text);
        }
        assert_true(pair.two.notifications().empty());
    }
}

void test_X4_in_order_and_once(void **) {
    Pair pair;
    for (uint64_t i = 0; i < 1000; i++)
        assert_int_equal(pair.one.say("two", std::to_string(i) + text_of(sizes[i % 20], i)),
                         NIXL_SUCCESS);
    notif_list_t came = pair.two.notifications(1000);
    for (uint64_t i = 0; i < 1000; i++)
        assert_true(came[i].second == std::to_string(i) + text_of(sizes[i % 20], i));
    assert_true(pair.two.notifications().empty());
}

/* Notifications sent before a transfer was posted, and behind it, keep their places beside the
 * transfer's, whichever way each goes. */
void test_X4_in_order_with_transfers(void **) {
    Pair pair;
    std::vector<std::string> sent;
    for (uint64_t i = 0; i < 600; i++) {
        sent.push_back(std::to_string(i) + text_of(i % 5 == 4 ? 3000 : 10, i));
        if (i % 2 == 0)
            assert_int_equal(pair.one.say("two", sent.back()), NIXL_SUCCESS);
        else
            assert_int_equal(pair.write(i, &sent.back()), NIXL_SUCCESS);
    }
    notif_list_t came = pair.two.notifications(sent.size());
    for (size_t i = 0; i < sent.size(); i++)
        assert_true(came[i].second == sent[i]);
}

/* The sender of a notification that is too long to go along polls nothing. */
void test_X5_nobody_polls(void **) {
    Pair pair;
    std::vector<std::unique_ptr<Transfer>> all;
    for (uint64_t i = 0; i < 100; i++) {
        all.push_back(std::make_unique<Transfer>(pair.one, NIXL_WRITE,
                                                 Pieces{{pair.here.data(), 512}}, "two",
                                                 Pieces{{pair.there.data(), 512}}));
        std::string text = text_of(i % 2 == 0 ? 10 : 5000, i);
        nixl_status_t status = all.back()->post(&text);
        assert_true(status == NIXL_SUCCESS || status == NIXL_IN_PROG);
    }
    pair.two.notifications(100);
    for (auto &transfer : all)
        assert_int_equal(transfer->wait(), NIXL_SUCCESS);
}

/* 20,000 notifications, five times what weir keeps, to an agent that does not ask for them. */
void test_X5_nobody_asks(void **) {
    Pair pair;
    const size_t each = many(10000);
    for (uint64_t i = 0; i < each; i++) {
        std::string text = std::to_string(i);
        assert_int_equal(pair.write(1, &text), NIXL_SUCCESS);
        assert_int_equal(pair.one.say("two", text), NIXL_SUCCESS);
    }
    assert_int_equal(pair.two.notifications(2 * each).size(), 2 * each);
}

void test_X9_threads_ask_and_say(void **) {
    Pair pair;
    const size_t threads = 6, each = 500;
    std::atomic<size_t> got{0}, failed{0};
    std::atomic<bool> end{false};
    std::vector<std::thread> all, askers;
    for (size_t t = 0; t < threads; t++)
        all.emplace_back([&, t] {
            for (size_t i = 0; i < each; i++)
                failed += pair.one.say("two", text_of(i % 7 == 0 ? 9000 : 20, t)) != NIXL_SUCCESS;
        });
    for (int t = 0; t < 2; t++)
        askers.emplace_back([&] {
            while (!end) {
                notif_list_t list;
                pair.two.engine->getNotifs(list);
                got += list.size();
                std::this_thread::yield();
            }
        });
    for (std::thread &thread : all)
        thread.join();
    for (int i = 0; i < 500000 && got < threads * each; i++)
        sleep_ms(1);
    end = true;
    for (std::thread &thread : askers)
        thread.join();
    assert_int_equal(failed, 0);
    assert_int_equal(got, threads * each);
}

/* Several agents to one: each in its own order. */
void test_X4_of_several_agents(void **) {
    Agent target("target");
    std::vector<std::unique_ptr<Agent>> agents;
    for (int i = 0; i < 5; i++) {
        agents.push_back(std::make_unique<Agent>("agent " + std::to_string(i)));
        assert_int_equal(agents.back()->load(target.metadata()), NIXL_SUCCESS);
    }
    for (uint64_t i = 0; i < 100; i++)
        for (auto &agent : agents)
            assert_int_equal(agent->say("target", std::to_string(i)), NIXL_SUCCESS);
    std::map<std::string, uint64_t> next;
    for (const auto &[from, text] : target.notifications(500))
        assert_true(text == std::to_string(next[from]++));
    assert_int_equal(next.size(), 5);
}

/* An agent that goes at once has sent what it said. */
void test_X4_said_before_the_end(void **) {
    Agent target("target");
    for (int i = 0; i < 5; i++) {
        Agent agent("short");
        assert_int_equal(agent.load(target.metadata()), NIXL_SUCCESS);
        assert_int_equal(agent.say("target", text_of(50000, 1)), NIXL_SUCCESS);
        assert_int_equal(agent.say("target", "end"), NIXL_SUCCESS);
    }
    notif_list_t came = target.notifications(10);
    for (size_t i = 0; i < 10; i += 2)
        assert_true(came[i].second == text_of(50000, 1) && came[i + 1].second == "end");
}

} // namespace

int main() {
    need_device();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_X4_of_any_length),
        cmocka_unit_test(test_X4_in_order_and_once),
        cmocka_unit_test(test_X4_in_order_with_transfers),
        cmocka_unit_test(test_X5_nobody_polls),
        cmocka_unit_test(test_X5_nobody_asks),
        cmocka_unit_test(test_X9_threads_ask_and_say),
        cmocka_unit_test(test_X4_of_several_agents),
        cmocka_unit_test(test_X4_said_before_the_end),
    };
    return cmocka_run_group_tests_name("nixl_notifications", tests, nullptr, nullptr);
}
