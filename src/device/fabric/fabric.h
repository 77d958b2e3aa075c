/* SPDX-License-Identifier: Apache-2.0 */
/* fabric.h: libfabric, as the backends over it share it: the library itself, what it answers,
 * settings that are names, and the choice that they make.
 *
 *   library.c   libfabric, when it is asked for; its errors
 *   choice.c    which provider, domain, fabric and address a device has
 *   settings.c  environment variables of a backend, by its rules
 *   regions.c   regions, ours and imported: regions.h
 *
 * Left to the backends: what they ask for, endpoints, queues and blobs of addresses. */
#ifndef FABRIC_FABRIC_H
#define FABRIC_FABRIC_H

#include <rdma/fabric.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ports.h"
#include "source.h"

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
/* A hint for getinfo, freed with the hints; "": none. False: there is no memory. */
bool fabric_hint(char **hint_out, const char *name);
/* An answer of libfabric's (negated errno), as a WEIR_E* code. */
int fabric_error(long error);

/* ---- choice.c ---- */

/* Names that the application or the environment asks for; "": any. Each backend has settings for
 * some of them. */
struct fabric_names {
    char provider[FABRIC_NAME_MAX];
    char domain[FABRIC_NAME_MAX];
    char fabric[FABRIC_NAME_MAX];
    char address[FABRIC_NAME_MAX];
    char host[FABRIC_NAME_MAX]; /* of no setting: the address that is as good as any other to ask
                                 * for, if there is it */
};

struct fabric_choice {
    struct fi_info *info; /* of one provider, domain, fabric and address; owned */
    char note[FABRIC_NOTE_MAX];
};

/* The parts of that choice that are a backend's own. Constant. */
struct fabric_backend {
    const char *name;
    const struct fabric_rule *rules; /* its variables */
    size_t rule_count;
    /* The offers of libfabric; the caller frees them. An answer of libfabric's (negated errno). */
    int (*ask)(const struct fabric_library *library, const struct fabric_names *names,
               struct fi_info **list_out);
    /* NULL: nothing in it will do. */
    const struct fi_info *(*best)(const struct fi_info *list, const struct fabric_names *names);
    /* A line each. list: NULL: libfabric offered nothing. */
    void (*note_taken)(const struct fi_info *info, uint32_t version,
                       char note_out[FABRIC_NOTE_MAX]);
    void (*note_missing)(const struct fabric_library *library, const struct fabric_names *names,
                         const struct fi_info *list, char note_out[FABRIC_NOTE_MAX]);
    void (*fill_caps)(const struct fabric_choice *choice, struct weir_device_caps *caps_out);
    /* NULL, or what a probe knows more: a device with this choice would not open now, and why. */
    bool (*cannot_open)(const struct fi_info *info, char note_out[FABRIC_NOTE_MAX]);
};

/* The choice that the application's wishes (NULL: none) and the environment make. An
 * error: its note says why, but for ENOMEM. EINVAL: a setting is wrong. ENODEVICE: no libfabric,
 * or nothing of what was asked for. */
int fabric_choose(const struct fabric_backend *backend, const struct weir_device_wishes *wishes,
                  const struct fabric_library **library_out, struct fabric_choice *choice_out);
/* The device port's probe. */
int fabric_probe(const struct fabric_backend *backend, const struct weir_device_wishes *wishes,
                 struct weir_device_caps *caps_out);

/* Says a name of an entry of libfabric's: of its domain, say. "": none that could be asked for
 * beside the names that were. */
typedef void fabric_name_of(const struct fi_info *info, const struct fabric_names *beside,
                            char name_out[FABRIC_NAME_MAX]);
/* Appends to a note which names there are, each once: " (there are: eth0, lo)"; to the last of
 * which there is room, and then "...". */
void fabric_note_offers(const struct fi_info *list, fabric_name_of *name_of,
                        const struct fabric_names *beside, char note[FABRIC_NOTE_MAX]);

/* ---- settings.c ---- */

/* A variable whose value is a name. */
struct fabric_rule {
    const char *name;
    size_t offset; /* of its value in struct fabric_names */
    const char *what;
    const char *fallback; /* the value of one that is not set; "": any */
    bool (*is_wrong)(const char *text);
};

/* A note stays one line of ASCII. */
void fabric_note_clean(char *text);
/* A value that is not set is its rule's. EINVAL: note_out says which setting and why. */
int fabric_names_read(const struct fabric_backend *backend, const struct setting_source *source,
                      struct fabric_names *names_out, char note_out[FABRIC_NOTE_MAX]);
/* The device port's setting: of one rule of a device. False: there is no such rule. */
bool fabric_setting(const struct fabric_backend *backend, size_t index,
                    const struct setting_source *source, struct weir_device_setting *out);

#endif
