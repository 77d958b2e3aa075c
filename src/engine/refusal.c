/* SPDX-License-Identifier: Apache-2.0 */
/* refusal.c: why there is no session with a peer, in a sentence for a person.
 *
 * Owns the sentences about a peer that refuses, is refused, or speaks another version of the
 * protocol. The facts are the endpoint's, and for a peer that is gone, in
 * engine->unlike. A device that both may have is probed here, in the application's call, and not
 * in the handshake: a probe may load libraries, and take a second. */
#include "device.h"
#include "endpoint.h"
#include "own.h"
#include "tables.h"
#include "text.h"

#include <stdio.h>

/* The facts of one refusal. */
struct refusal {
    uint32_t version; /* of the protocol, that the peer speaks; 0: this one, or nobody knows */
    int reason;       /* of the peer's; 0: none */
    enum met_there met_there;
    struct ep_mismatch mismatch;
    char device[WEIR_DEVICE_NAME_MAX]; /* of this engine */
};

/* The last refusal, if it was of this handle. */
static bool look_at_last(const weir_engine *engine, uint64_t handle, struct refusal *out) {
    bool is_its = handle != 0 && handle == engine->unlike.handle;
    if (is_its)
        out->mismatch = engine->unlike.mismatch;
    return is_its;
}

static void look_at(const weir_engine *engine, const struct peer *peer, struct refusal *out) {
    if (peer->live != NONE)
        return;
    out->version = peer->version_theirs;
    if (peer->conn_last == 0) /* else it has called, and its address is not the reason */
        out->met_there = peer->met_there;
    const struct ep_mismatch *mismatch = NULL;
    if (peer_is_known(peer)) {
        out->reason = endpoint_reason(&peer->endpoint);
        mismatch = endpoint_mismatch(&peer->endpoint);
    }
    if (mismatch != NULL)
        out->mismatch = *mismatch;
    else if (out->reason == 0)
        look_at_last(engine, peer->handle, out);
}

/* ESTALE: the handle names nobody, and is not of the last peer that was refused. */
static int look(weir_engine *engine, weir_peer handle, struct refusal *out) {
    int rc = WEIR_OK;
    own_enter(engine);
    memcpy(out->device, engine->caps.name, sizeof(out->device));
    struct peer *peer = peer_find(engine, handle.id);
    if (peer != NULL)
        look_at(engine, peer_resolve(engine, peer), out);
    else if (!look_at_last(engine, handle.id, out))
        rc = WEIR_ESTALE;
    own_leave(engine);
    return rc;
}

static void say_common(const struct ep_mismatch *mismatch, struct text *text) {
    const struct weir_device_ops *ops = device_find(mismatch->both);
    struct weir_device_caps caps = {0};
    bool here = mismatch->tried_here;
    if (!here && ops != NULL) {
        int rc = ops->probe(NULL, &caps);
        here = rc == WEIR_OK;
        if (!here) {
            text_say(text, "; the peer may have %s, too, which cannot be used here: %s%s%s",
                     mismatch->both, weir_strerror(rc), caps.note[0] != '\0' ? ": " : "",
                     caps.note);
            return;
        }
    }
    if (here && mismatch->tried_there)
        text_say(text, "; both could use %s", mismatch->both);
    else
        text_say(text, "; both may be able to use %s (weir info tells, on either host)",
                 mismatch->both);
}

static void say_mismatch(const struct refusal *refusal, struct text *text) {
    const struct ep_mismatch *mismatch = &refusal->mismatch;
    if (strcmp(mismatch->theirs, refusal->device) == 0)
        text_say(
            text,
            "both use %s, and the two do not meet (weir info tells where each is, on its host)",
            refusal->device);
    else
        text_say(text, "the peer uses %s, this engine %s", mismatch->theirs, refusal->device);
    if (mismatch->both[0] != '\0')
        say_common(mismatch, text);
}

static void say(const struct refusal *refusal, struct text *text) {
    if (refusal->version != 0)
        text_say(text, "the peer speaks version %lu of the protocol, this library version %d",
                 (unsigned long)refusal->version, WIRE_VERSION);
    else if (refusal->mismatch.theirs[0] != '\0')
        say_mismatch(refusal, text);
    else if (refusal->reason == WEIR_EREFUSED)
        text_say(text, "the peer says that the devices differ, or do not meet");
    else if (refusal->reason == WEIR_ECONNECT)
        text_say(text,
                 "the peer says that its device does not reach this engine's: a firewall, or an "
                 "address of another network (weir info tells that address here)");
    else if (refusal->reason != 0)
        text_say(text, "the peer says: %s (%s)", weir_strerror(refusal->reason),
                 weir_error_name(refusal->reason));
    else if (refusal->met_there == MET_NOBODY)
        text_say(text, "nobody listens at its address, or a firewall refuses");
    else if (refusal->met_there == MET_SILENCE)
        text_say(text,
                 "the connection is taken at its address, and no engine has answered yet: its "
                 "process may make no progress, be stopped, or be another program");
}

int weir_refusal_text(weir_engine *engine, weir_peer peer, char *text_out, size_t text_size) {
    struct refusal refusal = {0};
    if (engine == NULL || text_out == NULL || text_size == 0)
        return WEIR_EINVAL;
    if (engine->forked)
        return WEIR_ECLOSED;
    int rc = look(engine, peer, &refusal);
    if (rc != WEIR_OK)
        return rc;
    struct text text = {.out = text_out, .size = text_size};
    text_out[0] = '\0';
    say(&refusal, &text);
    return WEIR_OK;
}
