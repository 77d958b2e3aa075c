/* SPDX-License-Identifier: Apache-2.0 */
/* flow.c: see flow.h. */
#include "flow.h"

#include <stdlib.h>
#include <string.h>

#include "content.h"
#include "host.h"

#define WHAT      "bench faults"
#define ANSWER_NS (30 * NS_PER_S) /* an answer that takes longer will not come */

int flow_begin(struct flow *flow, uint64_t step_ns) {
    flow->lanes = calloc(flow->session->options->window, sizeof(*flow->lanes));
    if (flow->lanes == NULL)
        return complain("out of memory");
    timeline_begin(&flow->timeline, step_ns);
    flow->start_ns = host_now_ns();
    return 0;
}

void flow_free(struct flow *flow) {
    timeline_free(&flow->timeline);
    free(flow->lanes);
    flow->lanes = NULL;
}

uint64_t flow_now(const struct flow *flow) {
    return host_now_ns() - flow->start_ns;
}

/* ---- one lane ----------------------------------------------------------- */

static bool is_idle(const struct flow_lane *lane) {
    return !lane->flies && !lane->asks;
}

/* 1: it is under way; 0: there is no room; -1. */
static int submit(struct flow *flow, uint64_t index) {
    struct session *session = flow->session;
    struct flow_lane *lane = &flow->lanes[index];
    uint64_t size = session->options->size;
    weir_segment segment = {.local = session->memory,
                            .remote = session->remote,
                            .local_offset = index * flow->stride,
                            .remote_offset = index * flow->stride,
                            .length = size};
    struct proto_round round = {.round = lane->round + 1, .lane_count = 1};
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    int rc;

    content_fill((unsigned char *)session->base + segment.local_offset, size,
                 content_key(content_key(FLOW_SEED, round.round), index));
    options.flags = WEIR_TRANSFER_NOTIFY;
    options.notify_tag = proto_tag(PROTO_CHECK, index);
    options.notify_payload = &round;
    options.notify_length = sizeof(round);
    lane->started_ns = host_now_ns();
    rc = weir_write(session->engine, session->peer, &segment, 1, &options, &lane->transfer);
    if (rc == WEIR_EAGAIN) {
        flow->eagain++;
        return 0;
    }
    if (rc != 0)
        return session_fail(session, WHAT, rc);
    lane->round = round.round;
    lane->flies = lane->asks = true;
    return 1;
}

static int count_end(struct flow *flow, struct flow_lane *lane, int status, uint64_t now) {
    struct flow_counts *counts = flow->counts;

    lane->flies = false;
    if (status == 0) {
        uint64_t at_ns = now - flow->start_ns;
        counts->writes++;
        histogram_add(flow->latency, now - lane->started_ns);
        outage_completion(&flow->outage, at_ns);
        return timeline_add(&flow->timeline, at_ns, flow->session->options->size) == 0
                   ? 0
                   : complain("out of memory");
    }
    if (!flow->session->killed)
        return session_fail(flow->session, WHAT, status);
    counts->ended++;
    counts->statuses[-status % FLOW_STATUSES]++;
    lane->asks = false;
    return 0;
}

/* 1: it has ended; 0: it has not; -1. */
static int land(struct flow *flow, struct flow_lane *lane) {
    weir_engine *engine = flow->session->engine;
    int status = 0;

    if (lane->transfer.id != 0) {
        status = weir_transfer_status(engine, lane->transfer);
        if (status == WEIR_EINPROGRESS)
            return 0;
        weir_transfer_release(engine, lane->transfer);
    }
    return count_end(flow, lane, status, host_now_ns()) == 0 ? 1 : -1;
}

static void take_checked(struct flow *flow, const weir_notification *message) {
    struct flow_lane *lane = &flow->lanes[proto_argument(message->tag)];
    struct proto_checked checked;

    memcpy(&checked, message->payload, sizeof(checked));
    if (!lane->asks || checked.round != lane->round) {
        /* A killed target's last answers may come behind the ends of their writes. */
        flow->counts->twice += !flow->session->killed;
        return;
    }
    flow->counts->checked_bytes += checked.checked_bytes;
    flow->counts->wrong_bytes += checked.wrong_bytes;
    flow->counts->lost += checked.wrong_bytes > 0;
    lane->asks = false;
}

/* How many messages came; -1: one that nobody waits for. */
static int take_messages(struct flow *flow) {
    weir_notification message;
    int taken = 0;

    for (; session_take(flow->session, &message) > 0; taken++) {
        if (proto_type(message.tag) == PROTO_CHECKED) {
            if (message.length != sizeof(struct proto_checked) ||
                proto_argument(message.tag) >= flow->session->options->window)
                return complain("the target's answer is wrong");
            take_checked(flow, &message);
            continue;
        }
        if (flow->answered)
            return complain("the target sent message %d unasked", (int)proto_type(message.tag));
        flow->answer = message;
        flow->answered = true;
    }
    return taken;
}

/* ---- all lanes ---------------------------------------------------------- */

/* A pass in which nothing moved. */
static int idle(struct flow *flow) {
    weir_transfer oldest = {0};

    for (uint64_t i = 0; oldest.id == 0 && i < flow->session->options->window; i++) {
        if (flow->lanes[i].flies)
            oldest = flow->lanes[i].transfer;
    }
    host_idle(&flow->idler);
    return session_patience(flow->session, &flow->patience, flow->moved, oldest);
}

/* How many things happened to the lane; -1. */
static int lane_pass(struct flow *flow, uint64_t index) {
    struct flow_lane *lane = &flow->lanes[index];
    int began = 0, ended = 0;

    if (is_idle(lane) && !flow->held)
        began = submit(flow, index);
    if (began >= 0 && lane->flies)
        ended = land(flow, lane);
    return began < 0 || ended < 0 ? -1 : began + ended;
}

int flow_pass(struct flow *flow) {
    struct session *session = flow->session;
    uint64_t moved = flow->moved;
    int taken;

    weir_engine_progress(session->engine);
    taken = take_messages(flow);
    if (taken < 0)
        return -1;
    flow->moved += (uint64_t)taken;
    for (uint64_t i = 0; i < session->options->window; i++) {
        int did = lane_pass(flow, i);
        if (did < 0)
            return -1;
        flow->moved += (uint64_t)did;
    }
    if (timeline_reach(&flow->timeline, flow_now(flow)) != 0)
        return complain("out of memory");
    if (flow->moved == moved && idle(flow) != 0)
        return -1;
    return session_look(session);
}

int flow_for(struct flow *flow, uint64_t ns) {
    uint64_t until = flow_now(flow) + ns;
    int rc;

    do {
        rc = flow_pass(flow);
    } while (rc == 0 && flow_now(flow) < until);
    return rc;
}

int flow_await(struct flow *flow, enum proto_type type) {
    uint64_t until = flow_now(flow) + ANSWER_NS;

    while (!flow->answered) {
        if (flow_pass(flow) != 0)
            return -1;
        if (flow_now(flow) >= until)
            return session_fail(flow->session, "the target does not answer", WEIR_ETIMEDOUT);
    }
    flow->answered = false;
    if (proto_type(flow->answer.tag) != type)
        return complain("the target answered message %d instead of %d",
                        (int)proto_type(flow->answer.tag), (int)type);
    return 0;
}

int flow_ask(struct flow *flow, enum proto_type type, enum proto_type answer) {
    struct session *session = flow->session;
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_transfer transfer;
    int rc;

    options.flags = WEIR_TRANSFER_NOTIFY;
    options.notify_tag = proto_tag(type, 0);
    while ((rc = weir_write(session->engine, session->peer, NULL, 0, &options, &transfer)) ==
           WEIR_EAGAIN) {
        if (flow_pass(flow) != 0)
            return -1;
    }
    if (rc != 0)
        return session_fail(session, WHAT, rc);
    if (transfer.id != 0)
        weir_transfer_release(session->engine, transfer); /* the answer says that it has arrived */
    return flow_await(flow, answer);
}

int flow_settle(struct flow *flow) {
    for (uint64_t i = 0; i < flow->session->options->window; i++) {
        while (flow->lanes[i].flies) {
            if (flow_pass(flow) != 0)
                return -1;
        }
    }
    return 0;
}

/* How many lanes wait for an answer. It does not come: they do not wait any more. */
static uint64_t give_up(struct flow *flow) {
    uint64_t count = 0;

    for (uint64_t i = 0; i < flow->session->options->window; i++) {
        count += flow->lanes[i].asks;
        flow->lanes[i].asks = false;
    }
    return count;
}

void flow_forget(struct flow *flow) {
    flow->counts->unanswered += give_up(flow);
}

static bool all_idle(const struct flow *flow) {
    for (uint64_t i = 0; i < flow->session->options->window; i++) {
        if (!is_idle(&flow->lanes[i]))
            return false;
    }
    return true;
}

int flow_drain(struct flow *flow) {
    uint64_t moved = flow->moved, since;

    flow->held = true;
    if (flow_settle(flow) != 0)
        return -1;
    for (since = flow_now(flow); !all_idle(flow) && flow_now(flow) - since < ANSWER_NS;) {
        if (flow_pass(flow) != 0)
            return -1;
        since = flow->moved != moved ? flow_now(flow) : since;
        moved = flow->moved;
    }
    flow->counts->lost += give_up(flow);
    flow->held = false;
    return 0;
}
