/* SPDX-License-Identifier: Apache-2.0 */
/* cm_none.c: stands for cm.c where this library was built without librdmacm: there is no iWARP.
 *
 * Owns the sentence that says so. No device is opened that would need the rest. */
#include "verbs.h"

bool cm_address(const char *device_name, union ibv_gid *address_out, const char **why_out) {
    (void)device_name;
    (void)address_out;
    *why_out = "iWARP, and this library was built without librdmacm";
    return false;
}

bool cm_has_address(const char *device_name, const union ibv_gid *address) {
    (void)device_name;
    (void)address;
    return false;
}

void cm_give_up(struct weir_qp *qp) {
    (void)qp;
}

int cm_open(struct weir_device *device) {
    (void)device;
    return WEIR_ENOTSUP;
}

void cm_close(struct weir_device *device) {
    (void)device;
}

int cm_connect(struct weir_qp *qp) {
    (void)qp;
    return WEIR_ENOTSUP;
}

int cm_dial(struct weir_qp *qp) {
    (void)qp;
    return WEIR_ENOTSUP;
}

bool cm_dialled(struct weir_qp *qp) {
    (void)qp;
    return true;
}

int cm_events(struct weir_device *device, struct weir_async *events_out, int max) {
    (void)device;
    (void)events_out;
    (void)max;
    return 0;
}

int cm_hangup(struct weir_qp *qp) {
    (void)qp;
    return WEIR_OK;
}

void cm_drop(struct weir_qp *qp) {
    (void)qp;
}
