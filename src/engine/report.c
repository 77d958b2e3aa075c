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
    };
    if (cause < 0 || (size_t)cause >= sizeof(names) / sizeof(names[0]))
        return "?";
    return names[cause];
}

/* ---- numbers ----------------------------------------------------------- */

/* What is asked of a peer at one moment. */
struct report {
    weir_stall_info info;
    char address[WEIR_ADDRESS_MAX];
    const char *handshake;
    uint32_t last_inbox;
    uint64_t last_absent_ns;
};

static int look(weir_engine *engine, weir_peer handle, struct report *report) {
    if (engine->forked)
        return WEIR_ECLOSED;
    own_enter(engine);
    struct peer *peer = peer_find(engine, handle.id);
    if (peer != NULL) {
        peer = peer_resolve(engine, peer);
        diagnose(engine, peer, &report->info);
        memcpy(report->address, peer->address, sizeof(report->address));
        report->handshake = diagnose_handshake(peer);
        report->last_inbox = peer->watch.last.inbox;
        report->last_absent_ns = peer->watch.last.absent_ns;
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

/* Why nothing completes, or completed: the second half of a sentence. */
struct why {
    uint32_t cause;
    int error;
    uint32_t inbox;
    uint64_t absent_ns;
    const char *handshake;
};

static void say_device(const struct why *why, char *out, size_t size) {
    if (why->error == WEIR_EDEVICE)
        snprintf(out, size, "this engine's device has failed");
    else
        snprintf(out, size, "this engine's device refuses work or receives that it has room for");
}

static void say_connect(const struct why *why, char *out, size_t size) {
    snprintf(out, size, "there is no session, since the handshake is not answered: %s%s%s%s",
             why->handshake, why->error != 0 ? " (" : "",
             why->error != 0 ? weir_strerror(why->error) : "", why->error != 0 ? ")" : "");
}

static void say_why(const struct why *why, char *out, size_t size) {
    switch (why->cause) {
    case WEIR_STALL_HERE:
        snprintf(out, size,
                 "this application made no progress for %" PRIu64
                 " ms: it did not call, or its process did not run",
                 why->absent_ns / NS_PER_MS);
        break;
    case WEIR_STALL_DEVICE:
        say_device(why, out, size);
        break;
    case WEIR_STALL_DRAIN:
        snprintf(out, size,
                 "a session broke, and this device has not given back all that was posted on it");
        break;
    case WEIR_STALL_SETTLE:
        snprintf(out, size, "a session broke, and the peer has not said what of it arrived");
        break;
    case WEIR_STALL_CONNECT:
        say_connect(why, out, size);
        break;
    case WEIR_STALL_REFUSED:
        snprintf(out, size, "the peer refuses a session for now: %s (%s)",
                 weir_strerror(why->error), weir_error_name(why->error));
        break;
    case WEIR_STALL_QP:
        snprintf(out, size, "what is posted has neither completed nor failed");
        break;
    case WEIR_STALL_CREDITS:
        snprintf(out, size,
                 "notifications wait for credits, since the peer has not taken up those before");
        break;
    case WEIR_STALL_INBOX_FULL:
        snprintf(out, size, "messages wait for room in inbox %" PRIu32 " of the peer", why->inbox);
        break;
    case WEIR_STALL_INBOX_ABSENT:
        snprintf(out, size, "messages wait for inbox %" PRIu32 ", which the peer has not opened",
                 why->inbox);
        break;
    case WEIR_STALL_INFLIGHT:
        snprintf(out, size, "as many bytes are in flight, to all peers, as there may be");
        break;
    default:
        snprintf(out, size, "work is about to be posted");
    }
}

/* The sentence of a peer whose work goes on, or has none: what its last stall was. */
static void say_past(const struct report *report, char *out, size_t size) {
    const weir_stall_info *info = &report->info;
    const struct why why = {info->last_cause, info->last_error, report->last_inbox,
                            report->last_absent_ns, "it was not answered for long"};
    char half[512];
    if (info->stalls == 0) {
        snprintf(out, size, "nothing is outstanding to %s, and nothing was stalled",
                 report->address);
        return;
    }
    say_why(&why, half, sizeof(half));
    snprintf(out, size,
             "nothing is outstanding to %s, where nothing had completed for %" PRIu64 " ms: %s",
             report->address, info->last_ns / NS_PER_MS, half);
}

static void say(const struct report *report, char *out, size_t size) {
    const weir_stall_info *info = &report->info;
    const struct why why = {info->cause, info->error, info->inbox, info->absent_ns,
                            report->handshake};
    char half[512];
    if (info->cause == WEIR_STALL_NONE) {
        say_past(report, out, size);
        return;
    }
    say_why(&why, half, sizeof(half));
    snprintf(out, size, "nothing to %s has completed for %" PRIu64 " ms: %s", report->address,
             info->still_ns / NS_PER_MS, half);
}

static void say_figures(const weir_stall_info *info, char *out, size_t size) {
    snprintf(out, size,
             "waiting %" PRIu32 ": pending %" PRIu32 ", posted %" PRIu32 ", parked %" PRIu32
             ", for credits %" PRIu32 ", for room %" PRIu32 " (%" PRIu64 " B); slots %" PRIu32
             " of %" PRIu32 "; credits %" PRIu32 " of %" PRIu32 "; in flight %" PRIu64
             " B, to all %" PRIu64 " of %" PRIu64 "; completed %" PRIu64 "; stalls %" PRIu64,
             info->waiting, info->pending, info->posted, info->parked, info->credit_waits,
             info->room_waits, info->room_bytes, info->sq_used, info->sq_depth, info->credits,
             info->credits_max, info->inflight_bytes, info->inflight_bytes_engine,
             info->inflight_bytes_max, info->completed, info->stalls);
}

int weir_stall_text(weir_engine *engine, weir_peer peer, char *text_out, size_t text_size) {
    struct report report;
    char sentence[WEIR_ADDRESS_MAX + 640], figures[512];
    if (engine == NULL || text_out == NULL || text_size == 0)
        return WEIR_EINVAL;
    int rc = look(engine, peer, &report);
    if (rc != WEIR_OK)
        return rc;
    if (report.address[0] == '\0')
        snprintf(report.address, sizeof(report.address), "a peer without an address");
    say(&report, sentence, sizeof(sentence));
    say_figures(&report.info, figures, sizeof(figures));
    snprintf(text_out, text_size, "%s\n%s", sentence, figures);
    return WEIR_OK;
}
