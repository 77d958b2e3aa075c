/* SPDX-License-Identifier: Apache-2.0 */
/* test_interface.cpp: what NIXL's plug-in manager finds, each function with what is wrong,
 * parameters, memory of a GPU, and bytes of strangers.
 *
 * There is no GPU: WEIR_NIXL_CUDA names a libcuda that gives descriptors, and
 * weir_memory_register_dmabuf is this program's, which the plug-in finds before weir's. */
#include "agent.h"

#include <atomic>
#include <cstring>
#include <random>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "inbox.h"
#include "status.h"
#include "weir.h"
#include "words.h"

/* The last call of the plug-in's. */
static struct {
    int calls, fd_is_open;
    uint64_t offset, length, iova;
} dmabuf;

extern "C" WEIR_API int weir_memory_register_dmabuf(weir_engine *engine, int fd, uint64_t offset,
                                                    uint64_t length, uint64_t iova, uint32_t access,
                                                    weir_memory *memory_out) {
    struct stat about;
    dmabuf.calls++;
    dmabuf.fd_is_open = fstat(fd, &about) == 0;
    dmabuf.offset = offset;
    dmabuf.length = length;
    dmabuf.iova = iova;
    return weir_memory_register(engine, reinterpret_cast<void *>(iova), length, access, memory_out);
}

namespace {

/* Null: it says that it has none. */
nixlBackendEngine *create(const Parameters &parameters, const std::string &name = "some") {
    Parameters own = parameters;
    nixlBackendInitParams init;
    init.localAgent = name;
    init.type = "WEIR";
    init.customParams = &own;
    init.syncMode = nixl_thread_sync_t::NIXL_THREAD_SYNC_NONE;
    nixlBackendEngine *engine = plugin()->create_engine(&init);
    assert_non_null(engine);
    if (!engine->getInitErr())
        return engine;
    /* Every function of one that did not open is an error. */
    std::string text;
    notif_list_t list;
    nixlBackendMD *metadata = nullptr;
    assert_int_equal(engine->getConnInfo(text), NIXL_ERR_BACKEND);
    assert_int_equal(engine->connect("some"), NIXL_ERR_BACKEND);
    assert_int_equal(engine->getNotifs(list), NIXL_ERR_BACKEND);
    assert_int_equal(engine->registerMem(nixlBlobDesc(8, 8, 0), DRAM_SEG, metadata),
                     NIXL_ERR_BACKEND);
    plugin()->destroy_engine(engine);
    return nullptr;
}

std::string address_of(nixlBackendEngine *engine) {
    std::string text;
    assert_int_equal(engine->getConnInfo(text), NIXL_SUCCESS);
    assert_int_equal(text.compare(0, 6, "weir1 "), 0);
    return text.substr(6);
}

void test_X1_what_the_manager_finds(void **) {
    assert_int_equal(plugin()->api_version, NIXL_PLUGIN_API_VERSION);
    assert_string_equal(plugin()->get_plugin_name(), "WEIR");
    assert_string_equal(plugin()->get_plugin_version(), weir_version());
    nixl_mem_list_t both = {DRAM_SEG, VRAM_SEG};
    assert_true(plugin()->get_backend_mems() == both);
    for (const auto &[name, value] : plugin()->get_backend_options())
        assert_true(!name.empty() && value.empty());
    Parameters options = plugin()->get_backend_options(); /* agents hand them back as they are */
    options["device"] = "shm";
    nixlBackendEngine *engine = create(options);
    assert_non_null(engine);
    assert_true(engine->supportsLocal() && engine->supportsRemote() && engine->supportsNotif());
    assert_true(engine->getSupportedMems() == both);
    assert_string_equal(engine->getType().c_str(), "WEIR");
    plugin()->destroy_engine(engine);
    assert_null(plugin()->create_engine(nullptr));
}

void test_X11_parameters(void **) {
    const Parameters wrong[] = {
        {{"device", "none such"}},
        {{"device", "shm"}, {"listen", "nowhere"}},
        {{"device", "shm"}, {"listen", "192.0.2.99:1"}},
        {{"device", "shm"}, {"peers_max", "0"}},
        {{"device", "shm"}, {"peers_max", "-1"}},
        {{"device", "shm"}, {"peers_max", "65536"}},
        {{"device", "shm"}, {"peers_max", "99999999999"}},
        {{"device", "shm"}, {"qp_count", "two"}},
        {{"device", "shm"}, {"qp_count", "17"}},
        {{"device", "shm"}, {"connect_timeout_ms", "1x"}},
        {{"device", "shm"}, {"advertise", "0.0.0.0"}},
        {{"device", "shm"}, {"listen", "none"}, {"advertise", "10.0.0.1"}},
    };
    for (const Parameters &parameters : wrong)
        assert_null(create(parameters));
    assert_null(create({{"device", "shm"}}, ""));
    assert_null(create({{"device", "shm"}}, std::string(4097, 'n')));
    nixlBackendEngine *engine = create({{"device", "shm"},
                                        {"listen", "127.0.0.1:0"},
                                        {"advertise", "10.1.2.3:77"},
                                        {"transfers_max", "17"},
                                        {"connect_timeout_ms", "500"},
                                        {"no such parameter", "is said, and no more"}});
    assert_non_null(engine);
    assert_string_equal(address_of(engine).c_str(), "10.1.2.3:77");
    plugin()->destroy_engine(engine);
    engine = create({{"device", "shm"}, {"listen", "none"}});
    assert_non_null(engine);
    std::string text;
    assert_int_equal(engine->getConnInfo(text), NIXL_ERR_NOT_SUPPORTED);
    plugin()->destroy_engine(engine);
}

void test_X11_the_environment(void **) {
    setenv("NIXL_WEIR_DEVICE", "shm", 1);
    setenv("NIXL_WEIR_ADVERTISE", "10.9.9.9:1", 1);
    nixlBackendEngine *engine = create({});
    assert_non_null(engine);
    assert_string_equal(address_of(engine).c_str(), "10.9.9.9:1");
    plugin()->destroy_engine(engine);
    engine = create({{"advertise", "10.8.8.8:2"}}); /* a parameter goes before it */
    assert_non_null(engine);
    assert_string_equal(address_of(engine).c_str(), "10.8.8.8:2");
    plugin()->destroy_engine(engine);
    setenv("NIXL_WEIR_DEVICE", "none such", 1);
    assert_null(create({}));
    unsetenv("NIXL_WEIR_DEVICE");
    unsetenv("NIXL_WEIR_ADVERTISE");
}

void test_X2_memory(void **) {
    Agent agent("agent");
    char memory[64];
    uintptr_t at = reinterpret_cast<uintptr_t>(memory);
    nixlBackendMD *metadata = nullptr, *other = nullptr;
    nixlBackendEngine *engine = agent.engine;
    assert_int_equal(engine->registerMem(nixlBlobDesc(0, 8, 0), DRAM_SEG, metadata),
                     NIXL_ERR_INVALID_PARAM);
    assert_int_equal(engine->registerMem(nixlBlobDesc(at, 0, 0), DRAM_SEG, metadata),
                     NIXL_ERR_INVALID_PARAM);
    assert_int_equal(engine->registerMem(nixlBlobDesc(at, SIZE_MAX, 0), DRAM_SEG, metadata),
                     NIXL_ERR_INVALID_PARAM);
    for (nixl_mem_t type : {BLK_SEG, OBJ_SEG, FILE_SEG})
        assert_int_equal(engine->registerMem(nixlBlobDesc(at, 8, 0), type, metadata),
                         NIXL_ERR_NOT_SUPPORTED);
    assert_null(metadata);
    std::string text;
    assert_int_equal(engine->deregisterMem(nullptr), NIXL_ERR_INVALID_PARAM);
    assert_int_equal(engine->unloadMD(nullptr), NIXL_ERR_INVALID_PARAM);
    assert_int_equal(engine->loadLocalMD(nullptr, metadata), NIXL_ERR_INVALID_PARAM);
    assert_int_equal(engine->getPublicData(nullptr, text), NIXL_ERR_INVALID_PARAM);
    /* One's own where another's belongs, and the other way about. */
    assert_int_equal(engine->registerMem(nixlBlobDesc(at, 64, 0), DRAM_SEG, metadata),
                     NIXL_SUCCESS);
    assert_int_equal(engine->loadLocalMD(metadata, other), NIXL_SUCCESS);
    assert_int_equal(engine->unloadMD(metadata), NIXL_ERR_INVALID_PARAM);
    assert_int_equal(engine->deregisterMem(other), NIXL_ERR_INVALID_PARAM);
    assert_int_equal(engine->getPublicData(other, text), NIXL_ERR_INVALID_PARAM);
    assert_int_equal(engine->unloadMD(other), NIXL_SUCCESS);
    assert_int_equal(engine->deregisterMem(metadata), NIXL_SUCCESS);
}

void test_X2_agents(void **) {
    Agent agent("agent"), peer("peer");
    nixlBackendEngine *engine = agent.engine;
    nixlBackendMD *metadata = nullptr;
    assert_int_equal(engine->connect("nobody"), NIXL_ERR_NOT_FOUND);
    assert_int_equal(engine->disconnect("nobody"), NIXL_ERR_NOT_FOUND);
    assert_int_equal(agent.say("nobody", "text"), NIXL_ERR_NOT_FOUND);
    assert_int_equal(
        engine->loadRemoteMD(nixlBlobDesc(1, 1, 0, "1x"), DRAM_SEG, "nobody", metadata),
        NIXL_ERR_NOT_FOUND);
    std::string good;
    assert_int_equal(peer.engine->getConnInfo(good), NIXL_SUCCESS);
    const std::string wrong[] = {"",
                                 "weir1",
                                 "weir1 ",
                                 "weir2 127.0.0.1:1",
                                 "127.0.0.1:1",
                                 "weir1 :::",
                                 "weir1 0.0.0.0:1",
                                 "weir1 h",
                                 good + std::string(1, '\0'),
                                 "weir1 " + std::string(400, '1')};
    for (const std::string &text : wrong)
        assert_int_equal(engine->loadRemoteConnInfo("peer", text), NIXL_ERR_INVALID_PARAM);
    assert_int_equal(engine->loadRemoteConnInfo("", good), NIXL_ERR_INVALID_PARAM);
    assert_int_equal(engine->loadRemoteConnInfo("agent", good), NIXL_ERR_INVALID_PARAM);
    assert_int_equal(engine->loadRemoteConnInfo("peer", good), NIXL_SUCCESS);
    assert_int_equal(engine->loadRemoteConnInfo("peer", good), NIXL_SUCCESS); /* anew */
    assert_int_equal(engine->connect("peer"), NIXL_SUCCESS);
    assert_int_equal(engine->disconnect("peer"), NIXL_SUCCESS);
    assert_int_equal(engine->disconnect("peer"), NIXL_ERR_NOT_FOUND);
    assert_int_equal(engine->disconnect("agent"), NIXL_SUCCESS);
    notif_list_t list = {{"a", "b"}};
    assert_int_equal(engine->getNotifs(list), NIXL_ERR_INVALID_PARAM);
    assert_int_equal(list.size(), 1);
}

/* Damaged public data: each length, and bytes of chance. */
void test_X2_public_data(void **) {
    Agent agent("agent"), peer("peer");
    std::vector<char> memory(4096);
    peer.add(memory.data(), memory.size());
    std::string good, info;
    assert_int_equal(peer.engine->getPublicData(peer.local_of({memory.data(), 1}), good),
                     NIXL_SUCCESS);
    assert_int_equal(peer.engine->getConnInfo(info), NIXL_SUCCESS);
    assert_int_equal(agent.engine->loadRemoteConnInfo("peer", info), NIXL_SUCCESS);
    std::mt19937 random(1);
    for (size_t i = 0; i < good.size() + 200; i++) {
        std::string data = i < good.size() ? good.substr(0, i) : good;
        for (size_t k = good.size(); k < i; k++)
            data[random() % data.size()] ^= static_cast<char>(1 + random() % 255);
        nixlBackendMD *metadata = nullptr;
        nixlBlobDesc range(reinterpret_cast<uintptr_t>(memory.data()), memory.size(), 0, data);
        if (agent.engine->loadRemoteMD(range, DRAM_SEG, "peer", metadata) == NIXL_SUCCESS)
            assert_int_equal(agent.engine->unloadMD(metadata), NIXL_SUCCESS);
        else
            assert_null(metadata);
        if (i < good.size())
            assert_null(metadata);
    }
    assert_int_equal(agent.engine->disconnect("peer"), NIXL_SUCCESS);
}

void test_X2_transfers(void **) {
    Agent one("one"), two("two");
    std::vector<char> here(4096), there(4096);
    one.add(here.data(), here.size());
    two.add(there.data(), there.size());
    assert_int_equal(one.load(two.metadata()), NIXL_SUCCESS);
    Pieces local = {{here.data(), 64}}, remote = {{there.data(), 64}};
    auto prepared = [&](const Pieces &from, const std::string &peer, const Pieces &to) {
        return Transfer(one, NIXL_WRITE, from, peer, to).prepared;
    };
    assert_int_equal(prepared(local, "two", remote), NIXL_SUCCESS);
    assert_int_equal(prepared({}, "two", {}), NIXL_ERR_INVALID_PARAM);
    assert_int_equal(prepared(local, "two", {}), NIXL_ERR_INVALID_PARAM);
    assert_int_equal(prepared({}, "two", remote), NIXL_ERR_INVALID_PARAM);
    assert_int_equal(prepared({{here.data(), 64}, {here.data(), 64}}, "two", remote),
                     NIXL_ERR_INVALID_PARAM);
    assert_int_equal(prepared(local, "two", {{there.data(), 65}}), NIXL_ERR_INVALID_PARAM);
    assert_int_equal(prepared(local, "nobody", remote), NIXL_ERR_NOT_FOUND);
    /* Ranges that are nobody's have no metadata. */
    assert_int_equal(prepared({{there.data(), 64}}, "two", remote), NIXL_ERR_INVALID_PARAM);
    assert_int_equal(prepared(local, "two", {{here.data(), 64}}), NIXL_ERR_INVALID_PARAM);
    /* Beyond the registration: before it, behind it, and around. */
    nixl_meta_dlist_t from(DRAM_SEG), to(DRAM_SEG);
    uintptr_t base = reinterpret_cast<uintptr_t>(there.data());
    from.emplace(reinterpret_cast<uintptr_t>(here.data()), size_t(64), uint64_t(0),
                 one.local_of(local[0]));
    to.emplace(base, size_t(64), uint64_t(0), one.remote_of("two", remote[0]));
    for (uintptr_t at : {base - 1, base + 4096 - 63, base + 4097, uintptr_t(0), UINTPTR_MAX - 3}) {
        nixlBackendReqH *handle = nullptr;
        to[0].addr = at;
        assert_int_equal(one.engine->prepXfer(NIXL_WRITE, from, to, "two", handle),
                         NIXL_ERR_INVALID_PARAM);
        assert_null(handle);
    }
    to[0].addr = base;
    nixlBackendReqH *handle = nullptr;
    std::swap(from[0].metadataP, to[0].metadataP);
    assert_int_equal(one.engine->prepXfer(NIXL_WRITE, from, to, "two", handle),
                     NIXL_ERR_INVALID_PARAM);
    std::swap(from[0].metadataP, to[0].metadataP);
    assert_int_equal(one.engine->prepXfer(NIXL_WRITE, from, to, "one", handle),
                     NIXL_ERR_INVALID_PARAM); /* memory of another agent */
    assert_int_equal(one.engine->postXfer(NIXL_WRITE, from, to, "two", handle),
                     NIXL_ERR_INVALID_PARAM); /* of no handle */
    assert_int_equal(one.engine->checkXfer(nullptr), NIXL_ERR_INVALID_PARAM);
    assert_int_equal(one.engine->releaseReqH(nullptr), NIXL_ERR_INVALID_PARAM);
    nixlMemViewH view = nullptr;
    assert_int_equal(one.engine->prepMemView(to, view), NIXL_ERR_NOT_SUPPORTED);
    Agent small("small", {{"segments_max", "16"}});
    small.add(here.data(), here.size());
    assert_int_equal(small.load(two.metadata()), NIXL_SUCCESS);
    assert_int_equal(small.move(NIXL_WRITE, Pieces(100, local[0]), "two", Pieces(100, remote[0])),
                     NIXL_ERR_NOT_SUPPORTED); /* a longer list than there are segments */
}

void test_X10_without_cuda(void **) {
    char memory[64];
    nixlBackendMD *metadata = nullptr;
    for (const char *library : {"no-such-libcuda.so", "libdl.so.2"}) {
        Agent agent("agent", {{"cuda_library", library}});
        nixlBlobDesc range(reinterpret_cast<uintptr_t>(memory), 64, 0);
        assert_int_equal(agent.engine->registerMem(range, VRAM_SEG, metadata),
                         NIXL_ERR_NOT_SUPPORTED);
        assert_null(metadata);
    }
}

void test_X10_memory_of_a_gpu(void **) {
    const char *library = std::getenv("WEIR_NIXL_CUDA");
    assert_non_null(library);
    Agent one("one", {{"cuda_library", library}}), two("two", {{"cuda_library", library}});
    std::vector<char> there(1 << 16), here(1 << 16);
    uintptr_t at = reinterpret_cast<uintptr_t>(there.data()) + 100;
    nixlBackendMD *metadata = nullptr, *loaded = nullptr;
    dmabuf.calls = 0;
    assert_int_equal(two.engine->registerMem(nixlBlobDesc(at, 50000, 3), VRAM_SEG, metadata),
                     NIXL_SUCCESS);
    assert_int_equal(dmabuf.calls, 1);
    assert_true(dmabuf.fd_is_open);
    assert_int_equal(dmabuf.iova, at);
    assert_int_equal(dmabuf.length, 50000);
    assert_int_equal(dmabuf.offset, at % static_cast<uintptr_t>(getpagesize()));
    std::string data, info;
    assert_int_equal(two.engine->getPublicData(metadata, data), NIXL_SUCCESS);
    assert_int_equal(two.engine->getConnInfo(info), NIXL_SUCCESS);
    assert_int_equal(one.engine->loadRemoteConnInfo("two", info), NIXL_SUCCESS);
    assert_int_equal(
        one.engine->loadRemoteMD(nixlBlobDesc(at, 50000, 3, data), VRAM_SEG, "two", loaded),
        NIXL_SUCCESS);
    one.add(here.data(), here.size());
    fill(here.data(), 50000, 1);
    nixl_meta_dlist_t from(DRAM_SEG), to(VRAM_SEG);
    from.emplace(reinterpret_cast<uintptr_t>(here.data()), size_t(50000), uint64_t(0),
                 one.local_of({here.data(), 1}));
    to.emplace(at, size_t(50000), uint64_t(3), loaded);
    nixlBackendReqH *handle = nullptr;
    assert_int_equal(one.engine->prepXfer(NIXL_WRITE, from, to, "two", handle), NIXL_SUCCESS);
    nixl_status_t status = one.engine->postXfer(NIXL_WRITE, from, to, "two", handle);
    while (status == NIXL_IN_PROG)
        status = one.engine->checkXfer(handle);
    assert_int_equal(status, NIXL_SUCCESS);
    expect(reinterpret_cast<void *>(at), 50000, 1);
    assert_int_equal(one.engine->releaseReqH(handle), NIXL_SUCCESS);
    assert_int_equal(one.engine->unloadMD(loaded), NIXL_SUCCESS);
    assert_int_equal(one.engine->disconnect("two"), NIXL_SUCCESS);
    assert_int_equal(two.engine->deregisterMem(metadata), NIXL_SUCCESS);
    /* The driver has no GPU 4, and no dma-buf of memory whose address is odd. */
    assert_int_equal(two.engine->registerMem(nixlBlobDesc(at, 50000, 4), VRAM_SEG, metadata),
                     NIXL_ERR_NOT_SUPPORTED);
    assert_int_equal(
        two.engine->registerMem(nixlBlobDesc(UINTPTR_MAX - 99, 50, 0), VRAM_SEG, metadata),
        NIXL_ERR_NOT_SUPPORTED);
    assert_int_equal(dmabuf.calls, 1);
}

/* Each code of weir's has a status, and those of ends are disconnects. */
void test_X14_codes(void **) {
    using weir_nixl::status_of;
    const int disconnects[] = {WEIR_ESTALE,    WEIR_EUNKNOWN, WEIR_ECONNECT, WEIR_EPEER,
                               WEIR_EREFUSED,  WEIR_ECLOSED,  WEIR_EDEVICE,  WEIR_EADDRESS,
                               WEIR_ENODEVICE, WEIR_EFULL,    WEIR_EDENIED,  WEIR_EUNREACH};
    for (int code : disconnects)
        assert_int_equal(status_of(code), NIXL_ERR_REMOTE_DISCONNECT);
    assert_int_equal(status_of(WEIR_OK), NIXL_SUCCESS);
    assert_int_equal(status_of(WEIR_EINPROGRESS), NIXL_IN_PROG);
    assert_int_equal(status_of(WEIR_ECANCELED), NIXL_ERR_CANCELED);
    assert_int_equal(status_of(WEIR_EACCESS), NIXL_ERR_NOT_ALLOWED);
    for (int code : {WEIR_EINVAL, WEIR_EBOUNDS})
        assert_int_equal(status_of(code), NIXL_ERR_INVALID_PARAM);
    for (int code : {WEIR_ENOTSUP, WEIR_ETOOBIG})
        assert_int_equal(status_of(code), NIXL_ERR_NOT_SUPPORTED);
    for (int code : {WEIR_EREMOTE, WEIR_ENOMEM, WEIR_EMFILE, WEIR_EMEMLOCK, WEIR_EAGAIN,
                     WEIR_ENOTREADY, WEIR_ETIMEDOUT, WEIR_EBUSY})
        assert_int_equal(status_of(code), NIXL_ERR_BACKEND);
}

/* Weir's notifications and messages that no plug-in would send. */
void test_X12_bytes_of_strangers(void **) {
    Agent agent("agent");
    weir_engine *stranger = nullptr;
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
    options.device = "shm";
    options.flags = WEIR_ENGINE_THREAD;
    assert_int_equal(weir_engine_open(&options, &stranger), WEIR_OK);
    weir_peer peer;
    assert_int_equal(weir_peer_open(stranger, address_of(agent.engine).c_str(), &peer), WEIR_OK);
    std::mt19937 random(2);
    for (int i = 0; i < 4000; i++) {
        char bytes[WEIR_MESSAGE_COPY_MAX];
        for (char &byte : bytes)
            byte = static_cast<char>(random());
        uint32_t length = static_cast<uint32_t>(random() % (i % 2 == 0 ? 30 : sizeof(bytes) + 1));
        if (random() % 4 != 0)
            bytes[0] = 1;
        if (random() % 2 == 0)
            weir_nixl::part_write_head(bytes, static_cast<uint8_t>(random() % 4), random() % 3);
        weir_transfer transfer = {};
        weir_transfer_options how = WEIR_TRANSFER_OPTIONS_INIT;
        how.notify_tag = random() % 2 == 0 ? random() % 4 : random();
        how.flags = WEIR_TRANSFER_BLOCK;
        if (i % 2 == 0) {
            how.flags |= WEIR_TRANSFER_NOTIFY;
            how.notify_payload = bytes;
            how.notify_length = length;
            assert_int_equal(weir_write(stranger, peer, nullptr, 0, &how, &transfer), WEIR_OK);
        } else {
            weir_part part = {};
            part.base = bytes;
            part.length = length;
            assert_int_equal(weir_message_send(stranger, peer, weir_nixl::inbox_number, &part, 1,
                                               &how, &transfer),
                             WEIR_OK);
        }
        assert_int_equal(weir_transfer_wait(stranger, transfer, UINT64_MAX), WEIR_OK);
        weir_transfer_release(stranger, transfer);
    }
    Agent friend_("friend");
    assert_int_equal(friend_.load(agent.metadata()), NIXL_SUCCESS);
    assert_int_equal(friend_.say("agent", text_of(20000, 1)), NIXL_SUCCESS);
    bool found = false;
    for (int i = 0; i < 500000 && !found; i++, sleep_ms(1))
        for (const auto &[from, text] : agent.notifications())
            found = found || (from == "friend" && text == text_of(20000, 1));
    assert_true(found);
    weir_engine_close(stranger);
}

/* ---- a cheat, and an inbox with little room ------------------------------------- */

/* A weir engine that says what it wants to an inbox of the plug-in's. */
struct Cheat {
    weir_engine *here = nullptr, *there = nullptr;
    weir_peer peer = {};
    std::unique_ptr<weir_nixl::Inbox> inbox;
    weir_memory memory = {};
    std::vector<char> bytes = std::vector<char>(weir_nixl::message_bytes_max);

    explicit Cheat(size_t held_most, std::chrono::seconds late_most = weir_nixl::late_usual) {
        weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
        options.device = "shm";
        assert_int_equal(weir_engine_open(&options, &there), WEIR_OK);
        inbox = std::make_unique<weir_nixl::Inbox>(there, held_most, late_most);
        assert_int_equal(inbox->open(), WEIR_OK);
        assert_int_equal(weir_engine_open(&options, &here), WEIR_OK);
        char address[WEIR_ADDRESS_MAX];
        assert_int_equal(weir_engine_address(there, address, sizeof(address)), WEIR_OK);
        assert_int_equal(weir_peer_open(here, address, &peer), WEIR_OK);
        assert_int_equal(
            weir_memory_register(here, bytes.data(), bytes.size(), WEIR_ACCESS_ALL, &memory),
            WEIR_OK);
    }
    /* As the inbox knows it: of the last event. */
    weir_peer from() {
        weir_event event;
        weir_peer last = {};
        while (weir_event_take(there, &event) == WEIR_OK)
            if (event.type == WEIR_EVENT_UP)
                last = event.peer;
        return last;
    }
    ~Cheat() {
        weir_engine_close(here);
        weir_engine_close(there);
    }
    /* Until it is in the inbox. */
    void arrive(int rc, weir_transfer transfer) {
        assert_int_equal(rc, WEIR_OK);
        while (weir_transfer_status(here, transfer) == WEIR_EINPROGRESS) {
            weir_engine_progress(here);
            weir_engine_progress(there);
        }
        assert_int_equal(weir_transfer_status(here, transfer), WEIR_OK);
        weir_transfer_release(here, transfer);
        weir_engine_progress(there);
        inbox->take();
    }
    void note(weir_nixl::How how, uint64_t stream, uint64_t tag, const std::string &text) {
        weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
        const std::string payload = weir_nixl::note_write(how, stream, "cheat", text);
        options.flags = WEIR_TRANSFER_NOTIFY;
        options.notify_tag = tag;
        options.notify_payload = payload.data();
        options.notify_length = static_cast<uint32_t>(payload.size());
        weir_transfer transfer = {};
        int rc = weir_write(here, peer, nullptr, 0, &options, &transfer);
        arrive(rc, transfer);
    }
    /* The bytes as they are. */
    void part(int flags, uint64_t stream, uint64_t tag) {
        weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
        options.notify_tag = tag;
        weir_nixl::part_write_head(bytes.data(), static_cast<uint8_t>(flags), stream);
        weir_part part = {};
        part.local = memory;
        part.length = bytes.size();
        weir_transfer transfer = {};
        int rc =
            weir_message_send(here, peer, weir_nixl::inbox_number, &part, 1, &options, &transfer);
        arrive(rc, transfer);
    }
    size_t streams() {
        size_t count, held;
        inbox->sizes(&count, &held);
        return count;
    }
    size_t held() {
        size_t count, held;
        inbox->sizes(&count, &held);
        return held;
    }
    notif_list_t came() {
        notif_list_t list;
        inbox->hand_over(list);
        return list;
    }
};

using weir_nixl::How;
const size_t little = 100000;

/* Texts that never end, that nothing is said of, and notes that never have their turn. */
void test_X12_what_waits_is_bounded(void **) {
    Cheat cheat(little);
    for (uint64_t i = 0; i < 100; i++)
        cheat.part(i == 0 ? weir_nixl::first_part : 0, 1, 5);
    assert_true(cheat.held() <= little);
    for (uint64_t i = 0; i < 100; i++)
        cheat.part(weir_nixl::first_part | weir_nixl::last_part, 1, 100 + i);
    assert_true(cheat.held() > little / 2 && cheat.held() <= little);
    for (uint64_t i = 0; i < 1000; i++)
        cheat.note(How::said, 1, 1000 + i, "is never its turn");
    assert_true(cheat.held() <= little);
    assert_true(cheat.came().empty());
    /* Notifications that came with data do not wait then, and are not lost. */
    for (uint64_t i = 0; i < 1000; i++)
        cheat.note(How::with_transfer, 1, 50, "waits for nothing");
    assert_true(cheat.held() <= little);
    assert_in_range(cheat.came().size(), 900, 1000);
}

/* One more stream than are kept is one less of those before it, and nothing of it is held. */
void test_X12_streams_are_bounded(void **) {
    Cheat cheat(little);
    for (uint64_t i = 1; i <= 2000; i++) {
        cheat.note(How::said, i, 2, "waits for 1");
        assert_true(cheat.streams() <= weir_nixl::streams_each);
    }
    const size_t held = cheat.held();
    for (uint64_t i = 3001; i <= 3100; i++)
        cheat.note(How::said, i, 2, "waits for 1");
    assert_int_equal(cheat.held(), held);
    cheat.note(How::said, 3100, 1, "1");
    notif_list_t came = cheat.came();
    assert_int_equal(came.size(), 2);
    assert_string_equal(came[0].second.c_str(), "1");
    assert_string_equal(came[1].second.c_str(), "waits for 1");
}

/* A text that has no room is lost, never cut; and what was said behind it comes. Nothing is held
 * in the end. */
void test_X12_a_text_without_room(void **) {
    Cheat cheat(little);
    const std::string head = weir_nixl::whole_write("cheat", "");
    std::memcpy(cheat.bytes.data() + weir_nixl::part_head, head.data(), head.size());
    for (uint64_t i = 0; i < 20; i++)
        cheat.part((i == 0 ? weir_nixl::first_part : 0) | (i == 19 ? weir_nixl::last_part : 0), 1,
                   1);
    cheat.note(How::in_messages, 1, 1, "");
    cheat.part(weir_nixl::first_part | weir_nixl::last_part, 1, 2);
    cheat.note(How::in_messages, 1, 2, "");
    cheat.note(How::said, 1, 3, "end");
    notif_list_t came = cheat.came();
    assert_int_equal(came.size(), 2);
    assert_int_equal(came[0].second.size(),
                     weir_nixl::message_bytes_max - weir_nixl::part_head - head.size());
    assert_string_equal(came[1].second.c_str(), "end");
    assert_int_equal(cheat.held(), 0);
}

/* A note of an older stream that comes late does not end the one that took its place, however long
 * nobody speaks; and what a peer that is gone has sent is forgotten. */
void test_X12_a_late_note_of_an_older_stream(void **) {
    Cheat cheat(little, std::chrono::seconds(0));
    cheat.note(How::said, 2, 1, "a");
    cheat.note(How::with_transfer, 1, 0, "late");
    for (int i = 0; i < 3; i++) { /* an inbox looks once a second for what it can forget */
        sleep_ms(1100);
        cheat.inbox->take();
    }
    cheat.note(How::with_transfer, 2, 2, "behind b");
    cheat.note(How::said, 2, 2, "b");
    notif_list_t came = cheat.came();
    assert_int_equal(came.size(), 4);
    assert_string_equal(came[2].second.c_str(), "b");
    assert_string_equal(came[3].second.c_str(), "behind b");
    assert_int_equal(cheat.streams(), 2);
    cheat.inbox->gone(cheat.from());
    for (int i = 0; i < 500 && cheat.streams() > 0; i++, sleep_ms(100))
        cheat.inbox->take();
    assert_int_equal(cheat.streams(), 0);
}

/* More text than a notification may have is refused before a byte moves. */
void test_X2_a_text_that_is_too_long(void **) {
    Agent one("one"), two("two");
    std::vector<char> here(64), there(64);
    one.add(here.data(), 64);
    two.add(there.data(), 64);
    assert_int_equal(one.load(two.metadata()), NIXL_SUCCESS);
    fill(here.data(), 64, 1);
    const std::string text(weir_nixl::text_bytes_max + 1, 'x');
    assert_int_equal(one.say("two", text), NIXL_ERR_NOT_SUPPORTED);
    assert_int_equal(one.move(NIXL_WRITE, {{here.data(), 64}}, "two", {{there.data(), 64}}, &text),
                     NIXL_ERR_NOT_SUPPORTED);
    for (char byte : there)
        assert_int_equal(byte, 0);
}

/* A child that is forked while threads of its parent are at work in the plug-in does not wait for
 * them: SIGALRM would end it. */
void test_X13_forked_under_traffic(void **) {
    Agent one("one"), two("two");
    assert_int_equal(one.load(two.metadata()), NIXL_SUCCESS);
    std::atomic<bool> end{false};
    std::thread sayer([&] {
        for (uint64_t i = 0; !end; i++)
            one.engine->genNotif("two", i % 2 == 0 ? "short" : std::string(300, 'x'));
    });
    std::thread asker([&] {
        while (!end) {
            notif_list_t list;
            two.engine->getNotifs(list);
        }
    });
    int bad = 0;
    for (int i = 0; i < 40 && bad == 0; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(500);
            nixlBackendEngine *engine = one.engine;
            notif_list_t list;
            std::string text;
            _exit(engine->genNotif("two", "x") < 0 && two.engine->getNotifs(list) < 0 &&
                          engine->connect("two") < 0 && engine->getConnInfo(text) < 0
                      ? 0
                      : 1);
        }
        int status = -1;
        waitpid(child, &status, 0);
        bad += status != 0;
    }
    end = true;
    sayer.join();
    asker.join();
    assert_int_equal(bad, 0);
}

/* A child of fork has no engine of its parent's, and does it no harm. */
void test_X13_a_child_of_fork(void **) {
    auto one = std::make_unique<Agent>("one"), two = std::make_unique<Agent>("two");
    std::vector<char> here(4096), there(4096);
    one->add(here.data(), here.size());
    two->add(there.data(), there.size());
    assert_int_equal(one->load(two->metadata()), NIXL_SUCCESS);
    Pieces local = {{here.data(), 64}}, remote = {{there.data(), 64}};
    assert_int_equal(one->move(NIXL_WRITE, local, "two", remote), NIXL_SUCCESS);
    pid_t child = fork();
    if (child == 0) {
        bool errors = one->move(NIXL_WRITE, local, "two", remote) < 0 && one->say("two", "x") < 0 &&
                      one->engine->connect("two") < 0;
        plugin()->destroy_engine(one->engine);
        plugin()->destroy_engine(two->engine);
        _exit(errors ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    fill(here.data(), 64, 3);
    assert_int_equal(one->move(NIXL_WRITE, local, "two", remote), NIXL_SUCCESS);
    expect(there.data(), 64, 3);
    assert_int_equal(one->say("two", "still there"), NIXL_SUCCESS);
    two->notifications(1);
}

} // namespace

int main() {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_X1_what_the_manager_finds),
        cmocka_unit_test(test_X11_parameters),
        cmocka_unit_test(test_X11_the_environment),
        cmocka_unit_test(test_X2_memory),
        cmocka_unit_test(test_X2_agents),
        cmocka_unit_test(test_X2_public_data),
        cmocka_unit_test(test_X2_transfers),
        cmocka_unit_test(test_X10_without_cuda),
        cmocka_unit_test(test_X10_memory_of_a_gpu),
        cmocka_unit_test(test_X12_bytes_of_strangers),
        cmocka_unit_test(test_X12_what_waits_is_bounded),
        cmocka_unit_test(test_X12_streams_are_bounded),
        cmocka_unit_test(test_X12_a_text_without_room),
        cmocka_unit_test(test_X12_a_late_note_of_an_older_stream),
        cmocka_unit_test(test_X2_a_text_that_is_too_long),
        cmocka_unit_test(test_X13_a_child_of_fork),
        cmocka_unit_test(test_X13_forked_under_traffic),
        cmocka_unit_test(test_X14_codes),
    };
    return cmocka_run_group_tests_name("nixl_interface", tests, nullptr, nullptr);
}
