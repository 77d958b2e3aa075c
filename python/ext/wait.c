/* SPDX-License-Identifier: Apache-2.0 */
/* wait.c: waits, in slices: after each of them signals are looked at, so that KeyboardInterrupt
 * ends any wait within SLICE_NS, and so does a close of the engine by another thread. */
#include "weirpy.h"

#include <math.h>
#include <time.h>

#define SLICE_NS UINT64_C(50000000)
/* Slices may end at once as something waits that this thread does not take, such as messages of
 * another inbox. After so many it sleeps a little between them. */
#define IN_VAIN_MOST  64
#define PAUSE_NS_MOST UINT64_C(1000000)

bool seconds_to_ns(PyObject *seconds, uint64_t *ns_out) {
    if (seconds == NULL || seconds == Py_None) {
        *ns_out = UINT64_MAX;
        return true;
    }
    double value = PyFloat_AsDouble(seconds);
    if (value == -1.0 && PyErr_Occurred())
        return false;
    if (isnan(value) || value < 0) {
        PyErr_SetString(PyExc_ValueError, "a time-out is seconds, 0 or more, or None");
        return false;
    }
    *ns_out = value >= 1e10 ? UINT64_MAX : (uint64_t)(value * 1e9);
    return true;
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

void waiting_begin(struct waiting *waiting, uint64_t timeout_ns) {
    uint64_t now = timeout_ns == UINT64_MAX || timeout_ns == 0 ? 0 : now_ns();
    waiting->until_ns = timeout_ns > UINT64_MAX - now ? UINT64_MAX : now + timeout_ns;
    waiting->in_vain = 0;
}

bool waiting_is_over(const struct waiting *waiting) {
    return waiting->until_ns != UINT64_MAX && now_ns() >= waiting->until_ns;
}

uint64_t waiting_slice(const struct waiting *waiting) {
    if (waiting->until_ns == UINT64_MAX)
        return SLICE_NS;
    uint64_t now = now_ns();
    uint64_t left = now >= waiting->until_ns ? 0 : waiting->until_ns - now;
    return left < SLICE_NS ? left : SLICE_NS;
}

void sleep_without_gil(uint64_t ns) {
    struct timespec pause = {.tv_sec = (time_t)(ns / 1000000000),
                             .tv_nsec = (long)(ns % 1000000000)};
    Py_BEGIN_ALLOW_THREADS nanosleep(&pause, NULL);
    Py_END_ALLOW_THREADS
}

int waiting_turn(struct waiting *waiting, EngineObject *self) {
    weir_engine *engine = engine_use(self);
    if (engine == NULL)
        return -1;
    if (PyErr_CheckSignals() != 0)
        return -1;
    if (waiting_is_over(waiting))
        return 0;
    if (waiting->in_vain > IN_VAIN_MOST) {
        uint64_t pause = (uint64_t)(waiting->in_vain - IN_VAIN_MOST) * 10000;
        sleep_without_gil(pause < PAUSE_NS_MOST ? pause : PAUSE_NS_MOST);
        if ((engine = engine_use(self)) == NULL)
            return -1;
    }
    uint64_t slice = waiting_slice(waiting);
    PyThreadState *state = engine_leave_gil(self);
    int rc = weir_engine_wait(engine, slice);
    engine_take_gil(self, state);
    transfers_reap(self, 16);
    memory_bury(self, false);
    if (rc == WEIR_OK) {
        waiting->in_vain += waiting->in_vain < 1000;
        return 1;
    }
    waiting->in_vain = 0;
    if (rc == WEIR_EINPROGRESS)
        return 1;
    raise_code(rc, "wait");
    return -1;
}
