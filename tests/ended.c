/* SPDX-License-Identifier: Apache-2.0 */
/* ended.c: a test that takes too long is told to end (SIGTERM, to all its processes) and says where
 * each of them stood: the stack of the thread that was told. It is linked into all programs of
 * cmocka.
 *
 * Addresses are those of the program and its libraries, for addr2line(1). */
#include <execinfo.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { FRAMES = 64 };

static void say_where(int signal_number) {
    void *frames[FRAMES];
    char line[64];
    int length =
        snprintf(line, sizeof(line), "process %d is told to end. It is at:\n", (int)getpid());

    if (write(STDERR_FILENO, line, (size_t)length) == length)
        backtrace_symbols_fd(frames, backtrace(frames, FRAMES), STDERR_FILENO);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

__attribute__((constructor)) static void be_told(void) {
    struct sigaction action = {.sa_handler = say_where};
    void *frame;

    backtrace(&frame, 1); /* it loads a library the first time */
    sigaction(SIGTERM, &action, NULL);
}
