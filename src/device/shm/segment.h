/* SPDX-License-Identifier: Apache-2.0 */
/* segment.h: the memory that a shm device shares with every device connected to
 * it, and the words in it that two processes read and write.
 *
 * One sealed memfd per device. The owner writes everything except the words
 * marked "peer", and the receive rings, which their senders write. A peer maps it when it was
 * handed the descriptor (hand.h); nothing has a name, so nothing is left behind by SIGKILL.
 *
 *     head page | pending words | QP entries | MR entries | guard | receive rings
 *
 * The file is sparse: pages are backed when an entry or a ring in them is first used,
 * so that running out of memory is an error and not a SIGBUS. Entries are backed by their
 * owner (fallocate), when it takes them. A ring is backed by its sender (madvise), before
 * its first message: one on which nothing is ever sent, of an idle peer, has no memory.
 * Where the kernel cannot do that (before 5.14), its owner backs it.
 *
 * Invariants:
 *  - Sizes and offsets are compile-time constants, equal on both sides; the head's
 *    magic carries a layout number. A peer checks size and seals before it maps.
 *  - Every value read from a segment of another process is read once into a local
 *    and checked there: it may change at any time.
 *
 *  - The guard has the words that each system call of a peer on the owner's process moves first
 *    (post.c). The owner itself touches them only at open, and takes the pages from its own address
 *    space to end what was begun (seg_revoke).
 *
 * Left to others: who is on the other side (link.c), what the entries mean
 * (qp.c, memory.c, post.c, poll.c). */
#ifndef SHM_SEGMENT_H
#define SHM_SEGMENT_H

#include <stdatomic.h>
#include <stdint.h>

#include "ports.h"

#define SHM_LINE_BYTES  64u
#define SHM_TOP_WORDS   7u /* with `sleeping`, one cache line */
#define SHM_LEAF_WORDS  (SHM_TOP_WORDS * 64u)
#define SHM_QPS_MAX     (SHM_LEAF_WORDS * 64u)
#define SHM_MRS_MAX     65536u
#define SHM_CHUNK_BYTES 4096u
#define SHM_CHUNKS_MAX  262144u
#define SHM_PAGE_MAX    65536u                     /* bytes of a page, on any machine */
#define SHM_MAGIC       UINT64_C(0x37306d68737277) /* "wrshm07" */

struct seg_head {
    /* Written at open, never again, but for the magic, which goes at close. */
    uint64_t magic;
    uint64_t nonce;
    int32_t pid;
    int32_t bell_fd; /* eventfd, by its number in the owner's process */
    uint64_t base;   /* where the segment lies in the owner's process: see seg_create */
    uint64_t order;  /* 1: the owner makes barriers for others, order.h */
    uint8_t pad_head[SHM_LINE_BYTES - 40];

    /* Peer: bit i of top[j] says that leaf word j * 64 + i may have bits. The owner
     * polls this one line. */
    _Atomic uint64_t top[SHM_TOP_WORDS];
    /* The owner's number of its sleep, while it sleeps; else 0. Peer: it rings the bell before
     * it clears this, so that no other relies on a peer that was stopped before it rang. */
    _Atomic uint32_t sleeping;
    uint32_t pad_sleeping;
};

/* The state word of a QP: a secret of this pair of QPs above, a SHM_STATE_* below, so
 * that one compare tells a peer that the QP is there, ready, and connected to it. */
#define SHM_STATE_MASK  UINT64_C(0xff)
#define SHM_STATE_GONE  0u
#define SHM_STATE_INIT  1u
#define SHM_STATE_READY 2u
#define SHM_STATE_ERROR 3u
#define SHM_STATE_NEVER 0xffu /* no QP writes this one */

/* The owner is inside a post: the peer gives the QP back, and what the post may touch with it, only
 * behind its end. Inside a system call on the peer's process, too: the peer's application may use
 * memory again that it had registered only behind the end of that. */
#define SHM_BUSY_POST UINT64_C(1)
#define SHM_BUSY_CALL UINT64_C(2)
#define SHM_BUSY_NEXT UINT64_C(4)

struct seg_qp {
    _Atomic uint64_t state;
    _Atomic uint64_t key; /* random at creation; 0: no QP here */
    uint64_t ring_offset; /* from the start of the segment */
    uint32_t cell_count;  /* a power of two; 0: takes no messages */
    uint32_t cell_bytes;
    uint32_t recv_bytes_max;
    /* 1: the owner looks at the ring itself whenever it polls, and is not asleep: its
     * sender marks nothing. Beside the state, which the sender reads anyway. */
    _Atomic uint32_t watched;
    uint8_t pad_state[SHM_LINE_BYTES - 40];

    _Atomic uint32_t posted; /* receives ever posted, modulo 2^32: the sender's credit */
    uint8_t pad_posted[SHM_LINE_BYTES - 4];

    /* SHM_BUSY_* below a count of posts, which never goes back, also when the entry is another
     * QP's. */
    _Atomic uint64_t busy;
    uint8_t pad_busy[SHM_LINE_BYTES - 8];

    /* Peer: 1 when the ring is backed. The owner looks at no ring before. */
    _Atomic uint32_t ring_backed;
    uint8_t pad_backed[SHM_LINE_BYTES - 4];
};

/* Peer: what it wrote here through the owner's address space, with its last write to registered
 * memory. */
struct seg_proof {
    _Atomic uint64_t word;
    uint8_t pad[SHM_LINE_BYTES - 8];
};

struct seg_guard {
    uint64_t nonce; /* as in the head: what reads of registered memory begin with */
    uint8_t pad_nonce[4096 - 8];
    struct seg_proof proofs[SHM_QPS_MAX];
    uint8_t pad_proofs[SHM_PAGE_MAX - 4096];
};

enum shm_kind {
    SHM_KIND_UNMAPPED = 0, /* of an import: it is about to be forgotten */
    SHM_KIND_MAPPED = 1,   /* a memfd that the peer maps */
    SHM_KIND_PROCESS = 2   /* anything else: process_vm_readv(2) and process_vm_writev(2) */
};

struct seg_mr {
    _Atomic uint64_t key; /* random; 0: released. A peer reads it for every run of WRs */
    uint64_t base;        /* SHM_KIND_PROCESS: address in the owner's process */
    uint64_t length;
    uint64_t inode; /* SHM_KIND_MAPPED: of the memfd */
    int32_t fd;     /* SHM_KIND_MAPPED: its number in the owner's process */
    uint32_t access;
    uint32_t kind;
    uint8_t pad[SHM_LINE_BYTES - 44];
};

/* A message in a receive ring. seq is written last and is the secret of the
 * connection plus the message's number: remains of an older connection in the ring are never taken
 * for a message. */
struct seg_cell {
    _Atomic uint64_t seq;
    uint32_t length;
    uint32_t reserved;
    uint8_t payload[];
};

struct seg_map {
    struct seg_head head;
    uint8_t pad_head[4096 - sizeof(struct seg_head)];
    _Atomic uint64_t leaf[SHM_LEAF_WORDS]; /* peer: QP i has something new */
    uint8_t pad_leaf[4096 - SHM_LEAF_WORDS * 8];
    struct seg_qp qps[SHM_QPS_MAX];
    struct seg_mr mrs[SHM_MRS_MAX];
    uint8_t pad_mrs[SHM_PAGE_MAX - 8192]; /* the head and the leaves take that much of a page */
    struct seg_guard guard;
    uint8_t rings[(uint64_t)SHM_CHUNKS_MAX * SHM_CHUNK_BYTES];
};

/* The bytes backed at open: up to the first page of QP entries. And of the guard: up to the first
 * page of proofs. */
#define SEG_OPEN_BYTES       (offsetof(struct seg_map, qps) + 4096)
#define SEG_OPEN_GUARD_BYTES (offsetof(struct seg_guard, proofs) + 4096)

_Static_assert(sizeof(struct seg_head) == 2 * SHM_LINE_BYTES, "top and sleeping share a line");
_Static_assert(sizeof(struct seg_qp) == 4 * SHM_LINE_BYTES, "one line per writer");
_Static_assert(sizeof(struct seg_mr) == SHM_LINE_BYTES, "one line");
_Static_assert(sizeof(struct seg_cell) == 16, "a small message is one line");
_Static_assert(offsetof(struct seg_map, guard) % SHM_PAGE_MAX == 0 &&
                   sizeof(struct seg_guard) % SHM_PAGE_MAX == 0,
               "the guard has pages of its own");
_Static_assert(offsetof(struct seg_map, rings) % SHM_PAGE_MAX == 0, "rings start on a page");
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2 && ATOMIC_INT_LOCK_FREE == 2,
               "locks do not work between processes");

/* The error for an errno of a call that makes a descriptor: EMFILE, ENOMEM, EDEVICE. */
int seg_error(int error);

/* A memfd of bytes that can neither shrink nor grow any more, owned as fork.h says; or an error as
 * above, and errno says why. */
int seg_memfd(const char *name, uint64_t bytes);

/* A shared mapping of all of a file, or (-1) private memory, as mmap(2), which no child of
 * fork(2) has: the bytes that peers write are for this process. NULL: none. */
void *seg_mmap(void *at, uint64_t bytes, int protection, int flags, int fd);

/* A stranger's descriptor must be a memfd that cannot shrink under the mapping, before it is
 * mapped. The size in bytes, 0 if it is anything else. */
uint64_t seg_check(int fd, uint64_t *inode_out);

/* Our own segment: made, mapped, head written. EMFILE, ENOMEM or EDEVICE.
 *
 * It lies at a random address in a part of the address space that no loader, heap or
 * sanitizer of Linux uses, and tells its peers where. So a process in which that address
 * is the segment is the owner: a process that has the pid after execve(2), or because the
 * pid was used again, has nothing there. random is what the address is drawn from. Where the
 * system does not allow such an address (valgrind, small address spaces), it lies anywhere. */
int seg_create(uint64_t nonce, uint64_t random, int bell_fd, bool orders, struct seg_map **map_out,
               int *fd_out);
/* Backs bytes of our own segment with memory. ENOMEM. */
int seg_back(int fd, const struct seg_map *map, const void *from, uint64_t bytes);
/* Backs bytes of any segment through its mapping. ENOMEM; ENOTSUP: its owner has to. */
int seg_populate(void *from, uint64_t bytes);
/* Maps another's; EINVAL if it is not a segment with this nonce of this process. */
int seg_attach(int fd, int32_t pid, uint64_t nonce, struct seg_map **map_out);
void seg_unmap(struct seg_map *map);
/* Takes the guard from our address space: a system call on this process that a peer begins from now
 * on moves nothing, also of a peer that was held on its way to it. One that moves bytes already
 * goes on. False: the system does not allow it. */
bool seg_revoke(struct seg_map *map);

/* Tells the owner of a segment that its QP `index` has something new. Not 0: the owner is in the
 * sleep of this number, and the caller has to ring, and to say so then. */
uint32_t seg_notify(struct seg_map *map, uint32_t index);
/* The bell was rung for this sleep: others need not. */
void seg_rung(struct seg_map *map, uint32_t sleep);

#endif
