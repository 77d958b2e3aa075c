/* SPDX-License-Identifier: Apache-2.0 */
/* options.c: see options.h. It is long because each option is an entry of one table, and what
 * makes no sense together has a sentence each. Values are checked one by one against the table's
 * bounds, then together (check_together). getopt_long(3) does the splitting, with its own messages
 * off. */
#define _GNU_SOURCE
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "host.h"
#include "pace.h"
#include "proto.h"
#include "weir.h"

#define KIB 1024ull
#define MIB (1024ull * KIB)
#define GIB (1024ull * MIB)
/* More than this of registered memory on one side is taken for a slip of the keyboard. */
#define MEMORY_BYTES_MAX (64ull * GIB)
#define ROUNDS_MAX       99

enum kind {
    KIND_FLAG,
    KIND_COUNT,
    KIND_SIZE,
    KIND_REAL,
    KIND_TEXT,
    KIND_OP,
    KIND_MEMORY,
    KIND_LATENCY
};

struct entry {
    const char *name;
    const char *argument; /* shown in help; NULL: none */
    const char *help;
    enum kind kind;
    unsigned commands; /* bit mask of 1 << enum command */
    size_t offset;     /* in struct options */
    uint64_t min;      /* KIND_REAL: in thousandths */
    uint64_t max;      /* KIND_OP: a bit mask of 1 << enum op_kind */
};

/* Steps before a fault, of which the median is the rate that has to come back. */
#define STEPS_LEAST 5u

#define PEERS_LIST  "250,1000"

#define ON(command) (1u << (command))
#define ON_STREAM   (ON(CMD_WRITE) | ON(CMD_READ) | ON(CMD_SWEEP))
#define ON_MANY     (ON_STREAM | ON(CMD_SEND))
#define ON_PEER     (ON_MANY | ON(CMD_PACE) | ON(CMD_FILL) | ON(CMD_REPLAY))
#define ON_SESSION  (ON_PEER | ON(CMD_FAULTS) | ON(CMD_INCAST))
#define ON_BENCH    (ON_SESSION | ON(CMD_LIMITS) | ON(CMD_WAKE) | ON(CMD_STORM))
#define AT(field)   offsetof(struct options, field)

/* Of a size with --latency that was not given. */
#define LATENCY_BYTES 8

static const struct entry entries[] = {
    {"advertise", "HOST[:PORT]", "tell peers this address [where it listens]", KIND_TEXT,
     ON(CMD_SERVE), AT(advertise), 0, 0},
    {"listen", "HOST:PORT", "serve there; port 0: a free one [127.0.0.1:0]", KIND_TEXT,
     ON(CMD_SERVE), AT(listen), 0, 0},
    {"memory-max", "SIZE", "memory that one client may ask for [16G]", KIND_SIZE, ON(CMD_SERVE),
     AT(memory_max), 4096, MEMORY_BYTES_MAX},
    {"sessions", "N", "sessions at a time [64]", KIND_COUNT, ON(CMD_SERVE), AT(sessions), 1,
     OPTIONS_SESSIONS_MAX},
    {"metrics", "HOST:PORT", "serve metrics at http://HOST:PORT/metrics, too", KIND_TEXT,
     ON(CMD_SERVE), AT(metrics), 0, 0},
    {"watch", NULL, "say on stderr when a client stalls, and why", KIND_FLAG, ON(CMD_SERVE),
     AT(watch), 0, 1},
    {"json", NULL, "print JSON instead of text", KIND_FLAG, ON(CMD_INFO) | ON(CMD_HISTORY),
     AT(json_flag), 0, 1},
    {"engine", "N", "this one of its engines, from 0 [all]", KIND_COUNT, ON(CMD_HISTORY),
     AT(engine), 0, 1000000},
    {"last", "N", "the last N changes alone [all]", KIND_COUNT, ON(CMD_HISTORY), AT(last), 1,
     1000000},
    {"out", "FILE", "the page to write, HTML (required)", KIND_TEXT, ON(CMD_REPORT), AT(out), 0, 0},
    {"out", "DIR", "for results.json and report.html (required)", KIND_TEXT, ON(CMD_ALL), AT(out),
     0, 0},
    {"rounds", "N", "how often each bench runs [3, quick 1]", KIND_COUNT, ON(CMD_ALL), AT(rounds),
     1, ROUNDS_MAX},
    {"quick", NULL, "short runs, which try out and measure little", KIND_FLAG, ON(CMD_ALL),
     AT(quick), 0, 1},
    {"op", "write|read|send", "the operation; send: messages [write]", KIND_OP,
     ON(CMD_PACE) | ON(CMD_SWEEP), AT(op), 0, 1u << OP_WRITE | 1u << OP_READ | 1u << OP_SEND},
    {"op", "write|send", "the operation; send: messages [write]", KIND_OP, ON(CMD_INCAST), AT(op),
     0, 1u << OP_WRITE | 1u << OP_SEND},
    {"size", "SIZE", "bytes of a segment [64K]", KIND_SIZE, ON(CMD_WRITE) | ON(CMD_READ), AT(size),
     1, 4 * GIB},
    {"size", "SIZE", "bytes of a message [64K, with --latency 8]", KIND_SIZE, ON(CMD_SEND),
     AT(size), 0, PROTO_MESSAGE_MAX},
    {"senders", "N", "processes that write or send to one target [8]", KIND_COUNT, ON(CMD_INCAST),
     AT(senders), 1, OPTIONS_SENDERS_MAX},
    {"size", "SIZE", "bytes of an operation [64K]", KIND_SIZE, ON(CMD_PACE), AT(size), 1, 4 * GIB},
    {"size", "SIZE", "bytes of a write [64K]", KIND_SIZE, ON(CMD_FAULTS) | ON(CMD_INCAST), AT(size),
     1, 4 * GIB},
    {"targets", "LIST", "percent of unpaced, or rates [" PACE_LIST "]", KIND_TEXT, ON(CMD_PACE),
     AT(targets), 0, 0},
    {"segments", "N", "segments of a transfer [1]", KIND_COUNT, ON_STREAM, AT(segments), 1, 65536},
    {"window", "N", "operations in flight, at most [16]", KIND_COUNT, ON(CMD_PACE), AT(window), 1,
     1024},
    {"window", "N", "writes in flight [16]", KIND_COUNT, ON(CMD_FAULTS), AT(window), 1, 1024},
    {"step", "MS", "length of a step of the time-line, in ms [10]", KIND_COUNT, ON(CMD_FAULTS),
     AT(step), 1, 1000},
    {"window", "N", "writes in flight, each sender [16]", KIND_COUNT, ON(CMD_INCAST), AT(window), 1,
     1024},
    {"window", "N", "transfers in flight, each thread [16]", KIND_COUNT, ON_MANY | ON(CMD_REPLAY),
     AT(window), 1, 1024},
    {"waiting", "N", "messages of one peer that have room [weir's]", KIND_COUNT,
     ON(CMD_SEND) | ON(CMD_SWEEP) | ON(CMD_PACE) | ON(CMD_INCAST), AT(waiting), 1,
     PROTO_MESSAGES_MAX},
    {"hold", "N", "messages that the target keeps for a while [0]", KIND_COUNT,
     ON(CMD_SEND) | ON(CMD_SWEEP), AT(hold), 0, PROTO_MESSAGES_MAX},
    {"batch", "N", "messages sent by one call, at most [1]", KIND_COUNT,
     ON(CMD_SEND) | ON(CMD_SWEEP), AT(batch), 1, 1024},
    {"seconds", "T", "how long to measure [2]", KIND_REAL,
     ON(CMD_WRITE) | ON(CMD_READ) | ON(CMD_SEND) | ON(CMD_WAKE), AT(seconds), 10, 3600},
    {"seconds", "T", "how long to measure each size [0.5]", KIND_REAL, ON(CMD_SWEEP), AT(seconds),
     10, 3600},
    {"seconds", "T", "how long to measure each load [1]", KIND_REAL, ON(CMD_PACE), AT(seconds), 10,
     3600},
    {"seconds", "T", "how long to go on before each fault [1]", KIND_REAL, ON(CMD_FAULTS),
     AT(seconds), 10, 3600},
    {"seconds", "T", "how long to measure, alone and together [1]", KIND_REAL, ON(CMD_INCAST),
     AT(seconds), 10, 3600},
    {"seconds", "T", "how long one peer is written to [not at all]", KIND_REAL, ON(CMD_STORM),
     AT(seconds), 10, 3600},
    {"threads", "N", "threads that submit, on one engine [1]", KIND_COUNT, ON_MANY, AT(threads), 1,
     64},
    {"memory", "shared|own", "allocated by weir, or registered memory [shared]", KIND_MEMORY,
     ON_SESSION, AT(memory), 0, 0},
    {"cold", "SIZE", "spread at random over so much memory [in caches]", KIND_SIZE, ON_STREAM,
     AT(cold), 1 * MIB, MEMORY_BYTES_MAX},
    {"cold", "SIZE", "memory of the copies to random places [1G]", KIND_SIZE, ON(CMD_LIMITS),
     AT(cold), 1 * MIB, MEMORY_BYTES_MAX},
    {"notify", NULL, "a notification with every transfer", KIND_FLAG, ON_STREAM, AT(notify), 0, 1},
    {"verify", NULL, "check every byte of every transfer", KIND_FLAG, ON_MANY, AT(verify), 0, 1},
    {"loan", NULL, "each message is made in place", KIND_FLAG, ON(CMD_SEND), AT(loan), 0, 1},
    {"latency", "[=notify|memory]", "8-byte ping-pong, by notification or memory", KIND_LATENCY,
     ON(CMD_WRITE), AT(latency), 0, 0},
    {"latency", NULL, "ping-pong, by a message each way", KIND_FLAG, ON(CMD_SEND), AT(latency), 0,
     1},
    {"page-size", "SIZE", "bytes of a page [64K]", KIND_SIZE, ON(CMD_FILL), AT(page_size), 8,
     64 * MIB},
    {"pages", "N", "pages of a repetition [1000]", KIND_COUNT, ON(CMD_FILL), AT(pages), 1, 65536},
    {"repeat", "R", "repetitions [100]", KIND_COUNT, ON(CMD_FILL), AT(repeat), 1, 1000000000},
    {"trace", "FILE", "request trace to replay (required)", KIND_TEXT, ON(CMD_REPLAY), AT(trace), 0,
     0},
    {"trace", "FILE", "request trace to replay [generated]", KIND_TEXT, ON(CMD_ALL), AT(trace), 0,
     0},
    {"kv-bytes-per-token", "SIZE", "bytes of a token; a block is 512 of them [1K]", KIND_SIZE,
     ON(CMD_REPLAY), AT(kv_bytes_per_token), 1, 1 * MIB},
    {"speedup", "X", "arrivals X times as fast; 0: all at once [0]", KIND_REAL, ON(CMD_REPLAY),
     AT(speedup), 0, 1000000000},
    {"pool", "SIZE", "page pool of each side, or more if needed [512M]", KIND_SIZE, ON(CMD_REPLAY),
     AT(pool), 4096, MEMORY_BYTES_MAX},
    {"requests", "N", "only the first N requests [all]", KIND_COUNT, ON(CMD_REPLAY), AT(requests),
     1, 1000000},
    {"requests", "N", "how many to generate [2000]", KIND_COUNT, ON(CMD_TRACE), AT(requests), 1,
     1000000},
    {"seed", "S", "same seed, same trace, byte for byte [1]", KIND_COUNT, ON(CMD_TRACE), AT(seed),
     0, UINT64_MAX},
    {"output", "FILE", "where to write the trace [standard output]", KIND_TEXT, ON(CMD_TRACE),
     AT(output), 0, 0},
    {"describe", "FILE", "print the statistics of a trace instead", KIND_TEXT, ON(CMD_TRACE),
     AT(describe), 0, 0},
    {"peer", "HOST:PORT", "a running `weir serve` [a target of its own]", KIND_TEXT, ON_PEER,
     AT(peer), 0, 0},
    {"peers", "LIST", "how many connect at once, each in turn [" PEERS_LIST "]", KIND_TEXT,
     ON(CMD_STORM), AT(peers), 0, 0},
    {"dial", NULL, "the one calls the many, not they it", KIND_FLAG, ON(CMD_STORM), AT(dial), 0, 1},
    {"most-resent", "SHARE", "fail when more was said again, a handshake", KIND_REAL, ON(CMD_STORM),
     AT(most_resent), 0, 1000},
    {"device", "NAME", "device, or one NIC of it: verbs:mlx5_0/1 [shm]", KIND_TEXT,
     ON_SESSION | ON(CMD_SERVE) | ON(CMD_WAKE) | ON(CMD_STORM) | ON(CMD_ALL), AT(device), 0, 0},
    {"device", "NAME", "of this device, or NIC, and no other", KIND_TEXT, ON(CMD_INFO), AT(device),
     0, 0},
    {"qps", "N", "QPs of the connection [1]", KIND_COUNT, ON_SESSION | ON(CMD_SERVE), AT(qps), 1,
     WEIR_QPS_MAX},
    {"depth", "N", "send-queue depth to ask for [256]", KIND_COUNT, ON_SESSION | ON(CMD_SERVE),
     AT(depth), 2, 65536},
    {"stall-trace", "FILE", "what the engine did before a stall", KIND_TEXT,
     ON_SESSION | ON(CMD_SERVE), AT(stalls), 0, 0},
    {"json", "FILE", "the result as JSON too; - is standard output", KIND_TEXT, ON_BENCH, AT(json),
     0, 0},
};
#define ENTRY_COUNT (sizeof(entries) / sizeof(entries[0]))

static const struct {
    const char *name;
    const char *words; /* as typed */
    const char *summary;
} commands[CMD_COUNT] = {
    [CMD_SERVE] = {"serve", "serve", "a target for all benches; prints its address when ready"},
    [CMD_INFO] = {"info", "info", "devices, limits, settings and memory"},
    [CMD_HISTORY] = {"trace", "trace", "what has changed last in a process that uses weir"},
    [CMD_REPORT] = {"report", "report", "a page of results, or of two compared"},
    [CMD_ALL] = {"all", "bench all", "the suite, in rounds, and a page of the results"},
    [CMD_LIMITS] = {"limits", "bench limits", "what this machine does at best, without weir"},
    [CMD_WRITE] = {"write", "bench write", "one-sided writes; --latency for a ping-pong"},
    [CMD_READ] = {"read", "bench read", "one-sided reads"},
    [CMD_SEND] = {"send", "bench send", "messages; --latency for a ping-pong"},
    [CMD_SWEEP] = {"sweep", "bench sweep", "writes, reads or messages of 8 bytes to 4 MiB"},
    [CMD_PACE] = {"pace", "bench pace", "latency of operations that come at a steady rate"},
    [CMD_WAKE] = {"wake", "bench wake", "what an idle engine costs, and how fast it is back"},
    [CMD_FAULTS] = {"faults", "bench faults", "throughput through broken QPs, a kill and a stop"},
    [CMD_INCAST] = {"incast", "bench incast", "many processes that write or send to one at once"},
    [CMD_STORM] = {"storm", "bench storm", "many engines that connect to one at the same time"},
    [CMD_FILL] = {"fill", "bench fill", "a target fills pages at random places of our memory"},
    [CMD_REPLAY] = {"replay", "bench replay", "KV-cache blocks of a trace, to their decoder"},
    [CMD_TRACE] = {"trace", "bench trace", "generate a request trace, or describe one"},
};

const char *options_command_name(enum command command) {
    return commands[command].name;
}

const char *options_command_words(enum command command) {
    return commands[command].words;
}

static void *field_of(const struct entry *entry, struct options *options) {
    return (char *)options + entry->offset;
}

static const void *field_peek(const struct entry *entry, const struct options *options) {
    return (const char *)options + entry->offset;
}

/* ---- help -------------------------------------------------------------- */

static void help_commands(enum command first, enum command last) {
    for (int c = (int)first; c <= (int)last; c++)
        printf("  weir %-14s %s\n", commands[c].words, commands[c].summary);
}

static void help_all(void) {
    printf("weir %s: bytes between the memory of processes, one-sided\n\n", weir_version());
    help_commands(CMD_SERVE, CMD_TRACE);
    printf("\n  weir --version      the version\n"
           "  weir COMMAND --help the options of a command\n\n"
           "Sizes take K, M and G, powers of 1024. Exit status: 0 done, 1 failed, 2 usage.\n");
}

static void help_bench(void) {
    printf("weir bench: measurements against a second process, or against --peer\n\n");
    help_commands(CMD_ALL, CMD_TRACE);
    printf("\n  weir bench COMMAND --help lists the options of one.\n");
}

static void help_command(enum command command) {
    printf("weir %s%s [OPTION]...: %s\n\n", commands[command].words,
           command == CMD_REPORT    ? " A.json [B.json]"
           : command == CMD_HISTORY ? " PID"
                                    : "",
           commands[command].summary);
    for (size_t i = 0; i < ENTRY_COUNT; i++) {
        char left[64];
        const char *argument = entries[i].argument;

        if ((entries[i].commands & ON(command)) == 0)
            continue;
        snprintf(left, sizeof(left), "--%s%s%s", entries[i].name,
                 argument != NULL && argument[0] != '[' ? " " : "", argument ? argument : "");
        printf("  %-28s %s\n", left, entries[i].help);
    }
}

/* ---- values ------------------------------------------------------------ */

/* Digits and, for a size, one of K, M, G, with or without iB or B. Not more than 64 bits. */
static bool parse_integer(const char *text, bool is_size, uint64_t *value_out) {
    char *end;
    unsigned shift = 0;
    unsigned long long value;

    if (text[0] < '0' || text[0] > '9')
        return false;
    errno = 0;
    value = strtoull(text, &end, 10);
    if (errno != 0)
        return false;
    if (is_size && *end != '\0') {
        shift = *end == 'K' || *end == 'k'   ? 10
                : *end == 'M' || *end == 'm' ? 20
                : *end == 'G' || *end == 'g' ? 30
                                             : 0;
        end += shift != 0;
        if (shift != 0 && strncmp(end, "iB", 2) == 0)
            end++;
        end += *end == 'B';
    }
    if (*end != '\0' || value > UINT64_MAX >> shift)
        return false;
    *value_out = (uint64_t)value << shift;
    return true;
}

/* Digits and at most one point: no sign, exponent, hexadecimal, infinity. */
static bool parse_real(const char *text, double min, double max, double *value_out) {
    size_t digits = strspn(text, "0123456789");
    char *end;
    double value;

    if (digits + strspn(text + digits, ".0123456789") != strlen(text))
        return false;
    value = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(value) || value < min || value > max)
        return false;
    *value_out = value;
    return true;
}

/* Puts the index of text among names into *value_out. */
static bool parse_word(const char *text, const char *const *names, uint64_t *value_out) {
    for (uint64_t i = 0; names[i] != NULL; i++) {
        if (strcmp(names[i], text) == 0) {
            *value_out = i;
            return true;
        }
    }
    return false;
}

static const char *const op_names[] = {"write", "read", "send", NULL};
static const char *const memory_names[] = {"shared", "own", NULL};
static const char *const latency_names[] = {"none", "notify", "memory", NULL};

/* Says what the value would have to be. */
static int complain_value(const struct entry *entry, const char *words, const char *text) {
    char least[32], most[32];

    switch (entry->kind) {
    case KIND_SIZE:
        return complain("%s --%s %s: not a size from %s to %s, such as 8, 64K or 1M", words,
                        entry->name, text, options_size_text(entry->min, least),
                        options_size_text(entry->max, most));
    case KIND_COUNT:
        return complain("%s --%s %s: not a whole number from %" PRIu64 " to %" PRIu64, words,
                        entry->name, text, entry->min, entry->max);
    case KIND_REAL:
        return complain("%s --%s %s: not a number from %g to %" PRIu64, words, entry->name, text,
                        (double)entry->min / 1000, entry->max);
    case KIND_OP:
        return entry->max == (1u << OP_WRITE | 1u << OP_READ | 1u << OP_SEND)
                   ? complain("%s --%s %s: not write, read or send", words, entry->name, text)
                   : complain("%s --%s %s: neither write nor %s", words, entry->name, text,
                              (entry->max & 1u << OP_READ) != 0 ? "read" : "send");
    case KIND_LATENCY:
        return complain("%s --%s=%s: neither notify nor memory", words, entry->name, text);
    case KIND_MEMORY:
        return complain("%s --%s %s: neither shared nor own", words, entry->name, text);
    case KIND_FLAG:
    case KIND_TEXT:
        break;
    }
    return complain("%s --%s: wrong value", words, entry->name);
}

/* text: NULL if the option came without a value. */
static int entry_take(const struct entry *entry, const char *text, struct options *options) {
    const char *words = commands[options->command].words;
    uint64_t value = 1;
    bool good = true;

    if (text != NULL && text[0] == '\0')
        return complain("%s --%s: the value is empty", words, entry->name);
    options->given[entry - entries] = true;
    switch (entry->kind) {
    case KIND_FLAG:
        break;
    case KIND_TEXT:
        *(const char **)field_of(entry, options) = text;
        return 0;
    case KIND_REAL:
        good = parse_real(text, (double)entry->min / 1000, (double)entry->max,
                          field_of(entry, options));
        return good ? 0 : complain_value(entry, words, text);
    case KIND_OP:
        good = parse_word(text, op_names, &value) && (entry->max & UINT64_C(1) << value) != 0;
        break;
    case KIND_MEMORY:
        good = parse_word(text, memory_names, &value);
        break;
    case KIND_LATENCY:
        good = text == NULL || (parse_word(text, latency_names, &value) && value != 0);
        break;
    case KIND_COUNT:
    case KIND_SIZE:
        good = parse_integer(text, entry->kind == KIND_SIZE, &value) && value >= entry->min &&
               value <= entry->max;
        break;
    }
    if (!good)
        return complain_value(entry, words, text);
    *(uint64_t *)field_of(entry, options) = value;
    return 0;
}

static double default_seconds(enum command command) {
    if (command == CMD_STORM)
        return 0;
    if (command == CMD_SWEEP)
        return 0.5;
    return command == CMD_PACE || command == CMD_FAULTS || command == CMD_INCAST ? 1 : 2;
}

static void set_defaults(enum command command, struct options *options) {
    *options = (struct options){.command = command,
                                .size = 64 * KIB,
                                .window = 16,
                                .batch = 1,
                                .segments = 1,
                                .threads = 1,
                                .seconds = default_seconds(command),
                                .step = 10,
                                .senders = 8,
                                .peers = PEERS_LIST,
                                .most_resent = -1,
                                .targets = PACE_LIST,
                                .page_size = 64 * KIB,
                                .pages = 1000,
                                .repeat = 100,
                                .seed = 1,
                                .kv_bytes_per_token = 1 * KIB,
                                .pool = 512 * MIB,
                                .memory_max = 16 * GIB,
                                .sessions = command == CMD_SERVE ? 64 : 0,
                                .engine = OPTIONS_ALL,
                                .cold = command == CMD_LIMITS ? 1 * GIB : 0,
                                .requests = command == CMD_TRACE ? 2000 : 0};
}

bool options_device_is(const char *device, const char *name) {
    size_t length = strlen(name);

    if (device == NULL)
        device = "shm";
    return strncmp(device, name, length) == 0 && (device[length] == '\0' || device[length] == ':');
}

/* The device that the library takes for "auto", by its name, which both sides and the results tell.
 */
static const char *best_device(void) {
    static weir_device_info device;

    device = (weir_device_info)WEIR_DEVICE_INFO_INIT;
    for (size_t i = 1; weir_device_query(i, &device) == 0; i++) {
        if (device.available == 0)
            return device.name;
    }
    return "shm";
}

/* Complains unless this library was built with a device of that name. Whether there is the NIC that
 * may be behind it, and whether it may be, the library says when it is opened. */
static int check_device(enum command command, const char *name) {
    char names[256] = "";
    weir_device_info device = WEIR_DEVICE_INFO_INIT;

    for (size_t i = 0; weir_device_query(i, &device) == 0; i++) {
        size_t used = strlen(names);
        if (options_device_is(name, device.name))
            return 0;
        snprintf(names + used, sizeof(names) - used, "%s%s", i > 0 ? ", " : "", device.name);
    }
    if (options_device_is(name, "auto"))
        return 0;
    return complain("%s --device %s: not built in; this weir has: %s", commands[command].words,
                    name, names);
}

_Static_assert(ENTRY_COUNT <= OPTIONS_ENTRIES_MAX, "struct options has one for each");

static bool is_pid(const char *word) {
    return word != NULL && word[0] != '\0' && word[0] != '0' &&
           strspn(word, "0123456789") == strlen(word) && strlen(word) < 10;
}

/* The first of these options, which do not apply, that was given all the same; or NULL. */
static const char *given_of(const struct options *o, const char *const *names) {
    for (; *names != NULL; names++) {
        for (size_t i = 0; i < ENTRY_COUNT; i++) {
            if ((entries[i].commands & ON(o->command)) != 0 && o->given[i] &&
                strcmp(entries[i].name, *names) == 0)
                return *names;
        }
    }
    return NULL;
}

/* Refuses options that another makes meaningless. */
static int check_excluded(const struct options *o) {
    static const char *const not_latency[] = {"size",   "segments", "window", "threads",
                                              "notify", "verify",   "cold",   NULL};
    static const char *const not_ping[] = {"window", "threads", "verify", "waiting",
                                           "hold",   "batch",   NULL};
    static const char *const not_send[] = {"segments", "cold", "notify", NULL};
    static const char *const only_send[] = {"waiting", "hold", "batch", NULL};
    static const char *const not_describe[] = {"requests", "seed", "output", NULL};
    const char *name = NULL;

    if (o->command == CMD_WRITE && o->latency != LATENCY_NONE &&
        (name = given_of(o, not_latency)) != NULL)
        return complain("bench write: --latency is a ping-pong of 8 bytes, and --%s does not "
                        "apply to it",
                        name);
    if (o->command == CMD_SEND && o->latency != LATENCY_NONE &&
        (name = given_of(o, not_ping)) != NULL)
        return complain("bench send: --latency is a ping-pong of one message, and --%s does not "
                        "apply to it",
                        name);
    if (o->loan != 0 && o->hold != 0)
        return complain("bench send: a message that the target holds (--hold) keeps its loan "
                        "(--loan), and there are few");
    if (o->loan != 0 && o->batch > 1)
        return complain("bench send: a message that is made in place (--loan) is sent by itself, "
                        "and --batch does not apply to it");
    if (o->op == OP_SEND && (name = given_of(o, not_send)) != NULL)
        return complain("%s: --op send is of messages, and --%s does not apply to them",
                        commands[o->command].words, name);
    if (o->command != CMD_SEND && o->op != OP_SEND && (name = given_of(o, only_send)) != NULL)
        return complain("%s: --%s is of messages (--op send)", commands[o->command].words, name);
    if (o->describe != NULL && (name = given_of(o, not_describe)) != NULL)
        return complain("bench trace: --describe generates nothing, and --%s does not apply to it",
                        name);
    return 0;
}

/* The loads of bench pace. */
static int check_targets(const char *list) {
    struct pace_target targets[PACE_TARGETS_MAX];
    unsigned count;
    const char *bad;
    int length;
    const char *error = pace_parse(list, targets, &count, &bad, &length);

    return error == NULL ? 0 : complain("bench pace --targets %.*s: %s", length, bad, error);
}

unsigned options_counts(const char *list, uint32_t counts_out[OPTIONS_COUNTS_MAX]) {
    unsigned count = 0;
    uint64_t value;

    for (const char *word = list;; word++) {
        size_t length = strcspn(word, ",");
        char text[16];
        if (length >= sizeof(text) || count == OPTIONS_COUNTS_MAX)
            return 0;
        memcpy(text, word, length);
        text[length] = '\0';
        if (!parse_integer(text, false, &value) || value < 1 || value > OPTIONS_PEERS_MAX)
            return 0;
        counts_out[count++] = (uint32_t)value;
        word += length;
        if (*word == '\0')
            return count;
    }
}

static int check_peers(const char *list) {
    uint32_t counts[OPTIONS_COUNTS_MAX];

    return options_counts(list, counts) > 0 ? 0
                                            : complain("bench storm --peers %s: not up to %d whole "
                                                       "numbers from 1 to %d, such as " PEERS_LIST,
                                                       list, OPTIONS_COUNTS_MAX, OPTIONS_PEERS_MAX);
}

static int check_together(const struct options *o) {
    bool stream = (ON_MANY & ON(o->command)) != 0;
    uint64_t size = o->command == CMD_SWEEP ? 4 * MIB : o->size;
    uint64_t lanes = o->window * o->segments * o->threads; /* bounds keep this below 2^33 */
    uint64_t flights = o->command == CMD_INCAST ? o->window * o->senders : o->window;

    if (check_excluded(o) != 0)
        return -1;
    if (stream && size > MEMORY_BYTES_MAX / 2 / lanes)
        return complain("%" PRIu64 " bytes in each of %" PRIu64 " segments in flight (--window, "
                        "--segments, --threads) is over the limit of %llu GiB",
                        size, lanes, MEMORY_BYTES_MAX / 2 / GIB);
    if (stream && o->cold != 0 && o->cold / lanes < size)
        return complain("--cold %" PRIu64 " has no room for %" PRIu64 " segments of %" PRIu64
                        " bytes in flight",
                        o->cold, lanes, size);
    if (o->command == CMD_SERVE && o->listen != NULL && strcmp(o->listen, "none") == 0)
        return complain("serve --listen none: a server without an address serves nobody");
    if (o->command == CMD_PACE && check_targets(o->targets) != 0)
        return -1;
    if (o->command == CMD_STORM && check_peers(o->peers) != 0)
        return -1;
    if (o->command == CMD_FAULTS && o->seconds * 1000 < (double)(STEPS_LEAST * o->step))
        return complain("bench faults: --seconds %g has no %u steps (--step) of %" PRIu64 " ms",
                        o->seconds, STEPS_LEAST, o->step);
    if ((o->command == CMD_PACE || o->command == CMD_FAULTS || o->command == CMD_INCAST) &&
        o->size > MEMORY_BYTES_MAX / 2 / flights)
        return complain("%" PRIu64 " operations of %" PRIu64 " bytes in flight is over the limit "
                        "of %llu GiB",
                        flights, o->size, MEMORY_BYTES_MAX / 2 / GIB);
    if ((o->command == CMD_INCAST || o->command == CMD_PACE) && o->op == OP_SEND &&
        o->size > PROTO_MESSAGE_MAX)
        return complain("%s --op send: a message of %" PRIu64 " bytes is longer than %u MiB",
                        commands[o->command].words, o->size, PROTO_MESSAGE_MAX >> 20);
    if (o->waiting + o->hold > MEMORY_BYTES_MAX / 4 / (size + KIB))
        return complain("%" PRIu64 " messages of %" PRIu64
                        " bytes that wait or are held (--waiting, "
                        "--hold) is over the limit of %llu GiB",
                        o->waiting + o->hold, size, MEMORY_BYTES_MAX / 4 / GIB);
    if (o->command == CMD_FILL && o->page_size > MEMORY_BYTES_MAX / 4 / o->pages)
        return complain("%" PRIu64 " pages of %" PRIu64 " bytes is over the limit of %llu GiB",
                        o->pages, o->page_size, MEMORY_BYTES_MAX / 4 / GIB);
    if (o->command == CMD_REPLAY && o->trace == NULL)
        return complain("bench replay: --trace FILE is required");
    if (o->command == CMD_REPORT && (o->files[0] == NULL || o->out == NULL))
        return complain("report: %s is required", o->out == NULL ? "--out FILE" : "a file");
    if (o->command == CMD_HISTORY && !is_pid(o->files[0]))
        return o->files[0] == NULL ? complain("trace: the number of a process is required")
                                   : complain("trace %s: not the number of a process", o->files[0]);
    if (o->command == CMD_HISTORY && o->last > 0 && o->json_flag != 0)
        return complain("trace: --last does not go with --json");
    if (o->command == CMD_ALL && o->out == NULL)
        return complain("bench all: --out DIR is required");
    return o->device != NULL ? check_device(o->command, o->device) : 0;
}

/* ---- parsing ----------------------------------------------------------- */

/* The command of argv[at]; CMD_COUNT, after a complaint, when there is no such. */
static enum command find_command(int argc, char **argv, bool bench, int at) {
    int first = bench ? CMD_ALL : CMD_SERVE;
    int last = bench ? CMD_TRACE : CMD_REPORT;

    if (at >= argc) {
        complain("no command; see weir%s --help", bench ? " bench" : "");
        return CMD_COUNT;
    }
    for (int c = first; c <= last; c++) {
        if (strcmp(argv[at], commands[c].name) == 0)
            return (enum command)c;
    }
    complain("%s%s: no such command; see weir%s --help", bench ? "bench " : "", argv[at],
             bench ? " bench" : "");
    return CMD_COUNT;
}

#define VAL_FIRST 256 /* beyond all characters */

/* The options that a command takes, for getopt_long(3). */
struct taken {
    struct option longs[ENTRY_COUNT + 2];
    size_t of_entry[ENTRY_COUNT];
    bool given[ENTRY_COUNT];
    int count;
};

static void list_options(enum command command, struct taken *taken) {
    *taken = (struct taken){.count = 0};
    for (size_t i = 0; i < ENTRY_COUNT; i++) {
        if ((entries[i].commands & ON(command)) == 0)
            continue;
        taken->of_entry[taken->count] = i;
        /* Different vals: what could be several options is taken for none of them. */
        taken->longs[taken->count] =
            (struct option){.name = entries[i].name,
                            .has_arg = entries[i].argument == NULL     ? no_argument
                                       : entries[i].argument[0] == '[' ? optional_argument
                                                                       : required_argument,
                            .val = VAL_FIRST + taken->count};
        taken->count++;
    }
    taken->longs[taken->count] =
        (struct option){.name = "help", .has_arg = no_argument, .val = 'h'};
}

/* Why getopt_long(3) did not like word: it says only that. */
static const char *why_refused(const struct taken *taken, int found, const char *word) {
    const char *equals = strchr(word, '=');
    size_t length = equals != NULL ? (size_t)(equals - word) : strlen(word);
    int alike = 0;

    if (found == ':')
        return "needs a value";
    for (int i = 0; length > 2 && i <= taken->count; i++) {
        bool starts = strncmp(taken->longs[i].name, word + 2, length - 2) == 0;
        if (starts && strlen(taken->longs[i].name) == length - 2)
            return "takes no value";
        alike += starts;
    }
    return alike > 1 ? "could be several options" : "not an option of this command";
}

/* A word that is no option's. `bench write --latency notify` is an easy mistake. */
static void complain_word(const struct taken *taken, const char *words, char **argv) {
    const char *before = argv[optind - 1], *word = argv[optind];

    for (int i = 0; i < taken->count; i++) {
        if (taken->longs[i].has_arg == optional_argument && strncmp(before, "--", 2) == 0 &&
            strcmp(before + 2, taken->longs[i].name) == 0) {
            complain("%s: %s: unexpected; the value of %s goes behind =, as in %s%s", words, word,
                     before, before, entries[taken->of_entry[i]].argument);
            return;
        }
    }
    complain("%s: %s: unexpected; see weir %s --help", words, word, words);
}

/* The next word that is no option, if the command has a place for it. */
static bool take_file(struct options *options, const char *word) {
    unsigned most = options->command == CMD_REPORT    ? OPTIONS_FILES_MAX
                    : options->command == CMD_HISTORY ? 1
                                                      : 0;

    for (unsigned i = 0; i < most; i++) {
        if (options->files[i] == NULL) {
            options->files[i] = word;
            return true;
        }
    }
    return false;
}

/* Options up to the next word that is none. */
static enum options_outcome parse_some(int argc, char **argv, struct taken *taken,
                                       struct options *options) {
    const char *words = commands[options->command].words;
    int found, at, word;

    while (word = optind, (found = getopt_long(argc, argv, "+:h", taken->longs, NULL)) != -1) {
        if (found == 'h') {
            help_command(options->command);
            return OPTIONS_DONE;
        }
        if (found == ':' || found == '?') {
            complain("%s %s: %s; see weir %s --help", words, argv[word],
                     why_refused(taken, found, argv[word]), words);
            return OPTIONS_WRONG;
        }
        at = found - VAL_FIRST;
        if (taken->given[at]) {
            complain("%s --%s: given twice", words, taken->longs[at].name);
            return OPTIONS_WRONG;
        }
        taken->given[at] = true;
        if (entry_take(&entries[taken->of_entry[at]], optarg, options) != 0)
            return OPTIONS_WRONG;
    }
    return OPTIONS_RUN;
}

static enum options_outcome parse_options(int argc, char **argv, struct options *options) {
    static const char *const size[] = {"size", NULL};
    enum options_outcome outcome;
    struct taken taken;

    list_options(options->command, &taken);
    opterr = 0;
    optind = 1;
    while ((outcome = parse_some(argc, argv, &taken, options)) == OPTIONS_RUN && optind < argc) {
        if (!take_file(options, argv[optind])) {
            complain_word(&taken, commands[options->command].words, argv);
            return OPTIONS_WRONG;
        }
        optind++;
    }
    if (outcome != OPTIONS_RUN)
        return outcome;
    if (options->command == CMD_SEND && options->latency != LATENCY_NONE &&
        given_of(options, size) == NULL)
        options->size = LATENCY_BYTES;
    if (options->device != NULL && strcmp(options->device, "auto") == 0)
        options->device = best_device();
    return check_together(options) == 0 ? OPTIONS_RUN : OPTIONS_WRONG;
}

enum options_outcome options_parse(int argc, char **argv, struct options *options_out) {
    enum command command;
    bool bench = argc > 1 && strcmp(argv[1], "bench") == 0;
    int words = bench ? 2 : 1;
    const char *first = bench ? (argc > 2 ? argv[2] : "") : (argc > 1 ? argv[1] : "");

    if (strcmp(first, "--help") == 0 || strcmp(first, "-h") == 0) {
        if (bench)
            help_bench();
        else
            help_all();
        return OPTIONS_DONE;
    }
    if (!bench && strcmp(first, "--version") == 0) {
        printf("weir %s\n", weir_version());
        return OPTIONS_DONE;
    }
    command = find_command(argc, argv, bench, words);
    if (command == CMD_COUNT)
        return OPTIONS_WRONG;
    set_defaults(command, options_out);
    return parse_options(argc - words, argv + words, options_out);
}

/* ---- for reports ------------------------------------------------------- */

void options_each(const struct options *options,
                  void (*each)(const struct option_value *value, void *context), void *context) {
    for (size_t i = 0; i < ENTRY_COUNT; i++) {
        const struct entry *entry = &entries[i];
        const void *field = field_peek(entry, options);
        struct option_value value = {.name = entry->name, .type = OPTION_INTEGER};

        if ((entry->commands & ON(options->command)) == 0 || entry->offset == AT(json))
            continue;
        if (entry->kind == KIND_TEXT) {
            value.word = *(const char *const *)field;
            value.type = value.word != NULL ? OPTION_WORD : OPTION_NONE;
        } else if (entry->kind == KIND_REAL) {
            value.real = *(const double *)field;
            value.type = value.real * 1000 < (double)entry->min ? OPTION_NONE : OPTION_REAL;
        } else {
            value.integer = *(const uint64_t *)field;
            if (entry->kind == KIND_FLAG)
                value.type = OPTION_BOOL;
            else if (entry->kind == KIND_OP)
                value.word = op_names[value.integer], value.type = OPTION_WORD;
            else if (entry->kind == KIND_MEMORY)
                value.word = memory_names[value.integer], value.type = OPTION_WORD;
            else if (entry->kind == KIND_LATENCY)
                value.word = latency_names[value.integer], value.type = OPTION_WORD;
            else if (value.integer < entry->min)
                value.type = OPTION_NONE;
        }
        each(&value, context);
    }
}

const char *options_size_text(uint64_t bytes, char *out) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    unsigned unit = 0;
    double value = (double)bytes;

    while (unit < 4 && value >= 1024) {
        value /= 1024;
        unit++;
    }
    snprintf(out, 32, value == floor(value) ? "%.0f %s" : "%.2f %s", value, units[unit]);
    return out;
}
