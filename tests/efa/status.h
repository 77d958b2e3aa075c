/* SPDX-License-Identifier: Apache-2.0 */
/* status.h: the device's status codes, which are a completion's prov_errno: those of
 * EFA_IO_COMP_STATUS_* in libfabric. */
#ifndef EFA_STATUS_H
#define EFA_STATUS_H

enum status {
    STATUS_OK = 0,
    STATUS_FLUSHED = 1,
    STATUS_QP_INTERNAL = 2,
    STATUS_UNSUPPORTED = 3,
    STATUS_INVALID_AH = 4,
    STATUS_INVALID_LKEY = 5,
    STATUS_BAD_LENGTH = 6,
    STATUS_REMOTE_BAD_ADDRESS = 7,
    STATUS_REMOTE_ABORT = 8,
    STATUS_REMOTE_BAD_QPN = 9,
    STATUS_REMOTE_RNR = 10,
    STATUS_REMOTE_BAD_LENGTH = 11,
    STATUS_REMOTE_BAD_STATUS = 12,
    STATUS_UNRESPONSIVE = 13,
    STATUS_REMOTE_UNKNOWN_PEER = 14,
    STATUS_UNREACHABLE = 15,
};

int status_to_errno(int status); /* FI_E*, positive */
const char *status_text(int status);

#endif
