/* SPDX-License-Identifier: Apache-2.0 */
/* engine.c: opening and closing an engine, its addresses, and the thread that makes progress, so
 * that a target calls nothing. That thread never blocks but in weir_engine_wait, and for a
 * millisecond. */
#include "adapter.h"

#include <inttypes.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>

#define TIMEOUT_MS_DEFAULT 10000
#define TIMEOUT_MS_MOST    3600000

uint64_t mc_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 * NS_PER_MS + (uint64_t)now.tv_nsec;
}

/* Control bytes, which peers and servers may have sent, become question marks, and so a terminal is
 * left alone. The user and password of a URL become asterisks. */
static void make_printable(char *line) {
    char *from = strstr(line, "://");
    for (; from != NULL; from = strstr(from + 3, "://")) {
        size_t length = strcspn(from + 3, "/ \"");
        char *at = memrchr(from + 3, '@', length);
        for (char *secret = from + 3; at != NULL && secret < at; secret++)
            *secret = '*';
    }
    for (; *line != '\0'; line++) {
        if ((unsigned char)*line < ' ' || *line == 127)
            *line = '?';
    }
}

void mc_log(const char *format, ...) {
    char line[1024];
    va_list args;
    if (getenv("MC_WEIR_QUIET") != NULL)
        return;
    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    make_printable(line);
    fprintf(stderr, "weir-mooncake: %s\n", line);
}

/* ---- forks ------------------------------------------------------------------ */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_uint forks; /* of this process's line: it is another number in a child */

static void in_child(void) {
    atomic_fetch_add(&forks, 1);
    graceful_forked();
}

static void begin(void) {
    pthread_atfork(NULL, NULL, in_child);
}

bool mc_is_here(const struct mc_engine *engine) {
    return engine != NULL && engine->born == atomic_load_explicit(&forks, memory_order_relaxed);
}

/* ---- names and addresses ---------------------------------------------------- */

/* The host of "host", "host:port", "[v6]:port" or a bare IPv6 address, as weir takes it before a
 * port. False: there is none, or it is too long. */
static bool host_of(const char *name, char *host_out, size_t size) {
    const char *colon = strchr(name, ':'), *last = strrchr(name, ':');
    size_t length = strlen(name);
    if (name[0] == '[') {
        const char *end = strchr(name, ']');
        length = end != NULL ? (size_t)(end - name) + 1 : 0;
    } else if (colon != NULL && colon == last) {
        length = (size_t)(colon - name);
    }
    bool is_bare_v6 = colon != last && name[0] != '[';
    int written = snprintf(host_out, size, is_bare_v6 ? "[%.*s]" : "%.*s", (int)length, name);
    return length > 0 && written > 0 && (size_t)written < size;
}

static bool is_wildcard(const char *host) {
    return strcmp(host, "0.0.0.0") == 0 || strcmp(host, "[::]") == 0;
}

/* Of a host that peers could open. */
static bool resolves(const char *host) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    char bare[WEIR_ADDRESS_MAX];
    size_t length = strlen(host);
    bool bracketed = host[0] == '[' && host[length - 1] == ']';
    snprintf(bare, sizeof(bare), "%.*s", (int)(length - 2 * bracketed), host + bracketed);
    if (getaddrinfo(bare, NULL, &hints, &found) != 0)
        return false;
    freeaddrinfo(found);
    return true;
}

static void set_unless(uint32_t *option, const char *variable, uint32_t value) {
    if (getenv(variable) == NULL)
        *option = value;
}

/* With a host that is none of this machine's addresses, as behind a translation: at all addresses,
 * and peers are told that host. */
static int open_weir(struct mc_engine *engine, const char *host, const char *device) {
    char listen[WEIR_ADDRESS_MAX + 8], note[WEIR_OPEN_NOTE_MAX] = "";
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
    const char *variable = getenv("MC_WEIR_DEVICE");
    options.device = device != NULL ? device : variable != NULL ? variable : "auto";
    options.listen = listen;
    set_unless(&options.memories_max, "WEIR_MEMORIES_MAX", 65535);
    set_unless(&options.names_max, "WEIR_NAMES_MAX", 65535);
    set_unless(&options.transfers_max, "WEIR_TRANSFERS_MAX", 16384);
    snprintf(listen, sizeof(listen), "%s:0", host);
    int rc = weir_engine_open(&options, &engine->weir);
    if (rc == WEIR_EADDRESS && !is_wildcard(host) && resolves(host)) {
        options.advertise = host;
        snprintf(listen, sizeof(listen), "%s:0", host[0] == '[' ? "[::]" : "0.0.0.0");
        rc = weir_engine_open(&options, &engine->weir);
    }
    weir_device_info info = WEIR_DEVICE_INFO_INIT;
    if (rc == WEIR_OK && weir_device_choose(&options, &info) == WEIR_OK)
        snprintf(engine->device, sizeof(engine->device), "%s", info.name);
    if (rc != WEIR_OK) {
        weir_open_explain(&options, rc, note, sizeof(note));
        mc_log("no engine on device \"%s\" at %s: %s: %s", options.device, host,
               weir_error_name(rc), note);
    }
    return rc;
}

/* Of where it listens: host, port, and with P2PHANDSHAKE the segment's name. */
static bool name_engine(struct mc_engine *engine, const char *name, const char *host) {
    if (weir_engine_address(engine->weir, engine->address, sizeof(engine->address)) != WEIR_OK)
        return false;
    const char *colon = strrchr(engine->address, ':');
    engine->port = (uint32_t)atoi(colon + 1);
    snprintf(engine->location, sizeof(engine->location), "%.*s", (int)(colon - engine->address),
             engine->address);
    int length = engine->store != NULL ? snprintf(engine->name, NAME_BYTES, "%s", name)
                 : is_wildcard(host)
                     ? snprintf(engine->name, NAME_BYTES, "%s", engine->address)
                     : snprintf(engine->name, NAME_BYTES, "%s:%" PRIu32, host, engine->port);
    return length > 0 && length < NAME_BYTES;
}

/* ---- progress ---------------------------------------------------------------- */

/* So many times a millisecond the application asks for statuses, and makes progress, if it does
 * little else. */
enum { POLLS_MANY = 4 };

/* A thread of the application that does little else than to ask for statuses is faster alone: while
 * one does, this one does not wait for news, so that nobody has to wake it. */
static void *progress_main(void *self) {
    struct mc_engine *engine = self;
    bool has_room = true;
    unsigned seen = 0;
    while (!atomic_load(&engine->stopping)) {
        struct timespec pause = {.tv_nsec = (long)NS_PER_MS};
        uint64_t longest = atomic_load(&engine->backlog_size) > 0 ? NS_PER_MS : 1000 * NS_PER_MS;
        unsigned polls = atomic_load_explicit(&engine->polls, memory_order_relaxed);
        bool stands_aside = polls - seen >= POLLS_MANY;
        seen = polls;
        int rc = WEIR_OK;
        if (!has_room)
            rc = weir_engine_progress(engine->weir);
        else if (!stands_aside)
            rc = weir_engine_wait(engine->weir, longest);
        if (!has_room || stands_aside || rc == WEIR_EDEVICE)
            nanosleep(&pause, NULL);
        has_room = notices_take(engine);
        settle_completions(engine);
        weir_event event;
        while (weir_event_take(engine->weir, &event) == WEIR_OK)
            continue;
    }
    return NULL;
}

static bool start_progress(struct mc_engine *engine) {
    engine->has_progress = thread_start(&engine->progress, progress_main, engine);
    return engine->has_progress;
}

/* The thread sleeps in the library: a notification to oneself wakes it. */
static void stop_progress(struct mc_engine *engine) {
    weir_peer self;
    weir_transfer transfer;
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    options.flags = WEIR_TRANSFER_NOTIFY;
    options.notify_tag = SILENT_TAG;
    atomic_store(&engine->stopping, true);
    if (!engine->has_progress)
        return;
    if (weir_peer_self(engine->weir, &self) == WEIR_OK &&
        weir_write(engine->weir, self, NULL, 0, &options, &transfer) == WEIR_OK) {
        weir_engine_progress(engine->weir);
        weir_transfer_release(engine->weir, transfer);
    }
    pthread_join(engine->progress, NULL);
}

/* ---- opening ------------------------------------------------------------------ */

static uint64_t timeout_ms_set(void) {
    const char *text = getenv("MC_WEIR_TIMEOUT_MS");
    long long value = text != NULL ? strtoll(text, NULL, 10) : TIMEOUT_MS_DEFAULT;
    return value < 1 || value > TIMEOUT_MS_MOST ? TIMEOUT_MS_DEFAULT : (uint64_t)value;
}

/* Mooncake's own variable, in seconds. */
static uint64_t task_timeout_ns_set(void) {
    const char *text = getenv("MC_SLICE_TIMEOUT");
    long value = text != NULL ? strtol(text, NULL, 10) : 0;
    return value > 0 && value <= TIMEOUT_MS_MOST / 1000 ? (uint64_t)value * 1000 * NS_PER_MS : 0;
}

/* A list must come also where no thread more can be made: so the first one is made now. */
static bool start_threads(struct mc_engine *engine) {
    if (start_progress(engine) && refresh_start(engine))
        return true;
    mc_log("no engine: a thread cannot be made");
    return false;
}

static bool open_inbox(struct mc_engine *engine) {
    weir_inbox_options options = WEIR_INBOX_OPTIONS_INIT;
    options.number = NOTICE_INBOX;
    options.message_bytes_max = NOTIFY_BYTES_MAX + NOTICE_HEAD;
    options.peer_messages = 4;
    options.messages = 16;
    return weir_inbox_open(engine->weir, &options, &engine->inbox) == WEIR_OK;
}

static bool publish_self(struct mc_engine *engine) {
    char value[WEIR_VALUE_MAX];
    int length = snprintf(value, sizeof(value), "1 %s", engine->name);
    size_t bytes = length < (int)sizeof(value) ? (size_t)length : sizeof(value) - 1;
    if (weir_value_publish(engine->weir, VALUE_NAME, value, bytes) != WEIR_OK)
        return false;
    return local_tell_store(engine) == 0;
}

static bool open_parts(struct mc_engine *engine, const char *metadata, const char *name,
                       const char *device) {
    char host[WEIR_ADDRESS_MAX], why[STORE_WHY] = "";
    const char *bind = getenv("MC_TCP_BIND_ADDRESS");
    bool is_p2p = strcmp(metadata, "P2PHANDSHAKE") == 0;
    name += strspn(name, "/"); /* as of peers' names */
    if (!is_p2p) {
        engine->store = store_open(metadata, engine->timeout_ns / NS_PER_MS, why);
        if (engine->store == NULL) {
            mc_log("%s", why);
            return false;
        }
    }
    const char *from = is_p2p ? name : bind != NULL ? bind : "0.0.0.0";
    if (*name == '\0' || strlen(name) >= NAME_BYTES || !host_of(from, host, sizeof(host))) {
        mc_log("\"%.100s\" is no name of a server", is_p2p ? name : from);
        return false;
    }
    return open_weir(engine, host, device) == WEIR_OK && name_engine(engine, name, host) &&
           segments_init(engine) && open_inbox(engine) && start_threads(engine) &&
           publish_self(engine);
}

static void init_locks(struct mc_engine *engine) {
    pthread_rwlock_init(&engine->local_lock, NULL);
    pthread_rwlock_init(&engine->segments_lock, NULL);
    pthread_mutex_t *locks[] = {&engine->store_lock,   &engine->opened_lock,  &engine->slots_lock,
                                &engine->backlog_lock, &engine->notices_lock, &engine->work_lock,
                                &engine->load_lock};
    for (size_t i = 0; i < sizeof(locks) / sizeof(locks[0]); i++)
        pthread_mutex_init(locks[i], NULL);
    pthread_cond_init(&engine->opened, NULL);
    pthread_cond_init(&engine->work_there, NULL);
}

struct mc_engine *mc_open(const char *metadata, const char *name, const char *device) {
    struct mc_engine *engine = calloc(1, sizeof(*engine));
    if (engine == NULL)
        return NULL;
    pthread_once(&once, begin);
    engine->born = atomic_load(&forks);
    init_locks(engine);
    engine->work_end = &engine->work;
    engine->timeout_ns = timeout_ms_set() * NS_PER_MS;
    engine->task_timeout_ns = task_timeout_ns_set();
    if (getrandom(&engine->nonce, sizeof(engine->nonce), 0) != (ssize_t)sizeof(engine->nonce) ||
        engine->nonce == 0)
        engine->nonce = mc_now_ns();
    if (open_parts(engine, metadata, name, device))
        return engine;
    mc_close(engine);
    return NULL;
}

void mc_close(struct mc_engine *engine) {
    char why[STORE_WHY];
    if (!mc_is_here(engine)) { /* a thread of the parent's may have been changing the rest */
        weir_engine_close(engine->weir);
        return;
    }
    graceful_forget(engine);
    atomic_store(&engine->stopping, true);
    refresh_stop(engine);
    if (engine->store != NULL && engine->has_progress && engine->is_told &&
        store_remove(engine->store, engine->name, engine->address, why) == STORE_AWAY)
        mc_log("the entries of %s stay in the metadata: %s", engine->name, why);
    if (engine->weir != NULL) {
        stop_progress(engine);
        weir_engine_close(engine->weir);
    }
    batches_free_all(engine);
    segments_free(engine);
    local_free(engine);
    notices_free(engine->notices, engine->notice_count);
    store_close(engine->store);
    free(engine->backlog);
    free(engine);
}
