/* SPDX-License-Identifier: Apache-2.0 */
/* cuda.h: memory of a GPU as a dma-buf, by libcuda, which is loaded when it is first asked for. */
#ifndef WEIR_NIXL_CUDA_H
#define WEIR_NIXL_CUDA_H

#include <cstdint>
#include <string>

namespace weir_nixl {

/* A dma-buf that holds length bytes at address of the GPU, from *offset_out on. The descriptor is
 * the caller's to close. False: there is none, and why says what was missing. */
bool cuda_dmabuf(const std::string &library, uint64_t device, uint64_t address, uint64_t length,
                 int &fd_out, uint64_t &offset_out, std::string &why);

} // namespace weir_nixl

#endif
