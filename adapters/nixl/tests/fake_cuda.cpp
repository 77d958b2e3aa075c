/* SPDX-License-Identifier: Apache-2.0 */
/* fake_cuda.cpp: a libcuda with GPUs 0 to 3, whose handle of a range is the descriptor of an empty
 * file. It refuses what the driver does: a range that is not of whole pages, and no context. */
#include <cstddef>
#include <sys/mman.h>
#include <unistd.h>

namespace {
int contexts, current;
} // namespace

extern "C" {
int cuInit(unsigned int) {
    return 0;
}
int cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    return ordinal > 3 ? 101 : 0;
}
int cuDevicePrimaryCtxRetain(void **context, int) {
    *context = &contexts;
    contexts++;
    return 0;
}
int cuDevicePrimaryCtxRelease_v2(int) {
    return contexts-- > 0 ? 0 : 201;
}
int cuCtxPushCurrent_v2(void *context) {
    current++;
    return context == &contexts ? 0 : 201;
}
int cuCtxPopCurrent_v2(void **) {
    return current-- > 0 ? 0 : 201;
}
int cuMemGetHandleForAddressRange(void *handle, unsigned long long address, size_t size, int type,
                                  unsigned long long flags) {
    unsigned long long page = static_cast<unsigned long long>(getpagesize());
    if (current != 1 || address % page != 0 || size % page != 0 || size == 0 || type != 1 ||
        flags != 0)
        return 1;
    int fd = memfd_create("gpu", MFD_CLOEXEC);
    *static_cast<int *>(handle) = fd;
    return fd < 0 ? 2 : 0;
}
}
