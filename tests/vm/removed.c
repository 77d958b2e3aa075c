/* SPDX-License-Identifier: Apache-2.0 */
/* removed.c: one engine writes to another, whose RDMA device is removed meanwhile (removed.sh does
 * that). Everything that an application is told goes to standard output, a line each; then the
 * process lives on, with its memory, until standard input ends. */
#define _GNU_SOURCE
#include "actors.h"

#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 1 << 16 };

struct side {
    weir_engine *engine;
    weir_memory own, allocated;
    void *base;
    uint8_t bytes[BYTES];
};

static void side_open(struct side *side, const char *device, const char *rdma_device) {
    side->engine = engine_open(device, rdma_device);
    must(weir_memory_register(side->engine, side->bytes, BYTES, WEIR_ACCESS_ALL, &side->own),
         "register");
    must(weir_memory_allocate(side->engine, BYTES, WEIR_ACCESS_ALL, &side->allocated, &side->base),
         "allocate");
}

static bool progress(struct side *target, struct side *writer) {
    int there = weir_engine_progress(target->engine), here = weir_engine_progress(writer->engine);

    return there == WEIR_EDEVICE && here == 0;
}

static void say(const char *text) {
    printf("%s\n", text);
    fflush(stdout);
}

/* Writes, until the target's application knows and the writer's has heard why. */
static void write_until_removed(struct side *target, struct side *writer, weir_peer peer,
                                weir_remote remote) {
    weir_segment one = {.local = writer->own, .remote = remote, .length = BYTES};
    uint64_t until = now_ns() + 60 * SECOND;
    bool knows = false, heard = false, began = false;
    weir_event event;

    while ((!knows || !heard) && now_ns() < until) {
        weir_transfer transfer = {0};
        int rc = weir_write(writer->engine, peer, &one, 1, NULL, &transfer);
        uint64_t patience = now_ns() + 20 * SECOND;
        while (rc == WEIR_OK && now_ns() < patience) {
            progress(target, writer);
            rc = weir_transfer_status(writer->engine, transfer);
            if (rc != WEIR_EINPROGRESS)
                break;
            rc = WEIR_OK;
        }
        weir_transfer_release(writer->engine, transfer);
        if (!began)
            say("writing");
        began = true;
        while (weir_event_take(target->engine, &event) == WEIR_OK)
            knows |= event.type == WEIR_EVENT_DEVICE_FAILED && event.error == WEIR_EDEVICE;
        while (weir_event_take(writer->engine, &event) == WEIR_OK) {
            if (event.type == WEIR_EVENT_GONE)
                printf("writer: GONE %s %s\n", weir_error_name(event.error),
                       weir_error_name((int)event.value));
            heard |= event.type == WEIR_EVENT_GONE && event.error == WEIR_EREFUSED &&
                     (int)event.value == WEIR_EDEVICE;
        }
    }
    say(knows ? "target: DEVICE_FAILED" : "target: was not told");
    say(heard ? "writer: refused with WEIR_EDEVICE" : "writer: did not hear why");
}

int main(int argc, char **argv) {
    static struct side target, writer;
    uint8_t descriptor[WEIR_DESCRIPTOR_MAX];
    size_t length = sizeof(descriptor);
    char address[WEIR_ADDRESS_MAX];
    struct pollfd end = {.fd = 0, .events = POLLIN};
    weir_remote remote;
    weir_memory memory;
    weir_peer peer;

    if (argc != 4)
        fail("usage: removed DEVICE RDMA_OF_WRITER RDMA_OF_TARGET", 0);
    side_open(&writer, argv[1], argv[2]);
    side_open(&target, argv[1], argv[3]);
    must(weir_engine_address(target.engine, address, sizeof(address)), "address");
    must(weir_peer_open(writer.engine, address, &peer), "peer");
    must(weir_memory_export(target.engine, target.allocated, descriptor, &length), "export");
    must(weir_memory_import(writer.engine, peer, descriptor, length, &remote), "import");
    write_until_removed(&target, &writer, peer, remote);
    memset(target.base, 1, BYTES); /* it is there still */
    /* Nothing has to be given back by the application for the device to go. */
    while (poll(&end, 1, 10) == 0)
        progress(&target, &writer);
    int rc = weir_memory_register(target.engine, target.bytes, BYTES, 0, &memory);
    printf("register: %s\n", weir_error_name(rc));
    must(weir_memory_release(target.engine, target.own), "release");
    weir_engine_close(target.engine);
    weir_engine_close(writer.engine);
    return rc == WEIR_EDEVICE ? EXIT_SUCCESS : EXIT_FAILURE;
}
