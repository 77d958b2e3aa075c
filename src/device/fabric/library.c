/* SPDX-License-Identifier: Apache-2.0 */
/* library.c: libfabric, loaded when a device of it is asked for; what it answers.
 *
 * It is not linked: programs that never ask for this device would load it all the same, and with it
 * the libraries of all its providers, of which one (libinfinipath) takes SIGSEGV, SIGTERM and
 * others for itself when it is loaded. These signals stay as they were before.
 *
 * Owns the one table of its functions, which is written once and the same for all devices. The
 * library is never unloaded. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <rdma/fi_errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "fabric.h"
#include "fork.h"

/* The functions whose arguments have changed since the library began have versions. This one is
 * built for the structures of its headers. */
#if FI_MAJOR_VERSION > 2 || (FI_MAJOR_VERSION == 2 && FI_MINOR_VERSION >= 5)
#define INFO_VERSION "FABRIC_1.9"
#elif FI_MAJOR_VERSION == 2
#define INFO_VERSION "FABRIC_1.8"
#elif FI_MINOR_VERSION >= 20
#define INFO_VERSION "FABRIC_1.7"
#else
#define INFO_VERSION "FABRIC_1.3"
#endif

static const int kept[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGINT, SIGTERM, SIGQUIT};
enum { KEPT = sizeof kept / sizeof kept[0] };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct fabric_library library;
static bool loaded;
static char why[FABRIC_NOTE_MAX];

static void *load_keeping_signals(void) {
    struct sigaction before[KEPT];
    for (int i = 0; i < KEPT; i++)
        sigaction(kept[i], NULL, &before[i]);
    fork_hold();
    void *handle = dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL);
    fork_release();
    for (int i = 0; i < KEPT; i++)
        sigaction(kept[i], &before[i], NULL);
    return handle;
}

/* dlsym(3): ISO C has no cast from an object's pointer to a function's. */
static bool find(void *handle, const char *name, const char *version, void *function_out) {
    void *found = dlvsym(handle, name, version);
    if (found == NULL)
        snprintf(why, sizeof why, "libfabric has no %s of %s", name, version);
    *(void **)function_out = found;
    return found != NULL;
}

static void load(void) {
    void *handle = load_keeping_signals();
    if (handle == NULL) {
        const char *error = dlerror();
        snprintf(why, sizeof why, "no libfabric: %s", error != NULL ? error : "?");
        fabric_note_clean(why);
        return;
    }
    loaded = find(handle, "fi_getinfo", INFO_VERSION, &library.getinfo) &&
             find(handle, "fi_freeinfo", INFO_VERSION, &library.freeinfo) &&
             find(handle, "fi_dupinfo", INFO_VERSION, &library.dupinfo) &&
             find(handle, "fi_fabric", "FABRIC_1.1", &library.fabric) &&
             find(handle, "fi_version", "FABRIC_1.0", &library.version);
}

const struct fabric_library *fabric_load(const char **why_out) {
    pthread_once(&once, load);
    *why_out = why;
    return loaded ? &library : NULL;
}

int fabric_error(long error) {
    switch (error < 0 ? -error : error) {
    case FI_ENOMEM:
        return WEIR_ENOMEM;
    case FI_EMFILE:
    case ENFILE:
        return WEIR_EMFILE;
    case FI_EINVAL:
        return WEIR_EINVAL;
    case FI_EAGAIN:
    case FI_ENOKEY:
        return WEIR_EAGAIN;
    case FI_EBUSY:
        return WEIR_EBUSY;
    case FI_ENOSYS:
    case FI_EOPNOTSUPP:
        return WEIR_ENOTSUP;
    default:
        return WEIR_EDEVICE;
    }
}

bool fabric_hint(char **hint_out, const char *name) {
    *hint_out = name[0] != '\0' ? strdup(name) : NULL;
    return name[0] == '\0' || *hint_out != NULL;
}
