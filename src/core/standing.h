/* SPDX-License-Identifier: Apache-2.0 */
/* standing.h: the machine that decides which events an application is told of a peer, and when.
 *
 *               up, data            lost
 *      NEW ───────────────► UP ─────────────► DEGRADED
 *       │    ┌─────────────► ▲ ◄─────────────────┘ │
 *       │    │ up, data      up: RECOVERED         │ failed
 *       │    └──────────── GONE ◄──────────────────┘
 *       └── failed, asked ──►┘          end: any ──► ENDED ── forgotten ──► NEW
 *                                       closed: any but ENDED ──► NEW
 *                                       data: ENDED ──► UP, of a handle that nothing was told of;
 *                                             end follows at once
 *
 * So of one handle UP and GONE take turns, DEGRADED comes between them only, and RECOVERED only
 * after DEGRADED.
 * GONE is told once: a peer that no session could be made with and that turns out to be dead is not
 * told again, unless somebody asked for it meanwhile, or was told of another handle of it (SAME).
 * The machine sees inputs and names events; why something happened, which the event carries, is the
 * engine's to say. */
#ifndef WEIR_STANDING_H
#define WEIR_STANDING_H

#include <stdbool.h>

#include "weir.h"

enum standing_state {
    STANDING_NEW, /* nothing was told of this instance */
    STANDING_UP,
    STANDING_DEGRADED,
    STANDING_GONE,  /* no session could be made; the instance may be there yet */
    STANDING_ENDED, /* the instance is gone; its sessions drain */
    STANDING_STATES
};

enum standing_input {
    STANDING_IN_UP,           /* a session is up */
    STANDING_IN_DATA,         /* the peer's data is here, and its READY is not, or will never be */
    STANDING_IN_LOST,         /* the live session is over */
    STANDING_IN_REFUSAL,      /* a session that the peer asked for was refused here */
    STANDING_IN_FAILED,       /* no session could be made in time, and nobody had asked for one */
    STANDING_IN_FAILED_ASKED, /* likewise, and weir_peer_connect had */
    STANDING_IN_END,          /* the instance is gone */
    STANDING_IN_END_HELD,     /* likewise, and the application has a handle of it */
    STANDING_IN_END_ASKED,    /* likewise, and weir_peer_connect had asked for a session */
    STANDING_IN_SAME,   /* the application is told that a handle which it holds is of the peer */
    STANDING_IN_CLOSED, /* the application closed its last handle: what follows has another one */
    STANDING_IN_FORGOTTEN, /* the sessions of an instance that ended are drained */
    STANDING_INPUTS
};

/* {0} is a peer of which nothing happened yet. */
struct standing {
    enum standing_state state;
    bool refusal_told; /* and no session has come up since, nor was the last handle closed */
    bool up_told;      /* UP ever, of this instance and under its present handle */
};

/* One input. The event to tell; 0: none. */
weir_event_type standing_step(struct standing *standing, enum standing_input input);
/* Whether UP was told, and no GONE since. */
static inline bool standing_is_up(const struct standing *standing) {
    return standing->state == STANDING_UP || standing->state == STANDING_DEGRADED;
}
/* For the test that every cell of the table is written. */
bool standing_cell_is_set(enum standing_state state, enum standing_input input);

#endif
