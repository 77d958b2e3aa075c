/* SPDX-License-Identifier: Apache-2.0 */
/* test_engine_metrics.c: an engine's counters as text, in both formats, line by line. */
#include "engine_side.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { TEXT_BYTES = 1 << 16, LINE_BYTES = 256 };

static const uint32_t formats[] = {WEIR_METRICS_OPENMETRICS, WEIR_METRICS_PROMETHEUS};

static size_t room_of(struct side *side, uint32_t format) {
    size_t room = 0;
    assert_int_equal(weir_engine_metrics(side->engine, format, NULL, 0, &room), WEIR_OK);
    return room;
}

/* Into text, of TEXT_BYTES; its length. */
static size_t metrics_of(struct side *side, uint32_t format, char *text) {
    size_t length = 0;
    memset(text, 'x', TEXT_BYTES);
    assert_int_equal(weir_engine_metrics(side->engine, format, text, TEXT_BYTES, &length), WEIR_OK);
    assert_int_equal(strlen(text), length);
    return length;
}

/* Whether there is this very line. */
static bool has_line(const char *text, const char *line) {
    size_t length = strlen(line);
    for (const char *at = text; (at = strstr(at, line)) != NULL; at++) {
        if ((at == text || at[-1] == '\n') && at[length] == '\n')
            return true;
    }
    return false;
}

#define HAS_LINE(text, ...)                                                                        \
    do {                                                                                           \
        char has_line_of[LINE_BYTES];                                                              \
        snprintf(has_line_of, sizeof(has_line_of), __VA_ARGS__);                                   \
        if (!has_line(text, has_line_of))                                                          \
            fail_msg("%s:%d: \"%s\" is not in:\n%s", __FILE__, __LINE__, has_line_of, text);       \
    } while (0)

static void test_B4_metrics_tell_what_a_query_tells(void **state) {
    struct side a, b;
    char text[TEXT_BYTES];
    (void)state;
    pair_open(&a, &b, NULL);
    weir_segment segment = segment_of(&a, 0, 0, 1000);
    assert_int_equal(write_now(&a, &b, &segment, 1, NULL), WEIR_OK);
    assert_int_equal(read_now(&a, &b, &segment, 1, NULL), WEIR_OK);
    weir_engine_info info = stats_of(&a);
    assert_int_equal(info.bytes_written, 1000);

    metrics_of(&a, WEIR_METRICS_OPENMETRICS, text);
    HAS_LINE(text, "# TYPE weir info");
    HAS_LINE(text, "weir_info{version=\"%s\",device=\"shm\"} 1", weir_version());
    HAS_LINE(text, "# HELP weir_transfers_ok transfers that ended well");
    HAS_LINE(text, "# TYPE weir_transfers_ok counter");
    HAS_LINE(text, "weir_transfers_ok_total %" PRIu64, info.transfers_ok);
    HAS_LINE(text, "# TYPE weir_written_bytes counter");
    HAS_LINE(text, "# UNIT weir_written_bytes bytes");
    HAS_LINE(text, "weir_written_bytes_total 1000");
    HAS_LINE(text, "weir_read_bytes_total 1000");
    HAS_LINE(text, "# TYPE weir_inflight_bytes gauge");
    HAS_LINE(text, "weir_inflight_bytes 0");
    HAS_LINE(text, "weir_inflight_high_water_bytes %" PRIu64, info.inflight_bytes_high_water);
    assert_string_equal(strrchr(text, '#'), "# EOF\n");

    metrics_of(&a, WEIR_METRICS_PROMETHEUS, text);
    HAS_LINE(text, "# TYPE weir_info gauge");
    HAS_LINE(text, "# HELP weir_transfers_ok_total transfers that ended well");
    HAS_LINE(text, "# TYPE weir_transfers_ok_total counter");
    HAS_LINE(text, "weir_transfers_ok_total %" PRIu64, info.transfers_ok);
    HAS_LINE(text, "# TYPE weir_written_bytes_total counter");
    HAS_LINE(text, "weir_written_bytes_total 1000");
    HAS_LINE(text, "# TYPE weir_inflight_bytes gauge");
    assert_null(strstr(text, "UNIT"));
    assert_null(strstr(text, "EOF"));
    pair_close(&a, &b);
}

/* Nothing is left out: as many samples as counters, and weir_info. */
static void test_B4_metrics_have_every_counter(void **state) {
    struct side a;
    char text[TEXT_BYTES];
    const size_t counters = (sizeof(weir_engine_info) - sizeof(size_t)) / sizeof(uint64_t);
    (void)state;
    side_open(&a, NULL);
    for (size_t i = 0; i < 2; i++) {
        size_t samples = 0, helps = 0;
        metrics_of(&a, formats[i], text);
        for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
            samples += line[0] != '#';
            helps += strncmp(line, "# HELP ", 7) == 0;
        }
        assert_int_equal(samples, counters + 1);
        assert_int_equal(helps, counters + 1);
    }
    side_close(&a);
}

/* The room that is asked for is enough for any counters, and needed: one byte less is refused. */
static void test_B4_metrics_fit_the_room_that_they_ask_for(void **state) {
    struct side a;
    char text[TEXT_BYTES];
    size_t length = 0;
    (void)state;
    side_open(&a, NULL);
    for (size_t i = 0; i < 2; i++) {
        size_t room = room_of(&a, formats[i]);
        assert_true(room <= sizeof(text));
        assert_true(metrics_of(&a, formats[i], text) < room);
        memset(text, 'x', sizeof(text));
        assert_int_equal(weir_engine_metrics(a.engine, formats[i], text, room, &length), WEIR_OK);
        assert_int_equal(text[room], 'x');
        assert_int_equal(weir_engine_metrics(a.engine, formats[i], text, room - 1, &length),
                         WEIR_ETOOBIG);
    }
    side_close(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_B4_metrics_tell_what_a_query_tells),
        cmocka_unit_test(test_B4_metrics_have_every_counter),
        cmocka_unit_test(test_B4_metrics_fit_the_room_that_they_ask_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
