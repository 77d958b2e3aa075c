/* SPDX-License-Identifier: Apache-2.0 */
/* link.c: the machine of link.h. */
#include "link.h"

void link_open(struct efa_link *link, uint64_t now) {
    link->opened = true;
    link->stop_due_ns = UINT64_MAX;
    link->wants_lease = true;
    if (link->stopped)
        link->stop_due_ns = now;
}

void link_stop(struct efa_link *link, uint64_t now) {
    if (link->stopped)
        return;
    link->stopped = true;
    link->stopped_ns = now;
    link->stop_due_ns = link->opened ? now : UINT64_MAX;
    link->owes_pong = link->wants_lease = false;
}

/* ---- leases ---- */

bool link_is_taken(struct efa_link *link, uint64_t acknowledged_ns) {
    if (acknowledged_ns < link->good_until_ns)
        return true;
    link->wants_lease = true;
    return false;
}

/* Half of a lease is left for the way there and back. */
void link_renew(struct efa_link *link, uint64_t now) {
    if (now + LINK_LEASE_NS / 2 > link->good_until_ns)
        link->wants_lease = true;
}

void link_heard_ping(struct efa_link *link, uint32_t number) {
    link->pong = number;
    link->owes_pong = !link->stopped;
}

bool link_heard_pong(struct efa_link *link, uint32_t number) {
    if (link->asked_ns == 0 || number != link->asked)
        return false;
    link->good_until_ns = link->asked_ns + LINK_LEASE_NS;
    link->asked_ns = 0;
    link->wants_lease = false;
    return true;
}

/* ---- stopping ---- */

/* That this side has drained is said once, unless it did not arrive: where the QP is no more, the
 * device says so for it. */
void link_heard_stop(struct efa_link *link, uint32_t flags) {
    link->peer_stopped = true;
    link->peer_drained = link->peer_drained || (flags & LINK_DRAINED) != 0;
}

void link_peer_gone(struct efa_link *link, uint64_t now) {
    if (!link->peer_gone)
        link->gone_ns = now;
    link->peer_gone = true;
}

static bool ends(const struct efa_link *link) {
    return link->opened && !link->peer_gone && (link->stopped || link->peer_stopped);
}

/* Said when this side stops, when it has drained, and again while the other side's word is
 * missing. */
static bool stop_is_due(const struct efa_link *link, uint64_t now, bool is_drained) {
    if (!ends(link) || now < link->hold_until_ns)
        return false;
    return (is_drained && !link->said_drained) ||
           (link->stopped && !link->peer_drained && now >= link->stop_due_ns);
}

uint32_t link_flags(const struct efa_link *link, bool is_drained) {
    return (is_drained ? LINK_DRAINED : 0u) | (link->peer_drained ? 0u : LINK_WANTS);
}

/* A word of a kind is not said again before it is known what became of the one before: a peer that
 * takes none has one of each in the network at most. */
uint32_t link_due(const struct efa_link *link, uint64_t now, bool is_drained) {
    uint32_t due = stop_is_due(link, now, is_drained) ? LINK_SAYS_STOP : 0;
    bool may_say = link->opened && now >= link->hold_until_ns;
    if (link->owes_pong && may_say)
        due |= LINK_SAYS_PONG;
    bool may_ask = link->asked_ns == 0 || now >= link->ask_due_ns;
    if (link->wants_lease && may_say && may_ask && !link_is_shut(link))
        due |= LINK_SAYS_PING;
    return due & ~(uint32_t)link->saying;
}

uint32_t link_number(const struct efa_link *link, uint32_t what) {
    if (what == LINK_SAYS_PING)
        return link->asked_ns == 0 ? link->asked + 1 : link->asked;
    return link->pong;
}

void link_said(struct efa_link *link, uint32_t what, uint64_t now, bool is_drained) {
    link->saying |= (uint8_t)what;
    if (what == LINK_SAYS_PING) {
        link->asked = link_number(link, what);
        link->asked_ns = link->asked_ns == 0 ? now : link->asked_ns;
        link->ask_due_ns = now + LINK_LEASE_NS;
    } else if (what == LINK_SAYS_PONG) {
        link->owes_pong = false;
        link->promised_ns = now;
    } else {
        uint32_t repeats = link->repeats < LINK_REPEATS ? link->repeats : LINK_REPEATS;
        link->stop_due_ns = now + (LINK_REPEAT_NS << repeats);
        link->repeats++;
        link->said_drained = link->said_drained || is_drained;
    }
}

/* A word that did not arrive is said again after a pause. */
void link_over(struct efa_link *link, uint32_t what, uint32_t flags, bool is_well, uint64_t now) {
    link->saying &= (uint8_t)~what;
    if (is_well)
        return;
    link->hold_until_ns = now + LINK_REPEAT_NS;
    if (what == LINK_SAYS_PING)
        link->ask_due_ns = now;
    else if (what == LINK_SAYS_PONG)
        link->owes_pong = !link->stopped;
    else if ((flags & LINK_DRAINED) != 0)
        link->said_drained = false;
}

static uint64_t silent_ns(const struct efa_link *link) {
    uint64_t last = link->promised_ns > link->stopped_ns ? link->promised_ns : link->stopped_ns;
    return last + LINK_LEASE_NS + LINK_MARGIN_NS;
}

static void sooner(uint64_t *next, uint64_t at, uint64_t now) {
    if (at > now && at < *next)
        *next = at;
}

uint64_t link_next(const struct efa_link *link, uint64_t now) {
    uint64_t next = UINT64_MAX;
    sooner(&next, link->hold_until_ns, now);
    if (link->stopped && link->peer_gone)
        sooner(&next, link->gone_ns + LINK_MARGIN_NS + 1, now);
    if (link->stopped && link->opened && !link->peer_drained) {
        sooner(&next, silent_ns(link) + 1, now);
        if (!link->peer_gone)
            sooner(&next, link->stop_due_ns, now);
    }
    if (link->wants_lease && link->asked_ns != 0 && !link_is_shut(link))
        sooner(&next, link->ask_due_ns, now);
    return next;
}

bool link_is_over(const struct efa_link *link, uint64_t now, bool is_drained) {
    if (!link->stopped || !is_drained)
        return false;
    bool heard = link->peer_drained && link->said_drained;
    bool gone = link->peer_gone && now > link->gone_ns + LINK_MARGIN_NS;
    return !link->opened || gone || heard || now > silent_ns(link);
}
