/* SPDX-License-Identifier: Apache-2.0 */
/* habit.c: the habits that this process has seen in devices, beyond what they say of themselves.
 *
 * Owns one habit: whether a QP on a shared receive queue that goes to the error state gives
 * a last-WQE event (IBA 1.5, 11.5.2). Some drivers never do, and each teardown of a QP
 * would wait for it until a bound. Kept by the device's name, for the life of
 * the process; one event is believed for good, silence only when it was long and repeated.
 * Any thread. */
#include <pthread.h>
#include <string.h>

#include "verbs.h"

enum { HABITS_MAX = 64, SILENCES = 2 };

struct habit {
    char device[IBV_SYSFS_NAME_MAX];
    uint32_t silences;
    bool last_wqe;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct habit habits[HABITS_MAX];
static uint32_t habit_count;

/* With the mutex held. NULL: too many devices to remember. */
static struct habit *find(const char *device) {
    for (uint32_t i = 0; i < habit_count; i++) {
        if (strcmp(habits[i].device, device) == 0)
            return &habits[i];
    }
    if (habit_count == HABITS_MAX)
        return NULL;
    struct habit *habit = &habits[habit_count++];
    strncpy(habit->device, device, sizeof habit->device - 1);
    return habit;
}

void habit_note_last_wqe(const char *device, bool came) {
    pthread_mutex_lock(&mutex);
    struct habit *habit = find(device);
    if (habit != NULL && came)
        habit->last_wqe = true;
    else if (habit != NULL && habit->silences < SILENCES)
        habit->silences++;
    pthread_mutex_unlock(&mutex);
}

bool habit_has_last_wqe(const char *device) {
    pthread_mutex_lock(&mutex);
    const struct habit *habit = find(device);
    bool has = habit == NULL || habit->last_wqe || habit->silences < SILENCES;
    pthread_mutex_unlock(&mutex);
    return has;
}

void habit_forget(void) {
    pthread_mutex_lock(&mutex);
    memset(habits, 0, sizeof habits);
    habit_count = 0;
    pthread_mutex_unlock(&mutex);
}
