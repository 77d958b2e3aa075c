/* SPDX-License-Identifier: Apache-2.0 */
/* stalls.c: lines about stalls of peers, on standard error, and traces of them in a file. */
#define _POSIX_C_SOURCE 200809L
#include "stalls.h"

#include <errno.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "file.h"
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

int stalls_check(const char *path) {
    char *copy = strdup(path);
    const char *folder = copy != NULL ? dirname(copy) : ".";
    bool there = access(path, F_OK) == 0;
    int rc = 0;

    if (there ? access(path, W_OK) != 0 : access(folder, W_OK | X_OK) != 0)
        rc = complain("--stall-trace %s: %s", path, strerror(errno));
    free(copy);
    return rc;
}

static uint32_t format_of(const char *path) {
    const char *end = strrchr(path, '.');

    return end != NULL && strcmp(end, ".json") == 0 ? WEIR_TRACE_JSON : WEIR_TRACE_TEXT;
}

void stalls_trace(weir_engine *engine, const weir_event *event, const char *path) {
    uint32_t format = format_of(path);
    size_t size = 0, length;
    char *text;

    if (event->type != WEIR_EVENT_STALLED || weir_engine_trace(engine, format, NULL, 0, &size) != 0)
        return;
    text = malloc(size);
    if (text == NULL)
        complain("%s: out of memory", path);
    else if (weir_engine_trace(engine, format, text, size, &length) == 0)
        (void)file_replace(path, text, length);
    free(text);
}
