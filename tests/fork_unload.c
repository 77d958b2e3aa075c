/* SPDX-License-Identifier: Apache-2.0 */
/* fork_unload.c: forks after the library, its argument, was loaded, used and unloaded, and loaded
 * again: no handler of it is called that is not there any more (W4). */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "weir.h"

/* A child that ends well. */
static void fork_once(const char *when) {
    int status = -1;
    pid_t child = fork();

    if (child == 0)
        _exit(0);
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
        printf("a child of %s ended with %#x\n", when, (unsigned)status);
        exit(EXIT_FAILURE);
    }
}

static void *must(void *what, const char *name) {
    if (what != NULL)
        return what;
    printf("%s: %s\n", name, dlerror());
    exit(EXIT_FAILURE);
}

int main(int argc, char **argv) {
    if (argc != 2)
        return 2;
    for (int round = 0; round < 3; round++) {
        void *library = must(dlopen(argv[1], RTLD_NOW | RTLD_LOCAL), argv[1]);
        union {
            void *any;
            int (*open)(const weir_engine_options *, weir_engine **);
            void (*close)(weir_engine *);
        } open = {must(dlsym(library, "weir_engine_open"), "open")},
          close = {must(dlsym(library, "weir_engine_close"), "close")};
        weir_engine *engine = NULL;
        if (open.open(NULL, &engine) != WEIR_OK)
            return 3;
        fork_once("a process with an engine");
        close.close(engine);
        dlclose(library);
        if (dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD) != NULL) {
            printf("it is still loaded\n");
            return 77;
        }
        fork_once("a process that unloaded it");
    }
    return 0;
}
