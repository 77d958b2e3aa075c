/* SPDX-License-Identifier: Apache-2.0 */
/* status.cpp: weir's codes as NIXL's. */
#include "status.h"

#include <atomic>
#include <cstdarg>
#include <cstddef>
#include <cstdio>

namespace weir_nixl {

nixl_status_t status_of(int code) {
    switch (code) {
    case WEIR_OK:
        return NIXL_SUCCESS;
    case WEIR_EINPROGRESS:
        return NIXL_IN_PROG;
    case WEIR_EINVAL:
    case WEIR_EBOUNDS:
        return NIXL_ERR_INVALID_PARAM;
    case WEIR_EACCESS:
        return NIXL_ERR_NOT_ALLOWED;
    case WEIR_ENOTSUP:
    case WEIR_ETOOBIG:
        return NIXL_ERR_NOT_SUPPORTED;
    case WEIR_ECANCELED:
        return NIXL_ERR_CANCELED;
    case WEIR_ESTALE:
    case WEIR_EUNKNOWN:
        return NIXL_ERR_REMOTE_DISCONNECT;
    default:
        return weir_error_class(code) == WEIR_CLASS_ENDPOINT ? NIXL_ERR_REMOTE_DISCONNECT
                                                             : NIXL_ERR_BACKEND;
    }
}

namespace {

/* An agent may do ten thousand times what cannot be done: of each kind so many lines are enough. */
const int lines_most = 20;
const size_t formats_most = 64; /* the plug-in has fewer; those behind them share one count */

struct Count {
    std::atomic<const char *> format{nullptr};
    std::atomic<int> lines{0};
};

int line_of(const char *format) noexcept {
    static Count counts[formats_most];
    Count *count = counts;
    for (; count < counts + formats_most - 1; count++) {
        const char *none = nullptr;
        if (count->format.compare_exchange_strong(none, format) || none == format)
            break;
    }
    if (count->lines > lines_most)
        return lines_most + 1;
    return ++count->lines;
}

} // namespace

void tell(const char *format, ...) noexcept {
    char line[1024];
    int count = line_of(format);
    if (count > lines_most)
        return;
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    for (char *at = line; *at != '\0'; at++)
        if (static_cast<unsigned char>(*at) < ' ' || *at == 127)
            *at = '?';
    std::fprintf(stderr, "weir: %s%s\n", line,
                 count == lines_most ? " (more such lines are not shown)" : "");
}

} // namespace weir_nixl
