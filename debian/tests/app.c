/* SPDX-License-Identifier: Apache-2.0 */
/* app.c: a program of the packages' tests: two engines of one process, and bytes from one to the
 * other, with a notification. */
#include <stdio.h>
#include <string.h>
#include <weir.h>

#define MUST(call)                                                                                 \
    do {                                                                                           \
        int rc_ = (call);                                                                          \
        if (rc_ != WEIR_OK) {                                                                      \
            fprintf(stderr, "%s: %s\n", #call, weir_error_name(rc_));                              \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

int main(void) {
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
    weir_transfer_options with = WEIR_TRANSFER_OPTIONS_INIT;
    weir_notification notification;
    weir_engine *from, *to;
    weir_memory source, target;
    weir_remote remote;
    weir_peer peer;
    weir_transfer transfer;
    char address[WEIR_ADDRESS_MAX], descriptor[WEIR_DESCRIPTOR_MAX];
    size_t length = sizeof(descriptor);
    void *bytes, *there;

    options.flags = WEIR_ENGINE_THREAD;
    MUST(weir_engine_open(&options, &from));
    MUST(weir_engine_open(&options, &to));
    MUST(weir_memory_allocate(from, 4096, WEIR_ACCESS_ALL, &source, &bytes));
    MUST(weir_memory_allocate(to, 4096, WEIR_ACCESS_ALL, &target, &there));
    memset(bytes, 0x5a, 4096);

    MUST(weir_engine_address(to, address, sizeof(address)));
    MUST(weir_memory_export(to, target, descriptor, &length));
    MUST(weir_peer_open(from, address, &peer));
    MUST(weir_memory_import(from, peer, descriptor, length, &remote));

    weir_segment segment = {.local = source, .remote = remote, .length = 4096};
    with.flags = WEIR_TRANSFER_NOTIFY;
    MUST(weir_write(from, peer, &segment, 1, &with, &transfer));
    MUST(weir_transfer_wait(from, transfer, UINT64_C(60000000000)));
    /* The other engine's thread hands it on. */
    int rc;
    while ((rc = weir_notification_take(to, &notification)) == WEIR_EAGAIN)
        MUST(weir_engine_wait(to, UINT64_C(60000000000)));
    MUST(rc);
    if (memcmp(bytes, there, 4096) != 0) {
        fprintf(stderr, "the bytes are others\n");
        return 1;
    }
    weir_engine_close(from);
    weir_engine_close(to);
    printf("weir %s: 4096 bytes are there\n", weir_version());
    return 0;
}
