/* SPDX-License-Identifier: Apache-2.0 */
/* settings.h: the parameters with which a backend is created, as options of a weir engine.
 *
 * Each parameter has a variable of the environment, NIXL_WEIR_ and its name in capitals: programs
 * that choose a plug-in by its name alone give it no parameters. A parameter goes before the
 * variable, that before weir's own environment, and that before the default. An empty one is none.
 */
#ifndef WEIR_NIXL_SETTINGS_H
#define WEIR_NIXL_SETTINGS_H

#include <string>

#include "backend/backend_engine.h"

#include "weir.h"

namespace weir_nixl {

struct Settings {
    /* The texts that `engine` points to. */
    std::string device, listen, advertise;
    std::string cuda_library = "libcuda.so.1";
    weir_engine_options engine = WEIR_ENGINE_OPTIONS_INIT;

    Settings() = default;
    Settings(const Settings &) = delete;
    Settings &operator=(const Settings &) = delete;
};

/* False: a parameter is refused, and a line on standard error said which and why. A name that is
 * none is said, and no more: agents hand the same parameters to plug-ins of several kinds. */
bool settings_read(const nixl_b_params_t &parameters, Settings &settings);

/* All names, each with an empty text: what is not given is weir's to choose. */
nixl_b_params_t settings_names();

} // namespace weir_nixl

#endif
