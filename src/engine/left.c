/* SPDX-License-Identifier: Apache-2.0 */
/* left.c: the QPs that a closed engine could not take down.
 *
 * A device may keep a QP for longer than closing an engine may take: a connect that nobody
 * answers cannot be called off on some, and lasts for as long as the kernel tries. Such an
 * engine is left: nobody uses it any more, and memory of the application is released. Its QPs
 * remain, the device, and the engine's own buffers, which the QPs may still write to.
 *
 * Owns the rest of its life. The device is asked again and again to destroy the QPs, without
 * drains, since no status of a transfer can be asked for any more. When the last QP is gone, the
 * buffers and the engine are freed. Over real ports a thread of its own does this. */
#include "left.h"

#include "engine.h"
#include "thread.h"

#include <pthread.h>
#include <time.h>

enum { LEFT_PAUSE_NS = 1000 * 1000, LEFT_PAUSE_NS_MAX = 250 * 1000 * 1000 };

bool left_nothing(const weir_engine *engine) {
    return engine->qps_made.count == 0;
}

/* Takes all events and completions, and drops them. A device may notice that a connect has ended
 * only when it is asked for events. */
static void hear_out(weir_engine *engine) {
    struct weir_async events[ASYNC_BATCH];
    while (engine->device_ops->events(engine->device, events, ASYNC_BATCH) == ASYNC_BATCH) {
    }
    while (engine->device_ops->poll(engine->device, engine->cqes, POLL_BATCH) == POLL_BATCH) {
    }
}

bool engine_left_step(weir_engine *engine) {
    if (!left_nothing(engine))
        hear_out(engine);
    for (uint32_t i = qp_first(engine); i != BITS_NONE; i = qp_after(engine, i)) {
        struct qp *qp = &engine->qps[i];
        if (engine->device_ops->qp_destroy(qp->qp) != WEIR_OK)
            continue;
        qp->qp = NULL;
        bits_drop(&engine->qps_made, i);
    }
    if (!left_nothing(engine))
        return false;
    engine->device_ops->mr_release(engine->device, &engine->send_mr);
    engine->device_ops->mr_release(engine->device, &engine->recv_mr);
    engine_abandon(engine);
    return true;
}

static void *left_run(void *argument) {
    weir_engine *engine = argument;
    struct weir_ports ports = engine->ports;
    void (*on_left)(struct weir_ports *) = engine->on_left;
    struct timespec pause = {.tv_nsec = LEFT_PAUSE_NS};
    while (!engine_left_step(engine)) {
        nanosleep(&pause, NULL);
        if (pause.tv_nsec < LEFT_PAUSE_NS_MAX)
            pause.tv_nsec *= 2;
    }
    on_left(&ports);
    return NULL;
}

/* When no thread can be made, the engine is never freed: its QPs may still write to its buffers. */
void left_to_thread(weir_engine *engine, void (*on_left)(struct weir_ports *ports)) {
    pthread_attr_t attributes;
    pthread_t thread;
    engine->on_left = on_left;
    if (pthread_attr_init(&attributes) != 0)
        return;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    (void)thread_create(&thread, &attributes, left_run, engine);
    pthread_attr_destroy(&attributes);
}
