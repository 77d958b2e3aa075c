/* SPDX-License-Identifier: Apache-2.0 */
/* counts.c: what the kernel counts of the device's port.
 *
 * Owns the names. Those in `counters` are the same for all drivers, and `rate` is
 * (Documentation/ABI/stable/sysfs-class-infiniband); those in `hw_counters` are each driver's own
 * (rxe_hw_counters.c, mlx5's counters.c, irdma's and bnxt_re's hw_counters.c in Linux'
 * drivers/infiniband). A file that is not there counts nothing. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "fork.h"
#include "verbs.h"

#define WORD_BYTES       4 /* port_xmit_data and port_rcv_data count words of these */
#define TENTH_OF_GIGABIT UINT64_C(100000000)

/* Of each, what the drivers name that counts it. They have no name in common, so all are added. */
static const char *const not_ready[] = {
    "hw_counters/rcvd_rnr_err",      /* rxe */
    "hw_counters/rnr_nak_retry_err", /* mlx5 */
    "hw_counters/rnr_naks_rcvd",     /* bnxt_re */
    NULL,
};
static const char *const repeats[] = {
    "hw_counters/completer_retry_err",   /* rxe: the time was over, or a NAK came */
    "hw_counters/local_ack_timeout_err", /* mlx5: the time was over, */
    "hw_counters/packet_seq_err",        /* and a NAK came */
    "hw_counters/to_retransmits",        /* bnxt_re, likewise */
    "hw_counters/seq_err_naks_rcvd",     /* */
    "hw_counters/tcpRetransSegs",        /* irdma, iWARP */
    NULL,
};

/* A file of the port; false: it is not there, or cannot be read. text_out is a string. */
static bool read_text(const struct weir_device *device, const char *name, char *text_out,
                      size_t size) {
    char path[512];
    snprintf(path, sizeof path, "%s/ports/%u/%s", device->choice.context->device->ibdev_path,
             (unsigned)device->choice.port, name);
    fork_hold();
    int fd = fork_own(open(path, O_RDONLY | O_CLOEXEC));
    fork_release();
    if (fd < 0)
        return false;
    ssize_t length = read(fd, text_out, size - 1);
    fork_close(fd);
    text_out[length > 0 ? length : 0] = '\0';
    return length > 0;
}

static bool add(const struct weir_device *device, const char *name, uint64_t factor,
                uint64_t *sum) {
    char text[32], *end = text;
    if (!read_text(device, name, text, sizeof text))
        return false;
    unsigned long long count = strtoull(text, &end, 10);
    if (end == text)
        return false;
    *sum += count * factor;
    return true;
}

static bool add_all(const struct weir_device *device, const char *const *names, uint64_t *sum) {
    bool counted = false;
    for (int i = 0; names[i] != NULL; i++)
        counted |= add(device, names[i], 1, sum);
    return counted;
}

/* "2.5 Gb/sec (1X SDR)", whatever the locale. */
static uint64_t rate_of(const char *text) {
    char *end;
    unsigned long long whole = strtoull(text, &end, 10), tenths = 0;
    if (end[0] == '.' && end[1] >= '0' && end[1] <= '9')
        tenths = (unsigned long long)(end[1] - '0');
    return whole < 1000000 ? (whole * 10 + tenths) * (TENTH_OF_GIGABIT / 8) : 0;
}

bool verbs_counts(struct weir_device *device, struct weir_device_counts *out) {
    char text[64];
    *out = (struct weir_device_counts){0};
    bool counted = add_all(device, not_ready, &out->not_ready);
    counted |= add_all(device, repeats, &out->repeats);
    bool bytes = add(device, "counters/port_xmit_data", WORD_BYTES, &out->sent) &&
                 add(device, "counters/port_rcv_data", WORD_BYTES, &out->received);
    /* Soft-RoCE has a rate, which says nothing, and does not count bytes. */
    if (bytes && read_text(device, "rate", text, sizeof text))
        out->bytes_per_s = rate_of(text);
    return counted || bytes;
}
