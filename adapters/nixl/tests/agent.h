/* SPDX-License-Identifier: Apache-2.0 */
/* agent.h: an agent that does with a plug-in what NIXL's does, and no more: it loads it, keeps what
 * the plug-in gave for each range of memory, its own and others', carries names, addresses and
 * public data in blobs, and forgets an agent that is gone.
 *
 * The plug-in is the file that WEIR_NIXL_PLUGIN names, and the device that of WEIR_NIXL_DEVICE, or
 * shm. An error that a test does not ask for fails the test. */
#ifndef WEIR_NIXL_TESTS_AGENT_H
#define WEIR_NIXL_TESTS_AGENT_H

#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>

extern "C" {
#include <cmocka.h>
}
/* C++ has members of this name. */
#undef fail
#undef fail_msg
#define fail_msg(...) (print_error(__VA_ARGS__), _fail(__FILE__, __LINE__))

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend_plugin.h"

using Parameters = nixl_b_params_t;

/* The plug-in, loaded once. */
nixlBackendPlugin *plugin();

/* A range that is registered: `local` for the side that submits, `self` for transfers to oneself.
 */
struct Region {
    uintptr_t base;
    size_t length;
    nixlBackendMD *local;
    nixlBackendMD *self;
};

/* A piece of memory, as transfers have it. */
struct Piece {
    const void *at;
    size_t length;
};
using Pieces = std::vector<Piece>;

class Agent;

/* A transfer; released, if it was not, with the object. */
class Transfer {
  public:
    Transfer(Agent &agent, nixl_xfer_op_t operation, const Pieces &local, const std::string &peer,
             const Pieces &remote);
    ~Transfer();
    Transfer(const Transfer &) = delete;
    Transfer &operator=(const Transfer &) = delete;

    nixl_status_t prepared = NIXL_ERR_UNKNOWN;
    nixl_status_t post(const std::string *notification = nullptr);
    nixl_status_t check();
    /* Until it is not NIXL_IN_PROG; 500 s at most. */
    nixl_status_t wait();
    nixl_status_t release();
    nixlBackendReqH *handle = nullptr;

  private:
    Agent &agent_;
    nixl_xfer_op_t operation_;
    std::string peer_;
    nixl_meta_dlist_t local_, remote_;
};

class Agent {
  public:
    explicit Agent(const std::string &name, const Parameters &parameters = {});
    ~Agent();
    Agent(const Agent &) = delete;
    Agent &operator=(const Agent &) = delete;

    const std::string name;
    nixlBackendEngine *engine = nullptr;

    Region &add(void *base, size_t length);
    /* The status of deregisterMem. */
    nixl_status_t remove(void *base);
    /* All that others need: the name, the address, and the ranges. */
    std::string metadata() const;
    nixl_status_t load(const std::string &metadata);
    void forget(std::string peer);
    bool knows(const std::string &peer) const {
        return others_.count(peer) != 0;
    }

    nixl_status_t move(nixl_xfer_op_t operation, const Pieces &local, const std::string &peer,
                       const Pieces &remote, const std::string *notification = nullptr);
    nixl_status_t say(const std::string &peer, const std::string &text);
    /* The notifications that came: of everybody, (name, text). */
    notif_list_t notifications();
    /* Until so many came; 500 s at most. */
    notif_list_t notifications(size_t count);

    nixlBackendMD *local_of(const Piece &piece) const;
    nixlBackendMD *remote_of(const std::string &peer, const Piece &piece) const;

  private:
    struct Remote {
        uintptr_t base;
        size_t length;
        nixlBackendMD *metadata;
    };
    std::vector<std::unique_ptr<Region>> regions_;
    std::map<std::string, std::vector<Remote>> others_;
};

/* Bytes that are unlike those of another seed, at each place. */
void fill(void *at, size_t length, uint64_t seed);
/* Fails at the first byte that is another. */
void expect(const void *at, size_t length, uint64_t seed);
/* Some text of so many bytes, zeros among them. */
std::string text_of(size_t length, uint64_t seed);

void sleep_ms(unsigned ms);
/* So many, or a fifth where each step is slow: with ThreadSanitizer. */
size_t many(size_t count);
bool has_device(const char *name);
/* Skips the program where WEIR_NIXL_DEVICE cannot be used. */
void need_device();

#endif
