/* SPDX-License-Identifier: Apache-2.0 */
/* standing.c: see standing.h. One table decides; standing_step is the only writer of state. */
#include "standing.h"

struct cell {
    bool set;
    uint8_t next;
    uint8_t event;
};

#define TELL(state, event)                                                                         \
    { true, state, event }
#define TO(state)                                                                                  \
    { true, state, 0 }

/* clang-format off */
static const struct cell table[STANDING_STATES][STANDING_INPUTS] = {
    [STANDING_NEW] = {
        [STANDING_IN_UP] = TELL(STANDING_UP, WEIR_EVENT_UP),
        [STANDING_IN_DATA] = TELL(STANDING_UP, WEIR_EVENT_UP),
        [STANDING_IN_LOST] = TO(STANDING_NEW),
        [STANDING_IN_REFUSAL] = TELL(STANDING_NEW, WEIR_EVENT_REFUSED),
        [STANDING_IN_FAILED] = TO(STANDING_NEW),
        [STANDING_IN_FAILED_ASKED] = TELL(STANDING_GONE, WEIR_EVENT_GONE),
        [STANDING_IN_END] = TO(STANDING_ENDED),
        [STANDING_IN_END_HELD] = TELL(STANDING_ENDED, WEIR_EVENT_GONE),
        [STANDING_IN_END_ASKED] = TELL(STANDING_ENDED, WEIR_EVENT_GONE),
        [STANDING_IN_SAME] = TO(STANDING_NEW),
        [STANDING_IN_CLOSED] = TO(STANDING_NEW),
        [STANDING_IN_FORGOTTEN] = TO(STANDING_NEW),
    },
    [STANDING_UP] = {
        [STANDING_IN_UP] = TO(STANDING_UP),
        [STANDING_IN_DATA] = TO(STANDING_UP),
        [STANDING_IN_LOST] = TELL(STANDING_DEGRADED, WEIR_EVENT_DEGRADED),
        [STANDING_IN_REFUSAL] = TELL(STANDING_UP, WEIR_EVENT_REFUSED),
        [STANDING_IN_FAILED] = TELL(STANDING_GONE, WEIR_EVENT_GONE), /* UP came with data alone */
        [STANDING_IN_FAILED_ASKED] = TELL(STANDING_GONE, WEIR_EVENT_GONE),
        [STANDING_IN_END] = TELL(STANDING_ENDED, WEIR_EVENT_GONE),
        [STANDING_IN_END_HELD] = TELL(STANDING_ENDED, WEIR_EVENT_GONE),
        [STANDING_IN_END_ASKED] = TELL(STANDING_ENDED, WEIR_EVENT_GONE),
        [STANDING_IN_SAME] = TO(STANDING_UP),
        [STANDING_IN_CLOSED] = TO(STANDING_NEW),
        [STANDING_IN_FORGOTTEN] = TO(STANDING_UP),
    },
    [STANDING_DEGRADED] = {
        [STANDING_IN_UP] = TELL(STANDING_UP, WEIR_EVENT_RECOVERED),
        [STANDING_IN_DATA] = TO(STANDING_DEGRADED), /* told with the session, which comes next */
        [STANDING_IN_LOST] = TO(STANDING_DEGRADED),
        [STANDING_IN_REFUSAL] = TELL(STANDING_DEGRADED, WEIR_EVENT_REFUSED),
        [STANDING_IN_FAILED] = TELL(STANDING_GONE, WEIR_EVENT_GONE),
        [STANDING_IN_FAILED_ASKED] = TELL(STANDING_GONE, WEIR_EVENT_GONE),
        [STANDING_IN_END] = TELL(STANDING_ENDED, WEIR_EVENT_GONE),
        [STANDING_IN_END_HELD] = TELL(STANDING_ENDED, WEIR_EVENT_GONE),
        [STANDING_IN_END_ASKED] = TELL(STANDING_ENDED, WEIR_EVENT_GONE),
        [STANDING_IN_SAME] = TO(STANDING_DEGRADED),
        [STANDING_IN_CLOSED] = TO(STANDING_NEW),
        [STANDING_IN_FORGOTTEN] = TO(STANDING_DEGRADED),
    },
    [STANDING_GONE] = {
        [STANDING_IN_UP] = TELL(STANDING_UP, WEIR_EVENT_UP),
        [STANDING_IN_DATA] = TELL(STANDING_UP, WEIR_EVENT_UP),
        [STANDING_IN_LOST] = TO(STANDING_GONE),
        [STANDING_IN_REFUSAL] = TELL(STANDING_GONE, WEIR_EVENT_REFUSED),
        [STANDING_IN_FAILED] = TO(STANDING_GONE),
        [STANDING_IN_FAILED_ASKED] = TELL(STANDING_GONE, WEIR_EVENT_GONE),
        [STANDING_IN_END] = TO(STANDING_ENDED),
        [STANDING_IN_END_HELD] = TO(STANDING_ENDED),
        [STANDING_IN_END_ASKED] = TELL(STANDING_ENDED, WEIR_EVENT_GONE),
        [STANDING_IN_SAME] = TO(STANDING_NEW),
        [STANDING_IN_CLOSED] = TO(STANDING_NEW),
        [STANDING_IN_FORGOTTEN] = TO(STANDING_GONE),
    },
    [STANDING_ENDED] = {
        [STANDING_IN_UP] = TO(STANDING_ENDED),
        [STANDING_IN_DATA] = TELL(STANDING_UP, WEIR_EVENT_UP), /* END follows */
        [STANDING_IN_LOST] = TO(STANDING_ENDED),
        [STANDING_IN_REFUSAL] = TELL(STANDING_ENDED, WEIR_EVENT_REFUSED),
        [STANDING_IN_FAILED] = TO(STANDING_ENDED),
        [STANDING_IN_FAILED_ASKED] = TO(STANDING_ENDED),
        [STANDING_IN_END] = TO(STANDING_ENDED),
        [STANDING_IN_END_HELD] = TO(STANDING_ENDED),
        [STANDING_IN_END_ASKED] = TO(STANDING_ENDED),
        [STANDING_IN_SAME] = TO(STANDING_ENDED),
        [STANDING_IN_CLOSED] = TO(STANDING_ENDED),
        [STANDING_IN_FORGOTTEN] = TO(STANDING_NEW),
    },
};
/* clang-format on */

weir_event_type standing_step(struct standing *standing, enum standing_input input) {
    const struct cell *cell = &table[standing->state][input];
    const bool again = standing->refusal_told;

    standing->state = (enum standing_state)cell->next;
    if (input == STANDING_IN_UP || input == STANDING_IN_CLOSED)
        standing->refusal_told = false;
    /* The handle of an instance that has ended stays, for what is left of it. */
    if ((input == STANDING_IN_CLOSED && standing->state != STANDING_ENDED) ||
        input == STANDING_IN_FORGOTTEN)
        standing->up_told = false;
    standing->up_told |= cell->event == WEIR_EVENT_UP;
    if (input != STANDING_IN_REFUSAL)
        return (weir_event_type)cell->event;
    standing->refusal_told = true;
    return again ? (weir_event_type)0 : (weir_event_type)cell->event;
}

bool standing_cell_is_set(enum standing_state state, enum standing_input input) {
    return table[state][input].set;
}
