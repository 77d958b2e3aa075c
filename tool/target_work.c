/* SPDX-License-Identifier: Apache-2.0 */
/* target_work.c: a target's work for each kind of session; see proto.h for the messages and
 * target.h for the state. Memory that the client can write (served->base) is read once and checked;
 * nothing of it decides where the target writes outside of the client's own session. */
#include <stdlib.h>
#include <string.h>

#include "content.h"
#include "host.h"
#include "target.h"

/* The target of a fill needs no memory of its own to be written; it exports a page. */
#define FILL_MEMORY_BYTES 4096
#define LIST_ENTRY        8 /* bytes of an id or page number */
#define WATCH_SPINS       64
#define WORD_BYTES        8

/* The session's queued transfer. */
enum queued { QUEUED_NONE = 0, QUEUED_LIST, QUEUED_PAGES, QUEUED_STRIKE };

uint64_t work_memory_bytes(const struct proto_open *open) {
    return open->kind == PROTO_KIND_FILL ? FILL_MEMORY_BYTES : proto_bytes(open);
}

/* Pages that a repetition can fill: as many as the client's list has room for. */
static uint64_t fill_pages(const struct proto_open *open) {
    return open->list_bytes / LIST_ENTRY;
}

static uint64_t fill_list_bytes(const struct proto_open *open) {
    return (open->list_bytes + 63) & ~UINT64_C(63);
}

uint64_t work_scratch_bytes(const struct proto_open *open) {
    switch (open->kind) {
    case PROTO_KIND_FILL:
        return fill_list_bytes(open) + fill_pages(open) * open->page_stride;
    case PROTO_KIND_REPLAY:
        return open->seats * open->list_bytes;
    case PROTO_KIND_PING:
    case PROTO_KIND_PING_MEMORY:
        return 64;
    case PROTO_KIND_FAULTS:
        return LENT_BYTES;
    case PROTO_KIND_SEND_PING:
    case PROTO_KIND_LOAN_PING:
        return open->message_bytes == 0 ? 64 : open->message_bytes;
    default:
        return 0;
    }
}

uint64_t work_inbox_bytes(const struct proto_open *open) {
    if (open->kind < PROTO_KIND_SEND)
        return 0;
    return proto_inbox_bytes(open) + open->hold * sizeof(weir_message);
}

static unsigned char *page_at(const struct served *served, uint64_t page) {
    return served->base + page * served->open.page_stride;
}

/* ---- open and close ---------------------------------------------------- */

static void fill_generate(struct served *served) {
    const struct proto_open *open = &served->open;
    unsigned char *pages = served->scratch_base + fill_list_bytes(open);
    uint64_t stream = content_key(open->seed, served->repetition);
    uint64_t start = host_now_ns();

    for (uint64_t i = 0; i < fill_pages(open); i++)
        content_fill(pages + i * open->page_stride, open->page_bytes, content_key(stream, i));
    served->fill.generate_ns = host_now_ns() - start;
}

static int replay_open(struct served *served) {
    const struct proto_open *open = &served->open;

    served->free_pages = calloc(open->page_count, sizeof(*served->free_pages));
    served->seats = calloc(open->seats, sizeof(*served->seats));
    served->waiting = calloc(open->seats, sizeof(*served->waiting));
    if (served->free_pages == NULL || served->seats == NULL || served->waiting == NULL)
        return WEIR_ENOMEM;
    for (uint32_t i = 0; i < open->page_count; i++)
        served->free_pages[i] = i;
    served->free_count = (uint32_t)open->page_count;
    for (uint64_t i = 0; i < open->seats; i++) {
        served->seats[i].pages = calloc(open->list_bytes / LIST_ENTRY, sizeof(uint32_t));
        if (served->seats[i].pages == NULL)
            return WEIR_ENOMEM;
    }
    return 0;
}

int work_open(struct target *target, struct served *served) {
    const struct proto_open *open = &served->open;

    switch (open->kind) {
    case PROTO_KIND_READ:
        for (uint64_t page = 0; page < open->page_count; page++)
            content_fill(page_at(served, page), open->page_bytes, content_key(open->seed, page));
        return 0;
    case PROTO_KIND_FILL:
        served->segments = calloc(fill_pages(open), sizeof(*served->segments));
        if (served->segments == NULL)
            return WEIR_ENOMEM;
        fill_generate(served);
        return 0;
    case PROTO_KIND_REPLAY:
        return replay_open(served);
    case PROTO_KIND_SEND:
    case PROTO_KIND_SEND_PING:
    case PROTO_KIND_LOAN_PING:
        return inbox_open(target, served);
    default:
        return 0;
    }
}

void work_close(struct served *served) {
    inbox_free(served);
    if (served->seats != NULL) {
        for (uint64_t i = 0; i < served->open.seats; i++)
            free(served->seats[i].pages);
    }
    free(served->seats);
    free(served->waiting);
    free(served->free_pages);
    free(served->segments);
    served->seats = NULL;
    served->waiting = NULL;
    served->free_pages = NULL;
    served->segments = NULL;
}

/* ---- streams and ping-pong --------------------------------------------- */

int work_check(struct target *target, struct served *served, const weir_notification *message) {
    const struct proto_open *open = &served->open;
    uint64_t lane = proto_argument(message->tag), each = open->page_count / open->lanes;
    struct proto_checked checked = {0};
    struct proto_round round;
    uint64_t start = host_now_ns(), stream;

    if ((open->kind != PROTO_KIND_WRITE && open->kind != PROTO_KIND_FAULTS) ||
        message->length != sizeof(round))
        return WEIR_EINVAL;
    memcpy(&round, message->payload, sizeof(round));
    if (lane >= open->lanes || round.lane_count > open->lanes - lane)
        return WEIR_EINVAL;
    stream = content_key(open->seed, round.round);
    for (uint64_t i = lane; i < lane + round.lane_count; i++) {
        uint64_t page = i * each + round.round % each;
        checked.wrong_bytes +=
            content_wrong(page_at(served, page), open->page_bytes, content_key(stream, page));
    }
    checked.checked_bytes = round.lane_count * open->page_bytes;
    checked.round = round.round;
    checked.verify_ns = host_now_ns() - start;
    return target_send(target, served, proto_tag(PROTO_CHECKED, lane), &checked, sizeof(checked),
                       NULL, 0);
}

int work_pong(struct target *target, struct served *served) {
    weir_segment segment = {.local = served->scratch, .remote = served->remote, .length = 8};

    if (served->open.kind != PROTO_KIND_PING)
        return WEIR_EINVAL;
    return target_send(target, served, proto_tag(PROTO_PONG, 0), NULL, 0, &segment, 1);
}

int work_watch_word(struct target *target, struct served *served) {
    weir_segment segment = {.local = served->scratch, .remote = served->remote, .length = 8};
    uint64_t *watched = (uint64_t *)(void *)served->base; /* page-aligned */
    uint64_t word = __atomic_load_n(watched, __ATOMIC_ACQUIRE);
    int rc;

    /* As often as the bench looks for our answer between two rounds of anything else. */
    for (unsigned i = 0; i < WATCH_SPINS && word == served->word; i++) {
        host_relax();
        word = __atomic_load_n(watched, __ATOMIC_ACQUIRE);
    }
    if (word == served->word || served->remote.id == 0)
        return 0;
    if (served->copied.id != 0) {
        rc = weir_transfer_status(target->engine, served->copied);
        if (rc == WEIR_EINPROGRESS)
            return 0; /* the source may not be changed yet */
        weir_transfer_release(target->engine, served->copied);
        served->copied.id = 0;
        if (rc != 0)
            return rc;
    }
    memcpy(served->scratch_base, &word, sizeof(word));
    rc = weir_write(target->engine, served->peer, &segment, 1, NULL, &served->copied);
    if (rc == WEIR_EAGAIN)
        return 0; /* the word is still there at the next visit */
    if (rc != 0)
        return rc;
    served->word = word;
    return 1;
}

/* ---- page fill --------------------------------------------------------- */

static int fill_submit(struct target *target, struct served *served, bool write,
                       const weir_segment *segments, uint64_t count) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;

    options.flags = WEIR_TRANSFER_QUEUE | (write ? WEIR_TRANSFER_NOTIFY : 0);
    options.notify_tag = proto_tag(PROTO_FILLED, served->repetition);
    options.user_data = served->index;
    served->submitted_ns = host_now_ns();
    return write ? weir_write(target->engine, served->peer, segments, count, &options, NULL)
                 : weir_read(target->engine, served->peer, segments, count, &options, NULL);
}

int work_fill(struct target *target, struct served *served, const weir_notification *message) {
    const struct proto_open *open = &served->open;
    weir_segment list = {.local = served->scratch, .remote = served->remote};
    struct proto_count count;
    int rc;

    if (open->kind != PROTO_KIND_FILL || message->length != sizeof(count) ||
        served->queued != QUEUED_NONE || proto_argument(message->tag) != served->repetition)
        return WEIR_EINVAL;
    memcpy(&count, message->payload, sizeof(count));
    if (count.count == 0 || count.count > fill_pages(open))
        return WEIR_EINVAL;
    served->pages_asked = count.count;
    list.remote_offset = proto_list_offset(open, 0);
    list.length = count.count * LIST_ENTRY;
    rc = fill_submit(target, served, false, &list, 1);
    if (rc == 0)
        served->queued = QUEUED_LIST;
    return rc;
}

static int fill_write(struct target *target, struct served *served) {
    const struct proto_open *open = &served->open;
    int rc;

    for (uint64_t i = 0; i < served->pages_asked; i++) {
        uint64_t page;
        memcpy(&page, served->scratch_base + i * LIST_ENTRY, sizeof(page));
        /* The client's number is bounded by the client's memory, which weir checks; this only
         * keeps the product from wrapping. */
        if (page > served->remote_bytes / open->page_stride)
            return WEIR_EBOUNDS;
        served->segments[i] =
            (weir_segment){.local = served->scratch,
                           .remote = served->remote,
                           .local_offset = fill_list_bytes(open) + i * open->page_stride,
                           .remote_offset = page * open->page_stride,
                           .length = open->page_bytes};
    }
    rc = fill_submit(target, served, true, served->segments, served->pages_asked);
    if (rc == 0)
        served->queued = QUEUED_PAGES;
    return rc;
}

int work_completed(struct target *target, struct served *served, int status) {
    uint32_t queued = served->queued;
    uint64_t took = host_now_ns() - served->submitted_ns;
    int rc;

    served->queued = QUEUED_NONE;
    if (queued == QUEUED_STRIKE && served->state == SERVED_OPEN)
        return target_send(target, served, proto_tag(PROTO_STRUCK, (uint64_t)-status), NULL, 0,
                           NULL, 0);
    if (status != 0 || served->state != SERVED_OPEN)
        return status;
    if (queued == QUEUED_LIST) {
        served->fill.list_read_ns = took;
        return fill_write(target, served);
    }
    served->fill.write_ns = took;
    rc = target_send(target, served, proto_tag(PROTO_FILL_DONE, served->repetition), &served->fill,
                     sizeof(served->fill), NULL, 0);
    served->repetition++;
    /* While the client verifies this repetition, and outside of what is measured. */
    fill_generate(served);
    return rc;
}

/* ---- replay ------------------------------------------------------------ */

static uint32_t page_take(struct served *served) {
    uint32_t page = served->free_pages[served->free_head];

    served->free_head = (served->free_head + 1) % (uint32_t)served->open.page_count;
    served->free_count--;
    return page;
}

static void page_put(struct served *served, uint32_t page) {
    uint64_t tail = (uint64_t)served->free_head + served->free_count;

    served->free_pages[tail % served->open.page_count] = page;
    served->free_count++;
}

/* Grants pages to waiting seats, first come first served, as far as the pool goes. */
static int grant_waiting(struct target *target, struct served *served) {
    const struct proto_open *open = &served->open;

    while (served->waiting_count > 0) {
        uint32_t index = served->waiting[served->waiting_head];
        struct served_seat *seat = &served->seats[index];
        weir_segment list = {.local = served->scratch, .remote = served->remote};
        int rc;

        if (seat->count > served->free_count)
            return 0;
        list.local_offset = index * open->list_bytes;
        list.remote_offset = proto_list_offset(open, index);
        list.length = seat->count * LIST_ENTRY;
        for (uint32_t i = 0; i < seat->count; i++) {
            uint64_t page = seat->pages[i] = page_take(served);
            memcpy(served->scratch_base + list.local_offset + i * LIST_ENTRY, &page, sizeof(page));
        }
        served->waiting_head = (served->waiting_head + 1) % (uint32_t)open->seats;
        served->waiting_count--;
        seat->granted = true;
        rc = target_send(target, served, proto_tag(PROTO_GRANT, index), NULL, 0, &list, 1);
        if (rc != 0)
            return rc;
    }
    return 0;
}

int work_request(struct target *target, struct served *served, const weir_notification *message) {
    const struct proto_open *open = &served->open;
    uint64_t index = proto_argument(message->tag);
    struct proto_count count;

    if (open->kind != PROTO_KIND_REPLAY || message->length != sizeof(count) ||
        index >= open->seats || served->seats[index].count != 0)
        return WEIR_EINVAL;
    memcpy(&count, message->payload, sizeof(count));
    if (count.count == 0 || count.count > open->list_bytes / LIST_ENTRY ||
        count.count > open->page_count)
        return WEIR_EINVAL;
    served->seats[index].count = (uint32_t)count.count;
    /* A seat waits at most once, so the ring of `seats` places cannot overflow. */
    served->waiting[(served->waiting_head + served->waiting_count) % (uint32_t)open->seats] =
        (uint32_t)index;
    served->waiting_count++;
    return grant_waiting(target, served);
}

int work_blocks(struct target *target, struct served *served, const weir_notification *message) {
    const struct proto_open *open = &served->open;
    uint64_t index = proto_argument(message->tag);
    struct proto_checked checked = {0};
    struct served_seat *seat;
    const unsigned char *ids;
    uint64_t start = host_now_ns();
    int rc;

    if (open->kind != PROTO_KIND_REPLAY || index >= open->seats || !served->seats[index].granted)
        return WEIR_EINVAL;
    seat = &served->seats[index];
    ids = served->base + proto_list_offset(open, index);
    for (uint32_t i = 0; i < seat->count; i++) {
        uint64_t id;
        memcpy(&id, ids + (uint64_t)i * LIST_ENTRY, sizeof(id));
        checked.wrong_bytes += content_wrong(page_at(served, seat->pages[i]), open->page_bytes,
                                             content_key(open->seed, id));
    }
    checked.checked_bytes = seat->count * open->page_bytes;
    checked.verify_ns = host_now_ns() - start;
    for (uint32_t i = 0; i < seat->count; i++)
        page_put(served, seat->pages[i]);
    seat->count = 0;
    seat->granted = false;
    rc = target_send(target, served, proto_tag(PROTO_CHECKED, index), &checked, sizeof(checked),
                     NULL, 0);
    return rc != 0 ? rc : grant_waiting(target, served);
}

/* ---- faults ------------------------------------------------------------- */

int work_lend(struct target *target, struct served *served) {
    uint8_t descriptor[WEIR_DESCRIPTOR_MAX];
    size_t length = sizeof(descriptor);
    int rc;

    if (served->open.kind != PROTO_KIND_FAULTS || served->lent.memory.id == 0)
        return WEIR_EINVAL;
    rc = weir_memory_export(target->engine, served->lent.memory, descriptor, &length);
    if (rc != 0)
        return rc;
    return target_send(target, served, proto_tag(PROTO_LENT, 0), descriptor, (uint32_t)length, NULL,
                       0);
}

int work_recall(struct target *target, struct served *served) {
    int rc;

    if (served->open.kind != PROTO_KIND_FAULTS || served->lent.memory.id == 0)
        return WEIR_EINVAL;
    rc = lent_refuse(target->engine, &served->lent);
    if (rc != 0)
        return rc;
    return target_send(target, served, proto_tag(PROTO_RECALLED, 0), NULL, 0, NULL, 0);
}

int work_strike(struct target *target, struct served *served) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_segment word = {.local = served->memory, .remote = served->remote, .length = WORD_BYTES};
    int rc;

    if (served->open.kind != PROTO_KIND_FAULTS || served->remote.id == 0 ||
        served->queued != QUEUED_NONE)
        return WEIR_EINVAL;
    options.flags = WEIR_TRANSFER_QUEUE;
    options.user_data = served->index;
    rc = weir_write(target->engine, served->peer, &word, 1, &options, NULL);
    if (rc == 0)
        served->queued = QUEUED_STRIKE;
    return rc;
}
