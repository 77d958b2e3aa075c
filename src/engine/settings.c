/* SPDX-License-Identifier: Apache-2.0 */
/* settings.c: the one table of settings: option, environment variable, range, default.
 *
 * Owns reading the environment, the order of precedence (option, environment, default), the
 * ranges, and the line that says why a value is refused or a variable is not known. Leaves to
 * others: the effect of a setting, the meaning of the flags, and how much the device grants. */
#include "settings.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "device.h"
#include "state.h"

/* The option of a setting whose range begins at 0 has its largest value to ask for 0: an option of
 * 0 asks for the default. */
#define OPTION_NONE(setting)                                                                       \
    ((setting)->bytes == sizeof(uint64_t) ? WEIR_WATCHDOG_NONE : WEIR_INLINE_NONE)

struct setting {
    const char *name; /* the option */
    size_t offset;
    size_t bytes;
    const char *variable;
    const char *unit;  /* of the numbers that follow */
    uint64_t scale;    /* option = units * scale */
    uint64_t fallback; /* WEIR_SETTING_AUTO: the engine or the device chooses; the option stays 0 */
    uint64_t least;
    uint64_t most;
    const char *what;
    const char *hint; /* what the range follows from, in brackets; "" */
};

#define OPTION(name)                                                                               \
#name, offsetof(weir_engine_options, name), sizeof(((weir_engine_options *)0)->name)
#define MS      "ms", 1000000
#define US      "us", 1000
#define COUNT   "", 1
#define HOUR_MS UINT64_C(3600000)

/* Rows whose range follows from others come behind them: range_of. */
static const struct setting table[] = {
    {OPTION(sq_depth), "WEIR_SQ_DEPTH", COUNT, 256, 2, 65536, "send-queue slots asked for a QP",
     ""},
    {OPTION(qp_count), "WEIR_QP_COUNT", COUNT, 1, 1, WEIR_QPS_MAX, "QPs of an endpoint", ""},
    {OPTION(chain_max), "WEIR_CHAIN_MAX", COUNT, CHAIN_MAX, 1, 65536,
     "WRs with one doorbell: a quarter of the depth, 512 at most", ""},
    {OPTION(signal_interval), "WEIR_SIGNAL_INTERVAL", COUNT, WEIR_SETTING_AUTO, 1, 65536,
     "WRs after which a chain's last is signalled", ""},
    {OPTION(inline_bytes), "WEIR_INLINE_BYTES", "B", 1, WEIR_SETTING_AUTO, 0, 4096,
     "payload copied into the WR", ""},
    {OPTION(recv_credits), "WEIR_RECV_CREDITS", COUNT, 64, 1, RECEIVES_MAX,
     "notifications a peer may have in flight on a QP", " (512 / qp_count)"},
    {OPTION(cq_depth), "WEIR_CQ_DEPTH", COUNT, WEIR_SETTING_AUTO, 4, 1 << 22,
     "completion-queue entries asked for all QPs",
     " (4 * qp_count * the larger of sq_depth and recv_credits + 20)"},
    {OPTION(poll_budget), "WEIR_POLL_BUDGET", COUNT, 256, 1, 65536,
     "completions taken in a round of progress", ""},
    {OPTION(inflight_bytes_max), "WEIR_INFLIGHT_BYTES_MAX", "B", 1, 256 << 20, 1, UINT64_C(1) << 36,
     "payload in flight to all peers", ""},
    {OPTION(transfers_max), "WEIR_TRANSFERS_MAX", COUNT, 4096, 1, (1 << HANDLE_INDEX_BITS) - 1,
     "live transfer handles", ""},
    {OPTION(segments_max), "WEIR_SEGMENTS_MAX", COUNT, 262144, 1, 1 << 28,
     "segments of unfinished transfers", ""},
    {OPTION(peers_max), "WEIR_PEERS_MAX", COUNT, 1024, 1, 65535, "peers", ""},
    {OPTION(memories_max), "WEIR_MEMORIES_MAX", COUNT, 4096, 1, 65535, "local memories", ""},
    {OPTION(remotes_max), "WEIR_REMOTES_MAX", COUNT, 65536, 1, 1 << HANDLE_INDEX_BITS,
     "imported memories", ""},
    {OPTION(names_max), "WEIR_NAMES_MAX", COUNT, 4096, 1, 65535,
     "names published, and names of peers that are kept", ""},
    {OPTION(notifications_max), "WEIR_NOTIFICATIONS_MAX", COUNT, 4096, 1, 1 << 20,
     "notifications received and not yet taken", ""},
    {OPTION(connect_timeout_ns), "WEIR_CONNECT_TIMEOUT_MS", MS, 10000, 1, HOUR_MS,
     "to connect; silence about a broken session", ""},
    {OPTION(retransmit_ns), "WEIR_RETRANSMIT_MS", MS, 20, 1, HOUR_MS,
     "first control retransmission", ""},
    {OPTION(teardown_timeout_ns), "WEIR_TEARDOWN_TIMEOUT_MS", MS, 4000, 1, HOUR_MS,
     "forced teardown of a QP", ""},
    {OPTION(settle_grace_ns), "WEIR_SETTLE_GRACE_MS", MS, 100, 1, HOUR_MS,
     "for posted WRs of a cancelled transfer", ""},
    {OPTION(stall_timeout_ns), "WEIR_STALL_TIMEOUT_MS", MS, 10000, 1, HOUR_MS,
     "for posted WRs without a completion", ""},
    {OPTION(watchdog_ns), "WEIR_WATCHDOG_MS", MS, 1000, 0, HOUR_MS,
     "without a completion of a peer, before it is called stalled; 0: never", ""},
    {OPTION(backoff_timeout_ns), "WEIR_SQ_BACKOFF_TIMEOUT_US", US, 10000, 1, HOUR_MS * 1000,
     "longest wait of WEIR_TRANSFER_BLOCK", ""},
};

const size_t settings_count = sizeof(table) / sizeof(table[0]);
_Static_assert(sizeof(table) / sizeof(table[0]) <= SETTINGS_MAX, "a report has room for all");

static uint64_t option_read(const struct setting *setting, const weir_engine_options *options) {
    const char *at = (const char *)options + setting->offset;
    uint32_t narrow;
    uint64_t wide;
    if (setting->bytes == sizeof(wide)) {
        memcpy(&wide, at, sizeof(wide));
        return wide;
    }
    memcpy(&narrow, at, sizeof(narrow));
    return narrow;
}

static void option_write(const struct setting *setting, weir_engine_options *options,
                         uint64_t value) {
    char *at = (char *)options + setting->offset;
    uint32_t narrow = (uint32_t)value;
    if (setting->bytes == sizeof(value))
        memcpy(at, &value, sizeof(value));
    else
        memcpy(at, &narrow, sizeof(narrow));
}

static uint32_t larger(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}

/* The range of a setting, which for some depends on settings before it. A QP's share of the CQ is
 * four times its deeper queue: up to half of the entries may be for shared receives, and a device
 * may grant twice the send queue that it was asked for. */
static void range_of(const struct setting *setting, const weir_engine_options *so_far,
                     struct setting_report *range) {
    *range = (struct setting_report){
        .fallback = setting->fallback, .least = setting->least, .most = setting->most};
    if (setting->offset == offsetof(weir_engine_options, recv_credits)) {
        range->most = RECEIVES_MAX / so_far->qp_count;
        if (range->fallback > range->most)
            range->fallback = range->most;
    } else if (setting->offset == offsetof(weir_engine_options, cq_depth)) {
        range->least = UINT64_C(4) * so_far->qp_count *
                       larger(so_far->sq_depth, so_far->recv_credits + CREDIT_BESIDE);
    }
}

/* Digits, no more and no less, of a number in the range. */
static bool parse(const char *text, const struct setting_report *range, uint64_t *value_out) {
    if (text[0] == '\0' || text[strspn(text, "0123456789")] != '\0')
        return false;
    errno = 0;
    unsigned long long value = strtoull(text, NULL, 10);
    if (errno != 0 || value < range->least || value > range->most)
        return false;
    *value_out = value;
    return true;
}

/* The start of the text, with '?' for bytes that do not print, for a note. */
static const char *shown(const char *text, char out[32]) {
    snprintf(out, 32, "%.24s%s", text, strlen(text) > 24 ? "..." : "");
    for (char *c = out; *c != '\0'; c++) {
        if (!isprint((unsigned char)*c))
            *c = '?';
    }
    return out;
}

/* Puts the value asked for, and its source, into the report. False: it is refused. */
static bool choose(const struct setting *setting, uint64_t option, const char *text,
                   struct setting_report *report) {
    char part[32];
    if (option == 0 && text == NULL)
        return true;
    if (option == 0) {
        report->source = WEIR_SETTING_ENVIRONMENT;
        if (parse(text, report, &report->value))
            return true;
        snprintf(report->note, sizeof(report->note),
                 "%s=%s: not a whole number from %llu to %llu%s", setting->variable,
                 shown(text, part), (unsigned long long)report->least,
                 (unsigned long long)report->most, setting->hint);
        return false;
    }
    report->source = WEIR_SETTING_OPTION;
    if (setting->least == 0 && option == OPTION_NONE(setting)) {
        report->value = 0;
        return true;
    }
    report->value = option / setting->scale + (option % setting->scale != 0);
    if (option <= report->most * setting->scale &&
        (setting->scale > 1 || option >= report->least)) /* of a unit any part will do */
        return true;
    snprintf(report->note, sizeof(report->note),
             "%s of the options is %llu: not from %llu to %llu%s", setting->name,
             (unsigned long long)option,
             (unsigned long long)(setting->scale > 1 ? 1 : report->least),
             (unsigned long long)(report->most * setting->scale), setting->hint);
    return false;
}

/* chain_max alone may be above the most that has an effect. CHAIN_MAX cuts the option itself. The
 * other bound only sets in_force: of the depth that a device grants, one slot is the beacon's
 * (session.c) and a quarter of the others may be one chain (post.c), but the grant is not known
 * here. */
static void cut(const struct setting *setting, const weir_engine_options *so_far,
                struct setting_report *report) {
    report->in_force = report->value;
    if (setting->offset != offsetof(weir_engine_options, chain_max))
        return;
    if (report->value > CHAIN_MAX)
        report->value = CHAIN_MAX;
    uint64_t quarter = (so_far->sq_depth - 1) / 4;
    report->in_force = quarter < 1 ? 1 : quarter;
    if (report->value <= report->in_force)
        report->in_force = report->value;
    else if (report->status == WEIR_OK)
        snprintf(report->note, sizeof(report->note),
                 "cut to %llu: a quarter of sq_depth %lu without the teardown's slot",
                 (unsigned long long)report->in_force, (unsigned long)so_far->sq_depth);
}

/* One row. A wrong value is replaced by the default, for the rows behind it. */
static int resolve(const struct setting *setting, char *(*get)(const char *name),
                   weir_engine_options *options, struct setting_report *report) {
    range_of(setting, options, report);
    report->value = report->fallback;
    uint64_t option = option_read(setting, options);
    const char *text = option == 0 && get != NULL ? get(setting->variable) : NULL;
    if (!choose(setting, option, text, report)) {
        report->status = WEIR_EINVAL;
        report->value = report->fallback;
        option = 0;
    }
    cut(setting, options, report);
    if (option != 0 && setting->scale > 1)
        return report->status; /* as it is: perhaps not a whole number of units */
    if (report->value == 0)
        option_write(setting, options, OPTION_NONE(setting));
    else if (report->value == WEIR_SETTING_AUTO)
        option_write(setting, options, 0);
    else
        option_write(setting, options, report->value * setting->scale);
    return report->status;
}

bool settings_size_fits(const weir_engine_options *options) {
    return options == NULL || (options->size >= offsetof(weir_engine_options, transfers_max) &&
                               options->size <= OPTIONS_SIZE_MAX);
}

int settings_resolve(const weir_engine_options *in, char *(*get)(const char *name),
                     weir_engine_options *out, struct setting_report *reports) {
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
    int rc = WEIR_OK;
    if (in != NULL) {
        if (!settings_size_fits(in))
            return WEIR_EINVAL;
        memcpy(&options, in, in->size < sizeof(options) ? in->size : sizeof(options));
        options.size = sizeof(options);
    }
    const uint32_t threads = WEIR_ENGINE_THREAD | WEIR_ENGINE_SERIAL;
    if ((options.flags & ~threads) != 0 || (options.flags & threads) == threads)
        rc = WEIR_EINVAL;
    for (size_t i = 0; i < settings_count; i++) {
        struct setting_report report;
        if (resolve(&table[i], get, &options, reports != NULL ? &reports[i] : &report) != WEIR_OK)
            rc = WEIR_EINVAL;
    }
    *out = options;
    return rc;
}

int weir_setting_query(const weir_engine_options *options, size_t index, weir_setting_info *info) {
    struct setting_report reports[SETTINGS_MAX] = {0};
    weir_engine_options resolved;
    if (info == NULL || info->size < sizeof(size_t) || index >= settings_count ||
        !settings_size_fits(options))
        return WEIR_EINVAL;
    settings_resolve(options, getenv, &resolved, reports); /* the report says what is wrong */
    const struct setting *setting = &table[index];
    const struct setting_report *report = &reports[index];
    weir_setting_info full = {
        .size = info->size,
        .name = setting->name,
        .variable = setting->variable,
        .unit = setting->unit,
        .what = setting->what,
        .value = report->value,
        .fallback = report->fallback,
        .least = report->least,
        .most = report->most,
        .source = report->source,
        .status = report->status,
        .in_force = report->in_force,
    };
    memcpy(full.note, report->note, sizeof(full.note));
    memcpy(info, &full, info->size < sizeof(full) ? info->size : sizeof(full));
    return WEIR_OK;
}

static void describe_device_setting(const struct weir_device_setting *setting,
                                    weir_setting_info *info) {
    weir_setting_info full = {
        .size = info->size,
        .name = setting->device,
        .variable = setting->variable,
        .unit = "",
        .what = setting->what,
        .value = setting->value,
        .fallback = setting->fallback,
        .least = setting->least,
        .most = setting->most,
        .source = setting->is_named ? WEIR_SETTING_OPTION
                  : setting->is_set ? WEIR_SETTING_ENVIRONMENT
                                    : WEIR_SETTING_DEFAULT,
        .status = setting->status,
        .in_force = setting->value,
    };
    _Static_assert(sizeof(full.note) >= sizeof(setting->note), "a note fits");
    memcpy(full.note, setting->note, sizeof(setting->note));
    memcpy(full.text, setting->text, sizeof(full.text));
    memcpy(info, &full, info->size < sizeof(full) ? info->size : sizeof(full));
}

int weir_device_setting_query(size_t index, weir_setting_info *info) {
    struct weir_device_setting setting;
    if (info == NULL || info->size < sizeof(size_t) ||
        !device_setting(index, getenv, NULL, &setting))
        return WEIR_EINVAL;
    describe_device_setting(&setting, info);
    return WEIR_OK;
}

int weir_engine_setting_query(const weir_engine_options *options, size_t index,
                              weir_setting_info *info) {
    const struct weir_device_ops *ops;
    struct weir_device_nic nic;
    struct weir_device_setting setting;
    char note[WEIR_DEVICE_NOTE_MAX];
    if (info == NULL || info->size < sizeof(size_t) || !settings_size_fits(options))
        return WEIR_EINVAL;
    int rc = device_choose(options != NULL ? options->device : NULL, &ops, &nic, note);
    if (rc != WEIR_OK)
        return rc;
    for (size_t i = 0; device_setting(i, getenv, &nic, &setting); i++) {
        if (strcmp(setting.device, ops->name) == 0 && index-- == 0) {
            describe_device_setting(&setting, info);
            return WEIR_OK;
        }
    }
    return WEIR_EINVAL;
}

/* ---- variables that are none of ours ------------------------------------ */

static const char prefix[] = "WEIR_";
/* Devices that a build may lack, and how their variables begin, behind the prefix. */
static const char *const lacked[][2] = {{"verbs", "VERBS_"}, {"ofi", "OFI_"}};
enum { LACKED = sizeof(lacked) / sizeof(lacked[0]) };

/* The variables that are read: the index-th; NULL past the last. */
static const char *known(size_t index) {
    return index < settings_count ? table[index].variable : device_variable(index - settings_count);
}

static uint32_t least_of(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

/* The optimal string alignment distance, whatever the case: the letters that are wrong, missing,
 * too many, or swapped with the next one. Both are shorter than WEIR_VARIABLE_MAX. */
static uint32_t differences(const char *a, const char *b) {
    uint32_t rows[3][WEIR_VARIABLE_MAX] = {0};
    uint32_t width = (uint32_t)strlen(b);
    for (uint32_t j = 0; j <= width; j++)
        rows[0][j] = j;
    for (uint32_t i = 1; a[i - 1] != '\0'; i++) {
        uint32_t *row = rows[i % 3], *last = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
        row[0] = i;
        for (uint32_t j = 1; j <= width; j++) {
            int x = toupper((unsigned char)a[i - 1]), y = toupper((unsigned char)b[j - 1]);
            row[j] = least_of(last[j - 1] + (x != y), least_of(last[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && x == toupper((unsigned char)b[j - 2]) &&
                y == toupper((unsigned char)a[i - 2]))
                row[j] = least_of(row[j], before[j - 2] + 1);
        }
    }
    return rows[strlen(a) % 3][width];
}

/* The variable whose name is most like this one: two letters may differ, or one in four. */
static const char *nearest(const char *name) {
    size_t letters = strlen(name) - strlen(prefix);
    uint32_t least = (letters / 4 > 2 ? (uint32_t)letters / 4 : 2) + 1;
    const char *found = NULL, *candidate;
    for (size_t i = 0; (candidate = known(i)) != NULL; i++) {
        uint32_t wrong = differences(name, candidate);
        if (wrong < least) {
            least = wrong;
            found = candidate;
        }
    }
    return found;
}

/* Whether the name in "NAME=..." begins as ours do and is none of them. */
static bool is_stray(const char *entry) {
    size_t length = strcspn(entry, "=");
    const char *name;
    if (length < strlen(prefix) || memcmp(entry, prefix, strlen(prefix)) != 0)
        return false;
    for (size_t i = 0; (name = known(i)) != NULL; i++) {
        if (strlen(name) == length && memcmp(entry, name, length) == 0)
            return false;
    }
    return true;
}

static bool begins(const char *name, const char *with) {
    size_t length = strlen(prefix);
    return strncmp(name, prefix, length) == 0 && strncmp(name + length, with, strlen(with)) == 0;
}

static bool is_built_in(const char *variables) {
    const char *name = "";
    for (size_t i = 0; name != NULL && !begins(name, variables); i++)
        name = device_variable(i);
    return name != NULL;
}

static void describe_stray(const char *entry, weir_stray_info *info) {
    int length = (int)strnlen(entry, sizeof(info->name)), end = (int)strcspn(entry, "=");
    snprintf(info->name, sizeof(info->name), "%.*s", end < length ? end : length, entry);
    for (char *c = info->name; *c != '\0'; c++) {
        if (!isprint((unsigned char)*c))
            *c = '?';
    }
    for (size_t i = 0; i < LACKED; i++) {
        if (!begins(info->name, lacked[i][1]) || is_built_in(lacked[i][1]))
            continue;
        snprintf(info->note, sizeof(info->note), "%s: this library was built without the device %s",
                 info->name, lacked[i][0]);
        return;
    }
    info->nearest = nearest(info->name);
    if (info->nearest != NULL)
        snprintf(info->note, sizeof(info->note), "%s: no setting of this name; did you mean %s?",
                 info->name, info->nearest);
    else
        snprintf(info->note, sizeof(info->note), "%s: no setting of this name", info->name);
}

int settings_stray(char *const *environment, size_t index, weir_stray_info *info) {
    for (; environment != NULL && *environment != NULL; environment++) {
        if (is_stray(*environment) && index-- == 0) {
            describe_stray(*environment, info);
            return WEIR_OK;
        }
    }
    return WEIR_EINVAL;
}

int weir_stray_query(size_t index, weir_stray_info *info) {
    weir_stray_info full = WEIR_STRAY_INFO_INIT;
    if (info == NULL || info->size < sizeof(size_t) ||
        settings_stray(environ, index, &full) != WEIR_OK)
        return WEIR_EINVAL;
    full.size = info->size;
    memcpy(info, &full, info->size < sizeof(full) ? info->size : sizeof(full));
    return WEIR_OK;
}
