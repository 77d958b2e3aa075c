/* SPDX-License-Identifier: Apache-2.0 */
/* main.c: weir-sim, the campaign runner.
 *
 * Runs seeds of a profile, one process a job; a run takes nothing from outside but
 * its seed and options, so a failing seed is replayed by naming it. */
#include <errno.h>
#include <getopt.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "plant.h"
#include "profile.h"
#include "recovery.h"
#include "run.h"

enum { JOBS_MAX = 64, EXIT_USAGE = 2 };

struct options {
    const char *profile;
    uint32_t plant;
    uint64_t first;
    uint64_t last;
    unsigned jobs;
    bool trace;
    bool keep_going;
    bool quiet;
    bool recovery;
    bool messages;
    bool names;
};

struct totals {
    uint64_t seeds;
    uint64_t failed;
    uint64_t events;
    uint64_t ok;
    uint64_t not_ok;
    uint64_t notifications;
};

static void usage(FILE *out) {
    const char *about;

    fputs("usage: weir-sim [--profile NAME] [--plant NAME] (--seed N [--trace] | --seeds A..B)\n"
          "                [--messages] [--names] [--jobs N] [--keep-going] [--quiet]\n"
          "       weir-sim --recovery [--profile NAME] (--seed N [--trace] | --seeds A..B)\n"
          "Runs weir engines in a simulated world. Exit status: 0 all properties held,\n"
          "1 one was broken, 2 wrong usage. --recovery: how long a broken session takes to be as\n"
          "if nothing had been, in virtual time; calm without a profile.\nprofiles:\n",
          out);
    for (unsigned i = 0; profile_name(i, &about) != NULL; i++) {
        fprintf(out, "  %-12s%s\n", profile_name(i, NULL), about);
    }
    fputs("plants (bugs at a port, which the oracle must see):\n", out);
    for (uint32_t i = 1; i < SIM_PLANT_COUNT; i++) {
        fprintf(out, "  %s\n", plant_name(i));
    }
}

static bool parse_u64(const char *text, char **end, uint64_t *out) {
    errno = 0;
    *out = strtoull(text, end, 0);
    return errno == 0 && *end != text;
}

static bool parse_seeds(const char *text, struct options *options) {
    char *end;

    if (!parse_u64(text, &end, &options->first) || strncmp(end, "..", 2) != 0) {
        return false;
    }
    return parse_u64(end + 2, &end, &options->last) && *end == '\0' &&
           options->last >= options->first;
}

static bool parse_options(int argc, char **argv, struct options *options) {
    static const struct option LONG[] = {
        {"seed", required_argument, NULL, 's'},    {"seeds", required_argument, NULL, 'S'},
        {"profile", required_argument, NULL, 'p'}, {"plant", required_argument, NULL, 'P'},
        {"planted", required_argument, NULL, 'P'}, {"jobs", required_argument, NULL, 'j'},
        {"trace", no_argument, NULL, 't'},         {"keep-going", no_argument, NULL, 'k'},
        {"quiet", no_argument, NULL, 'q'},         {"recovery", no_argument, NULL, 'r'},
        {"messages", no_argument, NULL, 'm'},      {"names", no_argument, NULL, 'n'},
        {"help", no_argument, NULL, 'h'},          {NULL, 0, NULL, 0}};
    uint64_t jobs;
    char *end;
    int c;

    while ((c = getopt_long(argc, argv, "s:S:p:P:j:tkqh", LONG, NULL)) != -1) {
        switch (c) {
        case 's':
            if (!parse_u64(optarg, &end, &options->first) || *end != '\0') {
                return false;
            }
            options->last = options->first;
            break;
        case 'S':
            if (!parse_seeds(optarg, options)) {
                return false;
            }
            break;
        case 'p':
            options->profile = optarg;
            break;
        case 'P':
            if (!plant_find(optarg, &options->plant)) {
                return false;
            }
            break;
        case 'j':
            if (!parse_u64(optarg, &end, &jobs) || *end != '\0' || jobs == 0 || jobs > JOBS_MAX) {
                return false;
            }
            options->jobs = (unsigned)jobs;
            break;
        case 't':
            options->trace = true;
            break;
        case 'm':
            options->messages = true;
            break;
        case 'n':
            options->names = true;
            break;
        case 'k':
            options->keep_going = true;
            break;
        case 'q':
            options->quiet = true;
            break;
        case 'r':
            options->recovery = true;
            break;
        case 'h':
            usage(stdout);
            exit(0);
        default:
            return false;
        }
    }
    return optind == argc;
}

static double seconds(void) {
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void report(const struct options *options, uint64_t seed, const struct sim_config *config,
                   const struct sim_result *result) {
    printf("seed %llu: %s\n", (unsigned long long)seed, result->violation);
    if (options->quiet) {
        return;
    }
    profile_print(config, stdout);
    printf("  replay: weir-sim --profile %s%s%s%s%s --seed %llu --trace\n", options->profile,
           options->messages ? " --messages" : "", options->names ? " --names" : "",
           options->plant != 0 ? " --plant " : "",
           options->plant != 0 ? plant_name(options->plant) : "", (unsigned long long)seed);
    fflush(stdout);
}

/* Seeds first + job, first + job + jobs, ... */
static void run_share(const struct options *options, unsigned job, struct totals *totals) {
    for (uint64_t seed = options->first + job; seed >= options->first && seed <= options->last;
         seed += options->jobs) {
        struct sim_config config;
        struct sim_result result;

        (void)profile_fill(options->profile, seed, &config); /* the name was checked */
        config.plant = options->plant;
        if (options->messages) {
            profile_mail(seed, &config);
        }
        config.work.names = options->names;
        sim_run(&config, seed, options->trace ? stdout : NULL, &result);
        totals->seeds++;
        totals->events += result.events;
        totals->ok += result.transfers_ok;
        totals->not_ok += result.transfers_failed;
        totals->notifications += result.notifications;
        if (result.violation[0] != '\0') {
            totals->failed++;
            report(options, seed, &config, &result);
            if (!options->keep_going) {
                return;
            }
        }
        if (options->first == options->last) {
            printf("seed %llu: %llu events, digest %016llx, %.3f ms of virtual time\n",
                   (unsigned long long)seed, (unsigned long long)result.events,
                   (unsigned long long)result.digest, (double)result.virtual_ns / 1e6);
        }
    }
}

static bool job_start(const struct options *options, unsigned job, int *fd_out) {
    struct totals totals = {0};
    int ends[2];
    pid_t pid;

    if (pipe(ends) != 0) {
        return false;
    }
    fflush(stdout);
    pid = fork();
    if (pid < 0) {
        close(ends[0]);
        close(ends[1]);
        return false;
    }
    if (pid == 0) {
        close(ends[0]);
        run_share(options, job, &totals);
        fflush(stdout);
        _exit(write(ends[1], &totals, sizeof(totals)) == (ssize_t)sizeof(totals) ? 0 : 1);
    }
    close(ends[1]);
    *fd_out = ends[0];
    return true;
}

/* False: a job died, which is a failure of the code under test. */
static bool run_jobs(const struct options *options, struct totals *totals) {
    int fds[JOBS_MAX];
    unsigned started = 0;
    bool good = true;

    while (started < options->jobs && job_start(options, started, &fds[started])) {
        started++;
    }
    good = started == options->jobs;
    for (unsigned i = 0; i < started; i++) {
        struct totals part;

        if (read(fds[i], &part, sizeof(part)) == (ssize_t)sizeof(part)) {
            totals->seeds += part.seeds;
            totals->failed += part.failed;
            totals->events += part.events;
            totals->ok += part.ok;
            totals->not_ok += part.not_ok;
            totals->notifications += part.notifications;
        } else {
            good = false;
        }
        close(fds[i]);
    }
    while (wait(NULL) > 0) {
    }
    return good;
}

int main(int argc, char **argv) {
    struct options options = {.first = 1, .last = 1, .jobs = 1};
    struct totals totals = {0};
    struct sim_config config;
    bool good = true;
    double began = seconds();
    double took;

    bool usable = parse_options(argc, argv, &options);

    if (options.profile == NULL) {
        options.profile = options.recovery ? "calm" : "swarm";
    }
    if (!usable || !profile_fill(options.profile, 0, &config)) {
        usage(stderr);
        return EXIT_USAGE;
    }
    /* Worlds come and go by the thousand: keep their memory. */
    mallopt(M_MMAP_THRESHOLD, 64 << 20);
    mallopt(M_TRIM_THRESHOLD, 256 << 20);
    if (options.recovery) {
        return sim_recovery_report(options.profile, options.first, options.last,
                                   options.trace ? stdout : NULL)
                   ? 0
                   : 1;
    }
    if (options.jobs == 1) {
        run_share(&options, 0, &totals);
    } else {
        good = run_jobs(&options, &totals);
    }
    took = seconds() - began;
    printf("%s: %llu seeds, %llu failed; %llu transfers ok, %llu not, %llu notifications; "
           "%llu events in %.2f s: %.0f seeds/s, %.0f events/s\n",
           options.profile, (unsigned long long)totals.seeds, (unsigned long long)totals.failed,
           (unsigned long long)totals.ok, (unsigned long long)totals.not_ok,
           (unsigned long long)totals.notifications, (unsigned long long)totals.events, took,
           (double)totals.seeds / took, (double)totals.events / took);
    if (!good) {
        puts("a job died");
    }
    return good && totals.failed == 0 ? 0 : 1;
}
