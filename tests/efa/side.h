/* SPDX-License-Identifier: Apache-2.0 */
/* side.h: an endpoint of the provider with all that belongs to it, and a buffer that is registered,
 * for the tests of the provider. A failure ends the process. */
#ifndef EFA_SIDE_H
#define EFA_SIDE_H

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "%s:%d: %s: not so: %s\n", __FILE__, __LINE__, __func__, #what);       \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

enum { PATIENCE_S = 100, SKIPPED = 77, MIB = 1 << 20, ADDRESS = 32 };

/* One endpoint, and one buffer that is registered. */
struct side {
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *av;
    struct fid_cq *cq;
    struct fid_ep *ep;
    struct fid_mr *mr;
    uint8_t *bytes;
    size_t size;
    fi_addr_t peer;
    struct fi_context2 contexts[256];
};

/* As much as one side must know of the other. */
struct about {
    uint8_t address[ADDRESS];
    uint64_t base, key;
};

/* Until it is not refused any more. */
#define INSIST(post)                                                                               \
    do {                                                                                           \
        uint64_t end_ms = now_ms() + PATIENCE_S * 1000u;                                           \
        ssize_t insisted;                                                                          \
        while ((insisted = (post)) == -FI_EAGAIN && now_ms() < end_ms)                             \
            nap(0);                                                                                \
        CHECK(insisted == 0);                                                                      \
    } while (0)

uint64_t now_ms(void);
void nap(unsigned ms);
void pattern(uint8_t *bytes, size_t len, unsigned seed);
bool is_pattern(const uint8_t *bytes, size_t len, unsigned seed);
struct fi_info *ask(void);
void open_cq(struct side *side, enum fi_wait_obj wait, size_t size);
void open_side(struct side *side, size_t size, size_t cq_size);
void close_side(struct side *side);
struct about about(struct side *side);
void meet(struct side *side, const struct about *other);
struct about swap(struct side *side, int fd);
void tell(int fd);
void hear(int fd);
ssize_t try_receive(struct side *side, size_t at, size_t len, void *context);
ssize_t try_send(struct side *side, size_t at, size_t len, void *context);
ssize_t try_transfer(struct side *side, bool writes, size_t at, size_t len,
                     const struct about *other, size_t to, void *context);
int next_within(struct side *side, struct fi_cq_msg_entry *entry_out, unsigned ms);
int next(struct side *side, struct fi_cq_msg_entry *entry_out);
void expect(struct side *side, const void *context, uint64_t flags, size_t len);
int status_of(struct side *side, const void *context);

#endif
