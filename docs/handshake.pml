/* SPDX-License-Identifier: Apache-2.0 */
/* handshake.pml: a model of the handshake (protocol.md, src/core/endpoint.c).
 *
 * Two nodes connect on their own wish or on the other's, cross, lose their
 * sessions, give attempts up, fail to connect QPs, ask after their session, and
 * forget the other node with all that they knew of it, at any moment. The network
 * is the set of all messages ever said: each may be delivered at any time, any
 * number of times, in any order, or never. That is loss, delay, reordering and
 * repetition without bound; the bound is on the attempts of a node, EPOCHS.
 *
 * Checked in every state:
 *  - a session comes up only on QPs that the other side has connected to the very
 *    same session, and never after the other side was told that it is over;
 *  - an attempt is connected once, and a remote epoch is connected to once by a
 *    node that has not forgotten it;
 *  - if a node has a session live, then the other has the same session live, or
 *    is about to, or knows better and asks SETTLE for it, or has forgotten it;
 *  - a SETTLE that ends a live session, however late or often it comes, comes from
 *    a node that neither has that session nor can come to have it.
 * And from every state: if the faults stop there, with everything under way lost,
 * then one probe by each node (the connection is a new one) and ROUNDS without loss,
 * while node 0 or both want a session, make both nodes agree on one. A round is an
 * attempt of each that has none, or else retransmission. So there is no deadlock and
 * no livelock to end up in, and no session that only one side has.
 *
 * Abstracted: QP sets and their making, draining (SETTLED), slots, instances (one
 * life each), time (a node may give up at any moment), final refusals.
 *
 *   spin -a handshake.pml
 *   gcc -O2 -DSAFETY -DNOREDUCE -o pan pan.c
 *   ./pan -m100000 -w24 -n
 *
 * With EPOCHS 2 (the default) that is 3 million states, 600 MB and half a minute;
 * without forgetting, `spin -DLASTING -a`, a second. EPOCHS 3 takes more than ten
 * times the default's.
 *
 * tests/structure/handshake.sh does that, and plants bugs, one at a time, that must
 * be found: `PLANT=1 ./pan -m100000 -w24 -n`. Each is a rule that is left out; PLANTED
 * says where.
 *
 * Parameters carry the name of their inline, because spin replaces them as text.
 */
#ifndef EPOCHS
#define EPOCHS 2 /* attempts of a node while there are faults */
#endif
#define PLANTS 5
c_decl { int plant; /* the bug that is in here, of PLANTS, from the environment; 0 for none */ }
#define PLANTED(number) c_expr { plant == number }
#define ALL 12/* array bound: EPOCHS and those that healing takes */
#define ROUNDS 8

mtype = { HELLO, ACK, READY, REFUSE, SETTLE };

#define NONE 0
#define OFFERED 1
#define CONFIRM 2

/* Node n: [n]; 0 in an epoch means none. */
byte drawn[2];
byte state[2];
byte next[2], next_remote[2];
byte live[2], live_remote[2];
byte seen[2];   /* highest remote epoch bound, or given up by the remote */
byte settle[2]; /* highest own epoch that SETTLE was said for */

/* What has been said by node n: bit e, or bit e * 4 + echo. */
byte said_hello[2], said_refuse[2], said_settle[2];
int said_ack[2], said_ready[2];

bool healing = false;
chan queue = [16] of { mtype, byte, byte, byte }; /* healing: type, sender, epoch, echo */

/* Only looked at by assertions. */
byte connected[2 * ALL]; /* the remote epoch that an own one is connected to */
byte told[2];            /* highest remote epoch that SETTLE came for */
byte forgot[2];          /* highest own epoch that was drawn when the other was forgotten */

#define OTHER(n) (1 - (n))
#define PAIR(e, echo) ((e) * 4 + (echo))

/* The live session is the other's, too; or about to be. */
#define SHARED(n) (live[OTHER(n)] == live_remote[n] && live_remote[OTHER(n)] == live[n])
#define COMING(n) (next[OTHER(n)] == live_remote[n] && next_remote[OTHER(n)] == live[n])

inline say(sayer, kind, mine, yours) {
    if
    :: healing -> queue!kind(sayer, mine, yours)
    :: else ->
        if
        :: kind == HELLO -> said_hello[sayer] = said_hello[sayer] | (1 << mine)
        :: kind == ACK -> said_ack[sayer] = said_ack[sayer] | (1 << PAIR(mine, yours))
        :: kind == READY -> said_ready[sayer] = said_ready[sayer] | (1 << PAIR(mine, yours))
        :: kind == REFUSE -> said_refuse[sayer] = said_refuse[sayer] | (1 << yours)
        :: kind == SETTLE -> said_settle[sayer] = said_settle[sayer] | (1 << mine)
        fi
    fi
}

inline ask_settle(asker, upto) {
    if
    :: upto > settle[asker] ->
        settle[asker] = upto;
        say(asker, SETTLE, upto, 0)
    :: else
    fi
}

inline live_end(n_live_end) {
    ask_settle(n_live_end, live[n_live_end]);
    live[n_live_end] = 0;
    live_remote[n_live_end] = 0
}

/* By the other's word, which must not end what both have. */
inline live_end_told(n_live_end_told) {
    assert(!SHARED(n_live_end_told) && !COMING(n_live_end_told));
    live_end(n_live_end_told)
}

/* SETTLE for an attempt speaks for the live session before it, too. */
inline attempt_end(n_attempt_end) {
    if
    :: state[n_attempt_end] == CONFIRM ->
        live[n_attempt_end] = 0;
        live_remote[n_attempt_end] = 0;
        ask_settle(n_attempt_end, next[n_attempt_end])
    :: else
    fi;
    next[n_attempt_end] = 0;
    next_remote[n_attempt_end] = 0;
    state[n_attempt_end] = NONE
}

#define CAN_DRAW(n) (drawn[n] < EPOCHS || healing)

inline draw(n_draw) {
    drawn[n_draw]++;
    assert(drawn[n_draw] < ALL);
    next[n_draw] = drawn[n_draw]
}

/* Binds next to e. ok: whether the QPs could be connected. */
inline bind(n_bind, e_bind) {
    assert(e_bind > seen[n_bind]);
    seen[n_bind] = e_bind;
    next_remote[n_bind] = e_bind;
    if
    :: assert(connected[n_bind * ALL + next[n_bind]] == 0);
       connected[n_bind * ALL + next[n_bind]] = e_bind;
       ok = true
    :: !healing -> ok = false
    fi
}

inline answer(n_answer, e_answer) {
    if
    :: CAN_DRAW(n_answer) ->
        draw(n_answer);
        accept(n_answer, e_answer)
    :: else
    fi
}

inline accept(n_accept, e_accept) {
    bind(n_accept, e_accept);
    if
    :: ok ->
        state[n_accept] = CONFIRM;
        say(n_accept, ACK, next[n_accept], e_accept)
    :: else ->
        state[n_accept] = NONE;
        next[n_accept] = 0;
        next_remote[n_accept] = 0
    fi
}

inline up(n_up) {
    assert(connected[OTHER(n_up) * ALL + next_remote[n_up]] == next[n_up]);
    assert(next_remote[n_up] > told[n_up]);
    assert(next[n_up] > live[n_up] && next_remote[n_up] > live_remote[n_up]);
    if
    :: live[n_up] != 0 -> ask_settle(n_up, live[n_up])
    :: else
    fi;
    live[n_up] = next[n_up];
    live_remote[n_up] = next_remote[n_up];
    next[n_up] = 0;
    next_remote[n_up] = 0;
    state[n_up] = NONE
}

/* Somebody has a session of ours that we have not: all up to it is over. */
inline disown(n_disown, e_disown) {
    if
    :: !PLANTED(2) && (live[n_disown] == 0 || live[n_disown] > e_disown) &&
       (next[n_disown] == 0 || next[n_disown] > e_disown) -> say(n_disown, SETTLE, e_disown, 0)
    :: else /* our attempt, and the other's epoch is not what it can bind any more */
    fi
}

/* HELLO_ACK once more, for the session that the other may have forgotten. */
inline probe(n_probe) {
    say(n_probe, ACK, live[n_probe], live_remote[n_probe])
}

/* Given up for dead and drained; the next that is heard is of somebody new. */
inline forget(n_forget) {
    live[n_forget] = 0;
    live_remote[n_forget] = 0;
    next[n_forget] = 0;
    next_remote[n_forget] = 0;
    state[n_forget] = NONE;
    seen[n_forget] = 0;
    settle[n_forget] = 0;
    told[n_forget] = 0;
    forgot[n_forget] = drawn[n_forget]
}

inline get_hello(n_get_hello, e_get_hello) {
    if
    :: live_remote[n_get_hello] == e_get_hello -> say(n_get_hello, ACK, live[n_get_hello], e_get_hello)
    :: live_remote[n_get_hello] != e_get_hello && next_remote[n_get_hello] == e_get_hello -> say(n_get_hello, ACK, next[n_get_hello], e_get_hello)
    :: live_remote[n_get_hello] != e_get_hello && next_remote[n_get_hello] != e_get_hello && (PLANTED(3) || e_get_hello > seen[n_get_hello]) ->
        if
        :: state[n_get_hello] == NONE -> answer(n_get_hello, e_get_hello)
        :: state[n_get_hello] == OFFERED -> accept(n_get_hello, e_get_hello)
        :: state[n_get_hello] == CONFIRM ->
            attempt_end(n_get_hello);
            answer(n_get_hello, e_get_hello)
        fi
    :: else -> say(n_get_hello, REFUSE, 0, e_get_hello)
    fi
}

inline get_ack(n_get_ack, e_get_ack, echo_get_ack) {
    if
    :: live[n_get_ack] == echo_get_ack && live_remote[n_get_ack] == e_get_ack -> say(n_get_ack, READY, echo_get_ack, e_get_ack)
    :: next[n_get_ack] == echo_get_ack && next_remote[n_get_ack] == e_get_ack ->
        say(n_get_ack, READY, echo_get_ack, e_get_ack);
        up(n_get_ack)
    :: next[n_get_ack] == echo_get_ack && next_remote[n_get_ack] != e_get_ack && e_get_ack > seen[n_get_ack] ->
        if
        :: state[n_get_ack] == OFFERED ->
            bind(n_get_ack, e_get_ack);
            if
            :: ok ->
                say(n_get_ack, READY, next[n_get_ack], e_get_ack);
                up(n_get_ack)
            :: else ->
                next[n_get_ack] = 0;
                next_remote[n_get_ack] = 0;
                state[n_get_ack] = NONE
            fi
        :: state[n_get_ack] == CONFIRM ->
            seen[n_get_ack] = e_get_ack;
            attempt_end(n_get_ack)
        fi
    :: else ->
        if
        :: !PLANTED(5) && state[n_get_ack] == OFFERED && next[n_get_ack] == echo_get_ack -> attempt_end(n_get_ack)
        :: else
        fi;
        say(n_get_ack, REFUSE, 0, e_get_ack);
        disown(n_get_ack, echo_get_ack)
    fi
}

inline get_ready(n_get_ready, e_get_ready, echo_get_ready) {
    if
    :: next[n_get_ready] == echo_get_ready && next_remote[n_get_ready] == e_get_ready -> up(n_get_ready)
    :: live[n_get_ready] == echo_get_ready && live_remote[n_get_ready] == e_get_ready
    :: else -> disown(n_get_ready, echo_get_ready)
    fi
}

inline get_refuse(n_get_refuse, echo_get_refuse) {
    if
    :: next[n_get_refuse] == echo_get_refuse -> attempt_end(n_get_refuse)
    :: PLANTED(1) && live[n_get_refuse] == echo_get_refuse -> live_end_told(n_get_refuse)
    :: else
    fi
}

inline get_settle(n_get_settle, e_get_settle) {
    if
    :: next_remote[n_get_settle] != 0 && next_remote[n_get_settle] <= e_get_settle -> attempt_end(n_get_settle)
    :: else
    fi;
    if
    :: live[n_get_settle] != 0 && live_remote[n_get_settle] <= e_get_settle ->
        live_end_told(n_get_settle)
    :: else
    fi;
    if
    :: !PLANTED(4) && seen[n_get_settle] < e_get_settle -> seen[n_get_settle] = e_get_settle
    :: else
    fi;
    told[n_get_settle] = (told[n_get_settle] < e_get_settle -> e_get_settle : told[n_get_settle])
}

/* A live session is shared, or the other knows better, or has forgotten it. */
#define KNOWN(n)                                                                                   \
    (live[n] == 0 || SHARED(n) || (state[OTHER(n)] == CONFIRM && COMING(n)) ||                     \
     settle[OTHER(n)] >= live_remote[n] || forgot[OTHER(n)] >= live_remote[n])

#ifdef LASTING
#define CAN_FORGET(n) false
#else
#define CAN_FORGET(n) (forgot[n] < drawn[n])
#endif
#define WANTS(n) (live[n] == 0 && state[n] == NONE && CAN_DRAW(n))

inline want(n_want) {
    draw(n_want);
    state[n_want] = OFFERED;
    say(n_want, HELLO, next[n_want], 0)
}

/* Hearing type, e and echo, from the other. */
inline hear(n_hear) {
    if
    :: type == HELLO -> get_hello(n_hear, e)
    :: type == ACK -> get_ack(n_hear, e, echo)
    :: type == READY -> get_ready(n_hear, e, echo)
    :: type == REFUSE -> get_refuse(n_hear, echo)
    :: type == SETTLE -> get_settle(n_hear, e)
    fi
}

/* Everything that can happen to node n while there are faults. A message is chosen first, and then
 * heard: the rules stand once in the verifier, not once for each message, which saves its
 * compilation most of its time. */
#define SAID(said, i) ((said[OTHER(n)]) & (1 << (i)))
#define EACH_PAIR(e_pair, echo_pair)                                                               \
    :: SAID(said_ack, PAIR(e_pair, echo_pair)) -> type = ACK; e = e_pair; echo = echo_pair         \
    :: SAID(said_ready, PAIR(e_pair, echo_pair)) -> type = READY; e = e_pair; echo = echo_pair
#define EACH_EPOCH(e_each)                                                                         \
    :: SAID(said_hello, e_each) -> type = HELLO; e = e_each                                        \
    :: SAID(said_refuse, e_each) -> type = REFUSE; echo = e_each                                   \
    :: SAID(said_settle, e_each) -> type = SETTLE; e = e_each                                      \
    EACH_PAIR(e_each, 1) EACH_PAIR(e_each, 2)
#if EPOCHS > 2
#define EVERY_EPOCH                                                                                \
    EACH_EPOCH(1) EACH_EPOCH(2) EACH_EPOCH(3) EACH_PAIR(1, 3) EACH_PAIR(2, 3) EACH_PAIR(3, 3)
#else
#define EVERY_EPOCH EACH_EPOCH(1) EACH_EPOCH(2)
#endif

inline anything() {
    if
    :: WANTS(n) -> want(n)
    :: live[n] != 0 -> live_end(n)
    :: state[n] != NONE -> attempt_end(n)
    :: live[n] != 0 -> probe(n)
    :: CAN_FORGET(n) -> forget(n)
    EVERY_EPOCH
    :: else
    fi;
    if
    :: type != 0 -> hear(n)
    :: else
    fi
}

/* ---- healing ----------------------------------------------------------- */

inline pump() {
    do
    :: queue?type(n, e, echo) ->
        n = OTHER(n);
        hear(n)
    :: empty(queue) -> break
    od
}

inline retransmit(n_retransmit) {
    if
    :: settle[n_retransmit] != 0 -> say(n_retransmit, SETTLE, settle[n_retransmit], 0)
    :: else
    fi;
    if
    :: state[n_retransmit] == OFFERED -> say(n_retransmit, HELLO, next[n_retransmit], 0)
    :: state[n_retransmit] == CONFIRM -> say(n_retransmit, ACK, next[n_retransmit], next_remote[n_retransmit])
    :: else
    fi
}

#define AGREED (live[0] != 0 && live[0] == live_remote[1] && live[1] == live_remote[0])

/* both: whether node 1 wants a session, too. What was said is repeated in a round in which neither
 * node begins an attempt: real pauses between attempts may be the shorter ones. */
inline heal() {
    healing = true;
    if
    :: live[0] != 0 -> probe(0)
    :: else
    fi;
    if
    :: live[1] != 0 -> probe(1)
    :: else
    fi;
    do
    :: true ->
        pump();
        if
        :: turn == 3 * ROUNDS -> break
        :: turn < 3 * ROUNDS && turn % 3 == 0 ->
            calm = true;
            if
            :: WANTS(0) -> want(0); calm = false
            :: else
            fi
        :: turn < 3 * ROUNDS && turn % 3 == 1 ->
            if
            :: both && WANTS(1) -> want(1); calm = false
            :: else
            fi
        :: turn < 3 * ROUNDS && turn % 3 == 2 ->
            if
            :: calm -> retransmit(0); retransmit(1)
            :: else
            fi
        fi;
        turn++
    od;
    assert(AGREED);
    over()
}

/* Nothing follows, so all these ends are one state. */
inline over() {
    clear(0);
    clear(1);
    healing = false;
    both = false;
    calm = false;
    turn = 0;
    done()
}

inline clear(n_clear) {
    drawn[n_clear] = 0;
    forget(n_clear);
    forgot[n_clear] = 0;
    said_hello[n_clear] = 0;
    said_ack[n_clear] = 0;
    said_ready[n_clear] = 0;
    said_refuse[n_clear] = 0;
    said_settle[n_clear] = 0;
    turn = 0;
    do
    :: turn < ALL -> connected[n_clear * ALL + turn] = 0; turn++
    :: else -> break
    od
}

/* These hold nothing between two steps, and so make no states. */
inline done() {
    ok = false;
    type = 0;
    n = 0;
    e = 0;
    echo = 0
}

active proctype world() {
    bool ok, calm, both;
    mtype type;
    byte n, e, echo, turn;

    c_code { plant = getenv("PLANT") ? atoi(getenv("PLANT")) : 0; };
    do
    :: atomic {
        if
        :: n = 0
        :: n = 1
        fi;
        anything();
        done();
        assert(KNOWN(0) && KNOWN(1))
    }
    :: atomic {
        if
        :: both = false
        :: both = true
        fi;
        d_step { heal() } /* nothing is left to chance here: one step, and cheap */
    } -> break
    od
}
