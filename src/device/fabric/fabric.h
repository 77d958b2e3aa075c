/* SPDX-License-Identifier: Apache-2.0 */
/* fabric.h: libfabric, as the backends over it share it: the library itself, what it answers, and
 * settings that are names.
 *
 *   library.c   libfabric, when it is asked for; its errors
 *   settings.c  environment variables of a backend, by its rules
 *   regions.c   regions, ours and imported: regions.h
 *
 * Left to the backends: providers, endpoints, queues and blobs of addresses. */
#ifndef FABRIC_FABRIC_H
#define FABRIC_FABRIC_H

#include <rdma/fabric.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ports.h"

#define FABRIC_NOTE_MAX WEIR_DEVICE_NOTE_MAX
#define FABRIC_NAME_MAX 64
/* Newer than the headers, libfabric could give more than this was built for. */
#define FABRIC_API_VERSION FI_VERSION(1, 17)

/* ---- library.c ---- */

/* libfabric's own functions; those that it has inline call what its objects point to. */
struct fabric_library {
    int (*getinfo)(uint32_t version, const char *node, const char *service, uint64_t flags,
                   const struct fi_info *hints, struct fi_info **info_out);
    void (*freeinfo)(struct fi_info *info);
    struct fi_info *(*dupinfo)(const struct fi_info *info);
    int (*fabric)(struct fi_fabric_attr *attr, struct fid_fabric **fabric_out, void *context);
    uint32_t (*version)(void);
};

/* NULL: it cannot be loaded; *why_out says why, in a line. Any thread. */
const struct fabric_library *fabric_load(const char **why_out);
/* An answer of libfabric's (negated errno), as a WEIR_E* code. */
int fabric_error(long error);

/* ---- settings.c ---- */

/* A variable whose value is a name. */
struct fabric_rule {
    const char *name;
    size_t offset; /* of its value, a char[FABRIC_NAME_MAX], in the backend's settings */
    const char *what;
    bool (*is_wrong)(const char *text);
};

/* A note stays one line of ASCII. */
void fabric_note_clean(char *text);
/* The values that are not set are "". EINVAL: note_out says which variable and why. */
int fabric_settings_read(const struct fabric_rule *rules, size_t count,
                         char *(*get)(const char *name), void *settings_out,
                         char note_out[FABRIC_NOTE_MAX]);
/* The device port's setting: of one rule of a device. False: there is no such rule. */
bool fabric_setting(const char *device, const struct fabric_rule *rules, size_t count, size_t index,
                    char *(*get)(const char *name), struct weir_device_setting *out);

#endif
