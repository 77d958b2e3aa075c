/* SPDX-License-Identifier: Apache-2.0 */
/* stalls.c: lines about stalls of peers, on standard error. */
#include "stalls.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "host.h"

const char *stalls_sentence(weir_engine *engine, weir_peer peer, char *text_out, size_t text_size) {
    if (weir_stall_text(engine, peer, text_out, text_size) != 0)
        snprintf(text_out, text_size, "the target is gone");
    text_out[strcspn(text_out, "\n")] = '\0';
    return text_out;
}

static void remark_stall(weir_engine *engine, weir_peer peer) {
    char text[WEIR_STALL_TEXT_MAX];
    char *figures;

    if (weir_stall_text(engine, peer, text, sizeof(text)) != 0)
        return; /* it is gone already */
    figures = strchr(text, '\n');
    if (figures != NULL)
        *figures++ = '\0';
    remark("stalled: %s", text);
    if (figures != NULL)
        remark("stalled: %s", figures);
}

static void remark_end(weir_engine *engine, const weir_event *event) {
    weir_peer_info info = WEIR_PEER_INFO_INIT;

    if (weir_peer_query(engine, event->peer, &info) != 0)
        return;
    remark("resumed: something to %s completes again, or nothing is outstanding, after %" PRIu64
           " ms",
           info.address[0] != '\0' ? info.address : "a peer without an address",
           (uint64_t)(event->value / NS_PER_MS));
}

void stalls_remark(weir_engine *engine, const weir_event *event) {
    if (event->type == WEIR_EVENT_STALLED)
        remark_stall(engine, event->peer);
    else if (event->type == WEIR_EVENT_RESUMED)
        remark_end(engine, event);
}
