/* SPDX-License-Identifier: Apache-2.0 */
/* test_processes.cpp: agents of two processes, of which one is killed, stopped, and started again.
 *
 * As "target NAME DEVICE LISTEN" the program is the other process: it says its metadata, and
 * answers each line of its standard input with a line. */
#include "agent.h"

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <sstream>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace {

const size_t length = 1 << 20;
const char *program;

std::string hex(const std::string &bytes) {
    static const char digits[] = "0123456789abcdef";
    std::string text;
    for (unsigned char byte : bytes) {
        text += digits[byte >> 4];
        text += digits[byte & 15];
    }
    return text;
}

std::string unhex(const std::string &text) {
    std::string bytes;
    for (size_t i = 0; i + 1 < text.size(); i += 2)
        bytes += static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
    return bytes;
}

/* ---- the other process ---------------------------------------------------------- */

bool holds(const std::vector<char> &memory, uint64_t seed) {
    std::vector<char> same(memory.size());
    fill(same.data(), same.size(), seed);
    return memory == same;
}

/* From now on there is memory for so many bytes more. */
bool limit(uint64_t bytes) {
    size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    rlim_t most = pages * static_cast<size_t>(getpagesize()) + bytes;
    const struct rlimit space = {most, most};
    return pages > 0 && setrlimit(RLIMIT_AS, &space) == 0;
}

/* Says without end, to a peer that nobody kills: text i is of seed i, and every third is long. */
void stream(Agent &agent, const std::string &peer) {
    for (uint64_t i = 0;; i++)
        if (agent.say(peer, std::to_string(i) + " " + text_of(i % 3 == 2 ? 200000 : 20, i)) < 0)
            sleep_ms(1);
}

int target(const std::string &name, const std::string &device, const std::string &listen) {
    Agent agent(name, {{"device", device}, {"listen", listen}, {"connect_timeout_ms", "3000"}});
    std::vector<char> memory(length);
    agent.add(memory.data(), length);
    std::cout << hex(agent.metadata()) << std::endl;
    notif_list_t came;
    std::vector<std::vector<char>> pieces;
    for (std::string line; std::getline(std::cin, line);) {
        std::istringstream words(line);
        std::string command, peer;
        uint64_t seed = 0, count = 0;
        words >> command;
        if (command == "load" && words >> peer) {
            std::cout << agent.load(unhex(peer)) << std::endl;
        } else if (command == "fill" && words >> seed) {
            fill(memory.data(), length, seed);
            std::cout << "filled" << std::endl;
        } else if (command == "check" && words >> seed) {
            std::cout << (holds(memory, seed) ? "good" : "bad") << std::endl;
        } else if (command == "say" && words >> peer >> count >> seed) {
            std::cout << agent.say(peer, text_of(count, seed)) << std::endl;
        } else if (command == "hear" && words >> count) {
            came = agent.notifications(count);
            std::cout << hex(came.back().second) << std::endl;
        } else if (command == "until_end") { /* how many come before that one */
            bool end = false;
            for (count = 0; !end; sleep_ms(1))
                for (const auto &[from, text] : agent.notifications()) {
                    end = end || text == "end";
                    count += !end;
                }
            std::cout << count << std::endl;
        } else if (command == "pieces" && words >> count) {
            pieces.resize(count);
            for (std::vector<char> &piece : pieces)
                agent.add((piece = std::vector<char>(64)).data(), 64);
            std::cout << hex(agent.metadata()) << std::endl;
        } else if (command == "limit" && words >> count) {
            std::cout << (limit(count) ? "limited" : "not limited") << std::endl;
        } else if (command == "stream" && words >> peer) {
            std::cout << "streams" << std::endl;
            stream(agent, peer);
        }
    }
    return 0;
}

/* ---- this one ------------------------------------------------------------------- */

class Other {
  public:
    /* The name has three letters. */
    explicit Other(const std::string &device = "shm", const std::string &listen = "127.0.0.1:0",
                   const char *name = "two") {
        int in[2], out[2];
        assert_int_equal(pipe(in), 0);
        assert_int_equal(pipe(out), 0);
        pid_ = fork();
        if (pid_ == 0) {
            dup2(in[0], 0);
            dup2(out[1], 1);
            for (int fd = 3; fd < 1024; fd++)
                close(fd);
            execl(program, program, "target", name, device.c_str(), listen.c_str(), nullptr);
            _exit(1);
        }
        close(in[0]);
        close(out[1]);
        to_ = fdopen(in[1], "w");
        from_ = fdopen(out[0], "r");
        metadata = unhex(hear());
        /* As Agent::metadata begins: a name, and an address behind "weir1 ". */
        address = metadata.substr(8 + 3 + 8 + 6);
        address = address.substr(0, address.find_first_not_of("0123456789.:"));
    }
    ~Other() {
        if (pid_ > 0)
            end(SIGKILL);
    }
    std::string ask(const std::string &line) {
        std::fprintf(to_, "%s\n", line.c_str());
        std::fflush(to_);
        return hear();
    }
    /* After SIGSTOP none of its threads runs: kill() alone does not wait for that. */
    void signal(int number) {
        int status = 0;
        assert_int_equal(kill(pid_, number), 0);
        if (number != SIGSTOP)
            return;
        assert_int_equal(waitpid(pid_, &status, WUNTRACED), pid_);
        assert_true(WIFSTOPPED(status));
    }
    void end(int number) {
        if (number != 0)
            kill(pid_, number);
        std::fclose(to_);
        int status = -1;
        assert_int_equal(waitpid(pid_, &status, 0), pid_);
        std::fclose(from_);
        pid_ = -1;
        assert_int_equal(number == 0 ? status : WTERMSIG(status), number);
    }
    std::string metadata, address;

  private:
    pid_t pid_;
    std::FILE *to_, *from_;

    std::string hear() {
        std::string line;
        int c;
        while ((c = std::fgetc(from_)) != EOF && c != '\n')
            line += static_cast<char>(c);
        return line;
    }
};

struct Side {
    std::vector<char> memory = std::vector<char>(length);
    Agent agent;
    uintptr_t there = 0;

    explicit Side(const char *connect_timeout_ms = "3000", const std::string &device = "shm")
        : agent("one", {{"connect_timeout_ms", connect_timeout_ms},
                        {"device", device},
                        {"memories_max", "2"}, /* that, and the outbox's */
                        {"listen", "127.0.0.1:0"}}) {
        agent.add(memory.data(), length);
    }
    nixl_status_t load(const Other &other) {
        /* Behind the name and the address the first range. */
        size_t at = 8 + 3 + 8 + 6 + other.address.size() + 8;
        there = std::strtoull(other.metadata.c_str() + at, nullptr, 10);
        return agent.load(other.metadata);
    }
    Pieces local() {
        return {{memory.data(), length}};
    }
    Pieces remote() {
        return {{reinterpret_cast<void *>(there), length}};
    }
    nixl_status_t move(nixl_xfer_op_t operation, const std::string *text = nullptr) {
        return agent.move(operation, local(), "two", remote(), text);
    }
    /* Both ways, all bytes, with notifications of some lengths. */
    void all_is_well(Other &other, uint64_t seed) {
        for (size_t size : {0, 1, 256, 257, 1 << 20}) {
            std::string text = text_of(size, ++seed);
            fill(memory.data(), length, seed);
            assert_int_equal(move(NIXL_WRITE, &text), NIXL_SUCCESS);
            assert_true(other.ask("hear 1") == hex(text));
            assert_string_equal(other.ask("check " + std::to_string(seed)).c_str(), "good");
            assert_string_equal(other.ask("fill " + std::to_string(++seed)).c_str(), "filled");
            assert_int_equal(move(NIXL_READ), NIXL_SUCCESS);
            expect(memory.data(), length, seed);
        }
    }
};

void two_processes(const std::string &device) {
    Other other(device);
    Side side("3000", device);
    assert_int_equal(side.load(other), NIXL_SUCCESS);
    assert_int_equal(side.agent.engine->connect("two"), NIXL_SUCCESS);
    side.all_is_well(other, 1);
    assert_string_equal(other.ask("load " + hex(side.agent.metadata())).c_str(), "0");
    for (size_t size : {0, 1, 256, 257, 1 << 20}) {
        assert_string_equal(other.ask("say one " + std::to_string(size) + " 5").c_str(), "0");
        notif_list_t came = side.agent.notifications(1);
        assert_string_equal(came[0].first.c_str(), "two");
        assert_true(came[0].second == text_of(size, 5));
    }
    other.end(0);
}

void test_X7_two_processes(void **) {
    two_processes("shm");
}

/* Killed under transfers: each ends, in the end as a disconnect, and so is all that is asked then.
 * Started again at its address, and loaded, all goes on. */
void test_X7_killed_and_restarted(void **) {
    auto other = std::make_unique<Other>();
    const std::string address = other->address;
    Side side;
    for (int round = 0; round < 3; round++) {
        assert_int_equal(side.load(*other), NIXL_SUCCESS);
        side.all_is_well(*other, 100u * static_cast<unsigned>(round));
        std::atomic<bool> killed{false};
        std::thread killer([&] {
            sleep_ms(20);
            other->end(SIGKILL);
            killed = true;
        });
        nixl_status_t status = NIXL_SUCCESS;
        for (int i = 0; status == NIXL_SUCCESS; i++) {
            std::string text = text_of(i % 2 == 0 ? 10 : 5000, 1);
            status = side.move(i % 3 == 0 ? NIXL_READ : NIXL_WRITE, i % 5 == 0 ? nullptr : &text);
        }
        killer.join();
        assert_int_equal(status, NIXL_ERR_REMOTE_DISCONNECT);
        status = NIXL_SUCCESS;
        for (int i = 0; i < 500000 && status == NIXL_SUCCESS; i++, sleep_ms(1))
            status = side.agent.say("two", "is anybody there?");
        assert_int_equal(status, NIXL_ERR_REMOTE_DISCONNECT);
        assert_int_equal(side.move(NIXL_WRITE), NIXL_ERR_REMOTE_DISCONNECT);
        side.agent.forget("two");
        assert_int_equal(side.agent.say("two", "x"), NIXL_ERR_NOT_FOUND);
        other = std::make_unique<Other>("shm", address);
    }
    assert_int_equal(side.load(*other), NIXL_SUCCESS);
    side.all_is_well(*other, 1000);
    other->end(0);
}

/* The metadata of the process that took its place is loaded, and nobody has forgotten the other
 * one. */
void test_X7_restarted_and_not_forgotten(void **) {
    auto other = std::make_unique<Other>();
    const std::string address = other->address;
    Side side;
    assert_int_equal(side.load(*other), NIXL_SUCCESS);
    for (int round = 0; round < 3; round++) {
        side.all_is_well(*other, 10u * static_cast<unsigned>(round));
        assert_int_equal(side.agent.say("two", "before"), NIXL_SUCCESS);
        other->ask("hear 1");
        other->end(SIGKILL);
        other = std::make_unique<Other>("shm", address);
        assert_int_equal(side.load(*other), NIXL_SUCCESS);
        nixl_status_t status = NIXL_ERR_REMOTE_DISCONNECT;
        for (int i = 0; i < 500000 && status == NIXL_ERR_REMOTE_DISCONNECT; i++, sleep_ms(1))
            status = side.move(NIXL_WRITE); /* until the death of the other one was noticed */
        assert_int_equal(status, NIXL_SUCCESS);
    }
    side.all_is_well(*other, 500);
    other->end(0);
}

/* A release does not wait for a target that is stopped: it is an error until the target is quiet.
 */
void release_while_stopped(const std::string &device, bool never_quiet_at_once) {
    Other other(device);
    Side side("30000", device);
    assert_int_equal(side.load(other), NIXL_SUCCESS);
    side.all_is_well(other, 1);
    other.signal(SIGSTOP);
    std::vector<std::unique_ptr<Transfer>> all;
    std::string text = "x";
    for (int i = 0; i < 200; i++) { /* more than it can take up */
        all.push_back(
            std::make_unique<Transfer>(side.agent, NIXL_WRITE, side.local(), "two", side.remote()));
        all.back()->post(&text);
    }
    size_t under_way = 0, refused = 0;
    for (auto &transfer : all) {
        bool waits = transfer->check() == NIXL_IN_PROG;
        under_way += waits;
        nixl_status_t status = transfer->release();
        assert_true(status == NIXL_SUCCESS || (waits && status == NIXL_ERR_REPOST_ACTIVE));
        if (status == NIXL_SUCCESS)
            continue;
        refused++;
        assert_int_equal(transfer->check(), NIXL_ERR_CANCELED);
        assert_int_equal(transfer->post(), NIXL_ERR_REPOST_ACTIVE);
    }
    assert_true(under_way > 0);
    assert_true(refused > 0 || !never_quiet_at_once);
    if (never_quiet_at_once) /* and bytes may still be read from the memory */
    {
        assert_int_equal(side.agent.remove(side.memory.data()), NIXL_ERR_NOT_ALLOWED);
        nixlBackendMD *metadata = nullptr; /* there is no room for another one */
        nixlBlobDesc range(reinterpret_cast<uintptr_t>(&other), sizeof(other), 0);
        assert_int_equal(side.agent.engine->registerMem(range, DRAM_SEG, metadata),
                         NIXL_ERR_BACKEND);
    }
    other.signal(SIGCONT);
    for (auto &transfer : all)
        for (int i = 0; i < 500000 && transfer->handle != nullptr; i++, sleep_ms(1))
            transfer->release();
    for (auto &transfer : all)
        assert_null(transfer->handle);
    /* A notification that was cancelled before it was sent never comes; kept memory is released. */
    assert_int_equal(side.agent.say("two", "end"), NIXL_SUCCESS);
    assert_true(std::stoul(other.ask("until_end")) < all.size());
    nixlBackendMD *metadata = nullptr;
    nixlBlobDesc range(reinterpret_cast<uintptr_t>(&other), sizeof(other), 0);
    nixl_status_t status = NIXL_ERR_BACKEND;
    for (int i = 0; i < 500000 && never_quiet_at_once && status != NIXL_SUCCESS; i++, sleep_ms(1))
        status = side.agent.engine->registerMem(range, DRAM_SEG, metadata);
    if (never_quiet_at_once)
        assert_int_equal(side.agent.engine->deregisterMem(metadata), NIXL_SUCCESS);
    other.end(SIGKILL);
}

void test_X6_a_release_does_not_wait(void **) {
    release_while_stopped("shm", false);
}

/* Over TCP data is under way that nobody takes up, and a cancel has to wait for it. */
void test_X6_a_release_does_not_wait_over_tcp(void **) {
    if (!has_device("ofi"))
        skip();
    release_while_stopped("ofi", true);
}

void test_X7_two_processes_over_tcp(void **) {
    if (!has_device("ofi"))
        skip();
    two_processes("ofi");
}

/* A sender that is killed in the middle of what it says: what came is whole, in order, and without
 * gaps; and so it is of the one that takes its place. */
void test_X7_a_sender_is_killed(void **) {
    Side side;
    for (int round = 0; round < 3; round++) {
        Other other;
        assert_string_equal(other.ask("load " + hex(side.agent.metadata())).c_str(), "0");
        assert_string_equal(other.ask("stream one").c_str(), "streams");
        uint64_t next = 0;
        auto take = [&] {
            for (const auto &[from, text] : side.agent.notifications()) {
                assert_string_equal(from.c_str(), "two");
                assert_true(text == std::to_string(next) + " " +
                                        text_of(next % 3 == 2 ? 200000 : 20, next));
                next++;
            }
        };
        for (int i = 0; i < 500000 && next < 50; i++, sleep_ms(1))
            take();
        assert_true(next >= 50);
        other.end(SIGKILL);
        for (int i = 0; i < 100; i++, sleep_ms(1))
            take();
    }
}

/* Five targets that are stopped, with more to hear than weir has transfers and the plug-in slots
 * for, hold up nobody who talks to another. */
void stopped_targets(const std::string &device) {
    Agent one("one", {{"device", device}, {"transfers_max", "1024"}});
    Agent six("six", {{"device", device}});
    std::vector<char> here(4096), there(4096);
    one.add(here.data(), here.size());
    six.add(there.data(), there.size());
    assert_int_equal(one.load(six.metadata()), NIXL_SUCCESS);
    std::vector<std::unique_ptr<Other>> stopped;
    for (const char *name : {"ab1", "ab2", "ab3", "ab4", "ab5"}) {
        stopped.push_back(std::make_unique<Other>(device, "127.0.0.1:0", name));
        assert_int_equal(one.load(stopped.back()->metadata), NIXL_SUCCESS);
        assert_int_equal(one.say(name, text_of(10, 1)), NIXL_SUCCESS);
        assert_true(stopped.back()->ask("hear 1") == hex(text_of(10, 1)));
        stopped.back()->signal(SIGSTOP);
        for (int i = 0; i < 10000; i++)
            assert_int_equal(one.say(name, "short"), NIXL_SUCCESS);
        assert_int_equal(one.say(name, text_of(8 << 20, 1)), NIXL_SUCCESS);
    }
    for (size_t size : {10, 100000}) {
        std::string text = text_of(size, 2);
        fill(here.data(), here.size(), size);
        assert_int_equal(
            one.move(NIXL_WRITE, {{here.data(), 4096}}, "six", {{there.data(), 4096}}, &text),
            NIXL_SUCCESS);
        expect(there.data(), 4096, size);
        assert_int_equal(one.say("six", text), NIXL_SUCCESS);
        for (const auto &[from, came] : six.notifications(2))
            assert_true(came == text);
    }
    stopped[0]->signal(SIGCONT); /* and it hears all of it */
    assert_int_equal(one.say("ab1", "end"), NIXL_SUCCESS);
    assert_string_equal(stopped[0]->ask("until_end").c_str(), "10001");
}

void test_X16_stopped_targets(void **) {
    stopped_targets("shm");
}

void test_X16_stopped_targets_over_tcp(void **) {
    if (!has_device("ofi"))
        skip();
    stopped_targets("ofi");
}

/* A thousand ranges of a target that is stopped are loaded without a wait for each, which on shm
 * would take a second, and are of use when it goes on. */
void test_X16_metadata_of_a_stopped_target(void **) {
    Other other;
    Side side;
    std::string metadata = unhex(other.ask("pieces 1000"));
    other.signal(SIGSTOP);
    other.metadata = metadata;
    assert_int_equal(side.load(other), NIXL_SUCCESS);
    assert_true(side.move(NIXL_WRITE) < 0); /* not yet */
    other.signal(SIGCONT);
    nixl_status_t status = NIXL_ERR_BACKEND;
    for (int i = 0; i < 500 && status == NIXL_ERR_BACKEND; i++)
        status = side.move(NIXL_WRITE);
    assert_int_equal(status, NIXL_SUCCESS);
    side.all_is_well(other, 1);
    other.end(0);
}

/* A text for which the target has no memory is lost; what is said behind it comes. */
void test_X16_no_memory_for_a_text(void **) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* they take more address space than any limit leaves */
#endif
    Other other;
    Side side;
    assert_int_equal(side.load(other), NIXL_SUCCESS);
    assert_int_equal(side.agent.say("two", text_of(300000, 1)), NIXL_SUCCESS);
    assert_true(other.ask("hear 1") == hex(text_of(300000, 1)));
    assert_string_equal(other.ask("limit 100000000").c_str(), "limited");
    assert_int_equal(side.agent.say("two", std::string(300000000, 'x')), NIXL_SUCCESS);
    assert_int_equal(side.agent.say("two", text_of(1000, 2)), NIXL_SUCCESS);
    assert_int_equal(side.agent.say("two", "end"), NIXL_SUCCESS);
    assert_string_equal(other.ask("until_end").c_str(), "1");
}

} // namespace

int main(int count, char **words) {
    program = words[0];
    if (count == 5 && std::string(words[1]) == "target")
        return target(words[2], words[3], words[4]);
    std::signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_X7_two_processes),
        cmocka_unit_test(test_X7_killed_and_restarted),
        cmocka_unit_test(test_X7_restarted_and_not_forgotten),
        cmocka_unit_test(test_X7_two_processes_over_tcp),
        cmocka_unit_test(test_X6_a_release_does_not_wait),
        cmocka_unit_test(test_X6_a_release_does_not_wait_over_tcp),
        cmocka_unit_test(test_X7_a_sender_is_killed),
        cmocka_unit_test(test_X16_stopped_targets),
        cmocka_unit_test(test_X16_stopped_targets_over_tcp),
        cmocka_unit_test(test_X16_metadata_of_a_stopped_target),
        cmocka_unit_test(test_X16_no_memory_for_a_text),
    };
    return cmocka_run_group_tests_name("nixl_processes", tests, nullptr, nullptr);
}
