/* SPDX-License-Identifier: Apache-2.0 */
/* explain.c: the system's word on something that did not work: tried once more, and given back at
 * once.
 *
 * Owns the sentences. Leaves to others: when they are asked for. Nothing here is kept.
 */
#define _GNU_SOURCE
#include "explain.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "address.h"
#include "fork.h"
#include "socket.h"

/* An engine takes 15 on shm, and one for each memory; 20 on ofi. */
enum { DESCRIPTORS_LEAST = 16, DESCRIPTORS_ENOUGH = 20 };
#define KILOBYTE 1000
#define MEGABYTE 1000000

/* Why the text is no address; false: it may be one. */
static bool bad_address(const char *address, char *why_out, size_t size) {
    char host[ADDRESS_HOST_MAX];
    uint16_t port;
    if (address_split(address, host, &port) == WEIR_OK)
        return false;
    const char *digits = strrchr(address, ':');
    if (digits != NULL && digits[1] != '\0' && digits != address &&
        digits[1 + strspn(digits + 1, "0123456789")] == '\0' &&
        (address[0] == '[' || strchr(address, ':') == digits) && strlen(digits) > 5)
        snprintf(why_out, size, "port %.16s is not in 0..65535", digits + 1);
    else
        snprintf(why_out, size, "not HOST:PORT or [IPV6]:PORT");
    return true;
}

bool os_explain_advertise(const char *text, char *why_out, size_t size) {
    char host[ADDRESS_HOST_MAX] = "";
    uint16_t port = 1;
    struct address address;
    bool whole = address_split(text, host, &port) == WEIR_OK;
    const char *colon = strchr(text, ':');
    if (!whole && strlen(text) < sizeof host)
        strcpy(host, text);
    bool is_numeric = address_numeric(host, port, &address) == WEIR_OK;
    if (whole && port == 0)
        snprintf(why_out, size, "port 0 is no port that peers can call");
    else if (is_numeric && address_is_any(&address))
        snprintf(why_out, size, "a wildcard, which names no host");
    else if ((!whole && (host[0] == '\0' || host[0] == '[' || (colon != NULL && !is_numeric))) ||
             (whole && text[0] == '[' && !is_numeric))
        snprintf(why_out, size, "not HOST, HOST:PORT or [IPV6]:PORT");
    else
        return false;
    return true;
}

void os_explain_listen(const char *address, char *why_out, size_t size) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *found = NULL;
    struct address_list list;
    char host[ADDRESS_HOST_MAX];
    uint16_t port;
    if (bad_address(address, why_out, size) || address_split(address, host, &port) != WEIR_OK)
        return;
    int rc = getaddrinfo(host, NULL, &hints, &found);
    if (rc != 0) {
        snprintf(why_out, size, "%s", gai_strerror(rc));
        return;
    }
    freeaddrinfo(found);
    snprintf(why_out, size, "cannot be bound");
    rc = address_resolve(host, port, &list);
    for (uint32_t i = 0; rc == WEIR_OK && i < list.count; i++) {
        int fd = socket_listen(&list.entries[i]);
        if (fd >= 0) {
            fork_close(fd);
            snprintf(why_out, size, "could not be bound, and can be now");
            return;
        }
        snprintf(why_out, size, "%s", strerror(errno));
    }
}

bool os_explain_descriptors(char *why_out, size_t size) {
    int fds[DESCRIPTORS_ENOUGH], count = 0;
    struct rlimit limit = {0};
    fork_hold();
    while (count < DESCRIPTORS_ENOUGH &&
           (fds[count] = fork_own(open("/dev/null", O_RDONLY | O_CLOEXEC))) >= 0)
        count++;
    fork_release();
    for (int i = 0; i < count; i++)
        fork_close(fds[i]);
    if (count == DESCRIPTORS_ENOUGH)
        return false;
    getrlimit(RLIMIT_NOFILE, &limit);
    snprintf(why_out, size,
             "%d file descriptors are left of %llu (ulimit -n), and an "
             "engine takes %d to %d, as its device is",
             count, (unsigned long long)limit.rlim_cur, DESCRIPTORS_LEAST, DESCRIPTORS_ENOUGH);
    return true;
}

/* Bytes of address space that this process has mapped; 0 if nobody says. */
static uint64_t mapped_bytes(void) {
    FILE *file = fopen("/proc/self/statm", "re");
    unsigned long long pages = 0;
    if (file == NULL)
        return 0;
    if (fscanf(file, "%llu", &pages) != 1)
        pages = 0;
    fclose(file);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

bool os_explain_address_space(uint64_t bytes, char *why_out, size_t size) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return false;
    uint64_t mapped = mapped_bytes();
    uint64_t left = mapped < limit.rlim_cur ? limit.rlim_cur - mapped : 0;
    if (bytes < left)
        return false;
    snprintf(why_out, size,
             "it takes %llu MB of address space, though little of it is backed, and %llu MB are "
             "left of %llu (ulimit -v)",
             (unsigned long long)bytes / MEGABYTE, (unsigned long long)left / MEGABYTE,
             (unsigned long long)limit.rlim_cur / MEGABYTE);
    return true;
}

bool os_explain_file_size(uint64_t bytes, char *why_out, size_t size) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        bytes <= limit.rlim_cur)
        return false;
    snprintf(why_out, size,
             "shared memory counts as a file, and no file may have more than %llu KB (ulimit -f)",
             (unsigned long long)limit.rlim_cur / KILOBYTE);
    return true;
}
