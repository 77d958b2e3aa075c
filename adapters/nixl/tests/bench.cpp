/* SPDX-License-Identifier: Apache-2.0 */
/* bench.cpp: writes of 64 KiB in batches of 128, of two agents through the plug-in, against weir's
 * own calls, in turns, between two processes on shm. Prints the medians, and their ratio; every
 * byte is compared at the end. "bench [ROUNDS [MILLISECONDS OF EACH]]".
 *
 * As "bench target" the program is the other process. Both ways write from and to the same memory.
 */
#include "agent.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <iostream>
#include <unistd.h>

#include "weir.h"

namespace {

using Clock = std::chrono::steady_clock;
const size_t piece = 64 << 10, batch = 128, length = piece * batch;

struct Engine {
    weir_engine *engine = nullptr;
    weir_memory memory = {};

    explicit Engine(void *base) {
        weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
        options.device = "shm";
        options.flags = WEIR_ENGINE_THREAD;
        assert_int_equal(weir_engine_open(&options, &engine), WEIR_OK);
        assert_int_equal(weir_memory_register(engine, base, length, WEIR_ACCESS_ALL, &memory),
                         WEIR_OK);
    }
    ~Engine() {
        weir_engine_close(engine);
    }
};

void say(const std::string &text) {
    size_t size = text.size();
    assert_int_equal(write(1, &size, sizeof(size)), sizeof(size));
    assert_int_equal(write(1, text.data(), size), size);
}

std::string hear(int fd) {
    size_t size = 0, done = 0;
    assert_int_equal(read(fd, &size, sizeof(size)), sizeof(size));
    std::string text(size, '\0');
    while (done < size) {
        ssize_t got = read(fd, text.data() + done, size - done);
        assert_true(got > 0);
        done += static_cast<size_t>(got);
    }
    return text;
}

/* The other process: its memory is compared when its standard input ends. */
int target() {
    std::vector<char> memory(length);
    Engine engine(memory.data());
    Agent agent("target");
    agent.add(memory.data(), length);
    say(agent.metadata());
    char text[WEIR_ADDRESS_MAX], descriptor[WEIR_DESCRIPTOR_MAX];
    size_t size = sizeof(descriptor);
    assert_int_equal(weir_engine_address(engine.engine, text, sizeof(text)), WEIR_OK);
    assert_int_equal(weir_memory_export(engine.engine, engine.memory, descriptor, &size), WEIR_OK);
    say(text);
    say(std::string(descriptor, size));
    say(std::to_string(reinterpret_cast<uintptr_t>(memory.data())));
    std::cin.ignore(1 << 20, '\n');
    expect(memory.data(), length, 1);
    return 0;
}

double cpu_seconds() {
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

/* GiB in a second, and in a second of this process's processors: other processes make the former
 * uneven. */
struct Rate {
    double wall, cpu;
};

template <class Call> Rate rate(Call &&call, unsigned ms) {
    const double used = cpu_seconds();
    const Clock::time_point begin = Clock::now();
    const Clock::time_point end = begin + std::chrono::milliseconds(ms);
    Clock::time_point now = begin;
    size_t batches = 0;
    for (; now < end; batches++, now = Clock::now())
        call();
    double gib = static_cast<double>(batches * length) / (1 << 30);
    return {gib / std::chrono::duration<double>(now - begin).count(), gib / (cpu_seconds() - used)};
}

double median(std::vector<double> of) {
    std::sort(of.begin(), of.end());
    return of[of.size() / 2];
}

} // namespace

int main(int count, char **words) {
    if (count > 1 && std::string(words[1]) == "target")
        return target();
    const int rounds = count > 1 ? std::atoi(words[1]) : 201;
    const unsigned ms = count > 2 ? static_cast<unsigned>(std::atoi(words[2])) : 20;
    int in[2], out[2];
    assert_int_equal(pipe(in) + pipe(out), 0);
    if (fork() == 0) {
        dup2(in[0], 0);
        dup2(out[1], 1);
        execl(words[0], words[0], "target", nullptr);
        _exit(1);
    }
    std::vector<char> memory(length);
    fill(memory.data(), length, 1);
    Engine engine(memory.data());
    Agent agent("source");
    agent.add(memory.data(), length);
    assert_int_equal(agent.load(hear(out[0])), NIXL_SUCCESS);
    weir_peer peer;
    weir_remote remote;
    assert_int_equal(weir_peer_open(engine.engine, hear(out[0]).c_str(), &peer), WEIR_OK);
    const std::string descriptor = hear(out[0]);
    assert_int_equal(
        weir_memory_import(engine.engine, peer, descriptor.data(), descriptor.size(), &remote),
        WEIR_OK);
    char *there = reinterpret_cast<char *>(std::strtoull(hear(out[0]).c_str(), nullptr, 10));
    std::vector<weir_segment> segments(batch);
    Pieces from, to;
    for (size_t i = 0; i < batch; i++) {
        segments[i] = {engine.memory, remote, i * piece, i * piece, piece};
        from.push_back({memory.data() + i * piece, piece});
        to.push_back({there + i * piece, piece});
    }
    Transfer transfer(agent, NIXL_WRITE, from, "target", to);
    auto plain = [&] {
        weir_transfer handle = {};
        assert_int_equal(weir_write(engine.engine, peer, segments.data(), batch, nullptr, &handle),
                         WEIR_OK);
        assert_int_equal(weir_transfer_wait(engine.engine, handle, UINT64_MAX), WEIR_OK);
        if (handle.id != 0)
            weir_transfer_release(engine.engine, handle);
    };
    auto through = [&] {
        nixl_status_t status = transfer.post();
        while (status == NIXL_IN_PROG)
            status = transfer.check();
        assert_int_equal(status, NIXL_SUCCESS);
    };
    plain();
    through();
    std::vector<double> one, other, walls, cpus;
    for (int i = 0; i < rounds; i++) {
        bool first = i % 2 == 0;
        Rate early = first ? rate(plain, ms) : rate(through, ms);
        Rate late = first ? rate(through, ms) : rate(plain, ms);
        const Rate &weir = first ? early : late, &nixl = first ? late : early;
        one.push_back(weir.wall);
        other.push_back(nixl.wall);
        walls.push_back(nixl.wall / weir.wall);
        cpus.push_back(nixl.cpu / weir.cpu);
    }
    std::printf("writes of 64 KiB in batches of 128, shm, %d rounds: weir %.2f GiB/s, NIXL's agent "
                "%.2f GiB/s; median of the ratios %.3f, of those by CPU time %.3f\n",
                rounds, median(one), median(other), median(walls), median(cpus));
    assert_int_equal(write(in[1], "\n", 1), 1);
    return 0;
}
