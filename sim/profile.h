/* SPDX-License-Identifier: Apache-2.0 */
/* profile.h: from a profile's name and a seed to a run's configuration. */
#ifndef WEIR_SIM_PROFILE_H
#define WEIR_SIM_PROFILE_H

#include <stdio.h>

#include "config.h"

/* The index-th profile's name and what it is for; NULL past the last. */
const char *profile_name(unsigned index, const char **about_out);
/* False: no such profile. */
bool profile_fill(const char *profile, uint64_t seed, struct sim_config *config_out);
/* Messages are sent in that world, too. */
void profile_mail(uint64_t seed, struct sim_config *config);
void profile_print(const struct sim_config *config, FILE *out);

#endif
