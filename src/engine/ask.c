/* SPDX-License-Identifier: Apache-2.0 */
/* ask.c: peers are asked how they are, and answer.
 *
 * Owns ASK and STATE: when a peer of which nothing completes is asked, and what this engine says of
 * itself. At most one question is open. It is repeated when it was answered watchdog_ns ago, or
 * when the connection that carried it is not the peer's any more; on one that lasts TCP repeats it.
 *
 * A STATE is another process's word, and nobody else's. It goes into a sentence for a person, and
 * decides nothing. One that was not asked for is dropped. An answer is of bounded size, and costs a
 * look at each inbox's counts. */
#include "ask.h"

#include "agenda.h"
#include "conns.h"

void ask_over(struct peer *peer) {
    struct watch *watch = &peer->watch;
    watch->question = 0;
    watch->answered = watch->heard = false;
}

void ask_peer(weir_engine *engine, struct peer *peer, uint64_t now) {
    struct watch *watch = &peer->watch;
    uint64_t conn = peer->conn_last;
    bool anew = watch->question == 0 || watch->asked_conn != conn || watch->answered;
    if (conn == 0 || !peer_is_there(peer) ||
        (watch->question != 0 && watch->asked_conn == conn &&
         now - watch->said_ns < engine->options.watchdog_ns))
        return;
    /* A question or its answer may be dropped where it finds no room: it is repeated. */
    struct wire_message asked = {.type = WIRE_ASK,
                                 .epoch = anew ? ++engine->questions : watch->question};
    struct wire_message to;
    memcpy(to.from, peer->instance, WIRE_INSTANCE_SIZE);
    conn_reply(engine, conn, &to, &asked);
    watch->said_ns = now;
    if (!anew)
        return;
    watch->question = asked.epoch;
    watch->asked_conn = conn;
    watch->asked_ns = now;
    watch->answered = false;
}

/* ---- answers ----------------------------------------------------------- */

/* Whether the peer wants more room in the inbox than it was given. */
static bool wants_room(const struct inbox *inbox, uint32_t peer) {
    uint32_t stream = inbox->of_peer[peer];
    return stream != 0 && inbox->streams[stream - 1].wanted > inbox->streams[stream - 1].grants;
}

static void tell_inboxes(const weir_engine *engine, const struct peer *peer,
                         struct wire_state *state) {
    for (uint32_t i = 0; i < engine->inboxes_used; i++) {
        const struct inbox_entry *entry = &engine->inboxes[i];
        if (!entry->used || !entry->open || state->inbox_count == WIRE_STATE_INBOXES ||
            !wants_room(&entry->inbox, peer_index(engine, peer)))
            continue;
        state->inboxes[state->inbox_count++] = (struct wire_state_inbox){
            entry->number, entry->inbox.ready.used, entry->inbox.held_count};
    }
}

void ask_answer(weir_engine *engine, const struct peer *peer, uint64_t conn,
                const struct wire_message *question) {
    struct wire_message answer = {.type = WIRE_STATE, .echo = question->epoch};
    memset(&answer.state, 0, sizeof(answer.state));
    struct wire_state *state = &answer.state;
    state->away_ns = engine->away_ns;
    uint64_t unlooked_ns = engine_clock(engine) - engine->looked_ns;
    if (!engine->rests && unlooked_ns > state->away_ns) /* it is heard before a look: ask_why */
        state->away_ns = unlooked_ns;
    state->session = peer->live != NONE ? peer->sessions[peer->live].epoch_remote : 0;
    state->notifications = queue_count(&engine->notifications) + engine->held_count;
    state->thread = (engine->options.flags & WEIR_ENGINE_THREAD) != 0;
    tell_inboxes(engine, peer, state);
    conn_reply(engine, conn, question, &answer);
}

void ask_heard(weir_engine *engine, struct peer *peer, const struct wire_message *answer) {
    struct watch *watch = &peer->watch;
    if (watch->question == 0 || watch->answered || answer->echo != watch->question) {
        engine->stats.control_stale++;
        return;
    }
    watch->answered = watch->heard = true;
    watch->answer_ns = engine_clock(engine) - watch->asked_ns;
    watch->notes->state = answer->state;
}
