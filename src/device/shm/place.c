/* SPDX-License-Identifier: Apache-2.0 */
/* place.c: sockets that are named after devices, and who is on their other end; see place.h. */
#define _GNU_SOURCE
#include "place.h"
#include "fork.h"
#include "segment.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define NAME_PREFIX     "weir-shm-"
#define NAME_DIGITS     16
#define NAME_BYTES      (sizeof NAME_PREFIX - 1 + NAME_DIGITS)
#define GROUPS_MAX      256
#define SWEEP_MAX       1024 /* names looked at in a directory */
#define SWEEP_AGE_S     10   /* a younger socket may not listen yet */
#define OVERFLOW_ID     65534
#define GROUP_TEXT_SIZE 4096

_Static_assert(WEIR_SETTING_TEXT_MAX + NAME_BYTES < sizeof((struct sockaddr_un *)0)->sun_path,
               "a name in the longest directory fits");

static const char directory_name[] = "WEIR_SHM_DIRECTORY", group_name[] = "WEIR_SHM_GROUP";

/* ---- settings ---- */

static int read_directory(const struct setting_source *source, struct shm_place *place,
                          char note_out[WEIR_DEVICE_NOTE_MAX]) {
    const char *text = source_text(source, directory_name);
    struct stat st;
    const char *wrong = NULL;
    place->directory_said = source_name(source, directory_name);
    if (text == NULL)
        return 0;
    if (text[0] != '/')
        wrong = "is not an absolute path";
    else if (strlen(text) >= sizeof place->directory)
        wrong = "is longer than 63 characters";
    else if (stat(text, &st) != 0)
        wrong = strerror(errno);
    else if (!S_ISDIR(st.st_mode))
        wrong = "is no directory";
    if (wrong != NULL) {
        snprintf(note_out, WEIR_DEVICE_NOTE_MAX, "%s=%.48s: %s", place->directory_said, text,
                 wrong);
        return WEIR_EINVAL;
    }
    strcpy(place->directory, text);
    return 0;
}

static bool group_number(const char *text, gid_t *group_out) {
    char *end;
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    if (!isdigit((unsigned char)text[0]) || errno != 0 || *end != '\0' || value >= UINT32_MAX)
        return false;
    *group_out = (gid_t)value;
    return true;
}

static int read_group(const struct setting_source *source, struct shm_place *place,
                      char note_out[WEIR_DEVICE_NOTE_MAX]) {
    const char *text = source_text(source, group_name);
    char buffer[GROUP_TEXT_SIZE];
    struct group entry, *found = NULL;
    if (text == NULL)
        return 0;
    if (!group_number(text, &place->group)) {
        if (getgrnam_r(text, &entry, buffer, sizeof buffer, &found) != 0 || found == NULL) {
            snprintf(note_out, WEIR_DEVICE_NOTE_MAX,
                     "%s=%.48s: no group of that name, and no number", group_name, text);
            return WEIR_EINVAL;
        }
        place->group = found->gr_gid;
    }
    place->has_group = true;
    return 0;
}

/* The note is printable whatever the variables are. */
static int cleaned(int rc, char *note) {
    for (; rc != 0 && *note != '\0'; note++) {
        if (*note < ' ' || *note > '~')
            *note = '?';
    }
    return rc;
}

static bool maps_all_users(void) {
    char map[64] = "";
    unsigned long inside = 1, outside = 1, count = 0;
    fork_hold();
    int fd = fork_own(open("/proc/self/uid_map", O_RDONLY | O_CLOEXEC));
    fork_release();
    ssize_t length = fd < 0 ? -1 : read(fd, map, sizeof map - 1);
    if (fd >= 0)
        fork_close(fd);
    return length > 0 && sscanf(map, "%lu %lu %lu", &inside, &outside, &count) == 3 &&
           inside == 0 && count == UINT32_MAX;
}

int place_read(const struct setting_source *source, struct shm_place *place_out,
               char note_out[WEIR_DEVICE_NOTE_MAX]) {
    struct shm_place place = {.directory = "", .maps_all_users = maps_all_users()};
    int rc = read_directory(source, &place, note_out);
    if (rc == 0)
        rc = read_group(source, &place, note_out);
    if (rc == 0)
        *place_out = place;
    return cleaned(rc, note_out);
}

bool place_setting(size_t index, const struct setting_source *source,
                   struct weir_device_setting *out) {
    struct shm_place place = {.directory = ""};
    if (index > 1)
        return false;
    const char *variable = index == 0 ? directory_name : group_name,
               *text = source_text(source, variable);
    *out = (struct weir_device_setting){
        .device = "shm",
        .variable = variable,
        .what = index == 0 ? "directory where engines meet, instead of the network namespace"
                           : "group whose users may share memory",
        .value = UINT64_MAX,
        .fallback = UINT64_MAX,
        .is_set = text != NULL,
        .is_named = source_is_named(source, variable),
    };
    out->status = cleaned(index == 0 ? read_directory(source, &place, out->note)
                                     : read_group(source, &place, out->note),
                          out->note);
    snprintf(out->text, sizeof out->text, "%s", text != NULL ? text : "");
    cleaned(WEIR_EINVAL, out->text);
    return true;
}

/* ---- where ---- */

static uint64_t fnv1a(uint64_t hash, const void *bytes, size_t length) {
    for (const uint8_t *at = bytes; length > 0; at++, length--)
        hash = (hash ^ *at) * UINT64_C(0x100000001b3);
    return hash;
}

int place_fabric(const struct shm_place *place, uint8_t id_out[WEIR_FABRIC_ID_SIZE]) {
    struct {
        char boot[64];
        uint64_t kind, device, inode;
    } here = {.kind = place->directory[0] != '\0'};
    struct stat st;
    fork_hold();
    int fd = fork_own(open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
    fork_release();
    ssize_t length = fd < 0 ? -1 : read(fd, here.boot, sizeof here.boot);
    if (fd >= 0)
        fork_close(fd);
    if (fd < 0 && seg_error(errno) == WEIR_EMFILE)
        return WEIR_EMFILE;
    if (length <= 0)
        return WEIR_ENODEVICE;
    if (stat(here.kind != 0 ? place->directory : "/proc/self/ns/net", &st) != 0)
        return here.kind != 0 ? WEIR_EINVAL : WEIR_ENODEVICE;
    here.device = st.st_dev;
    here.inode = st.st_ino;
    uint64_t halves[2] = {fnv1a(UINT64_C(0xcbf29ce484222325), &here, sizeof here),
                          fnv1a(UINT64_C(0x6c62272e07bb0142), &here, sizeof here)};
    _Static_assert(sizeof halves == WEIR_FABRIC_ID_SIZE, "fills the id");
    memcpy(id_out, halves, sizeof halves);
    return 0;
}

/* Whether this process is in the group, and so its peers may take it for a member. */
static bool is_member(gid_t group) {
    gid_t groups[GROUPS_MAX];
    int count = getgroups(GROUPS_MAX, groups);
    bool member = getegid() == group;
    for (int i = 0; i < count; i++)
        member |= groups[i] == group;
    return member;
}

void place_describe(const struct shm_place *place, char *out, size_t size) {
    char group[32] = "", where[40] = "this network namespace", lacks[40] = "";
    if (place->has_group && is_member(place->group))
        snprintf(group, sizeof group, " or of group %u", (unsigned)place->group);
    else if (place->has_group)
        snprintf(lacks, sizeof lacks, "; is not in group %u itself", (unsigned)place->group);
    if (place->directory[0] != '\0')
        snprintf(where, sizeof where, "%.32s", place->directory);
    snprintf(out, size, "reaches engines of user %u%s in %s%s", (unsigned)geteuid(), group, where,
             lacks);
    cleaned(WEIR_EINVAL, out);
}

void place_tell_no_socket(const struct shm_place *place, int error, char *out, size_t size) {
    snprintf(out, size, "%s=%.32s: user %u can make no socket there: %.24s", place->directory_said,
             place->directory, (unsigned)geteuid(), strerror(error));
    cleaned(WEIR_EINVAL, out);
}

static socklen_t address_of(const struct shm_place *place, uint64_t nonce,
                            struct sockaddr_un *address_out) {
    memset(address_out, 0, sizeof *address_out);
    address_out->sun_family = AF_UNIX;
    bool is_path = place->directory[0] != '\0';
    char *at = address_out->sun_path + !is_path; /* an abstract name begins with a zero */
    size_t room = sizeof address_out->sun_path - 1;
    int length = snprintf(at, room, "%s%s" NAME_PREFIX "%016" PRIx64, place->directory,
                          is_path ? "/" : "", nonce);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

static int error_of(int error) {
    switch (error) {
    case ECONNREFUSED:
    case ENOENT:
        return WEIR_EPEER;
    case EAGAIN:
        return WEIR_EAGAIN;
    case EACCES:
    case EPERM:
        return WEIR_EDENIED;
    case ENOBUFS:
        return WEIR_ENOMEM;
    default:
        return seg_error(error);
    }
}

static int socket_new(void) {
    fork_hold();
    int fd = fork_own(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    fork_release();
    return fd;
}

/* ---- listening ---- */

/* Removes a socket of ours that nobody listens on any more, and did not just begin to. */
static void sweep_one(const struct shm_place *place, const char *name) {
    char digits[NAME_DIGITS + 1] = "";
    struct sockaddr_un address;
    struct stat st;
    uint64_t nonce;
    if (strlen(name) != NAME_BYTES || strncmp(name, NAME_PREFIX, sizeof NAME_PREFIX - 1) != 0)
        return;
    memcpy(digits, name + sizeof NAME_PREFIX - 1, NAME_DIGITS);
    char *end;
    nonce = strtoull(digits, &end, 16);
    socklen_t length = address_of(place, nonce, &address);
    if (*end != '\0' || lstat(address.sun_path, &st) != 0 || !S_ISSOCK(st.st_mode) ||
        st.st_uid != geteuid() || time(NULL) - st.st_ctime < SWEEP_AGE_S)
        return;
    int fd = socket_new();
    if (fd < 0)
        return;
    if (connect(fd, (struct sockaddr *)&address, length) != 0 && errno == ECONNREFUSED)
        unlink(address.sun_path);
    fork_close(fd);
}

static void sweep(const struct shm_place *place) {
    DIR *directory = opendir(place->directory);
    struct dirent *entry;
    if (directory == NULL)
        return;
    for (int i = 0; i < SWEEP_MAX && (entry = readdir(directory)) != NULL; i++)
        sweep_one(place, entry->d_name);
    closedir(directory);
}

int place_listen(const struct shm_place *place, uint64_t nonce) {
    struct sockaddr_un address;
    socklen_t length = address_of(place, nonce, &address);
    bool is_path = place->directory[0] != '\0';
    if (is_path)
        sweep(place);
    int fd = socket_new();
    if (fd < 0)
        return error_of(errno);
    int rc = 0;
    if (bind(fd, (struct sockaddr *)&address, length) != 0)
        rc = error_of(errno);
    /* The directory and place_admits say who may come in, and the umask does not. */
    if (rc == 0 && is_path && chmod(address.sun_path, 0666) != 0)
        rc = error_of(errno);
    if (rc == 0 && listen(fd, SOMAXCONN) != 0)
        rc = error_of(errno);
    if (rc == 0)
        return fd;
    int error = errno;
    place_leave(place, nonce);
    fork_close(fd);
    errno = error; /* the probe tells */
    return rc == WEIR_ENOMEM || rc == WEIR_EMFILE ? rc : WEIR_ENODEVICE;
}

void place_leave(const struct shm_place *place, uint64_t nonce) {
    struct sockaddr_un address;
    address_of(place, nonce, &address);
    if (place->directory[0] != '\0')
        unlink(address.sun_path);
}

/* ---- who ---- */

static bool has_group(int socket, const struct ucred *who, gid_t group) {
    gid_t groups[GROUPS_MAX];
    socklen_t length = sizeof groups;
    if (who->gid == group)
        return true;
    if (getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups, &length) != 0)
        return false; /* more than are usual, or an old kernel */
    for (size_t i = 0; i < length / sizeof groups[0]; i++) {
        if (groups[i] == group)
            return true;
    }
    return false;
}

bool place_admits(const struct shm_place *place, int socket, int32_t *pid_out) {
    struct ucred who;
    socklen_t length = sizeof who;
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &length) != 0)
        return false;
    *pid_out = who.pid;
    if (who.uid == geteuid() && (who.uid != OVERFLOW_ID || place->maps_all_users))
        return true;
    return place->has_group && has_group(socket, &who, place->group);
}

int place_call(const struct shm_place *place, uint64_t nonce, int32_t *pid_out) {
    struct sockaddr_un address;
    socklen_t length = address_of(place, nonce, &address);
    int fd = socket_new();
    if (fd < 0)
        return error_of(errno);
    int rc = 0;
    if (connect(fd, (struct sockaddr *)&address, length) != 0)
        rc = error_of(errno);
    else if (!place_admits(place, fd, pid_out))
        rc = WEIR_EDENIED;
    if (rc == 0)
        return fd;
    fork_close(fd);
    return rc;
}
