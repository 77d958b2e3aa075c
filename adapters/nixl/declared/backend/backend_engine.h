/* SPDX-License-Identifier: Apache-2.0 */
/* backend_engine.h: the interface between NIXL and its plug-ins, declared anew.
 *
 * NIXL's own header of this name takes its place where NIXL is (-Dnixl=DIR). Without NIXL the
 * plug-in and its tests are built with this one. Names, values, the order of members and that of
 * virtual functions are those of NIXL 1.4 (plug-in interface 1), as its documentation and its users
 * have them: an object that was compiled with the one works with objects that were compiled with
 * the other. tests/layout.cpp prints what that takes, and tests/layout.txt keeps it.
 *
 * Nothing is declared here that neither the plug-in nor its tests use, but for virtual functions,
 * which have places in the table, and members, which have places in the object. */
#ifndef WEIR_DECLARED_BACKEND_ENGINE_H
#define WEIR_DECLARED_BACKEND_ENGINE_H

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

/* ---- values --------------------------------------------------------------------- */

enum nixl_mem_t { DRAM_SEG, VRAM_SEG, BLK_SEG, OBJ_SEG, FILE_SEG };
enum nixl_xfer_op_t { NIXL_READ, NIXL_WRITE };
enum nixl_status_t {
    NIXL_IN_PROG = 1,
    NIXL_SUCCESS = 0,
    NIXL_ERR_NOT_POSTED = -1,
    NIXL_ERR_INVALID_PARAM = -2,
    NIXL_ERR_BACKEND = -3,
    NIXL_ERR_NOT_FOUND = -4,
    NIXL_ERR_MISMATCH = -5,
    NIXL_ERR_NOT_ALLOWED = -6,
    NIXL_ERR_REPOST_ACTIVE = -7,
    NIXL_ERR_UNKNOWN = -8,
    NIXL_ERR_NOT_SUPPORTED = -9,
    NIXL_ERR_REMOTE_DISCONNECT = -10,
    NIXL_ERR_CANCELED = -11,
    NIXL_ERR_NO_TELEMETRY = -12
};
enum class nixl_thread_sync_t {
    NIXL_THREAD_SYNC_NONE,
    NIXL_THREAD_SYNC_STRICT,
    NIXL_THREAD_SYNC_RW,
    NIXL_THREAD_SYNC_DEFAULT = NIXL_THREAD_SYNC_NONE
};
enum class nixl_cost_t { ANALYTICAL_BACKEND = 0 };
enum class nixl_telemetry_event_type_t : uint32_t;

using nixl_backend_t = std::string;
using nixl_blob_t = std::string;
using nixl_mem_list_t = std::vector<nixl_mem_t>;
using nixl_b_params_t = std::unordered_map<std::string, std::string>;
using nixl_query_resp_t = std::optional<nixl_b_params_t>;
using notif_list_t = std::vector<std::pair<std::string, std::string>>;
using nixlMemViewH = void *;

struct nixlAgentOptionalArgs;
using nixl_opt_args_t = nixlAgentOptionalArgs;

/* ---- descriptors ---------------------------------------------------------------- */

/* A range of memory of one device. */
class nixlBasicDesc {
  public:
    uintptr_t addr;
    size_t len;
    uint64_t devId;

    nixlBasicDesc() : addr(0), len(0), devId(0) {
    }
    nixlBasicDesc(const uintptr_t &address, const size_t &length, const uint64_t &device)
        : addr(address), len(length), devId(device) {
    }
};

/* A range, with bytes about it: what a peer has said of it, where it is remote. */
class nixlBlobDesc : public nixlBasicDesc {
  public:
    nixl_blob_t metaInfo;

    using nixlBasicDesc::nixlBasicDesc;
    nixlBlobDesc(const uintptr_t &address, const size_t &length, const uint64_t &device,
                 const nixl_blob_t &about)
        : nixlBasicDesc(address, length, device), metaInfo(about) {
    }
};

/* A plug-in's own record of a registration, and of a peer's. */
class nixlBackendMD {
  protected:
    bool isPrivateMD;

  public:
    explicit nixlBackendMD(bool is_private) : isPrivateMD(is_private) {
    }
    virtual ~nixlBackendMD() {
    }
};

/* A range, with what the plug-in keeps of the registration in which it lies. */
class nixlMetaDesc : public nixlBasicDesc {
  public:
    nixlBackendMD *metadataP;

    nixlMetaDesc() : metadataP(nullptr) {
    }
    nixlMetaDesc(uintptr_t address, size_t length, uint64_t device, nixlBackendMD *metadata)
        : nixlBasicDesc(address, length, device), metadataP(metadata) {
    }
};

struct nixlRemoteMetaDesc : public nixlMetaDesc {
    std::string remoteAgent;
};

/* Ranges of one type of memory. */
template <class T> class nixlDescList {
  protected:
    nixl_mem_t type;
    std::vector<T> descs;

  public:
    explicit nixlDescList(const nixl_mem_t &of, const int &count = 0) : type(of), descs(count) {
    }
    virtual ~nixlDescList() = default;
    nixlDescList(const nixlDescList &) = default;
    nixlDescList &operator=(const nixlDescList &) = default;

    nixl_mem_t getType() const {
        return type;
    }
    int descCount() const {
        return static_cast<int>(descs.size());
    }
    const T &operator[](size_t index) const {
        return descs[index];
    }
    T &operator[](size_t index) {
        return descs[index];
    }
    template <class... Parts> T &emplace(Parts &&...parts) {
        return descs.emplace_back(std::forward<Parts>(parts)...);
    }

    virtual void resize(const size_t &count) {
        descs.resize(count);
    }
    virtual void addDesc(const T &desc) {
        descs.push_back(desc);
    }
    virtual int getIndex(const nixlBasicDesc &) const {
        return NIXL_ERR_NOT_FOUND;
    }
};

using nixl_meta_dlist_t = nixlDescList<nixlMetaDesc>;
using nixl_remote_meta_dlist_t = nixlDescList<nixlRemoteMetaDesc>;
using nixl_reg_dlist_t = nixlDescList<nixlBlobDesc>;

/* ---- an engine ------------------------------------------------------------------ */

struct nixlBackendOptionalArgs {
    nixl_blob_t notifMsg;
    bool hasNotif = false;
    nixl_blob_t customParam;
};
using nixl_opt_b_args_t = nixlBackendOptionalArgs;

/* With these an agent makes an engine. */
class nixlBackendInitParams {
  public:
    std::string localAgent;
    nixl_backend_t type;
    nixl_b_params_t *customParams = nullptr;
    bool enableProgTh = false;
    uint64_t pthrDelay = 0;
    nixl_thread_sync_t syncMode;
    bool enableTelemetry_ = false;
};

/* A transfer, as its plug-in keeps it. */
class nixlBackendReqH {
  public:
    virtual ~nixlBackendReqH() {
    }
};

struct nixlTelemetryEvent {
    nixl_telemetry_event_type_t eventType_;
    uint64_t value_;
};

class nixlBackendEngine {
  private:
    nixl_backend_t backendType;
    nixl_b_params_t customParams;
    std::vector<nixlTelemetryEvent> telemetryEvents_;
    std::mutex telemetryEventsMutex_;

  protected:
    bool initErr = false;
    const std::string localAgent;
    const bool enableTelemetry_;

  public:
    explicit nixlBackendEngine(const nixlBackendInitParams *params)
        : backendType(params->type), customParams(*params->customParams),
          localAgent(params->localAgent), enableTelemetry_(params->enableTelemetry_) {
    }
    nixlBackendEngine(const nixlBackendEngine &) = delete;
    void operator=(const nixlBackendEngine &) = delete;
    virtual ~nixlBackendEngine() = default;

    bool getInitErr() const noexcept {
        return initErr;
    }
    const nixl_backend_t &getType() const noexcept {
        return backendType;
    }

    virtual bool supportsRemote() const = 0;
    virtual bool supportsLocal() const = 0;
    virtual bool supportsNotif() const = 0;
    virtual nixl_mem_list_t getSupportedMems() const = 0;
    virtual nixl_status_t registerMem(const nixlBlobDesc &, const nixl_mem_t &,
                                      nixlBackendMD *&) = 0;
    virtual nixl_status_t deregisterMem(nixlBackendMD *) = 0;
    virtual nixl_status_t connect(const std::string &) = 0;
    virtual nixl_status_t disconnect(const std::string &) = 0;
    virtual nixl_status_t unloadMD(nixlBackendMD *) = 0;
    virtual nixl_status_t prepXfer(const nixl_xfer_op_t &, const nixl_meta_dlist_t &,
                                   const nixl_meta_dlist_t &, const std::string &,
                                   nixlBackendReqH *&,
                                   const nixl_opt_b_args_t * = nullptr) const = 0;
    virtual nixl_status_t postXfer(const nixl_xfer_op_t &, const nixl_meta_dlist_t &,
                                   const nixl_meta_dlist_t &, const std::string &,
                                   nixlBackendReqH *&,
                                   const nixl_opt_b_args_t * = nullptr) const = 0;
    virtual nixl_status_t checkXfer(nixlBackendReqH *) const = 0;
    virtual nixl_status_t releaseReqH(nixlBackendReqH *) const = 0;
    virtual nixl_status_t prepMemView(const nixl_remote_meta_dlist_t &, nixlMemViewH &,
                                      const nixl_opt_b_args_t * = nullptr) const {
        return NIXL_ERR_NOT_SUPPORTED;
    }
    virtual nixl_status_t prepMemView(const nixl_meta_dlist_t &, nixlMemViewH &,
                                      const nixl_opt_b_args_t * = nullptr) const {
        return NIXL_ERR_NOT_SUPPORTED;
    }
    virtual void releaseMemView(nixlMemViewH) const {
    }
    virtual nixl_status_t getPublicData(const nixlBackendMD *, std::string &) const {
        return NIXL_ERR_BACKEND;
    }
    virtual nixl_status_t getConnInfo(std::string &) const {
        return NIXL_ERR_BACKEND;
    }
    virtual nixl_status_t loadRemoteConnInfo(const std::string &, const std::string &) {
        return NIXL_ERR_BACKEND;
    }
    virtual nixl_status_t loadRemoteMD(const nixlBlobDesc &, const nixl_mem_t &,
                                       const std::string &, nixlBackendMD *&) {
        return NIXL_ERR_BACKEND;
    }
    virtual nixl_status_t loadLocalMD(nixlBackendMD *, nixlBackendMD *&) {
        return NIXL_ERR_BACKEND;
    }
    virtual nixl_status_t getNotifs(notif_list_t &) {
        return NIXL_ERR_BACKEND;
    }
    virtual nixl_status_t genNotif(const std::string &, const std::string &) const {
        return NIXL_ERR_BACKEND;
    }
    virtual nixl_status_t queryMem(const nixl_reg_dlist_t &,
                                   std::vector<nixl_query_resp_t> &) const {
        return NIXL_ERR_NOT_SUPPORTED;
    }
    virtual nixl_status_t estimateXferCost(const nixl_xfer_op_t &, const nixl_meta_dlist_t &,
                                           const nixl_meta_dlist_t &, const std::string &,
                                           nixlBackendReqH *const &, std::chrono::microseconds &,
                                           std::chrono::microseconds &, nixl_cost_t &,
                                           const nixl_opt_args_t * = nullptr) const {
        return NIXL_ERR_NOT_SUPPORTED;
    }
};

#endif
