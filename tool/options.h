/* SPDX-License-Identifier: Apache-2.0 */
/* options.h: the command line of every command. One table says which command takes which
 * option; parsing, defaults and help all follow from it. */
#ifndef TOOL_OPTIONS_H
#define TOOL_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum command {
    CMD_SERVE = 0,
    CMD_INFO,
    CMD_HISTORY,
    CMD_REPORT,
    CMD_ALL,
    CMD_LIMITS,
    CMD_WRITE,
    CMD_READ,
    CMD_SEND,
    CMD_SWEEP,
    CMD_PACE,
    CMD_WAKE,
    CMD_FAULTS,
    CMD_INCAST,
    CMD_STORM,
    CMD_FILL,
    CMD_REPLAY,
    CMD_TRACE,
    CMD_COUNT
};

#define OPTIONS_SESSIONS_MAX 512 /* of a server */
#define OPTIONS_SENDERS_MAX  500
#define OPTIONS_COUNTS_MAX   16    /* of a list */
#define OPTIONS_PEERS_MAX    20000 /* one of them */

enum op_kind { OP_WRITE = 0, OP_READ = 1, OP_SEND = 2 };
enum memory_kind { MEMORY_SHARED = 0, MEMORY_OWN = 1 };
/* NONE: throughput; NOTIFY: the target answers notifications, or messages; MEMORY: both sides poll
 * a word. */
enum latency_kind { LATENCY_NONE = 0, LATENCY_NOTIFY = 1, LATENCY_MEMORY = 2 };

#define OPTIONS_FILES_MAX   2
#define OPTIONS_ENTRIES_MAX 128
#define OPTIONS_ALL         UINT64_MAX

struct options {
    enum command command;
    const char *files[OPTIONS_FILES_MAX]; /* the words of report and trace; NULL: not given */
    const char *advertise;
    const char *listen;
    const char *peer;
    const char *device;
    const char *json;     /* file, or "-" */
    const char *trace;    /* file to replay */
    const char *describe; /* file to describe */
    const char *output;   /* file, NULL: stdout */
    const char *out;      /* of report a file, of a suite a directory */
    const char *peers;    /* how many, as options_counts has it */
    const char *targets;  /* loads, as pace.h has it */
    const char *metrics;  /* HOST:PORT, NULL: none */
    const char *stalls;   /* file for the trace of each stall; NULL: none */
    uint64_t size;
    uint64_t window;
    uint64_t step; /* ms */
    uint64_t segments;
    uint64_t threads;
    uint64_t op;      /* enum op_kind */
    uint64_t memory;  /* enum memory_kind */
    uint64_t cold;    /* bytes spanned, 0: hot */
    uint64_t latency; /* enum latency_kind */
    uint64_t qps;
    uint64_t depth;
    uint64_t page_size;
    uint64_t pages;
    uint64_t repeat;
    uint64_t requests; /* 0: all of them */
    uint64_t seed;
    uint64_t kv_bytes_per_token;
    uint64_t pool;
    uint64_t memory_max;
    uint64_t senders;
    uint64_t waiting; /* messages that have room; 0: as weir has it */
    uint64_t hold;    /* messages that the target keeps */
    uint64_t batch;   /* messages sent by one call */
    uint64_t dial;
    uint64_t sessions; /* that a server has room for */
    uint64_t json_flag;
    uint64_t engine; /* OPTIONS_ALL: of all engines of a process */
    uint64_t last;   /* changes of state; 0: all */
    uint64_t watch;
    uint64_t notify;
    uint64_t verify;
    uint64_t loan;
    uint64_t rounds;
    uint64_t quick;
    double seconds;
    double most_resent;              /* below 0: as many as there are */
    double speedup;                  /* 0: as fast as possible */
    bool given[OPTIONS_ENTRIES_MAX]; /* each entry of the table in options.c */
};

enum options_outcome { OPTIONS_RUN, OPTIONS_DONE, OPTIONS_WRONG };

/* Reads argv. RUN: *options_out is complete and consistent. DONE: help or the version was
 * printed. WRONG: one line on stderr says what; exit with EXIT_USAGE. */
enum options_outcome options_parse(int argc, char **argv, struct options *options_out);

/* Reads a list of whole numbers, 1 to OPTIONS_PEERS_MAX, with commas between them. How many there
 * are; 0: it is no such list. */
unsigned options_counts(const char *list, uint32_t counts_out[OPTIONS_COUNTS_MAX]);

/* "write", "sweep", ...: the command without "bench". */
const char *options_command_name(enum command command);

/* "bench write", "serve": the command as it is typed. */
const char *options_command_words(enum command command);

/* An option's value, for reports: NONE is one that was not given and has no default here. */
enum option_type { OPTION_NONE, OPTION_BOOL, OPTION_INTEGER, OPTION_REAL, OPTION_WORD };
struct option_value {
    const char *name;
    enum option_type type;
    uint64_t integer; /* BOOL too */
    double real;
    const char *word;
};
/* Calls each() for every option that this command takes. */
void options_each(const struct options *options,
                  void (*each)(const struct option_value *value, void *context), void *context);

/* Whether `device`, NULL for the default, is the device of this name, or a NIC of it ("ofi:eth0").
 */
bool options_device_is(const char *device, const char *name);

/* "64 KiB" for 65536, "100 B", "1.5 GiB"; out has at least 32 bytes. */
const char *options_size_text(uint64_t bytes, char *out);

#endif
