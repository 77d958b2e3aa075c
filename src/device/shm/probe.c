/* SPDX-License-Identifier: Apache-2.0 */
/* probe.c: whether the shm device works here, by trying what it needs, and what it says of
 * itself.
 *
 * It tries memory that can be sealed, a bell, a descriptor that goes over a socket at the place
 * where engines meet; and, for registered memory, process_vm on this very process. A sandbox that
 * forbids one of them to this process is taken to forbid it to peers. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "fork.h"
#include "shm.h"
#include "tracer.h"

int caps_fill(const struct shm_place *place, struct weir_device_caps *caps_out) {
    struct weir_device_caps filled = {
        .blames = true,
        .name = "shm",
        .message_bytes_max = SHM_MESSAGE_BYTES_MAX,
        .post_bytes_max = SHM_POST_BYTES_MAX,
        .inline_bytes_max = SHM_INLINE_BYTES_MAX,
        .sq_depth_max = SHM_DEPTH_MAX,
        .rq_depth_max = SHM_DEPTH_MAX,
        .cq_capacity = SHM_CQ_CAPACITY,
        .ordered = true,
        .completes_inline = true,
        .mr_anywhere = true,
        .map_bytes = sizeof(struct seg_map),
    };
    int rc = place_fabric(place, filled.fabric);
    if (rc == 0)
        *caps_out = filled;
    return rc;
}

/* ---- what every transfer needs ---- */

/* NULL, or what does not work, with errno. */
static const char *try_descriptors(void) {
    int fd = seg_memfd("weir-probe", 4096);
    if (fd < 0)
        return "memfd_create";
    fork_close(fd);
    fork_hold();
    fd = fork_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    fork_release();
    if (fd < 0)
        return "eventfd";
    fork_close(fd);
    return NULL;
}

/* Hands a descriptor from the called side of a connection to the caller. NULL, or the part that
 * does not work, with errno. */
static const char *try_handing(int caller, int called) {
    char byte = 0;
    struct iovec vector = {&byte, 1};
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    memset(&control, 0, sizeof control);
    struct msghdr message = {.msg_iov = &vector,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    *header = (struct cmsghdr){
        .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
    memcpy(CMSG_DATA(header), &called, sizeof called);
    if (sendmsg(called, &message, MSG_DONTWAIT | MSG_NOSIGNAL) != 1 ||
        recvmsg(caller, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) != 1)
        return "SCM_RIGHTS (unix(7))";
    header = CMSG_FIRSTHDR(&message);
    if (header == NULL) {
        errno = EMFILE;
        return "SCM_RIGHTS (unix(7))";
    }
    int handed;
    memcpy(&handed, CMSG_DATA(header), sizeof handed);
    fork_hold();
    handed = fork_own(handed);
    fork_release();
    if (handed >= 0)
        fork_close(handed);
    return NULL;
}

static const char no_socket_there[] = "a socket in the directory (unix(7))";

static const char *try_meeting(const struct shm_place *place) {
    uint64_t nonce;
    int32_t pid;
    if (getrandom(&nonce, sizeof nonce, 0) != sizeof nonce)
        return "getrandom";
    const char *wrong = NULL;
    int caller = -1, called = -1, listener = place_listen(place, nonce);
    if (listener < 0)
        return place->directory[0] == '\0' ? "listening on a socket (unix(7))" : no_socket_there;
    caller = place_call(place, nonce, &pid);
    if (caller < 0)
        wrong =
            caller == WEIR_EDENIED ? "SO_PEERCRED (unix(7))" : "connecting to a socket (unix(7))";
    if (wrong == NULL) {
        fork_hold();
        called = fork_own(accept4(listener, NULL, NULL, SOCK_CLOEXEC));
        fork_release();
        wrong = called < 0 ? "accept4" : NULL;
    }
    if (wrong == NULL)
        wrong = try_handing(caller, called);
    int error = errno;
    place_leave(place, nonce);
    fork_close(listener);
    if (caller >= 0)
        fork_close(caller);
    if (called >= 0)
        fork_close(called);
    errno = error;
    return wrong;
}

/* ---- registered memory ---- */

/* Why peers' registered memory cannot be reached from here; "": it can, as far as is known. */
static void try_process_vm(char *out, size_t size) {
    char from = 1, to = 0;
    struct iovec source = {&from, 1}, target = {&to, 1};
    out[0] = '\0';
    if (process_vm_readv(getpid(), &target, 1, &source, 1, 0) != 1)
        snprintf(out, size, "process_vm_readv: %s", strerror(errno));
    else if (process_vm_writev(getpid(), &source, 1, &target, 1, 0) != 1)
        snprintf(out, size, "process_vm_writev: %s", strerror(errno));
    else if (tracer_scope() >= 2 && geteuid() != 0)
        snprintf(out, size, "kernel.yama.ptrace_scope is %d", tracer_scope());
}

/* ---- the variables ---- */

bool shm_setting(size_t index, const struct setting_source *source,
                 struct weir_device_setting *out) {
    size_t of_place = 0;
    while (place_setting(of_place, source, out)) {
        if (of_place++ == index)
            return true;
    }
    if (index != of_place)
        return false;
    copy_setting(source->get, out);
    return true;
}

/* EINVAL: one of them makes no sense, and the text says why. */
static int check_settings(const struct setting_source *source, char *text, size_t size) {
    struct weir_device_setting setting;
    for (size_t i = 0; shm_setting(i, source, &setting); i++) {
        if (setting.status != 0) {
            snprintf(text, size, "%s", setting.note);
            return setting.status;
        }
    }
    return 0;
}

/* ---- the whole ---- */

/* With errno. */
static void tell_wrong(const struct shm_place *place, const char *wrong, char *text, size_t size) {
    int error = errno;
    if (wrong == no_socket_there)
        place_tell_no_socket(place, error, text, size);
    else
        snprintf(text, size, "%.60s: %.60s", wrong, strerror(error));
    errno = error;
}

int shm_probe(const struct weir_device_wishes *wishes, struct weir_device_caps *caps_out) {
    struct setting_source source = {.get = getenv, .nic = wishes != NULL ? &wishes->nic : NULL};
    struct shm_place place;
    char text[WEIR_DEVICE_NOTE_MAX] = "", vm[64];
    struct weir_device_caps caps = {.name = "shm"};
    int rc = check_settings(&source, text, sizeof text);
    if (rc == 0)
        rc = place_read(&source, &place, text);
    if (rc == 0) {
        rc = caps_fill(&place, &caps);
        if (rc != 0)
            snprintf(text, sizeof text, "%s",
                     rc == WEIR_EMFILE ? "out of file descriptors"
                                       : "/proc does not tell the host and the network namespace");
    }
    if (rc == 0) {
        const char *wrong = try_descriptors();
        if (wrong == NULL)
            wrong = try_meeting(&place);
        if (wrong != NULL) {
            tell_wrong(&place, wrong, text, sizeof text);
            rc = seg_error(errno) == WEIR_EMFILE ? WEIR_EMFILE : WEIR_ENODEVICE;
        }
    }
    if (rc == 0) {
        place_describe(&place, text, sizeof text);
        try_process_vm(vm, sizeof vm);
        size_t length = strlen(text);
        if (vm[0] != '\0')
            snprintf(text + length, sizeof text - length, "; no registered memory: %s", vm);
    }
    snprintf(caps.note, sizeof caps.note, "%s", text);
    *caps_out = caps;
    return rc;
}

/* Nothing is tried: a place that no sandbox spoils does. */
int shm_glance(struct weir_device_caps *caps_out) {
    struct setting_source source = {.get = getenv};
    struct shm_place place;
    char text[WEIR_DEVICE_NOTE_MAX];
    int rc = check_settings(&source, text, sizeof text);
    if (rc == 0)
        rc = place_read(&source, &place, text);
    if (rc == 0)
        rc = caps_fill(&place, caps_out);
    return rc == 0 ? WEIR_OK : WEIR_ENODEVICE;
}
