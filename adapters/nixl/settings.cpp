/* SPDX-License-Identifier: Apache-2.0 */
/* settings.cpp: the parameters of a backend. */
#include "settings.h"

#include <cctype>
#include <cerrno>
#include <cstdlib>

#include "status.h"

namespace weir_nixl {

namespace {

using Options = weir_engine_options;

struct Text {
    const char *name;
    std::string Settings::*member;
};
const Text texts[] = {
    {"device", &Settings::device},
    {"listen", &Settings::listen},
    {"advertise", &Settings::advertise},
    {"cuda_library", &Settings::cuda_library},
};

struct Number {
    const char *name;
    uint32_t Options::*member;
};
const Number numbers[] = {
    {"transfers_max", &Options::transfers_max},
    {"segments_max", &Options::segments_max},
    {"peers_max", &Options::peers_max},
    {"memories_max", &Options::memories_max},
    {"remotes_max", &Options::remotes_max},
    {"qp_count", &Options::qp_count},
    {"sq_depth", &Options::sq_depth},
    {"recv_credits", &Options::recv_credits},
    {"notifications_max", &Options::notifications_max},
};

/* Milliseconds, or bytes, of 64 bits. */
struct Long {
    const char *name;
    uint64_t Options::*member;
    uint64_t unit;
};
const Long longs[] = {
    {"connect_timeout_ms", &Options::connect_timeout_ns, 1000000},
    {"teardown_timeout_ms", &Options::teardown_timeout_ns, 1000000},
    {"stall_timeout_ms", &Options::stall_timeout_ns, 1000000},
    {"inflight_bytes_max", &Options::inflight_bytes_max, 1},
};

/* An agent registers thousands of pieces, and has thousands of transfers: where weir's own
 * environment says nothing, the plug-in asks for more than the defaults. */
const uint32_t memories_usual = 65535, transfers_usual = 16384;

std::string variable_of(const std::string &name) {
    std::string variable = "NIXL_WEIR_";
    for (char letter : name)
        variable += static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
    return variable;
}

std::string value_of(const nixl_b_params_t &parameters, const std::string &name) {
    auto found = parameters.find(name);
    if (found != parameters.end() && !found->second.empty())
        return found->second;
    const char *value = std::getenv(variable_of(name).c_str());
    return value == nullptr ? "" : value;
}

/* False: no whole number from 1 to most. */
bool number_of(const std::string &text, uint64_t most, uint64_t &number) {
    if (text.empty() || !std::isdigit(static_cast<unsigned char>(text[0])))
        return false;
    char *end = nullptr;
    errno = 0;
    unsigned long long value = std::strtoull(text.c_str(), &end, 10);
    if (errno != 0 || *end != '\0' || value == 0 || value > most)
        return false;
    number = value;
    return true;
}

bool read_number(const nixl_b_params_t &parameters, const char *name, uint64_t most,
                 uint64_t &number) {
    std::string text = value_of(parameters, name);
    if (text.empty() || number_of(text, most, number))
        return true;
    tell("parameter %s of the NIXL plug-in is \"%s\", and has to be a whole number from 1 to %llu",
         name, text.c_str(), static_cast<unsigned long long>(most));
    return false;
}

bool read_numbers(const nixl_b_params_t &parameters, Options &options) {
    for (const Number &each : numbers) {
        uint64_t number = options.*each.member;
        if (!read_number(parameters, each.name, UINT32_MAX, number))
            return false;
        options.*each.member = static_cast<uint32_t>(number);
    }
    for (const Long &each : longs) {
        uint64_t number = 0;
        if (!read_number(parameters, each.name, UINT64_MAX / 1000000, number))
            return false;
        options.*each.member = number * each.unit;
    }
    return true;
}

void choose_addresses(Settings &settings) {
    Options &options = settings.engine;
    if (settings.device.empty())
        settings.device = "auto";
    options.device = settings.device.c_str();
    weir_device_info info = WEIR_DEVICE_INFO_INIT;
    bool shm = weir_device_choose(&options, &info) == WEIR_OK && std::string(info.name) == "shm";
    if (settings.listen.empty() && !shm)
        settings.listen = "0.0.0.0:0"; /* agents of other hosts are to come in */
    if (!settings.listen.empty())
        options.listen = settings.listen.c_str();
    if (!settings.advertise.empty())
        options.advertise = settings.advertise.c_str();
}

void say_strangers(const nixl_b_params_t &parameters) {
    const nixl_b_params_t known = settings_names();
    for (const auto &[name, value] : parameters)
        if (!value.empty() && known.count(name) == 0)
            tell("the NIXL plug-in has no parameter \"%s\", and takes no notice of it",
                 name.c_str());
}

} // namespace

bool settings_read(const nixl_b_params_t &parameters, Settings &settings) {
    say_strangers(parameters);
    for (const Text &each : texts) {
        std::string value = value_of(parameters, each.name);
        if (!value.empty())
            settings.*each.member = value;
    }
    if (std::getenv("WEIR_MEMORIES_MAX") == nullptr)
        settings.engine.memories_max = memories_usual;
    if (std::getenv("WEIR_TRANSFERS_MAX") == nullptr)
        settings.engine.transfers_max = transfers_usual;
    if (!read_numbers(parameters, settings.engine))
        return false;
    choose_addresses(settings);
    return true;
}

nixl_b_params_t settings_names() {
    nixl_b_params_t names;
    for (const Text &each : texts)
        names[each.name] = "";
    for (const Number &each : numbers)
        names[each.name] = "";
    for (const Long &each : longs)
        names[each.name] = "";
    return names;
}

} // namespace weir_nixl
