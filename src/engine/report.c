/* SPDX-License-Identifier: Apache-2.0 */
/* report.c: what the work of a peer waits for, in numbers and for a person.
 *
 * Owns the names of causes and the sentences; what they say is diagnose.c's to find out. */
#include "diagnose.h"
#include "own.h"
#include "tables.h"

#include <inttypes.h>
#include <stdio.h>

#define NS_PER_MS UINT64_C(1000000)

enum { WHY_BYTES = 320, SENTENCE_BYTES = WEIR_ADDRESS_MAX + 2 * WHY_BYTES + 160 };
enum { WORK_BYTES = 480, WORD_BYTES = 320, COUNTS_BYTES = 380 };
_Static_assert(SENTENCE_BYTES + WORK_BYTES + WORD_BYTES + COUNTS_BYTES <= WEIR_STALL_TEXT_MAX,
               "it holds any text");

const char *weir_stall_cause_name(int cause) {
    static const char *const names[] = {
        [WEIR_STALL_NONE] = "none",
        [WEIR_STALL_HERE] = "here",
        [WEIR_STALL_DEVICE] = "device",
        [WEIR_STALL_DRAIN] = "drain",
        [WEIR_STALL_SETTLE] = "settle",
        [WEIR_STALL_CONNECT] = "connect",
        [WEIR_STALL_REFUSED] = "refused",
        [WEIR_STALL_QP] = "qp",
        [WEIR_STALL_CREDITS] = "credits",
        [WEIR_STALL_INBOX_FULL] = "inbox_full",
        [WEIR_STALL_INBOX_ABSENT] = "inbox_absent",
        [WEIR_STALL_INFLIGHT] = "inflight",
        [WEIR_STALL_TURN] = "turn",
        [WEIR_STALL_PEER_ABSENT] = "peer_absent",
        [WEIR_STALL_PEER_STOPPED] = "peer_stopped",
        [WEIR_STALL_PEER_NOTIFICATIONS] = "peer_notifications",
        [WEIR_STALL_PEER_MESSAGES] = "peer_messages",
        [WEIR_STALL_HOST] = "host",
        [WEIR_STALL_LINK] = "link",
        [WEIR_STALL_BREAKS] = "breaks",
        [WEIR_STALL_INBOX_MEMORY] = "inbox_memory",
        [WEIR_STALL_NOT_READY] = "not_ready",
        [WEIR_STALL_WIRE] = "wire",
    };
    if (cause < 0 || (size_t)cause >= sizeof(names) / sizeof(names[0]))
        return "?";
    return names[cause];
}

/* ---- numbers ----------------------------------------------------------- */

/* The questions to a peer at one moment. */
struct report {
    weir_stall_info info;
    weir_stall_info last;   /* the last stall, when it was told, */
    struct watch_step step; /* and the step of the handshake, then */
    char address[WEIR_ADDRESS_MAX];
    struct watch_step handshake;
};

static int look(weir_engine *engine, weir_peer handle, struct report *report) {
    if (engine->forked)
        return WEIR_ECLOSED;
    own_enter(engine);
    struct peer *peer = peer_find(engine, handle.id);
    if (peer != NULL) {
        peer = peer_resolve(engine, peer);
        diagnose(engine, peer, &report->info);
        if (peer->loop)
            snprintf(report->address, sizeof(report->address), "this engine itself");
        else
            memcpy(report->address, peer->address, sizeof(report->address));
        report->handshake = diagnose_handshake(peer);
        report->last = peer->watch.notes->last;
        report->step = peer->watch.notes->step;
    }
    own_leave(engine);
    return peer != NULL ? WEIR_OK : WEIR_ESTALE;
}

int weir_stall_query(weir_engine *engine, weir_peer peer, weir_stall_info *info) {
    struct report report;
    if (engine == NULL || info == NULL || info->size < sizeof(size_t))
        return WEIR_EINVAL;
    int rc = look(engine, peer, &report);
    if (rc != WEIR_OK)
        return rc;
    report.info.size = info->size;
    memcpy(info, &report.info, info->size < sizeof(*info) ? info->size : sizeof(*info));
    return WEIR_OK;
}

/* ---- sentences --------------------------------------------------------- */

/* Half a sentence each: why nothing completes, or completed. */

static void say_device(const weir_stall_info *info, char *out, size_t size) {
    if (info->error == WEIR_EDEVICE)
        snprintf(out, size, "this engine's device has failed");
    else
        snprintf(out, size, "this engine's device refuses work or receives that it has room for");
}

/* Why a session broke. */
static const char *say_broke(int error) {
    return error == WEIR_ECONNECT ? "the target's device did not answer" : weir_strerror(error);
}

static void say_breaks(const weir_stall_info *info, char *out, size_t size) {
    char not_ready[96] = "";
    if (info->device_not_ready > 0)
        snprintf(not_ready, sizeof(not_ready),
                 "; receivers were not ready %" PRIu64 " times meanwhile", info->device_not_ready);
    snprintf(out, size, "sessions come up and break before anything completes (%s%s)",
             say_broke(info->error), not_ready);
}

/* Bytes a second, of bytes in a time. */
static double rate(uint64_t bytes, uint64_t ns) {
    return ns > 0 ? (double)bytes * 1e9 / (double)ns : 0;
}

static void say_device_counts(const weir_stall_info *info, char *out, size_t size) {
    if (info->cause == WEIR_STALL_NOT_READY)
        snprintf(out, size,
                 "what is posted finds no receive at the target, it seems: %" PRIu64
                 " times in %" PRIu64
                 " ms this device, with all its users, was told that a receiver was not ready",
                 info->device_not_ready, info->counted_ns / NS_PER_MS);
    else
        snprintf(out, size,
                 "no fault, the wire is full: this device's port has sent %.3g GB/s and received "
                 "%.3g GB/s, and can carry %.3g GB/s",
                 rate(info->port_sent, info->counted_ns) / 1e9,
                 rate(info->port_received, info->counted_ns) / 1e9,
                 (double)info->port_bytes_per_s / 1e9);
}

static void say_connect(const weir_stall_info *info, const struct watch_step *step, char *out,
                        size_t size) {
    bool lack = info->error == WEIR_EMFILE || info->error == WEIR_ENOMEM ||
                info->error == WEIR_EMEMLOCK || info->error == WEIR_EFULL;
    char before[160] = "there is no session, since the handshake is not answered";
    if (lack)
        snprintf(before, sizeof(before), "there is no session, since this side cannot make one");
    if (step->broke != 0)
        snprintf(before, sizeof(before), "the session broke (%s), and there is no new one",
                 say_broke(step->broke));
    if (step->version != 0)
        snprintf(out, size, "%s: it speaks version %" PRIu32 " of the protocol, this library %d",
                 before, step->version, WIRE_VERSION);
    else
        snprintf(out, size, "%s: %s%s%s%s", before, step->words, info->error != 0 ? " (" : "",
                 info->error != 0 ? weir_strerror(info->error) : "", info->error != 0 ? ")" : "");
}

/* Of an engine that does not answer now, or did so late, or said that it was away. */
static void say_absent(const weir_stall_info *info, char *out, size_t size) {
    const char *who = info->peer_thread != 0 ? "its engine's thread" : "its application";
    if (info->peer_silent_ns > 0)
        snprintf(out, size,
                 "the peer makes no progress: it was asked %" PRIu64
                 " ms ago and has not answered, and nothing says that its host is gone",
                 info->peer_silent_ns / NS_PER_MS);
    else if (info->peer_away_ns > info->peer_answer_ns)
        snprintf(out, size,
                 "the peer makes progress too seldom: %s was away for %" PRIu64
                 " ms when it was asked",
                 who, info->peer_away_ns / NS_PER_MS);
    else
        snprintf(out, size, "the peer makes progress too seldom: %s took %" PRIu64 " ms to answer",
                 who, info->peer_answer_ns / NS_PER_MS);
}

static void say_stopped(const weir_stall_info *info, char *out, size_t size) {
    char pid[24] = "";
    if (info->peer_process != 0)
        snprintf(pid, sizeof(pid), " (pid %" PRIu32 ")", info->peer_process);
    snprintf(out, size, "the peer's process is stopped, by a signal or a debugger%s", pid);
}

/* Behind a cause that names an inbox. */
static void say_others(const weir_stall_info *info, char *out, size_t size) {
    size_t length = strlen(out);
    if (info->room_inboxes > 1)
        snprintf(out + length, size - length, "; messages wait for %" PRIu32 " other inbox%s, too",
                 info->room_inboxes - 1, info->room_inboxes > 2 ? "es" : "");
}

static void say_messages(const weir_stall_info *info, char *out, size_t size) {
    if (info->peer_ready > 0)
        snprintf(out, size,
                 "the peer's application takes no messages from inbox %" PRIu32
                 ", where those of %" PRIu32 " sender%s wait",
                 info->inbox, info->peer_ready, info->peer_ready == 1 ? "" : "s");
    else
        snprintf(out, size,
                 "the peer's application gives no messages back that it took from inbox %" PRIu32
                 ": it holds %" PRIu32,
                 info->inbox, info->peer_held);
}

static void say_peer(const weir_stall_info *info, char *out, size_t size) {
    switch (info->cause) {
    case WEIR_STALL_PEER_ABSENT:
        say_absent(info, out, size);
        break;
    case WEIR_STALL_PEER_STOPPED:
        say_stopped(info, out, size);
        break;
    case WEIR_STALL_PEER_NOTIFICATIONS:
        snprintf(out, size,
                 "the peer's application takes no notifications: %" PRIu32 " wait for it there",
                 info->peer_notifications);
        break;
    case WEIR_STALL_PEER_MESSAGES:
        say_messages(info, out, size);
        say_others(info, out, size);
        break;
    default:
        snprintf(out, size,
                 "the peer's host does not answer: it is gone, or the network is (repeats of TCP "
                 "in vain: "
                 "%" PRIu32 ")",
                 info->control_retransmits);
    }
}

static void say_inbox(const weir_stall_info *info, char *out, size_t size) {
    if (info->cause == WEIR_STALL_INBOX_FULL)
        snprintf(out, size, "messages wait for room in inbox %" PRIu32 " of the peer", info->inbox);
    else if (info->cause == WEIR_STALL_INBOX_MEMORY && info->error == WEIR_EAGAIN)
        snprintf(out, size,
                 "messages wait for inbox %" PRIu32
                 ", whose memory the peer's process has not handed over yet",
                 info->inbox);
    else if (info->cause == WEIR_STALL_INBOX_MEMORY)
        snprintf(out, size,
                 "messages wait for inbox %" PRIu32
                 ", whose memory this process cannot map now: %s (%s)",
                 info->inbox, weir_strerror(info->error), weir_error_name(info->error));
    else
        snprintf(out, size,
                 "messages wait for inbox %" PRIu32
                 ", which the peer has not opened, or has closed",
                 info->inbox);
}

static void say_here(const weir_stall_info *info, char *out, size_t size) {
    if (info->absent_ns > 0)
        snprintf(out, size,
                 "this application made no progress for %" PRIu64
                 " ms: it did not call, or its process did not run",
                 info->absent_ns / NS_PER_MS);
    else
        snprintf(out, size,
                 "completions waited for this application all the time: it makes progress too "
                 "seldom for what comes, or poll_budget is too small");
}

static const char *plain(uint32_t cause, int error) {
    switch (cause) {
    case WEIR_STALL_DRAIN:
        return "a session broke, and this device has not given back all that was posted on it";
    case WEIR_STALL_SETTLE:
        return "a session broke, and the peer has not said what of it arrived";
    case WEIR_STALL_QP:
        return "what is posted has neither completed nor failed";
    case WEIR_STALL_CREDITS:
        return "notifications or messages wait for credits, since the peer has not taken up those "
               "before";
    case WEIR_STALL_LINK:
        return "the link of this engine's device is down: its port is not active";
    case WEIR_STALL_INFLIGHT:
        if (error == WEIR_EAGAIN)
            return "the device's send queue, which all peers share, is full";
        return "as many bytes are in flight, to all peers, as there may be";
    default:
        return "work is about to be posted";
    }
}

static void say_why(const weir_stall_info *info, const struct watch_step *step, char *out,
                    size_t size) {
    switch (info->cause) {
    case WEIR_STALL_HERE:
        say_here(info, out, size);
        break;
    case WEIR_STALL_DEVICE:
        say_device(info, out, size);
        break;
    case WEIR_STALL_CONNECT:
        say_connect(info, step, out, size);
        break;
    case WEIR_STALL_BREAKS:
        say_breaks(info, out, size);
        break;
    case WEIR_STALL_NOT_READY:
    case WEIR_STALL_WIRE:
        say_device_counts(info, out, size);
        break;
    case WEIR_STALL_REFUSED:
        snprintf(out, size, "the peer refuses a session for now: %s (%s)",
                 weir_strerror(info->error), weir_error_name(info->error));
        break;
    case WEIR_STALL_INBOX_FULL:
    case WEIR_STALL_INBOX_ABSENT:
    case WEIR_STALL_INBOX_MEMORY:
        say_inbox(info, out, size);
        say_others(info, out, size);
        break;
    case WEIR_STALL_PEER_ABSENT:
    case WEIR_STALL_PEER_STOPPED:
    case WEIR_STALL_PEER_NOTIFICATIONS:
    case WEIR_STALL_PEER_MESSAGES:
    case WEIR_STALL_HOST:
        say_peer(info, out, size);
        break;
    default:
        snprintf(out, size, "%s", plain(info->cause, info->error));
    }
}

/* A stall that lasts, whose cause is another now than when it was told. */
static void say_changed(const struct report *report, char *out, size_t size) {
    const weir_stall_info *info = &report->info, *last = &report->last;
    char then[WHY_BYTES], now[WHY_BYTES] = "nothing is outstanding any more";
    say_why(last, &report->step, then, sizeof(then));
    if (info->cause != WEIR_STALL_NONE)
        say_why(info, &report->handshake, now, sizeof(now));
    snprintf(out, size,
             "nothing to %s had completed for %" PRIu64 " ms when this was told: %s; now, after "
             "%" PRIu64 " ms: %s",
             report->address, last->still_ns / NS_PER_MS, then, info->still_ns / NS_PER_MS, now);
}

static void say(const struct report *report, char *out, size_t size) {
    const weir_stall_info *info = &report->info;
    char why[WHY_BYTES];
    if (info->stalled != 0 && info->cause != report->last.cause) {
        say_changed(report, out, size);
    } else if (info->cause != WEIR_STALL_NONE) {
        say_why(info, &report->handshake, why, sizeof(why));
        snprintf(out, size, "nothing to %s has completed for %" PRIu64 " ms: %s", report->address,
                 info->still_ns / NS_PER_MS, why);
    } else if (info->stalls > 0) {
        say_why(&report->last, &report->step, why, sizeof(why));
        snprintf(out, size,
                 "nothing is outstanding to %s; a stall of %" PRIu64
                 " ms is over, of which was told: %s",
                 report->address, info->last_ns / NS_PER_MS, why);
    } else {
        snprintf(out, size, "nothing is outstanding to %s, and nothing was stalled",
                 report->address);
    }
}

static void say_work(const weir_stall_info *info, char *out, size_t size) {
    snprintf(out, size,
             "waiting %" PRIu32 ": pending %" PRIu32 ", posted %" PRIu32 ", parked %" PRIu32
             ", for credits %" PRIu32 ", for room %" PRIu32 " (%" PRIu64 " B in %" PRIu32
             " inboxes); slots %" PRIu32 " of %" PRIu32 "; credits %" PRIu32 " of %" PRIu32
             "; in flight %" PRIu64 " B, to all %" PRIu64 " of %" PRIu64 "; completed %" PRIu64
             "; stalls %" PRIu64,
             info->waiting, info->pending, info->posted, info->parked, info->credit_waits,
             info->room_waits, info->room_bytes, info->room_inboxes, info->sq_used, info->sq_depth,
             info->credits, info->credits_max, info->inflight_bytes, info->inflight_bytes_engine,
             info->inflight_bytes_max, info->completed, info->stalls);
}

/* The words of the peer, and of the way to it. */
static void say_word(const weir_stall_info *info, char *out, size_t size) {
    char answer[160] = "", silent[80] = "";
    if (info->peer_answer_ns != 0)
        snprintf(answer, sizeof(answer),
                 "; peer answered in %" PRIu64 " us, away %" PRIu64 " us, notifications %" PRIu32
                 ", ready %" PRIu32 ", held %" PRIu32,
                 info->peer_answer_ns / 1000, info->peer_away_ns / 1000, info->peer_notifications,
                 info->peer_ready, info->peer_held);
    if (info->peer_silent_ns != 0)
        snprintf(silent, sizeof(silent), "; peer was asked %" PRIu64 " us ago",
                 info->peer_silent_ns / 1000);
    snprintf(out, size, "%s%s; TCP repeats %" PRIu32, answer, silent, info->control_retransmits);
}

/* Writes the counts since the peer was asked. */
static void say_counts(const weir_stall_info *info, char *out, size_t size) {
    char device[COUNTS_BYTES / 2] = "";
    out[0] = '\0';
    if (info->counted_ns == 0)
        return;
    if (info->device_counts != 0)
        snprintf(device, sizeof(device),
                 ", not ready %" PRIu64 ", repeats %" PRIu64 ", port sent %" PRIu64
                 " B, received %" PRIu64 " B, of %" PRIu64 " B/s",
                 info->device_not_ready, info->device_repeats, info->port_sent, info->port_received,
                 info->port_bytes_per_s);
    snprintf(out, size,
             "; device in %" PRIu64 " ms: completions %" PRIu64 ", CQ entries %" PRIu32 "%s",
             info->counted_ns / NS_PER_MS, info->completions, info->cq_entries, device);
}

int weir_stall_text(weir_engine *engine, weir_peer peer, char *text_out, size_t text_size) {
    struct report report;
    char sentence[SENTENCE_BYTES], work[WORK_BYTES], word[WORD_BYTES], counts[COUNTS_BYTES];
    if (engine == NULL || text_out == NULL || text_size == 0)
        return WEIR_EINVAL;
    int rc = look(engine, peer, &report);
    if (rc != WEIR_OK)
        return rc;
    if (report.address[0] == '\0')
        snprintf(report.address, sizeof(report.address), "a peer without an address");
    say(&report, sentence, sizeof(sentence));
    say_work(&report.info, work, sizeof(work));
    say_word(&report.info, word, sizeof(word));
    say_counts(&report.info, counts, sizeof(counts));
    snprintf(text_out, text_size, "%s\n%s%s%s", sentence, work, word, counts);
    return WEIR_OK;
}
