/* SPDX-License-Identifier: Apache-2.0 */
/* cuda.cpp: memory of a GPU as a dma-buf. */
#include "cuda.h"

#include <climits>
#include <dlfcn.h>
#include <unistd.h>

namespace weir_nixl {

namespace {

/* As CUDA's driver interface has them: 0 is success. */
struct Driver {
    int (*init)(unsigned int);
    int (*device_get)(int *, int);
    int (*context_retain)(void **, int);
    int (*context_release)(int);
    int (*context_push)(void *);
    int (*context_pop)(void **);
    int (*handle)(void *, unsigned long long, size_t, int, unsigned long long);
    int (*attribute)(const void *, int, unsigned long long); /* may be missing */
};
const int DMA_BUF_FD = 1;  /* CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD */
const int SYNC_MEMOPS = 6; /* CU_POINTER_ATTRIBUTE_SYNC_MEMOPS */

template <typename Function> bool find(void *library, const char *name, Function &function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    return function != nullptr;
}

/* The library stays loaded. */
bool load(const std::string &name, Driver &driver, std::string &why) {
    void *library = dlopen(name.c_str(), RTLD_NOW);
    if (library == nullptr) {
        const char *reason = dlerror();
        why = reason == nullptr ? "there is no " + name : reason;
        return false;
    }
    if (!find(library, "cuInit", driver.init) || !find(library, "cuDeviceGet", driver.device_get) ||
        !find(library, "cuDevicePrimaryCtxRetain", driver.context_retain) ||
        !find(library, "cuDevicePrimaryCtxRelease_v2", driver.context_release) ||
        !find(library, "cuCtxPushCurrent_v2", driver.context_push) ||
        !find(library, "cuCtxPopCurrent_v2", driver.context_pop) ||
        !find(library, "cuMemGetHandleForAddressRange", driver.handle)) {
        why = name + " is older than CUDA 11.7, and gives no dma-buf";
        return false;
    }
    find(library, "cuPointerSetAttribute", driver.attribute);
    return true;
}

/* The driver gives handles of whole pages of the host's. */
int range(const Driver &driver, uint64_t address, uint64_t length, int &fd, uint64_t &offset) {
    uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    uint64_t begin = address & ~(page - 1);
    uint64_t end = (address + length + page - 1) & ~(page - 1);
    int rc = driver.handle(&fd, begin, static_cast<size_t>(end - begin), DMA_BUF_FD, 0);
    offset = address - begin;
    unsigned int yes = 1; /* copies of the GPU's into this memory are over when their call is */
    if (rc == 0 && driver.attribute != nullptr)
        driver.attribute(&yes, SYNC_MEMOPS, address);
    return rc;
}

} // namespace

bool cuda_dmabuf(const std::string &library, uint64_t device, uint64_t address, uint64_t length,
                 int &fd_out, uint64_t &offset_out, std::string &why) {
    Driver driver = {};
    if (length == 0 || address > UINT64_MAX - length - 65536 || device > INT_MAX) {
        why = "the range or the GPU's number is none";
        return false;
    }
    if (!load(library, driver, why))
        return false;
    int gpu = 0;
    void *context = nullptr;
    int rc = driver.init(0);
    if (rc == 0)
        rc = driver.device_get(&gpu, static_cast<int>(device));
    if (rc == 0)
        rc = driver.context_retain(&context, gpu);
    if (rc != 0) {
        why = "CUDA has no GPU " + std::to_string(device) + " (" + std::to_string(rc) + ")";
        return false;
    }
    rc = driver.context_push(context);
    if (rc == 0) {
        rc = range(driver, address, length, fd_out, offset_out);
        driver.context_pop(&context);
    }
    driver.context_release(gpu);
    if (rc != 0)
        why = "the CUDA driver gives no dma-buf of this memory (" + std::to_string(rc) + ")";
    return rc == 0;
}

} // namespace weir_nixl
