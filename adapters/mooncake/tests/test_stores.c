/* SPDX-License-Identifier: Apache-2.0 */
/* test_stores.c: metadata servers: etcd and redis as they are installed, and one behind HTTP
 * (http_store.py). Tests run with each of them; what is in them is asked by stored.py, and liar.py
 * is a server that answers wrongly.
 *
 * A server of the test's own listens at a free port and is killed by its process's id. */
#include "kit.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <jansson.h>

enum { SMALL = 4096, COUNT = 4 };

struct server {
    const char *kind;
    pid_t pid;
    int port, second_port;
    char uri[128];
    char directory[64];
};

static int free_port(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, length), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &length), 0);
    close(fd);
    return ntohs(address.sin_port);
}

/* The value at the key, in static storage; NULL: there is none, or no server. */
static const char *stored(const struct server *server, const char *key, const char *value) {
    static char text[1 << 16];
    char command[4096];
    snprintf(command, sizeof(command),
             "exec /usr/bin/python3 %s/stored.py %s %d '%s' %s%s%s 2>/dev/null", getenv("MC_TESTS"),
             server->kind, server->port, key, value != NULL ? "'" : "", value != NULL ? value : "",
             value != NULL ? "'" : "");
    FILE *out = popen(command, "r");
    assert_non_null(out);
    size_t length = fread(text, 1, sizeof(text) - 1, out);
    text[length] = '\0';
    return pclose(out) == 0 ? text : NULL;
}

static void run_server(const struct server *server) {
    char port[16], client[64], peer[64], cluster[80], script[512];
    const char *secret = getenv("MC_REDIS_PASSWORD");
    snprintf(port, sizeof(port), "%d", server->port);
    snprintf(client, sizeof(client), "http://127.0.0.1:%d", server->port);
    snprintf(peer, sizeof(peer), "http://127.0.0.1:%d", server->second_port);
    snprintf(cluster, sizeof(cluster), "default=%s", peer);
    snprintf(script, sizeof(script), "%s/http_store.py", getenv("MC_TESTS"));
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (freopen("/dev/null", "w", stdout) == NULL || freopen("/dev/null", "w", stderr) == NULL)
        _exit(126);
    if (strcmp(server->kind, "etcd") == 0)
        execlp("etcd", "etcd", "--data-dir", server->directory, "--listen-client-urls", client,
               "--advertise-client-urls", client, "--listen-peer-urls", peer,
               "--initial-advertise-peer-urls", peer, "--initial-cluster", cluster, (char *)NULL);
    else if (strcmp(server->kind, "redis") == 0)
        execlp("redis-server", "redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "",
               "--dir", server->directory, "--requirepass", secret != NULL ? secret : "",
               (char *)NULL);
    else
        execlp("/usr/bin/python3", "python3", script, port, (char *)NULL);
    _exit(127);
}

/* At the port that it had, if it had one. False: it ended, since another process has the port. */
static bool server_try(struct server *server) {
    server->pid = fork();
    assert_true(server->pid >= 0);
    if (server->pid == 0)
        run_server(server);
    if (getenv("MC_REDIS_PASSWORD") != NULL) { /* stored.py has no password */
        UNTIL(stored(server, "mooncake/none", "1") != NULL);
        return true;
    }
    bool ended = false;
    UNTIL((ended = waitpid(server->pid, NULL, WNOHANG) != 0) ||
          stored(server, "mooncake/there", "1") != NULL);
    return !ended;
}

static void server_run(struct server *server) {
    assert_true(server_try(server));
}

static void server_kill(struct server *server) {
    kill(server->pid, SIGKILL);
    assert_int_equal(waitpid(server->pid, NULL, 0), server->pid);
}

static bool is_installed(const char *program) {
    char command[64];
    snprintf(command, sizeof(command), "command -v %s >/dev/null", program);
    return system(command) == 0;
}

static void server_begin(struct server *server, void **state) {
    *server = (struct server){.kind = *state};
    bool is_etcd = strcmp(server->kind, "etcd") == 0, is_redis = strcmp(server->kind, "redis") == 0;
    if ((is_etcd && !is_installed("etcd")) || (is_redis && !is_installed("redis-server")))
        skip();
    strcpy(server->directory, "/tmp/mooncake_XXXXXX");
    assert_non_null(mkdtemp(server->directory));
    bool runs = false;
    for (int turn = 0; turn < 10 && !runs; turn++) { /* a free port may be another's by now */
        server->port = free_port();
        server->second_port = free_port();
        runs = server_try(server);
    }
    assert_true(runs);
    snprintf(server->uri, sizeof(server->uri), "%s://127.0.0.1:%d%s", server->kind, server->port,
             is_etcd || is_redis ? "" : "/metadata");
}

static void server_end(struct server *server) {
    char command[128];
    server_kill(server);
    snprintf(command, sizeof(command), "rm -rf %s", server->directory);
    assert_int_equal(system(command), 0);
}

/* ---- what is in them -------------------------------------------------------------- */

static void child_begin(struct child *child, const struct server *server, const char *name,
                        uint64_t seed) {
    child_start(child);
    child_open(child, server->uri, name);
    child_map(child, COUNT, SMALL, seed);
}

static transfer_engine_t engine_begin(const char *uri, const char *name, uint8_t **bytes_out) {
    transfer_engine_t engine = createTransferEngine(uri, name, "", 0, 1);
    assert_non_null(engine);
    *bytes_out = map_bytes(COUNT * SMALL);
    assert_int_equal(registerLocalMemory(engine, *bytes_out, COUNT * SMALL, "cpu:0", 1), 0);
    return engine;
}

static json_t *document(const struct server *server, const char *key) {
    const char *text = stored(server, key, NULL);
    assert_non_null(text);
    json_t *found = json_loads(text, 0, NULL);
    assert_non_null(found);
    return found;
}

static void test_K9_segments_are_found_by_name(void **state) {
    struct server server;
    struct child child;
    uint8_t *bytes;
    server_begin(&server, state);
    child_begin(&child, &server, "node-a", 1);
    transfer_engine_t engine = engine_begin(server.uri, "node-b:1234", &bytes);
    segment_id_t id = openSegment(engine, "node-a");
    assert_true(id > 0);
    assert_int_equal(openSegment(engine, "node-b:1234"), LOCAL_SEGMENT);
    assert_int_equal(openSegment(engine, "node-c"), MC_EINVALID);
    transfer_request_t entry = request(OPCODE_READ, bytes, id, child.base, COUNT * SMALL);
    assert_int_equal(transfer(engine, &entry, 1), STATUS_COMPLETED);
    assert_int_equal(differs(bytes, 0, COUNT * SMALL, 1), -1);
    fill(bytes, 0, COUNT * SMALL, 2);
    child_say(&child, "write node-b:1234 %llx %d 3", (unsigned long long)(uintptr_t)bytes, SMALL);
    assert_int_equal(differs(bytes, 0, SMALL, 3), -1);
    assert_int_equal(genNotifyInEngine(engine, (uint64_t)id, (notify_msg_t){"a", "b"}), 0);
    child_quit(&child);
    destroyTransferEngine(engine);
    server_end(&server);
}

/* Slashes before a name are none of it, neither its own engine's nor a peer's. */
static void test_K9_slashes_before_a_name_do_not_count(void **state) {
    struct server server;
    struct child child;
    uint8_t *bytes;
    server_begin(&server, state);
    child_begin(&child, &server, "//node-a", 1);
    transfer_engine_t engine = engine_begin(server.uri, "/node-b", &bytes);
    assert_int_equal(openSegment(engine, "node-b"), LOCAL_SEGMENT);
    assert_int_equal(openSegment(engine, "/node-b"), LOCAL_SEGMENT);
    segment_id_t id = openSegment(engine, "//node-a");
    assert_true(id > 0);
    assert_int_equal(openSegment(engine, "node-a"), id);
    assert_null(createTransferEngine(server.uri, "///", "", 0, 1));
    child_quit(&child);
    assert_null(stored(&server, "mooncake/ram/node-a", NULL));
    destroyTransferEngine(engine);
    server_end(&server);
}

/* As Mooncake's own readers take them: keys, members and their types. */
static void test_K9_documents_are_those_of_mooncake(void **state) {
    struct server server;
    struct child child;
    server_begin(&server, state);
    child_begin(&child, &server, "node-a", 1);
    json_t *location = document(&server, "mooncake/rpc_meta/node-a");
    char address[512];
    snprintf(address, sizeof(address), "%s:%lld",
             json_string_value(json_object_get(location, "ip_or_host_name")),
             (long long)json_integer_value(json_object_get(location, "rpc_port")));
    assert_string_equal(address, child.name);
    json_t *segment = document(&server, "mooncake/ram/node-a");
    assert_string_equal(json_string_value(json_object_get(segment, "name")), "node-a");
    assert_string_equal(json_string_value(json_object_get(segment, "protocol")), "tcp");
    assert_true(json_is_integer(json_object_get(segment, "tcp_data_port")));
    assert_true(json_is_string(json_object_get(segment, "timestamp")));
    const json_t *buffers = json_object_get(segment, "buffers");
    assert_int_equal(json_array_size(buffers), COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        const json_t *buffer = json_array_get(buffers, i);
        assert_string_equal(json_string_value(json_object_get(buffer, "name")), "cpu:0");
        assert_int_equal(json_integer_value(json_object_get(buffer, "addr")),
                         child.base + i * SMALL);
        assert_int_equal(json_integer_value(json_object_get(buffer, "length")), SMALL);
    }
    child_say(&child, "forget 1");
    json_t *less = document(&server, "mooncake/ram/node-a");
    assert_int_equal(json_array_size(json_object_get(less, "buffers")), COUNT - 1);
    json_decref(less);
    json_decref(segment);
    json_decref(location);
    child_quit(&child);
    server_end(&server);
}

static void test_K9_entries_go_with_their_engine(void **state) {
    struct server server;
    struct child child, successor;
    int status;
    server_begin(&server, state);
    child_begin(&child, &server, "node-a", 1);
    assert_non_null(stored(&server, "mooncake/ram/node-a", NULL));
    child_quit(&child);
    assert_null(stored(&server, "mooncake/ram/node-a", NULL));
    assert_null(stored(&server, "mooncake/rpc_meta/node-a", NULL));

    child_begin(&child, &server, "node-a", 1); /* told to end */
    child_say(&child, "graceful");
    kill(child.pid, SIGTERM);
    assert_int_equal(waitpid(child.pid, &status, 0), child.pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    assert_null(stored(&server, "mooncake/ram/node-a", NULL));
    assert_null(stored(&server, "mooncake/rpc_meta/node-a", NULL));

    child_begin(&child, &server, "node-a", 1); /* another has its name by now */
    child_begin(&successor, &server, "node-a", 1);
    child_quit(&child);
    assert_non_null(stored(&server, "mooncake/ram/node-a", NULL));
    assert_non_null(stored(&server, "mooncake/rpc_meta/node-a", NULL));
    child_kill(&successor);
    assert_non_null(stored(&server, "mooncake/ram/node-a", NULL));
    server_end(&server);
}

static void test_K9_a_cluster_has_keys_of_its_own(void **state) {
    struct server server;
    struct child child;
    uint8_t *bytes;
    server_begin(&server, state);
    setenv("MC_METADATA_CLUSTER_ID", "east", 1);
    child_begin(&child, &server, "node-a", 1);
    assert_non_null(stored(&server, "mooncake/east/ram/node-a", NULL));
    assert_non_null(stored(&server, "mooncake/east/rpc_meta/node-a", NULL));
    unsetenv("MC_METADATA_CLUSTER_ID");
    transfer_engine_t engine = engine_begin(server.uri, "node-b", &bytes);
    assert_int_equal(openSegment(engine, "node-a"), MC_EINVALID); /* another cluster's */
    child_quit(&child);
    destroyTransferEngine(engine);
    server_end(&server);
}

/* Entries of Mooncake's own engines, and such as nobody writes. */
static void test_K9_entries_of_others_are_errors(void **state) {
    struct server server;
    uint8_t *bytes;
    server_begin(&server, state);
    setenv("WEIR_CONNECT_TIMEOUT_MS", "400", 1); /* nobody is there */
    transfer_engine_t engine = engine_begin(server.uri, "node-b", &bytes);
    wait_long();
    static const char *const segments[] = {
        "{\"buffers\":[{\"addr\":140000000000000,\"length\":4096,\"lkey\":[1],\"name\":\"cpu:0\","
        "\"rkey\":[2]}],\"devices\":[{\"gid\":\"fe80\",\"lid\":1,\"name\":\"mlx5_0\"}],"
        "\"name\":\"theirs\",\"priority_matrix\":{},\"protocol\":\"rdma\",\"tcp_data_port\":0}",
        "{}",
        "[]",
        "{\"weir\":",
        "\"text\"",
        "{\"weir\":\"1\"}",
        ""};
    static const char *const locations[] = {
        "{\"ip_or_host_name\":\"127.0.0.1\",\"rpc_port\":1}",
        "{\"ip_or_host_name\":\"127.0.0.1\"}",
        "{\"ip_or_host_name\":7,\"rpc_port\":\"x\"}",
        "{\"ip_or_host_name\":\"127.0.0.1\",\"rpc_port\":70000}",
        "[]",
        "",
        "null"};
    for (size_t i = 0; i < sizeof(segments) / sizeof(segments[0]); i++) {
        assert_non_null(stored(&server, "mooncake/ram/theirs", segments[i]));
        assert_non_null(stored(&server, "mooncake/rpc_meta/theirs", locations[0]));
        assert_int_equal(openSegment(engine, "theirs"), MC_EINVALID);
    }
    assert_non_null(stored(&server, "mooncake/ram/theirs", "{\"weir\":1}"));
    for (size_t i = 0; i < sizeof(locations) / sizeof(locations[0]); i++) {
        assert_non_null(stored(&server, "mooncake/rpc_meta/theirs", locations[i]));
        assert_int_equal(openSegment(engine, "theirs"), MC_EINVALID);
    }
    destroyTransferEngine(engine);
    server_end(&server);
}

/* A process that listens as a server of this kind, and answers so. */
static void liar_begin(struct server *server, const char *kind, const char *what) {
    char port[16], script[512];
    bool is_http = strcmp(kind, "http") == 0;
    *server = (struct server){.kind = kind, .port = free_port()};
    snprintf(server->uri, sizeof(server->uri), "%s://127.0.0.1:%d%s", kind, server->port,
             is_http ? "/metadata" : "");
    snprintf(port, sizeof(port), "%d", server->port);
    snprintf(script, sizeof(script), "%s/liar.py", getenv("MC_TESTS"));
    server->pid = fork();
    assert_true(server->pid >= 0);
    if (server->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execlp("/usr/bin/python3", "python3", script, port, kind, what, (char *)NULL);
        _exit(127);
    }
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)server->port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    UNTIL(connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
    close(fd);
}

/* Answers that do not come, come a byte at a time, or do not end: each call does. */
static void test_K9_answers_that_do_not_end_are_errors(void **state) {
    static const char *const answers[] = {"mute", "trickle", "flood"};
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        struct server server;
        liar_begin(&server, *state, answers[i]);
        setenv("MC_WEIR_TIMEOUT_MS", strcmp(answers[i], "flood") == 0 ? "60000" : "500", 1);
        assert_null(createTransferEngine(server.uri, "node-b", "", 0, 1));
        wait_long();
        server_kill(&server);
    }
}

/* Answers of other types than were asked for. */
static void test_K9_answers_that_are_none_are_errors(void **state) {
    static const char *const redis[] = {":7\\r\\n", "*3\\r\\n:1\\r\\n$-1\\r\\n*0\\r\\n",
                                        "$-1\\r\\n", "$3\\r\\n{}}\\r\\n", "+OK\\r\\n"};
    static const char *const http[] = {"[]",
                                       "7",
                                       "{}",
                                       "{\"weir\":1}",
                                       "{\"weir\":1,\"rpc_port\":1.5e300}",
                                       "{\"kvs\":7}",
                                       "{\"kvs\":[7]}",
                                       "{\"kvs\":[{\"value\":7}]}",
                                       "{\"kvs\":[{\"value\":\"?!\"}]}",
                                       "{\"kvs\":[{\"value\":\"e30=\"}]}"};
    bool is_redis = strcmp(*state, "redis") == 0;
    size_t count = is_redis ? sizeof(redis) / sizeof(redis[0]) : sizeof(http) / sizeof(http[0]);
    for (size_t i = 0; i < count; i++) {
        struct server server;
        liar_begin(&server, *state, is_redis ? redis[i] : http[i]);
        transfer_engine_t engine = createTransferEngine(server.uri, "node-b", "", 0, 1);
        assert_int_equal(openSegment(engine, "theirs"), MC_EINVALID);
        destroyTransferEngine(engine);
        server_kill(&server);
    }
}

/* A child of fork(2) that destroys its parent's engine, and ends with one of its own. */
static void test_K9_a_child_takes_out_no_entry_of_its_parents(void **state) {
    struct server server;
    uint8_t *bytes;
    int status;
    server_begin(&server, state);
    transfer_engine_t engine = engine_begin(server.uri, "node-b", &bytes);
    enableGracefulShutdown(engine);
    for (int own = 0; own < 2; own++) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            alarm(PATIENCE_S);
            if (own == 0) {
                destroyTransferEngine(engine);
                exit(0);
            }
            engine = createTransferEngine(server.uri, "node-x", "", 0, 1);
            if (engine == NULL || stored(&server, "mooncake/ram/node-x", NULL) == NULL)
                exit(1);
            enableGracefulShutdown(engine);
            exit(0);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        assert_non_null(stored(&server, "mooncake/ram/node-b", NULL));
        assert_non_null(stored(&server, "mooncake/rpc_meta/node-b", NULL));
    }
    assert_null(stored(&server, "mooncake/ram/node-x", NULL));
    destroyTransferEngine(engine);
    server_end(&server);
}

/* ---- servers and targets that go ------------------------------------------------------ */

static void test_K10_the_server_goes_away_and_comes_back(void **state) {
    struct server server;
    struct child child;
    uint8_t *bytes, *more = map_bytes(SMALL);
    server_begin(&server, state);
    child_begin(&child, &server, "node-a", 1);
    transfer_engine_t engine = engine_begin(server.uri, "node-b", &bytes);
    segment_id_t id = openSegment(engine, "node-a");
    assert_true(id > 0);
    server_kill(&server);
    transfer_request_t entry = request(OPCODE_READ, bytes, id, child.base, COUNT * SMALL);
    assert_int_equal(transfer(engine, &entry, 1), STATUS_COMPLETED); /* it is not needed for that */
    assert_int_equal(differs(bytes, 0, COUNT * SMALL, 1), -1);
    assert_int_equal(openSegmentNoCache(engine, "node-a"), id);
    assert_int_equal(openSegment(engine, "node-c"), MC_EINVALID);
    assert_int_equal(registerLocalMemory(engine, more, SMALL, "*", 1), MC_EMETADATA);
    assert_int_equal(unregisterLocalMemory(engine, more), MC_EUNREGISTERED);
    assert_int_equal(registerLocalMemory(engine, more, SMALL, "*", 0), 0); /* no peer has it */
    assert_int_equal(unregisterLocalMemory(engine, more), MC_EMETADATA);
    assert_int_equal(unregisterLocalMemory(engine, more), MC_EUNREGISTERED);
    assert_null(createTransferEngine(server.uri, "node-d", "", 0, 1));
    server_run(&server);
    assert_int_equal(registerLocalMemory(engine, more, SMALL, "*", 1), 0);
    json_t *segment = document(&server, "mooncake/ram/node-b");
    assert_int_equal(json_array_size(json_object_get(segment, "buffers")), 2); /* all of it */
    json_decref(segment);
    child_say(&child, "write node-b %llx %d 9", (unsigned long long)(uintptr_t)bytes, SMALL);
    assert_int_equal(differs(bytes, 0, SMALL, 9), -1); /* it was found */
    child_quit(&child);
    destroyTransferEngine(engine);
    server_end(&server);
}

/* A server that is stopped: it takes a connection, and says nothing. A task that needs a list, as a
 * buffer that was registered since, does not wait for it. */
static void test_K10_a_server_that_is_stopped_holds_up_no_transfer(void **state) {
    struct server server;
    struct child child;
    uint8_t *bytes;
    server_begin(&server, state);
    child_begin(&child, &server, "node-a", 1);
    setenv("MC_WEIR_TIMEOUT_MS", "3600000", 1);
    transfer_engine_t engine = engine_begin(server.uri, "node-b", &bytes);
    wait_long();
    segment_id_t id = openSegment(engine, "node-a");
    assert_true(id > 0);
    process_stop(server.pid);
    for (int turn = 0; turn < 3; turn++) {
        transfer_request_t entries[2] = {request(OPCODE_READ, bytes, id, child.base, COUNT * SMALL),
                                         request(OPCODE_READ, bytes, id, 64, 8)};
        batch_id_t batch = allocateBatchID(engine, 2);
        assert_int_equal(submitTransfer(engine, batch, entries, 2), 0);
        assert_int_equal(wait_task(engine, batch, 1), STATUS_FAILED);
        assert_int_equal(wait_task(engine, batch, 0), STATUS_COMPLETED);
        assert_int_equal(freeBatchID(engine, batch), 0);
        assert_int_equal(openSegment(engine, "node-a"), id);
        assert_int_equal(genNotifyInEngine(engine, (uint64_t)id, (notify_msg_t){"a", "b"}), 0);
    }
    assert_int_equal(differs(bytes, 0, COUNT * SMALL, 1), -1);
    kill(server.pid, SIGCONT);
    child_quit(&child);
    destroyTransferEngine(engine);
    server_end(&server);
}

/* One target after the other of one name, each killed. Work that is submitted once the death is
 * known goes to the successor, and none that was submitted before. */
static void test_K10_a_target_that_is_restarted_under_its_name(void **state) {
    struct server server;
    struct child child;
    uint8_t *bytes;
    server_begin(&server, state);
    transfer_engine_t engine = engine_begin(server.uri, "node-b", &bytes);
    for (unsigned life = 0; life < 3; life++) {
        child_begin(&child, &server, "node-a", 70 + life);
        segment_id_t id = openSegment(engine, "node-a");
        assert_int_equal(id, 1);
        transfer_request_t entry = request(OPCODE_READ, bytes, id, child.base, COUNT * SMALL);
        UNTIL(transfer(engine, &entry, 1) == STATUS_COMPLETED);
        assert_int_equal(differs(bytes, 0, COUNT * SMALL, 70 + life), -1);
        fill(bytes, 0, COUNT * SMALL, 80 + life);
        entry.opcode = OPCODE_WRITE;
        assert_int_equal(transfer(engine, &entry, 1), STATUS_COMPLETED);
        child_say(&child, "check 0 0 %d %u", COUNT * SMALL, 80 + life);
        assert_int_equal(genNotifyInEngine(engine, (uint64_t)id, (notify_msg_t){"a", "b"}), 0);
        child_kill(&child);
    }
    destroyTransferEngine(engine);
    server_end(&server);
}

/* Work for which weir had no room when its target died is not the successor's either, which has a
 * buffer at the same address. */
static void test_K10_work_that_waits_for_room_is_no_successors(void **state) {
    enum { BATCHES = 16 };
    struct server server;
    struct child child;
    uint8_t *bytes;
    batch_id_t batches[BATCHES];
    const char *device = getenv("MC_WEIR_DEVICE");
    char before[64];
    int old = personality(0xffffffff);
    if (old < 0 || personality((unsigned long)old | ADDR_NO_RANDOMIZE) < 0)
        skip();
    snprintf(before, sizeof(before), "%s", device != NULL ? device : "");
    server_begin(&server, state);
    setenv("MC_WEIR_DEVICE", "ofi", 1); /* where a target that is stopped takes no bytes */
    setenv("WEIR_TRANSFERS_MAX", "4", 1);
    setenv("WEIR_CONNECT_TIMEOUT_MS", "3000", 1);
    transfer_engine_t engine = createTransferEngine(server.uri, "node-b", "", 0, 1);
    unsetenv("WEIR_TRANSFERS_MAX");
    wait_long();
    if (engine != NULL) {
        bytes = map_bytes(COUNT * SMALL);
        assert_int_equal(registerLocalMemory(engine, bytes, COUNT * SMALL, "*", 1), 0);
        child_begin(&child, &server, "node-a", 70);
        uint64_t base = child.base;
        segment_id_t id = openSegment(engine, "node-a");
        assert_true(id > 0);
        fill(bytes, 0, COUNT * SMALL, 5);
        process_stop(child.pid);
        transfer_request_t entry = request(OPCODE_WRITE, bytes, id, base, COUNT * SMALL);
        for (int i = 0; i < BATCHES; i++) {
            batches[i] = allocateBatchID(engine, 1);
            assert_int_equal(submitTransfer(engine, batches[i], &entry, 1), 0);
        }
        child_kill(&child);
        child_begin(&child, &server, "node-a", 71);
        for (int i = 0; i < BATCHES; i++) {
            int status = wait_task(engine, batches[i], 0);
            assert_true(child.base != base || status != STATUS_COMPLETED);
        }
        child_say(&child, "check 0 0 %d 71", COUNT * SMALL);
        child_quit(&child);
        destroyTransferEngine(engine);
    }
    setenv("MC_WEIR_DEVICE", before, 1);
    personality((unsigned long)old);
    server_end(&server);
    if (engine == NULL)
        skip(); /* a build without ofi */
}

static void test_K9_redis_with_a_password(void **state) {
    struct server server;
    struct child child;
    uint8_t *bytes;
    (void)state;
    setenv("MC_REDIS_PASSWORD", "open sesame", 1);
    setenv("MC_REDIS_DB_INDEX", "3", 1);
    server_begin(&server, (void *[]){"redis"});
    child_begin(&child, &server, "node-a", 1);
    transfer_engine_t engine = engine_begin(server.uri, "node-b", &bytes);
    assert_true(openSegment(engine, "node-a") > 0);
    setenv("MC_REDIS_PASSWORD", "wrong", 1);
    assert_null(createTransferEngine(server.uri, "node-c", "", 0, 1));
    unsetenv("MC_REDIS_PASSWORD");
    assert_null(createTransferEngine(server.uri, "node-c", "", 0, 1));
    unsetenv("MC_REDIS_DB_INDEX");
    child_quit(&child);
    destroyTransferEngine(engine);
    server_end(&server);
}

static void test_K9_one_of_several_etcd_endpoints_answers(void **state) {
    struct server server;
    char uri[256];
    uint8_t *bytes;
    (void)state;
    server_begin(&server, (void *[]){"etcd"});
    snprintf(uri, sizeof(uri), "127.0.0.1:%d; 127.0.0.1:%d", free_port(), server.port);
    transfer_engine_t engine = engine_begin(uri, "node-b", &bytes); /* without a scheme: etcd */
    assert_non_null(stored(&server, "mooncake/ram/node-b", NULL));
    destroyTransferEngine(engine);
    server_end(&server);
}

#define WITH(kind, test)                                                                           \
    { #test "_" kind, test, NULL, NULL, (void *)(uintptr_t)(kind) }
#define WITH_ALL(test) WITH("etcd", test), WITH("redis", test), WITH("http", test)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_ALL(test_K9_segments_are_found_by_name),
        WITH("http", test_K9_slashes_before_a_name_do_not_count),
        WITH_ALL(test_K9_documents_are_those_of_mooncake),
        WITH_ALL(test_K9_entries_go_with_their_engine),
        WITH_ALL(test_K9_a_cluster_has_keys_of_its_own),
        WITH("etcd", test_K9_entries_of_others_are_errors),
        WITH("redis", test_K9_entries_of_others_are_errors),
        WITH_ALL(test_K9_answers_that_do_not_end_are_errors),
        WITH_ALL(test_K9_answers_that_are_none_are_errors),
        WITH_ALL(test_K9_a_child_takes_out_no_entry_of_its_parents),
        WITH_ALL(test_K10_a_server_that_is_stopped_holds_up_no_transfer),
        WITH_ALL(test_K10_the_server_goes_away_and_comes_back),
        WITH_ALL(test_K10_a_target_that_is_restarted_under_its_name),
        WITH("http", test_K10_work_that_waits_for_room_is_no_successors),
        cmocka_unit_test(test_K9_redis_with_a_password),
        cmocka_unit_test(test_K9_one_of_several_etcd_endpoints_answers),
    };
    wait_long();
    setenv("MC_TCP_BIND_ADDRESS", "127.0.0.1", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
