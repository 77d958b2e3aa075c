/* SPDX-License-Identifier: Apache-2.0 */
/* weir_settings.h: what an engine would be set to, and why, for tools that show or check it: each
 * option and environment variable with its value, range and source. The conventions of weir.h
 * hold. No function here needs an engine. Like getenv(3), not while another thread changes the
 * environment. */
#ifndef WEIR_SETTINGS_H
#define WEIR_SETTINGS_H

#include "weir.h"

#ifdef __cplusplus
extern "C" {
#endif

#define WEIR_SETTING_NOTE_MAX 192 /* bytes of a setting's note with its terminator */
#define WEIR_VARIABLE_MAX     64  /* bytes of a stray variable's name with its terminator */

/* Where the value of a setting comes from. An option goes before the environment, and
 * the environment before the default. */
typedef enum weir_setting_source {
    WEIR_SETTING_DEFAULT = 0,
    WEIR_SETTING_ENVIRONMENT = 1,
    WEIR_SETTING_OPTION = 2
} weir_setting_source;

#define WEIR_SETTING_AUTO     UINT64_MAX /* a number that the engine or the device chooses */
#define WEIR_SETTING_TEXT_MAX 64         /* bytes of a setting that is text, with its terminator */

/* A number of weir_engine_options. Its numbers are in the unit; a time in the options that
 * is not a whole number of it is rounded up. */
typedef struct weir_setting_info {
    size_t size;
    const char *name;     /* its field there; these four are static storage */
    const char *variable; /* its environment variable */
    const char *unit;     /* "", "B", "us", "ms" */
    const char *what;     /* a few words about it */
    uint64_t value;       /* as an engine would have it; the default where it is refused */
    uint64_t fallback;    /* the default */
    uint64_t least;
    uint64_t most;
    uint32_t source;                  /* weir_setting_source */
    int status;                       /* 0, or EINVAL: weir_engine_open refuses it... */
    char note[WEIR_SETTING_NOTE_MAX]; /* ...and this says why, in a line, or why in_force is not
                                       * value; "" */
    uint64_t in_force;                /* the part of value that has an effect: all of it, but for
                                       * chain_max, which is cut to a quarter of the queue, if the
                                       * device grants sq_depth */
    char text[WEIR_SETTING_TEXT_MAX]; /* of a device's variable that is no number, and has no
                                       * range; "" */
} weir_setting_info;
#define WEIR_SETTING_INFO_INIT WEIR_SIZED(weir_setting_info)
/* Describes the index-th setting of an engine that were opened now with these options, NULL for
 * none: its value, and whether weir_engine_open would refuse it, and why. Needs no engine. Errors:
 * EINVAL (past the last). */
WEIR_API int weir_setting_query(const weir_engine_options *options, size_t index,
                                weir_setting_info *info);

/* Describes the index-th variable of a device that is built in (WEIR_VERBS_*), likewise; name is
 * the device's, and there is no field of the options. A variable that is refused keeps that
 * device, and no other, from being opened. Whether there is such a port, GID or MTU,
 * weir_device_query says. Errors: EINVAL (past the last). */
WEIR_API int weir_device_setting_query(size_t index, weir_setting_info *info);

/* Describes the index-th setting of the device that the options name (NULL for none), by its
 * variable, likewise. The parts of a NIC's name ("verbs:mlx5_0/1") are values of such settings, and
 * have the source WEIR_SETTING_OPTION; their variables are not looked at then. Errors: EINVAL (past
 * the last; the options' size; a name that cannot be read), ENODEVICE (there is no such device in
 * this library). */
WEIR_API int weir_engine_setting_query(const weir_engine_options *options, size_t index,
                                       weir_setting_info *info);

/* A variable of the environment whose name begins with WEIR_ and that this library does not
 * read: misspelled, perhaps. Of those of a device (WEIR_VERBS_*), it reads what a device that is
 * built in reads. */
typedef struct weir_stray_info {
    size_t size;
    const char *nearest;              /* the variable whose name is much like it, or NULL; static */
    char name[WEIR_VARIABLE_MAX];     /* as far as there is room; '?' for unprintable bytes */
    char note[WEIR_SETTING_NOTE_MAX]; /* "WEIR_SQ_DEPHT: no setting of this name; ..." */
} weir_stray_info;
#define WEIR_STRAY_INFO_INIT WEIR_SIZED(weir_stray_info)
/* Describes the index-th such variable. Needs no engine. Like getenv(3), not while another
 * thread changes the environment. Errors: EINVAL (past the last). */
WEIR_API int weir_stray_query(size_t index, weir_stray_info *info);

#ifdef __cplusplus
}
#endif

#endif
