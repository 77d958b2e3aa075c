/* shm.c: opening and closing the shm device, what it can do, and its table of
 * operations.
 *
 * Owns the device's descriptors (segment, bell, epoll). Left to others: everything
 * that happens on an open device. */
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shm.h"

/* ---- who we are ---- */

static uint64_t fnv1a(uint64_t hash, const void *bytes, size_t length) {
    for (const uint8_t *at = bytes; length > 0; at++, length--)
        hash = (hash ^ *at) * UINT64_C(0x100000001b3);
    return hash;
}

/* Length of the text in a small file under /proc; 0: not readable, and errno says why. */
static size_t read_small(const char *path, char *out, size_t size) {
    errno = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t length = read(fd, out, size);
    close(fd);
    return length > 0 ? (size_t)length : 0;
}

/* Two processes can name each other by pid if they run on the same boot of the same
 * kernel, in the same pid namespace. */
static int fabric_id(uint8_t *out) {
    char boot[64];
    size_t length = read_small("/proc/sys/kernel/random/boot_id", boot, sizeof boot);
    struct stat st;
    if (length == 0 && seg_error(errno) == WEIR_EMFILE)
        return WEIR_EMFILE;
    if (length == 0 || stat("/proc/self/ns/pid", &st) != 0)
        return WEIR_ENODEVICE;
    uint64_t halves[2] = {UINT64_C(0xcbf29ce484222325), UINT64_C(0x6c62272e07bb0142)};
    for (int i = 0; i < 2; i++) {
        halves[i] = fnv1a(halves[i], boot, length);
        halves[i] = fnv1a(halves[i], &st.st_ino, sizeof st.st_ino);
    }
    _Static_assert(sizeof halves == WEIR_FABRIC_ID_SIZE, "fills the id");
    memcpy(out, halves, sizeof halves);
    return 0;
}

static int fill_caps(struct weir_device_caps *caps) {
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
    int rc = fabric_id(filled.fabric);
    if (rc == 0)
        *caps = filled;
    return rc;
}

/* Yama's ptrace_scope (Documentation/admin-guide/LSM/Yama.rst); 0 without Yama. */
static int yama_scope(void) {
    char text[8] = "";
    size_t length = read_small("/proc/sys/kernel/yama/ptrace_scope", text, sizeof text - 1);
    return length == 0 ? 0 : (int)strtol(text, NULL, 10);
}

/* Whether its variables make sense; if not, the note says why. */
static int check_settings(struct weir_device_caps *caps_out) {
    struct weir_device_setting setting;
    for (size_t i = 0; shm_setting(i, getenv, &setting); i++) {
        if (setting.status != 0) {
            snprintf(caps_out->note, sizeof caps_out->note, "%s", setting.note);
            return setting.status;
        }
    }
    return 0;
}

static int shm_probe(struct weir_device_caps *caps_out) {
    int rc = check_settings(caps_out);
    if (rc != 0)
        return rc;
    /* 2: only with CAP_SYS_PTRACE, which we cannot ask of peers; 3: nobody. */
    if (yama_scope() >= 2 && geteuid() != 0)
        return WEIR_ENODEVICE;
    int fd = seg_memfd("weir-probe", 4096);
    if (fd < 0)
        return fd == WEIR_EMFILE ? fd : WEIR_ENODEVICE;
    close(fd);
    /* Without pidfd_getfd(2) (old kernels, some sandboxes, valgrind) only devices of
     * this process can be reached; connecting to another says EDEVICE. */
    return fill_caps(caps_out);
}

/* ---- open, close ---- */

static int open_descriptors(struct weir_device *device) {
    device->bell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (device->bell_fd < 0)
        return seg_error(errno);
    device->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (device->epoll_fd < 0)
        return seg_error(errno);
    /* Edge-triggered: every ring wakes once, and nobody has to read the counter. */
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.ptr = NULL};
    if (epoll_ctl(device->epoll_fd, EPOLL_CTL_ADD, device->bell_fd, &event) != 0)
        return seg_error(errno);
    return seg_create(device->nonce, device->bell_fd, &device->map, &device->map_fd);
}

static void close_descriptors(struct weir_device *device) {
    if (device->map != NULL) {
        device->map->head.magic = 0; /* a blob that is still about finds nothing */
        seg_unmap(device->map);
        close(device->map_fd);
    }
    if (device->epoll_fd >= 0)
        close(device->epoll_fd);
    if (device->bell_fd >= 0)
        close(device->bell_fd);
}

static int shm_open_device(const struct weir_env *env, struct weir_device **device_out) {
    struct weir_device *device = env->ops->alloc(env->self, sizeof *device);
    if (device == NULL)
        return WEIR_ENOMEM;
    device->env = *env;
    device->bell_fd = device->epoll_fd = device->map_fd = -1;
    env->ops->entropy(env->self, &device->nonce, sizeof device->nonce);
    device->qp_index_end = SHM_QPS_FIRST;
    pthread_mutex_init(&device->mutex, NULL);
    int rc = fill_caps(&device->caps);
    if (rc == 0)
        rc = copy_choose(env, getenv, &device->copier.choice);
    if (rc == 0)
        rc = open_descriptors(device);
    if (rc != 0) {
        close_descriptors(device);
        pthread_mutex_destroy(&device->mutex);
        env->ops->free(env->self, device, sizeof *device);
        return rc;
    }
    /* With Yama's scope 1 only a parent may reach into a process, unless it says
     * otherwise (prctl(2)). That is what opening this device means. Without Yama
     * this is an error of no consequence. */
    if (yama_scope() == 1)
        prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    *device_out = device;
    return 0;
}

static void shm_close_device(struct weir_device *device) {
    assert(device->all == NULL);
    struct weir_env env = device->env;
    memory_close(device);
    close_descriptors(device);
    pthread_mutex_destroy(&device->mutex);
    env.ops->free(env.self, device, sizeof *device);
}

static void shm_query(struct weir_device *device, struct weir_device_caps *caps_out) {
    *caps_out = device->caps;
}

const struct weir_device_ops shm_device_ops = {
    .name = "shm",
    .probe = shm_probe,
    .open = shm_open_device,
    .close = shm_close_device,
    .query = shm_query,
    .mr_register = shm_mr_register,
    .mr_allocate = shm_mr_allocate,
    .mr_release = shm_mr_release,
    .mr_export = shm_mr_export,
    .mr_import = shm_mr_import,
    .mr_forget = shm_mr_forget,
    .import_populate = shm_import_populate,
    .import_unmap = shm_import_unmap,
    .qp_create = shm_qp_create,
    .qp_connect = shm_qp_connect,
    .qp_error = shm_qp_error,
    .qp_destroy = shm_qp_destroy,
    .post_send = shm_post_send,
    .post_pieces = shm_post_pieces,
    .post_recv = shm_post_recv,
    .poll = shm_poll,
    .events = shm_events,
    .fd = shm_fd,
    .arm = shm_arm,
    .disarm = shm_disarm,
};
