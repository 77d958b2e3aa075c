/* SPDX-License-Identifier: Apache-2.0 */
/* blobs.c: the blobs of peers' QPs and regions, damaged. */
#include "fixture.h"

/* H13: every byte of both blobs damaged in several ways, and every length: an error
 * or, where the byte does not matter, success; never a crash. */
void test_H13_damaged_blobs(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    static const uint8_t flips[] = {0x01, 0x80, 0xff};
    uint8_t blob[WEIR_MR_BLOB_MAX];
    uint32_t length = 0;
    assert_int_equal(f.ops->mr_export(f.b.device, &f.b.mr, blob, &length), 0);
    for (uint32_t at = 0; at < length; at++) {
        for (size_t k = 0; k < sizeof flips; k++) {
            struct weir_rmr remote;
            blob[at] ^= flips[k];
            if (f.ops->mr_import(f.a.device, blob, length, REGION_BYTES, 3, 0, &remote) == 0)
                f.ops->mr_forget(f.a.device, &remote);
            blob[at] ^= flips[k];
        }
        struct weir_rmr remote;
        assert_int_not_equal(f.ops->mr_import(f.a.device, blob, at, REGION_BYTES, 3, 0, &remote),
                             0);
    }
    struct weir_qp_granted good = f.b.granted;
    for (uint32_t at = 0; at < good.blob_length; at++) {
        for (size_t k = 0; k < sizeof flips; k++) {
            struct weir_qp_granted bad = good;
            bad.blob[at] ^= flips[k];
            destroy_qp(&f, &f.a);
            make_qp(&f, &f.a);
            (void)connect_qp(&f, &f.a, &bad);
        }
        struct weir_qp_granted cut = good;
        cut.blob_length = at;
        destroy_qp(&f, &f.a);
        make_qp(&f, &f.a);
        assert_int_equal(connect_qp(&f, &f.a, &cut), WEIR_EINVAL);
    }
    fixture_close(&f);
}

/* A descriptor that claims more than was registered is refused. */
void test_import_claims_too_much(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    for (int is_allocated = 0; is_allocated < 2; is_allocated++) {
        static uint8_t extra[4096];
        struct weir_mr mr;
        int rc = is_allocated
                     ? f.ops->mr_allocate(f.b.device, 4096, WEIR_ACCESS_REMOTE_READ, &mr)
                     : f.ops->mr_register(f.b.device, extra, 4096, WEIR_ACCESS_REMOTE_READ, &mr);
        assert_int_equal(rc, 0);
        uint8_t blob[WEIR_MR_BLOB_MAX];
        uint32_t length = 0;
        struct weir_rmr remote;
        assert_int_equal(f.ops->mr_export(f.b.device, &mr, blob, &length), 0);
        assert_int_not_equal(
            f.ops->mr_import(f.a.device, blob, length, 8192, WEIR_ACCESS_REMOTE_READ, 0, &remote),
            0);
        assert_int_not_equal(
            f.ops->mr_import(f.a.device, blob, length, 4096, WEIR_ACCESS_ALL, 0, &remote), 0);
        release_mr(&f, f.b.device, &mr);
        if (!f.caps.completes_inline) /* an import looks at nothing but the descriptor */
            continue;
        assert_int_not_equal(
            f.ops->mr_import(f.a.device, blob, length, 4096, WEIR_ACCESS_REMOTE_READ, 0, &remote),
            0);
    }
    fixture_close(&f);
}
