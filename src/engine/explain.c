/* SPDX-License-Identifier: Apache-2.0 */
/* explain.c: why an engine did not open, in a sentence for a person.
 *
 * Owns no state: the reason is not kept, but worked out again from the options, the environment,
 * the device and the system. The sentences about settings are settings.c's, those about a device
 * are the device's, those about limits of the system are src/os's. */
#include "explain.h"
#include "device.h"
#include "open.h"
#include "settings.h"

#include <stdio.h>
#include <stdlib.h>

struct note {
    char text[WEIR_OPEN_NOTE_MAX];
};

/* As it was asked for; "auto" is what was taken. */
static const char *device_name(const weir_engine_options *options) {
    const struct weir_device_ops *found = device_find(options->device);
    return found != NULL ? found->name : options->device;
}

/* Each function returns whether it has written a sentence. */

static bool explain_flags(const weir_engine_options *options, struct note *note) {
    const uint32_t both = WEIR_ENGINE_THREAD | WEIR_ENGINE_SERIAL;
    if ((options->flags & ~both) != 0)
        snprintf(note->text, sizeof(note->text), "flags of the options are 0x%lx: 0x%lx is unknown",
                 (unsigned long)options->flags, (unsigned long)(options->flags & ~both));
    else if ((options->flags & both) == both)
        snprintf(note->text, sizeof(note->text),
                 "flags of the options: WEIR_ENGINE_SERIAL does not go with WEIR_ENGINE_THREAD");
    else
        return false;
    return true;
}

static bool explain_setting(const weir_engine_options *options, struct note *note) {
    weir_setting_info setting = WEIR_SETTING_INFO_INIT;
    for (size_t i = 0; weir_setting_query(options, i, &setting) == WEIR_OK; i++) {
        if (setting.status == WEIR_OK)
            continue;
        snprintf(note->text, sizeof(note->text), "%s", setting.note);
        return true;
    }
    return false;
}

/* The device is not built in, or its probe says why it, or the NIC that is named, cannot be used.
 */
static bool explain_device(const weir_engine_options *options, struct note *note) {
    char names[2 * WEIR_DEVICE_NAME_MAX] = "";
    weir_device_info device = WEIR_DEVICE_INFO_INIT;
    if (weir_device_choose(options, &device) == WEIR_OK) {
        if (device.available != WEIR_OK)
            snprintf(note->text, sizeof(note->text), "device %.80s: %s%s%s", device_name(options),
                     weir_strerror(device.available), device.note[0] != '\0' ? ": " : "",
                     device.note);
        return device.available != WEIR_OK;
    }
    for (size_t i = 0; i < device_table_count; i++) {
        size_t used = strlen(names);
        snprintf(names + used, sizeof(names) - used, "%s%s", used > 0 ? ", " : "",
                 device_table[i]->name);
    }
    size_t length = strcspn(options->device, ":");
    if (length == 0 || length > 32)
        length = strnlen(options->device, 32);
    snprintf(note->text, sizeof(note->text), "device %.*s: not built in; there is %s", (int)length,
             options->device, names);
    return true;
}

/* The note is one line, whatever the options say. */
static void make_line(char *text) {
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            *text = '?';
    }
}

static bool explain_listen(const weir_engine_options *options, struct note *note) {
    char why[128];
    const char *address = options->listen != NULL ? options->listen : "127.0.0.1:0";
    if (options->advertise != NULL &&
        (strcmp(address, "none") == 0 ||
         os_explain_advertise(options->advertise, why, sizeof(why)))) {
        snprintf(note->text, sizeof(note->text), "advertise %.160s: %s", options->advertise,
                 strcmp(address, "none") == 0 ? "the engine does not listen" : why);
        return true;
    }
    os_explain_listen(address, why, sizeof(why));
    snprintf(note->text, sizeof(note->text), "listen %.160s: %s", address, why);
    return true;
}

/* A limit of the process is reached: address space, file size or descriptors. */
static bool explain_limits(const weir_engine_options *options, struct note *note) {
    char why[160];
    weir_engine_options full;
    const struct weir_device_ops *ops;
    struct weir_device_nic nic;
    struct weir_device_wishes wishes;
    struct weir_device_caps caps = {0};
    settings_resolve(options, getenv, &full, NULL);
    if (device_choose(options->device, &ops, &nic, caps.note) == WEIR_OK) {
        open_wishes(&full, &nic, &wishes);
        ops->probe(&wishes, &caps);
    }
    if (!os_explain_address_space(open_address_bytes(&full, &caps), why, sizeof(why)) &&
        !os_explain_file_size(caps.map_bytes, why, sizeof(why)) &&
        !os_explain_descriptors(why, sizeof(why)))
        return false;
    snprintf(note->text, sizeof(note->text), "the engine does not open: %s", why);
    return true;
}

static bool explain(const weir_engine_options *options, int error, struct note *note) {
    switch (error) {
    case WEIR_EINVAL:
        return explain_flags(options, note) || explain_setting(options, note) ||
               explain_device(options, note);
    case WEIR_EADDRESS:
        return explain_listen(options, note);
    case WEIR_ENODEVICE:
        return explain_device(options, note);
    default:
        return explain_limits(options, note) || explain_device(options, note);
    }
}

int weir_open_explain(const weir_engine_options *options, int error, char *note_out,
                      size_t note_size) {
    static const weir_engine_options none = WEIR_ENGINE_OPTIONS_INIT;
    weir_engine_options full = WEIR_ENGINE_OPTIONS_INIT;
    const weir_engine_options *in = options != NULL ? options : &none;
    struct note note;
    if (error >= 0 || note_out == NULL || note_size == 0)
        return WEIR_EINVAL;
    if (!settings_size_fits(in)) {
        snprintf(note.text, sizeof(note.text),
                 "size of the options is %zu: set it with WEIR_ENGINE_OPTIONS_INIT", in->size);
    } else {
        memcpy(&full, in, in->size < sizeof(full) ? in->size : sizeof(full));
        full.size = sizeof(full);
        if (!explain(&full, error, &note))
            snprintf(note.text, sizeof(note.text), "device %s: %s", device_name(&full),
                     weir_strerror(error));
    }
    make_line(note.text);
    snprintf(note_out, note_size, "%s", note.text);
    return WEIR_OK;
}
