/* SPDX-License-Identifier: Apache-2.0 */
/* mail.c: messages in a simulated run.
 *
 * Owns the letters: who sent each to which inbox, and what came of it. Their content, order and
 * number are judged where they are taken, their ends where they are told. Each node has inboxes of
 * the same numbers, opens some late, and closes some. It is long because it has the whole life of a
 * letter, and its judge. */
#include "mail.h"

#include <stdlib.h>
#include <string.h>

#include "doors.h"

enum {
    MAIL_INBOXES = 2,
    MAIL_ABSENT = 9,     /* a number that nobody opens */
    MAIL_SLOTS = 8,      /* letters of a node that are under way, each with its own memory */
    MAIL_SLOTS_MAX = 32, /* the same in worlds with `crowded` */
    MAIL_SLOT_BYTES = 12000,
    MAIL_HELD = 6,
    MAIL_MANY =
        6, /* letters that are sent at once, at most; crowded: all that there are slots for */
    MAIL_PARTS = 8,
    MAIL_ALIKE = 128,    /* lengths of letters that are alike */
    MAIL_NOW = 7,        /* every so many letters one does not wait for room */
    MAIL_EVERY = 3,      /* fewer letters an act than this */
    MAIL_LETTERS = 3000, /* of a run */
    MAIL_MESSAGE_MAX = 20000,
    MAIL_NEWS_NS =
        100000000, /* times the world's scale: that an inbox was closed is heard by then */
};

struct letter {
    uint32_t from, to, inbox;
    uint32_t from_life;
    uint32_t length;
    uint64_t sent_ns;
    uint64_t up_ns; /* its sender was told of a session, the last time before */
    weir_transfer handle;
    bool queued, cancelled, once, orphan, absent;
    bool now;  /* it does not wait for room */
    bool lent; /* made in place */
    bool terminal;
    int status;
    uint32_t taken;
    uint64_t deadline_ns;
    uint32_t opened; /* of the target's inbox, how often it had been, when the letter was sent */
    uint32_t slot;
};

struct box {
    bool open;
    weir_inbox handle;
    uint32_t opened;
    uint64_t closed_ns; /* the last time, in this life; 0 */
    /* The last letter that was taken, of each node, through each handle: by the node that it is of.
     * Two may lead here, since an address may lead anywhere. */
    uint32_t last[SIM_RUN_NODES_MAX][SIM_RUN_NODES_MAX];
};

struct mail_node {
    struct box boxes[MAIL_INBOXES];
    weir_memory memory;
    bool registered;
    uint8_t bytes[MAIL_SLOTS_MAX][MAIL_SLOT_BYTES];
    uint32_t slots[MAIL_SLOTS_MAX]; /* the letter; 0 */
    weir_message held[MAIL_HELD];
    uint32_t held_letter[MAIL_HELD];
    uint32_t held_count;
    weir_loan kept;   /* one that is not sent; id 0: none */
    uint64_t gone_ns; /* the last GONE that it was told */
    uint64_t up_ns;   /* likewise, UP or RECOVERED */
};

struct sim_mail {
    struct sim_run *run;
    struct letter *letters; /* [0] unused */
    uint32_t count, capacity;
    struct mail_node nodes[SIM_RUN_NODES_MAX];
};

static struct mail_node *node_of(const struct sim_app *app) {
    return &app->run->mail->nodes[app->node->index];
}

static uint8_t byte_of(uint32_t letter, uint32_t i) {
    return (uint8_t)(letter * 37 + i * 11 + (i >> 8) + 1);
}

struct sim_mail *mail_open(struct sim_run *run) {
    struct sim_mail *mail = calloc(1, sizeof(*mail));

    if (mail != NULL) {
        mail->run = run;
    }
    return mail;
}

void mail_close(struct sim_mail *mail) {
    if (mail != NULL) {
        free(mail->letters);
        free(mail);
    }
}

/* ---- inboxes ----------------------------------------------------------- */

static void box_open(struct sim_app *app, uint32_t number) {
    struct box *box = &node_of(app)->boxes[number];
    struct sim_prng *prng = app_prng(app);
    weir_inbox_options options = WEIR_INBOX_OPTIONS_INIT;
    int error;

    options.number = number;
    options.message_bytes_max = MAIL_MESSAGE_MAX;
    options.peer_messages = 1 + (uint32_t)sim_below(prng, 9);
    options.messages = 1 + (uint32_t)sim_below(prng, 18);
    error = weir_inbox_open(app->engine, &options, &box->handle);
    sim_trace(app->run->world, "n%u opens inbox %u: %s", app->node->index, number,
              weir_error_name(error));
    if (error == 0) {
        box->open = true;
        box->opened++;
        memset(box->last, 0, sizeof(box->last));
    } else if (!app->run->world->faults || (error != WEIR_ENOMEM && error != WEIR_EDEVICE)) {
        sim_violation(app->run->world, "M1 n%u: inbox %u is not opened: %s", app->node->index,
                      number, weir_error_name(error));
    }
}

static void box_close(struct sim_app *app, uint32_t number) {
    struct box *box = &node_of(app)->boxes[number];
    int error = weir_inbox_close(app->engine, box->handle);

    sim_trace(app->run->world, "n%u closes inbox %u: %s", app->node->index, number,
              weir_error_name(error));
    if (error != 0) {
        sim_violation(app->run->world, "M1 n%u: inbox %u is not closed: %s", app->node->index,
                      number, weir_error_name(error));
    }
    box->open = false;
    box->closed_ns = app->run->world->now_ns;
    box->opened++;
}

void mail_start(struct sim_app *app) {
    struct mail_node *node;

    if (app->run->mail == NULL) {
        return;
    }
    node = node_of(app);
    memset(node->slots, 0, sizeof(node->slots));
    node->held_count = 0;
    node->kept.id = 0;
    node->registered =
        weir_memory_register(app->engine, node->bytes, sizeof(node->bytes), 0, &node->memory) == 0;
    for (uint32_t i = 0; i < MAIL_INBOXES; i++) {
        node->boxes[i].open = false;
        node->boxes[i].opened++;
        node->boxes[i].closed_ns = 0;
        if (sim_below(app_prng(app), 4) != 0) {
            box_open(app, i);
        }
    }
}

void mail_life_ended(struct sim_app *app) {
    struct sim_mail *mail = app->run->mail;
    struct mail_node *node;

    if (mail == NULL) {
        return;
    }
    node = node_of(app);
    for (uint32_t i = 1; i <= mail->count; i++) {
        mail->letters[i].orphan |= mail->letters[i].from == app->node->index &&
                                   mail->letters[i].from_life == app->node->life;
    }
    for (uint32_t i = 0; i < MAIL_INBOXES; i++) {
        node->boxes[i].open = false;
        node->boxes[i].opened++;
    }
    node->held_count = 0;
    node->kept.id = 0;
    for (uint32_t i = 0; i < SIM_RUN_NODES_MAX; i++) { /* whoever it sent to, or that sent to it */
        mail->nodes[i].gone_ns = app->run->world->now_ns;
    }
}

void mail_event(struct sim_app *app, const weir_event *event) {
    if (app->run->mail == NULL) {
        return;
    }
    if (event->type == WEIR_EVENT_GONE) {
        node_of(app)->gone_ns = app->run->world->now_ns;
    } else if (event->type == WEIR_EVENT_UP || event->type == WEIR_EVENT_RECOVERED) {
        node_of(app)->up_ns = app->run->world->now_ns;
    }
}

/* ---- sending ----------------------------------------------------------- */

static struct letter *letter_new(struct sim_mail *mail) {
    if (mail->count + 1 >= mail->capacity) {
        uint32_t capacity = mail->capacity == 0 ? 256 : 2 * mail->capacity;
        struct letter *letters = realloc(mail->letters, capacity * sizeof(*letters));

        if (letters == NULL) {
            return NULL;
        }
        mail->letters = letters;
        mail->capacity = capacity;
    }
    mail->letters[++mail->count] = (struct letter){0};
    return &mail->letters[mail->count];
}

static uint32_t draw_length(struct sim_prng *prng) {
    switch (sim_below(prng, 4)) {
    case 0:
        return (uint32_t)sim_below(prng, 64);
    case 1:
        return (uint32_t)sim_below(prng, WEIR_MESSAGE_COPY_MAX + 1);
    case 2:
        return (uint32_t)sim_below(prng, 3000);
    default:
        return (uint32_t)sim_below(prng, MAIL_SLOT_BYTES + 1);
    }
}

/* One that has data, as the others of its call. */
static uint32_t draw_alike(struct sim_prng *prng, uint32_t least) {
    return least + (uint32_t)sim_below(prng, MAIL_ALIKE);
}

static weir_transfer_options options_of(const struct sim_app *app, const struct letter *letter,
                                        uint32_t number) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;

    options.notify_tag = number;
    options.user_data = SIM_MAIL | number;
    options.flags =
        (letter->queued ? WEIR_TRANSFER_QUEUE : 0) | (letter->once ? WEIR_TRANSFER_ONCE : 0) |
        (letter->absent ? WEIR_TRANSFER_NO_WAIT : 0) | (letter->now ? WEIR_TRANSFER_NOW : 0);
    if (letter->deadline_ns != 0) {
        options.timeout_ns = letter->deadline_ns - app->run->world->now_ns;
    }
    return options;
}

/* In memory that is lent; what is sent may be less than that. */
static int send_lent(struct sim_app *app, struct letter *letter, uint32_t number) {
    weir_transfer_options options = options_of(app, letter, number);
    uint64_t more = sim_below(app_prng(app), 2) * sim_below(app_prng(app), 100);
    weir_loan loan;
    int error = weir_message_loan(app->engine, app->peers[letter->to].handle, letter->inbox,
                                  letter->length + more, &loan);

    if (error != 0) {
        return error;
    }
    memset(loan.data, 0xa5, (size_t)loan.length);
    loan.length = letter->length;
    for (uint32_t i = 0; i < letter->length; i++) {
        ((uint8_t *)loan.data)[i] = byte_of(number, i);
    }
    error = weir_loan_send(app->engine, &loan, &options, &letter->handle);
    if ((weir_loan_return(app->engine, &loan) == 0) != (error != 0)) {
        sim_violation(app->run->world,
                      "M12 letter %u is sent: %s, and its loan is not whose it was", number,
                      weir_error_name(error));
    }
    return error;
}

/* Writes the letter, and cuts it into at most so many parts; returns how many. */
static uint32_t write_letter(struct sim_app *app, const struct letter *letter, uint32_t number,
                             uint32_t parts_max, weir_part parts_out[MAIL_PARTS]) {
    struct mail_node *node = node_of(app);
    struct sim_prng *prng = app_prng(app);
    uint8_t *bytes = node->bytes[letter->slot];
    uint32_t at = 0, parts = 1 + (uint32_t)sim_below(prng, parts_max);

    for (uint32_t i = 0; i < letter->length; i++) {
        bytes[i] = byte_of(number, i);
    }
    for (uint32_t i = 0; i < parts; i++) {
        uint32_t length = i + 1 == parts ? letter->length - at
                                         : (uint32_t)sim_below(prng, letter->length - at + 1);
        parts_out[i] = (weir_part){.local = node->memory,
                                   .offset = (uint64_t)letter->slot * MAIL_SLOT_BYTES + at,
                                   .length = length};
        if (letter->length <= WEIR_MESSAGE_COPY_MAX && sim_below(prng, 2) == 0) {
            parts_out[i] = (weir_part){.base = bytes, .offset = at, .length = length};
        }
        at += length;
    }
    return parts;
}

static int send_letter(struct sim_app *app, struct letter *letter, uint32_t number) {
    weir_transfer_options options = options_of(app, letter, number);
    weir_part part[MAIL_PARTS];
    uint32_t parts = write_letter(app, letter, number, MAIL_PARTS - 1, part);

    return weir_message_send(app->engine, app->peers[letter->to].handle, letter->inbox, part, parts,
                             &options, &letter->handle);
}

/* A status that is no success, and promises something, promises that nobody takes the letter. */
static void judge_taken(struct sim_world *world, const struct letter *letter, uint32_t number) {
    if (letter->terminal && letter->taken != 0 && letter->status != WEIR_OK &&
        oracle_promises(letter->status)) {
        sim_violation(world, "S12 letter %u ended with %s, and is taken", number,
                      weir_error_name(letter->status));
    }
}

static void letter_ended(struct sim_app *app, struct letter *letter, int status) {
    struct sim_world *world = app->run->world;
    const struct sim_nic_config *nic = &world->config.nic[letter->from];
    uint32_t number = (uint32_t)(letter - app->run->mail->letters);

    sim_trace(world, "letter %u ends: %s", number, weir_error_name(status));
    if (letter->terminal) {
        sim_violation(world, "S12 letter %u ends twice", number);
    }
    letter->terminal = true;
    letter->status = status;
    node_of(app)->slots[letter->slot] = 0;
    judge_taken(world, letter, number);
    if (status == WEIR_ECANCELED && !letter->cancelled) {
        sim_violation(world, "S12 letter %u was not cancelled", number);
    }
    if (status == WEIR_ETIMEDOUT && letter->deadline_ns == 0) {
        sim_violation(world, "S12 letter %u had no deadline", number);
    }
    /* Work without a session ends for lacks, too. */
    if (letter->deadline_ns == 0 && ((status == WEIR_EAGAIN && !letter->now) ||
                                     (nic->lack == 0 && nic->create_fail == 0 &&
                                      (status == WEIR_EMFILE || status == WEIR_ENOMEM)))) {
        sim_violation(world, "M1 letter %u waits for memory, and ended: %s", number,
                      weir_error_name(status));
    }
    if (status == WEIR_ENOTREADY && !letter->absent && !letter->now && letter->deadline_ns == 0) {
        sim_violation(world, "M1 letter %u waits for an inbox, and ended", number);
    }
    if (!world->faults &&
        ((status == WEIR_EINVAL && world->config.nic[letter->from].post_einval == 0) ||
         status == WEIR_ETOOBIG || status == WEIR_EREMOTE)) {
        sim_violation(world, "M1 letter %u ends with %s", number, weir_error_name(status));
    }
}

static uint32_t slots_of(const struct sim_app *app) {
    return app->run->world->config.work.crowded ? MAIL_SLOTS_MAX : MAIL_SLOTS;
}

/* slots_of: there is none. */
static uint32_t free_slot(const struct sim_app *app) {
    const struct mail_node *node = node_of(app);
    uint32_t slot = 0;

    while (slot < slots_of(app) && node->slots[slot] != 0) {
        slot++;
    }
    return slot;
}

/* Sending the letter came to this. */
static void letter_sent(struct sim_app *app, uint32_t number, int error) {
    struct sim_world *world = app->run->world;
    struct letter *letter = &app->run->mail->letters[number];

    sim_trace(world, "n%u sends letter %u of %u B to inbox %u of n%u%s: %s", app->node->index,
              number, letter->length, letter->inbox, letter->to, letter->lent ? ", in a loan" : "",
              weir_error_name(error));
    if (error != 0) {
        if (error != WEIR_EAGAIN && error != WEIR_ESTALE && error != WEIR_EPEER &&
            !(letter->lent && world->faults && (error == WEIR_ENOMEM || error == WEIR_EDEVICE))) {
            sim_violation(world, "M1 letter %u is refused: %s", number, weir_error_name(error));
        }
        app->peers[letter->to].gone |= error == WEIR_ESTALE || error == WEIR_EPEER;
        letter->terminal = true;
        letter->status = error;
        node_of(app)->slots[letter->slot] = 0;
        return;
    }
    doors_wanted(app, letter->to);
    /* A loan is the engine's, whoever has the handle. */
    if (letter->lent && !letter->queued && sim_below(app_prng(app), 4) == 0) {
        if (letter->handle.id != 0 && weir_transfer_release(app->engine, letter->handle) != 0) {
            sim_violation(world, "S12 release of letter %u fails", number);
        }
        node_of(app)->slots[letter->slot] = 0;
    }
}

/* Sends the letter, and some more like it, with one call. Letters that the call leaves are sent one
 * by one. */
static void send_many(struct sim_app *app, uint32_t first) {
    struct sim_mail *mail = app->run->mail;
    struct mail_node *node = node_of(app);
    const struct letter like = mail->letters[first];
    weir_transfer_options options = options_of(app, &like, 0);
    weir_part parts[MAIL_SLOTS_MAX][MAIL_PARTS];
    weir_outgoing out[MAIL_SLOTS_MAX];
    weir_transfer handles[MAIL_SLOTS_MAX];
    bool crowded = app->run->world->config.work.crowded;
    uint32_t many = crowded ? MAIL_SLOTS_MAX : MAIL_MANY, ends = crowded ? 64 : 8;
    uint32_t count = 0, slot = like.slot, number = first;
    size_t sent = 0;
    int error;
    /* Their data may share WRs then. */
    bool alike = crowded && sim_below(app_prng(app), 4) != 0;
    uint32_t least =
        alike ? WEIR_MESSAGE_COPY_MAX + 1 + (uint32_t)sim_below(app_prng(app), 2000) : 0;
    uint32_t parts_max = alike ? 1 : MAIL_PARTS - 1;

    do {
        struct letter *letter = &mail->letters[number];
        if (number != first) {
            *letter = like;
            letter->slot = slot;
            letter->length = draw_length(app_prng(app));
            node->slots[slot] = number;
        }
        if (alike) {
            letter->length = draw_alike(app_prng(app), least);
        }
        out[count] = (weir_outgoing){
            parts[count], write_letter(app, letter, number, parts_max, parts[count]), number};
        count++;
        slot = free_slot(app);
        number = mail->count + 1;
    } while (count < many && slot < slots_of(app) && mail->count < MAIL_LETTERS &&
             sim_below(app_prng(app), ends) != 0 && letter_new(mail) != NULL);
    error = weir_message_send_many(app->engine, app->peers[like.to].handle, like.inbox, out, count,
                                   &options, handles, &sent);
    if (error == 0 ? sent == 0 || sent > count : sent != 0) {
        sim_violation(app->run->world, "M1 of %u letters %zu are sent: %s", count, sent,
                      weir_error_name(error));
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct letter *letter = &mail->letters[out[i].tag];
        if (i < sent) {
            letter->handle = handles[i];
        } else if (error == 0) {
            letter_sent(app, (uint32_t)out[i].tag, send_letter(app, letter, (uint32_t)out[i].tag));
            continue;
        }
        letter_sent(app, (uint32_t)out[i].tag, error);
    }
}

static void act_send(struct sim_app *app) {
    struct sim_mail *mail = app->run->mail;
    struct mail_node *node = node_of(app);
    struct sim_world *world = app->run->world;
    const struct sim_workload_config *work = &world->config.work;
    struct sim_prng *prng = app_prng(app);
    uint32_t others = world->config.nodes - 1, slot = free_slot(app);
    uint32_t to = (app->node->index + 1 + (uint32_t)sim_below(prng, others)) % (others + 1);
    struct letter *letter;

    if (work->ring) {
        to = (app->node->index + others) % (others + 1);
    }
    if (slot == slots_of(app) || !node->registered || mail->count == MAIL_LETTERS ||
        !app_peer_ready(app, to)) {
        return;
    }
    letter = letter_new(mail);
    if (letter == NULL) {
        return;
    }
    *letter = (struct letter){.from = app->node->index,
                              .from_life = app->node->life,
                              .to = to,
                              .inbox = (uint32_t)sim_below(prng, MAIL_INBOXES),
                              .length = draw_length(prng),
                              .sent_ns = world->now_ns,
                              .up_ns = node->up_ns,
                              .slot = slot,
                              .queued = sim_chance(prng, work->queued) && sim_below(prng, 2) == 0,
                              .once = sim_chance(prng, work->once)};
    letter->opened = mail->nodes[to].boxes[letter->inbox].opened;
    if (sim_below(prng, 40) == 0) {
        letter->inbox = MAIL_ABSENT;
        letter->absent = true;
    } else {
        letter->absent = sim_below(prng, 8) == 0;
    }
    if (sim_chance(prng, work->deadline)) {
        letter->deadline_ns = world->now_ns + sim_between(prng, 10000, 20000000);
    }
    letter->now = !letter->absent && mail->count % MAIL_NOW == 0;
    letter->lent = sim_below(prng, 3) == 0;
    node->slots[slot] = mail->count;
    if (!letter->lent && !letter->queued && (sim_below(prng, 3) == 0 || work->crowded)) {
        send_many(app, mail->count);
    } else {
        letter_sent(app, mail->count,
                    (letter->lent ? send_lent : send_letter)(app, letter, mail->count));
    }
}

/* A loan is kept, and is as it was when it is returned. */
static void act_keep(struct sim_app *app) {
    struct mail_node *node = node_of(app);
    const struct sim_world *world = app->run->world;
    uint32_t others = world->config.nodes - 1;
    uint32_t to =
        (app->node->index + 1 + (uint32_t)sim_below(app_prng(app), others)) % (others + 1);

    if (node->kept.id != 0) {
        for (uint32_t i = 0; i < node->kept.length; i++) {
            if (((const uint8_t *)node->kept.data)[i] != 0x3c) {
                sim_violation(app->run->world, "M12 n%u: byte %u of a loan changes",
                              app->node->index, i);
                break;
            }
        }
        if (weir_loan_return(app->engine, &node->kept) != 0 ||
            weir_loan_return(app->engine, &node->kept) != WEIR_ESTALE) {
            sim_violation(app->run->world, "M12 n%u: a loan is not returned once",
                          app->node->index);
        }
        node->kept.id = 0;
    } else if (app->run->acting && app_peer_ready(app, to) &&
               weir_message_loan(app->engine, app->peers[to].handle,
                                 (uint32_t)sim_below(app_prng(app), MAIL_INBOXES),
                                 draw_length(app_prng(app)), &node->kept) == 0) {
        memset(node->kept.data, 0x3c, (size_t)node->kept.length);
    }
}

static void act_cancel(struct sim_app *app) {
    struct mail_node *node = node_of(app);
    uint32_t number = node->slots[sim_below(app_prng(app), slots_of(app))];
    struct letter *letter;

    if (number == 0) {
        return;
    }
    letter = &app->run->mail->letters[number];
    letter->cancelled = true;
    (void)weir_transfer_cancel(app->engine, letter->handle);
    sim_trace(app->run->world, "n%u cancels letter %u", app->node->index, number);
}

void mail_act(struct sim_app *app) {
    struct sim_prng *prng = app_prng(app);
    struct mail_node *node;
    uint32_t number = (uint32_t)sim_below(prng, MAIL_INBOXES);

    if (app->run->mail == NULL) {
        return;
    }
    node = node_of(app);
    for (uint32_t n = (uint32_t)sim_below(prng, MAIL_EVERY); n > 0; n--) {
        act_send(app);
    }
    if (sim_chance(prng, app->run->world->config.work.cancel)) {
        act_cancel(app);
    }
    if (sim_below(prng, 8) == 0) {
        act_keep(app);
    }
    if (!node->boxes[number].open ? sim_below(prng, 8) == 0
                                  : sim_chance(prng, app->run->world->config.work.memory_release) &&
                                        sim_below(prng, 4) == 0) {
        if (node->boxes[number].open) {
            box_close(app, number);
        } else {
            box_open(app, number);
        }
    }
}

/* ---- taking ------------------------------------------------------------ */

static void judge(struct sim_app *app, uint32_t inbox, const weir_message *message) {
    struct sim_mail *mail = app->run->mail;
    struct sim_world *world = app->run->world;
    struct box *box = &node_of(app)->boxes[inbox];
    uint32_t number = (uint32_t)message->tag;
    const uint8_t *bytes = message->data;
    struct letter *letter;

    if (message->tag == 0 || message->tag > mail->count) {
        sim_violation(world, "S9 n%u takes a letter that nobody sent", app->node->index);
        return;
    }
    letter = &mail->letters[number];
    sim_trace(world, "n%u takes letter %u", app->node->index, number);
    if (letter->inbox != inbox || letter->length != message->length ||
        (letter->to != app->node->index && !sim_node_claims(app->node))) {
        sim_violation(world, "S9 n%u takes a wrong letter: %u", app->node->index, number);
        return;
    }
    for (uint32_t i = 0; i < letter->length; i++) {
        if (bytes[i] != byte_of(number, i)) {
            sim_violation(world, "S9 byte %u of letter %u is wrong", i, number);
            return;
        }
    }
    if (letter->taken++ != 0) {
        sim_violation(world, "S9 letter %u is taken twice", number);
    }
    uint32_t *last = &box->last[letter->from][letter->to];

    if (number < *last && letter->sent_ns > mail->nodes[letter->from].gone_ns &&
        letter->sent_ns > node_of(app)->gone_ns &&
        mail->letters[*last].from_life == letter->from_life) {
        sim_violation(world, "M3 letter %u is taken behind letter %u", number, *last);
    }
    *last = number;
    judge_taken(world, letter, number);
}

static void judge_held(struct sim_app *app, uint32_t i) {
    const weir_message *message = &node_of(app)->held[i];
    uint32_t number = node_of(app)->held_letter[i];
    const uint8_t *bytes = message->data;

    for (uint32_t b = 0; b < message->length; b++) {
        if (bytes[b] != byte_of(number, b)) {
            sim_violation(app->run->world, "S13 byte %u of letter %u changes while it is held", b,
                          number);
            break;
        }
    }
}

static void give_back(struct sim_app *app, uint32_t i) {
    struct mail_node *node = node_of(app);
    const weir_message message = node->held[i];
    uint32_t number = node->held_letter[i];

    judge_held(app, i);
    if (weir_message_give_back(app->engine, &message) != 0) {
        sim_violation(app->run->world, "M1 letter %u is not taken back", number);
    }
    if (weir_message_give_back(app->engine, &message) != WEIR_ESTALE) {
        sim_violation(app->run->world, "M1 letter %u is taken back twice", number);
    }
    node->held[i] = node->held[--node->held_count];
    node->held_letter[i] = node->held_letter[node->held_count];
}

/* All that are held, at once. */
static void give_all_back(struct sim_app *app) {
    struct mail_node *node = node_of(app);
    uint32_t count = node->held_count;

    for (uint32_t i = 0; i < count; i++) {
        judge_held(app, i);
    }
    node->held_count = 0;
    if (weir_message_give_back_many(app->engine, node->held, count) != 0) {
        sim_violation(app->run->world, "M1 %u letters are not taken back", count);
    }
    if (count > 0 && weir_message_give_back_many(app->engine, node->held, count) != WEIR_ESTALE) {
        sim_violation(app->run->world, "M1 %u letters are taken back twice", count);
    }
}

/* Takes letters: one, or as many as there are, and as it can hold. Returns how many. */
static uint32_t take(struct sim_app *app, uint32_t inbox) {
    struct mail_node *node = node_of(app);
    weir_message *to = &node->held[node->held_count];
    size_t max = MAIL_HELD - node->held_count, count = 0;
    int error;

    if (!node->boxes[inbox].open || max == 0) {
        return 0;
    }
    if (sim_below(app_prng(app), 2) == 0) {
        error = weir_message_take(app->engine, node->boxes[inbox].handle, to);
        count = error == 0;
    } else {
        error = weir_message_take_many(app->engine, node->boxes[inbox].handle, to, max, &count);
        if (error == 0 ? count == 0 || count > max : count != 0) {
            sim_violation(app->run->world, "M1 of %zu letters %zu are taken: %s", max, count,
                          weir_error_name(error));
            count = 0;
        }
    }
    for (size_t i = 0; i < count; i++) {
        judge(app, inbox, &to[i]);
        node->held_letter[node->held_count++] = (uint32_t)to[i].tag;
    }
    return (uint32_t)count;
}

static void look_at_statuses(struct sim_app *app) {
    struct mail_node *node = node_of(app);

    for (uint32_t i = 0; i < MAIL_SLOTS_MAX; i++) {
        struct letter *letter = &app->run->mail->letters[node->slots[i]];
        int status;

        if (node->slots[i] == 0 || letter->queued) {
            continue;
        }
        status = weir_transfer_status(app->engine, letter->handle);
        if (status == WEIR_EINPROGRESS) {
            continue;
        }
        letter_ended(app, letter, status);
        if (letter->handle.id != 0 && weir_transfer_release(app->engine, letter->handle) != 0) {
            sim_violation(app->run->world, "S12 release of a letter that ended fails");
        }
    }
}

void mail_look(struct sim_app *app) {
    struct mail_node *node;
    struct sim_prng *prng = app_prng(app);
    bool acting = app->run->acting;

    if (app->run->mail == NULL) {
        return;
    }
    node = node_of(app);
    if (!acting && node->kept.id != 0) {
        act_keep(app);
    }
    look_at_statuses(app);
    while (!acting && node->held_count > 0) { /* with its hands full it would take none */
        give_back(app, 0);
    }
    for (uint32_t i = 0; i < MAIL_INBOXES && app->run->world->now_ns >= app->take_at_ns; i++) {
        while (take(app, i) > 0) {
            if (!acting) {
                give_all_back(app);
            }
        }
    }
    if (node->held_count > 0 && sim_below(prng, 4) == 0) {
        give_all_back(app);
    }
    while (node->held_count > 0 && (!acting || sim_below(prng, 2) == 0)) {
        give_back(app, (uint32_t)sim_below(prng, node->held_count));
    }
    for (uint32_t i = 0; !acting && i < MAIL_INBOXES; i++) {
        if (!node->boxes[i].open) {
            box_open(app, i);
        }
    }
}

void mail_completed(struct sim_app *app, const weir_completion *completion) {
    struct sim_mail *mail = app->run->mail;
    uint64_t number = completion->user_data & ~SIM_MAIL;

    if (number == 0 || number > mail->count || !mail->letters[number].queued) {
        sim_violation(app->run->world, "S11 completion of an unknown letter");
        return;
    }
    letter_ended(app, &mail->letters[number], completion->status);
}

/* ---- the end ----------------------------------------------------------- */

uint32_t mail_unfinished(const struct sim_app *app) {
    uint32_t count = 0;

    if (app->run->mail == NULL) {
        return 0;
    }
    for (uint32_t i = 0; i < MAIL_SLOTS_MAX; i++) {
        count += node_of(app)->slots[i] != 0;
    }
    return count;
}

void mail_say_stuck(const struct sim_app *app) {
    for (uint32_t i = 0; app->run->mail != NULL && i < MAIL_SLOTS_MAX; i++) {
        uint32_t number = node_of(app)->slots[i];
        const struct letter *letter = &app->run->mail->letters[number];

        if (number != 0) {
            sim_violation(
                app->run->world, "S3 letter %u (n%u to n%u) never ends; it waits for %s", number,
                letter->from, letter->to,
                weir_waiting_name(weir_transfer_waiting_for(app->engine, letter->handle)));
        }
    }
}

/* The inbox that it went to had been closed, and its sender had not heard so: news go by a session.
 */
static bool went_to_closed(const struct sim_mail *mail, const struct letter *letter) {
    uint64_t closed_ns = mail->nodes[letter->to].boxes[letter->inbox].closed_ns;
    uint64_t told_ns = closed_ns > letter->up_ns ? closed_ns : letter->up_ns;
    uint32_t scale = mail->run->world->config.work.scale;

    return closed_ns != 0 &&
           letter->sent_ns < told_ns + (uint64_t)MAIL_NEWS_NS * (scale == 0 ? 1 : scale);
}

void mail_final(struct sim_mail *mail) {
    for (uint32_t i = 1; mail != NULL && i <= mail->count; i++) {
        const struct letter *letter = &mail->letters[i];

        if (letter->terminal && letter->status == 0 && letter->taken == 0 &&
            letter->inbox < MAIL_INBOXES && letter->inbox < MAIL_INBOXES &&
            letter->opened == mail->nodes[letter->to].boxes[letter->inbox].opened &&
            !went_to_closed(mail, letter)) {
            sim_violation(mail->run->world, "S3 letter %u ended well, and was not taken", i);
        }
    }
}
