/* SPDX-License-Identifier: Apache-2.0 */
/* lists.c: the lists of transfers: each unfinished one is on one.
 *
 * Owns the links, the counts that follow from them (waits, credit_waits, room_waits, suspects), and
 * the state and the reason to wait that go with each list. When a transfer goes from one to another
 * is others' business. */
#include "lists.h"

#include "records.h"
#include "streams.h"
#include "tables.h"

static bool waits_for_credit(uint8_t list) {
    return list >= LIST_CREDITS && list < LISTS;
}

static struct list *list_of(weir_engine *engine, struct peer *peer,
                            const struct transfer *transfer) {
    return transfer->list == LIST_ROOM ? &stream_at(engine, transfer->stream)->waiting
                                       : &peer->lists[transfer->list];
}

static void enter_list(weir_engine *engine, struct peer *peer, struct transfer *transfer,
                       uint8_t list) {
    static const uint8_t states[] = {TR_PENDING, TR_POSTED, TR_PARKED, TR_PENDING, TR_PENDING};
    /* SLOTS: or what else its peer waits for, or it for the peer: api.c tells. */
    static const weir_waiting_for waits[] = {WEIR_WAITING_SLOTS, WEIR_WAITING_COMPLETIONS,
                                             WEIR_WAITING_DRAIN, WEIR_WAITING_CONNECTION,
                                             WEIR_WAITING_CREDITS};
    uint8_t kind = list < LIST_CREDITS ? list : LIST_CREDITS;
    transfer->state = states[kind];
    transfer->list = list;
    transfer->peer = peer_index(engine, peer);
    if (!transfer_is_own(transfer))
        set_waiting(transfer, list == LIST_ROOM ? WEIR_WAITING_SLOTS : waits[kind]);
    list_of(engine, peer, transfer)->count++;
    peer->waits += list != LIST_SHELF;
    engine->waits += list != LIST_SHELF;
    peer->credit_waits += waits_for_credit(list);
    peer->suspects += transfer_is_suspect(transfer);
    if (list == LIST_ROOM) {
        peer->room_waits++;
        stream_at(engine, transfer->stream)->waiting_bytes += room_bytes(transfer->message_length);
    } else if (transfer->state == TR_PENDING && list != LIST_SHELF) {
        peer_not_fast(peer);
    }
}

static inline void link_last(weir_engine *engine, struct list *l, struct transfer *transfer,
                             uint32_t index) {
    transfer->next = NONE;
    transfer->prev = l->tail;
    if (l->tail != NONE)
        engine->transfers[l->tail].next = index;
    else
        l->head = index;
    l->tail = index;
}

void list_push(weir_engine *engine, struct peer *peer, struct transfer *transfer, uint8_t list) {
    enter_list(engine, peer, transfer, list);
    link_last(engine, list_of(engine, peer, transfer), transfer, transfer_index(engine, transfer));
}

/* list_push of a new transfer of the peer's, none of which is suspected, to LIST_POSTED. */
void list_push_posted(weir_engine *engine, struct peer *peer, struct transfer *transfer,
                      uint32_t index) {
    struct list *l = &peer->lists[LIST_POSTED];
    transfer->state = TR_POSTED;
    transfer->list = LIST_POSTED;
    set_waiting(transfer, WEIR_WAITING_COMPLETIONS);
    link_last(engine, l, transfer, index);
    l->count++;
    peer->waits++;
    engine->waits++;
}

void list_push_front(weir_engine *engine, struct peer *peer, struct transfer *transfer,
                     uint8_t list) {
    uint32_t index = transfer_index(engine, transfer);
    enter_list(engine, peer, transfer, list);
    struct list *l = list_of(engine, peer, transfer);
    transfer->prev = NONE;
    transfer->next = l->head;
    if (l->head != NONE)
        engine->transfers[l->head].prev = index;
    else
        l->tail = index;
    l->head = index;
}

void list_push_behind(weir_engine *engine, struct peer *peer, struct transfer *transfer,
                      uint32_t before, uint8_t list) {
    uint32_t index = transfer_index(engine, transfer);
    enter_list(engine, peer, transfer, list);
    struct list *l = list_of(engine, peer, transfer);
    transfer->prev = before;
    transfer->next = engine->transfers[before].next;
    engine->transfers[before].next = index;
    if (transfer->next != NONE)
        engine->transfers[transfer->next].prev = index;
    else
        l->tail = index;
}

void list_remove(weir_engine *engine, struct transfer *transfer) {
    struct peer *peer = peer_at(engine, transfer->peer);
    struct list *l = list_of(engine, peer, transfer);
    if (transfer->prev != NONE)
        engine->transfers[transfer->prev].next = transfer->next;
    else
        l->head = transfer->next;
    if (transfer->next != NONE)
        engine->transfers[transfer->next].prev = transfer->prev;
    else
        l->tail = transfer->prev;
    l->count--;
    peer->waits -= transfer->list != LIST_SHELF;
    engine->waits -= transfer->list != LIST_SHELF;
    peer->credit_waits -= waits_for_credit(transfer->list);
    peer->suspects -= transfer_is_suspect(transfer);
    if (transfer->list == LIST_ROOM) {
        peer->room_waits--;
        stream_at(engine, transfer->stream)->waiting_bytes -= room_bytes(transfer->message_length);
    }
}
