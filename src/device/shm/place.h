/* SPDX-License-Identifier: Apache-2.0 */
/* place.h: where devices of one host meet, and which of them may have to do with each other.
 *
 * A device listens on a Unix socket that is named after its nonce: in the abstract namespace,
 * which each network namespace has one of, or, where the application or WEIR_SHM_DIRECTORY names
 * one, in a directory. So devices meet that share a network namespace, or that were given the same
 * directory: also of two containers with namespaces of their own.
 *
 * The kernel says who is on the other end of a socket (SO_PEERCRED in unix(7)). Devices of one user
 * have to do with each other, and those whose users are in the group that WEIR_SHM_GROUP names.
 * Each side checks the other, so both have to agree.
 *
 * Left to others: what is said over a socket (hand.c). */
#ifndef SHM_PLACE_H
#define SHM_PLACE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "ports.h"
#include "source.h"

struct shm_place {
    char directory[WEIR_SETTING_TEXT_MAX]; /* "": the abstract namespace */
    const char *directory_said;            /* what the setting of it is called; static */
    bool has_group;
    gid_t group;
    /* The user namespace maps every user. In one that does not, the others all show as user 65534.
     * Read once, as it takes a descriptor: a process that unshares its user namespace does so
     * before it opens an engine. */
    bool maps_all_users;
};

/* The settings, and what the user namespace shows. EINVAL: note_out says why. */
int place_read(const struct setting_source *source, struct shm_place *place_out,
               char note_out[WEIR_DEVICE_NOTE_MAX]);

/* Equal where devices meet, and nowhere else: of the boot of the kernel, and the network
 * namespace or the directory. ENODEVICE: they cannot be told; EINVAL: no such directory; EMFILE. */
int place_fabric(const struct shm_place *place, uint8_t id_out[WEIR_FABRIC_ID_SIZE]);

/* In words: which engines are met there. */
void place_describe(const struct shm_place *place, char *out, size_t size);
/* Why no socket can be made in its directory, as errno says. */
void place_tell_no_socket(const struct shm_place *place, int error, char *out, size_t size);

/* A listening socket of this name. Removes what engines that were killed left in the
 * directory. EMFILE, ENOMEM; EDENIED, EDEVICE: no socket can be made; ENODEVICE: none can be bound
 * there. */
int place_listen(const struct shm_place *place, uint64_t nonce);
/* Takes the name away again. */
void place_leave(const struct shm_place *place, uint64_t nonce);

/* A socket that is connected to the device with this nonce, and that device's process as it
 * is known here (0: it has no number here). EPEER: nobody listens there; EDENIED: another
 * user's; EAGAIN: many call there; EMFILE; ENOMEM; EDEVICE. Does not block. */
int place_call(const struct shm_place *place, uint64_t nonce, int32_t *pid_out);

/* Whether the other end of a connected socket may have to do with us, and who it is. */
bool place_admits(const struct shm_place *place, int socket, int32_t *pid_out);

/* The index-th setting, as device_setting has it. */
bool place_setting(size_t index, const struct setting_source *source,
                   struct weir_device_setting *out);

#endif
