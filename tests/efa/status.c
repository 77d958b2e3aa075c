/* SPDX-License-Identifier: Apache-2.0 */
/* status.c: the error that libfabric's efa provider makes of each status code, and a text. */
#include "status.h"

#include <rdma/fi_errno.h>
#include <stddef.h>

static const struct {
    int error;
    const char *text;
} table[] = {
    [STATUS_OK] = {FI_SUCCESS, "success"},
    [STATUS_FLUSHED] = {FI_ECANCELED, "flushed, for its QP is destroyed"},
    [STATUS_QP_INTERNAL] = {FI_EINVAL, "error within the local QP"},
    [STATUS_UNSUPPORTED] = {FI_EINVAL, "operation is not supported"},
    [STATUS_INVALID_AH] = {FI_EINVAL, "invalid address handle"},
    [STATUS_INVALID_LKEY] = {FI_EINVAL, "local memory is not registered for this"},
    [STATUS_BAD_LENGTH] = {FI_EMSGSIZE, "message is too long"},
    [STATUS_REMOTE_BAD_ADDRESS] = {FI_EINVAL, "remote memory is not registered for this"},
    [STATUS_REMOTE_ABORT] = {FI_ECONNABORTED, "reset by the peer"},
    [STATUS_REMOTE_BAD_QPN] = {FI_ENOTCONN, "peer has no such QP"},
    [STATUS_REMOTE_RNR] = {FI_ENORX, "peer has no receive posted"},
    [STATUS_REMOTE_BAD_LENGTH] = {FI_EMSGSIZE, "peer's receive is too short"},
    [STATUS_REMOTE_BAD_STATUS] = {FI_EREMOTEIO, "unexpected status of the peer"},
    [STATUS_UNRESPONSIVE] = {FI_ECONNABORTED, "peer does not answer any more"},
    [STATUS_REMOTE_UNKNOWN_PEER] = {FI_ENOTCONN, "peer has no address handle"},
    [STATUS_UNREACHABLE] = {FI_EHOSTUNREACH, "peer has never answered"},
};
enum { STATUSES = sizeof table / sizeof table[0] };

int status_to_errno(int status) {
    return status >= 0 && status < STATUSES ? table[status].error : FI_EOTHER;
}

const char *status_text(int status) {
    return status >= 0 && status < STATUSES ? table[status].text : "unknown status";
}
