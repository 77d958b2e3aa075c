/* SPDX-License-Identifier: Apache-2.0 */
/* nixl_log.h: stands in the place of NIXL's header of this name, which is abseil's log.
 *
 * NIXL's interface includes that, and the plug-in writes no such log: so it is built where abseil
 * is not, or is another version than NIXL's, and needs no symbol of either. Lines that
 * inline functions of the interface write go nowhere. */
#ifndef WEIR_QUIET_NIXL_LOG_H
#define WEIR_QUIET_NIXL_LOG_H

namespace weir_quiet {
struct sink {
    template <typename T> const sink &operator<<(const T &) const {
        return *this;
    }
};
} // namespace weir_quiet

#define NIXL_FATAL        weir_quiet::sink()
#define NIXL_ERROR        weir_quiet::sink()
#define NIXL_ERROR_FUNC   weir_quiet::sink()
#define NIXL_WARN         weir_quiet::sink()
#define NIXL_INFO         weir_quiet::sink()
#define NIXL_DEBUG        weir_quiet::sink()
#define NIXL_TRACE        weir_quiet::sink()
#define NIXL_ASSERT(what) weir_quiet::sink()

#endif
