/* SPDX-License-Identifier: Apache-2.0 */
/* counts.c: what the kernel counts of the device's port.
 *
 * Owns the names. Those in `counters` are the same for all drivers, and `rate` is
 * (Documentation/ABI/stable/sysfs-class-infiniband); those in `hw_counters` are each driver's own
 * (rxe_hw_counters.c, mlx5's counters.c, irdma's and bnxt_re's hw_counters.c in Linux'
 * drivers/infiniband). A file that is not there counts nothing. */
#define _GNU_SOURCE
#include <errno.h>
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
    "hw_counters/to_retransmits",        /* bnxt_re: the time was over, */
    "hw_counters/seq_err_naks_rcvd",     /* and a NAK came */
    "hw_counters/tcpRetransSegs",        /* irdma, iWARP */
    NULL,
};

/* One look at the files. */
struct reading {
    const struct weir_device *device;
    bool failed; /* a file is there, and cannot be read now: a sum without it would be a lie */
};

/* A file of the port; false: it is not there, or the reading failed. text_out is a string. */
static bool read_text(struct reading *reading, const char *name, char *text_out, size_t size) {
    const struct verbs_choice *choice = &reading->device->choice;
    char path[512];
    snprintf(path, sizeof path, "%s/ports/%u/%s", choice->context->device->ibdev_path,
             (unsigned)choice->port, name);
    fork_hold();
    int fd = fork_own(open(path, O_RDONLY | O_CLOEXEC)), error = errno;
    fork_release();
    if (fd < 0) {
        reading->failed |= error != ENOENT;
        return false;
    }
    ssize_t length = read(fd, text_out, size - 1);
    fork_close(fd);
    reading->failed |= length < 0;
    text_out[length > 0 ? length : 0] = '\0';
    return length > 0;
}

static bool add(struct reading *reading, const char *name, uint64_t factor, uint64_t *sum) {
    char text[32], *end = text;
    if (!read_text(reading, name, text, sizeof text))
        return false;
    unsigned long long count = strtoull(text, &end, 10);
    if (end == text)
        return false;
    *sum += count * factor;
    return true;
}

static bool add_all(struct reading *reading, const char *const *names, uint64_t *sum) {
    bool counted = false;
    for (int i = 0; names[i] != NULL; i++)
        counted |= add(reading, names[i], 1, sum);
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
    struct reading reading = {.device = device};
    char text[64];
    *out = (struct weir_device_counts){0};
    bool counted = add_all(&reading, not_ready, &out->not_ready);
    counted |= add_all(&reading, repeats, &out->repeats);
    bool bytes = add(&reading, "counters/port_xmit_data", WORD_BYTES, &out->sent) &&
                 add(&reading, "counters/port_rcv_data", WORD_BYTES, &out->received);
    /* Soft-RoCE has a rate, which says nothing, and does not count bytes. */
    if (bytes && read_text(&reading, "rate", text, sizeof text))
        out->bytes_per_s = rate_of(text);
    return (counted || bytes) && !reading.failed;
}
