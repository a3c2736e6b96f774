// Implementation of pjrt_api.h.
#include "gangway/device/pjrt/pjrt_api.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <type_traits>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gangway/base/mutex.h"
#include "gangway/base/status.h"

namespace gangway::device {
namespace {

struct Needed {
  const char* name;
  size_t offset;
};

#define GANGWAY_NEEDED(function) {#function, offsetof(PJRT_Api, function)}
constexpr Needed kNeeded[] = {
    GANGWAY_NEEDED(PJRT_Error_Destroy),
    GANGWAY_NEEDED(PJRT_Error_Message),
    GANGWAY_NEEDED(PJRT_Error_GetCode),
    GANGWAY_NEEDED(PJRT_Plugin_Initialize),
    GANGWAY_NEEDED(PJRT_Event_Destroy),
    GANGWAY_NEEDED(PJRT_Event_IsReady),
    GANGWAY_NEEDED(PJRT_Event_Error),
    GANGWAY_NEEDED(PJRT_Event_OnReady),
    GANGWAY_NEEDED(PJRT_Client_Create),
    GANGWAY_NEEDED(PJRT_Client_Destroy),
    GANGWAY_NEEDED(PJRT_Client_PlatformName),
    GANGWAY_NEEDED(PJRT_Client_PlatformVersion),
    GANGWAY_NEEDED(PJRT_Client_AddressableDevices),
    GANGWAY_NEEDED(PJRT_Client_Compile),
    GANGWAY_NEEDED(PJRT_Client_BufferFromHostBuffer),
    GANGWAY_NEEDED(PJRT_DeviceDescription_Id),
    GANGWAY_NEEDED(PJRT_DeviceDescription_Kind),
    GANGWAY_NEEDED(PJRT_Device_GetDescription),
    GANGWAY_NEEDED(PJRT_Device_AddressableMemories),
    GANGWAY_NEEDED(PJRT_Device_DefaultMemory),
    GANGWAY_NEEDED(PJRT_Memory_Kind),
    GANGWAY_NEEDED(PJRT_Executable_Destroy),
    GANGWAY_NEEDED(PJRT_Executable_Name),
    GANGWAY_NEEDED(PJRT_Executable_NumReplicas),
    GANGWAY_NEEDED(PJRT_Executable_NumPartitions),
    GANGWAY_NEEDED(PJRT_Executable_NumOutputs),
    GANGWAY_NEEDED(PJRT_Executable_OutputElementTypes),
    GANGWAY_NEEDED(PJRT_Executable_OutputDimensions),
    GANGWAY_NEEDED(PJRT_Executable_OptimizedProgram),
    GANGWAY_NEEDED(PJRT_Executable_Serialize),
    GANGWAY_NEEDED(PJRT_Executable_DeserializeAndLoad),
    GANGWAY_NEEDED(PJRT_LoadedExecutable_Destroy),
    GANGWAY_NEEDED(PJRT_LoadedExecutable_GetExecutable),
    GANGWAY_NEEDED(PJRT_LoadedExecutable_Execute),
    GANGWAY_NEEDED(PJRT_Buffer_Destroy),
    GANGWAY_NEEDED(PJRT_Buffer_OnDeviceSizeInBytes),
    GANGWAY_NEEDED(PJRT_Buffer_Memory),
    GANGWAY_NEEDED(PJRT_Buffer_Delete),
    GANGWAY_NEEDED(PJRT_Buffer_IsDeleted),
    GANGWAY_NEEDED(PJRT_Buffer_CopyToMemory),
    GANGWAY_NEEDED(PJRT_Buffer_ToHostBuffer),
    GANGWAY_NEEDED(PJRT_Buffer_ReadyEvent),
    GANGWAY_NEEDED(PJRT_Buffer_UnsafePointer),
    GANGWAY_NEEDED(PJRT_Client_CreateBuffersForAsyncHostToDevice),
    GANGWAY_NEEDED(PJRT_AsyncHostToDeviceTransferManager_Destroy),
    GANGWAY_NEEDED(PJRT_AsyncHostToDeviceTransferManager_TransferData),
    GANGWAY_NEEDED(PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer),
    GANGWAY_NEEDED(PJRT_AsyncHostToDeviceTransferManager_SetBufferError),
};
#undef GANGWAY_NEEDED

absl::Status CheckTable(const std::string& path, const PJRT_Api* table) {
  const PJRT_Api_Version& version = table->pjrt_api_version;
  if (version.major_version != PJRT_API_MAJOR) {
    return absl::FailedPreconditionError(absl::StrCat(
        "plugin ", path, " speaks PJRT C API ", version.major_version, ".", version.minor_version,
        " but Gangway was built for ", PJRT_API_MAJOR, ".", PJRT_API_MINOR,
        ": they are incompatible. Install the plugin version that tools/setup.sh pins, or rebuild "
        "Gangway with the "
        "plugin's pjrt_c_api.h"));
  }
  std::vector<std::string> missing;
  for (const Needed& needed : kNeeded) {
    const bool beyond = needed.offset + sizeof(void*) > table->struct_size;
    if (beyond || *reinterpret_cast<void* const*>(reinterpret_cast<const char*>(table) +
                                                  needed.offset) == nullptr) {
      missing.emplace_back(needed.name);
    }
  }
  if (missing.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "plugin ", path, " (PJRT C API ", version.major_version, ".", version.minor_version,
      ") lacks ", missing.size(), " functions that Gangway needs: ", absl::StrJoin(missing, ", "),
      ". Use a newer version of the plugin (", PJRT_API_MAJOR, ".", PJRT_API_MINOR, " is tested)"));
}

absl::StatusOr<const PJRT_Api*> OpenLibrary(const std::string& path) {
  if (access(path.c_str(), R_OK) != 0) {
    return absl::NotFoundError(
        absl::StrCat("no readable PJRT plugin at '", path,
                     "'. Give the path of a plugin's .so (--plugin), or run tools/setup.sh, "
                     "which unpacks the CPU plugin under .deps/"));
  }
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    const char* why = dlerror();
    return absl::InvalidArgumentError(absl::StrCat(
        "cannot load '", path, "' as a shared library: ", why != nullptr ? why : "unknown reason",
        ". A PJRT plugin is a .so built for this machine's architecture"));
  }
  using GetApi = const PJRT_Api* (*)();
  auto get_api = reinterpret_cast<GetApi>(dlsym(library, "GetPjrtApi"));
  const PJRT_Api* table = get_api != nullptr ? get_api() : nullptr;
  if (table == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", path, "' is a shared library but not a PJRT plugin: ",
        get_api == nullptr ? "it does not export GetPjrtApi" : "its GetPjrtApi returned null",
        ". Give the path of the plugin's own .so, for example pjrt_c_api_cpu_plugin.so"));
  }
  return table;
}

absl::Status PinThreadPool(int size) {
  static int pinned = 0;  // guarded by the lock of Load
  if (size <= 0) return absl::OkStatus();
  if (pinned != 0 && pinned != size) {
    return absl::FailedPreconditionError(absl::StrCat(
        "this process already uses a thread pool of ", pinned, " (NPROC) and cannot change it to ",
        size, ": XLA sizes its pools once per process. Use one size everywhere"));
  }
  pinned = size;
  setenv("NPROC", std::to_string(size).c_str(), /*overwrite=*/1);
  return absl::OkStatus();
}

// XLA writes a block to stderr for each execute that it refuses, whose error we have anyway, and lines for each client:
// only what ends the process belongs into a worker's log.
void QuietenLog() { setenv("TF_CPP_MIN_LOG_LEVEL", "3", /*overwrite=*/0); }

constexpr std::string_view kErrorMark = "gangway-status-";  // then the code, ": " and the text

// The status that MarkError wrote into `message`, or OK if there is none.
absl::Status FindMarked(std::string_view message) {
  const size_t mark = message.rfind(kErrorMark);
  if (mark == std::string_view::npos) return absl::OkStatus();
  std::string_view rest = message.substr(mark + kErrorMark.size());
  const size_t colon = rest.find(": ");
  int code = 0;
  if (colon == std::string_view::npos ||
      !absl::SimpleAtoi(std::string(rest.substr(0, colon)), &code) || code <= 0 ||
      code > PJRT_Error_Code_UNAUTHENTICATED) {
    return absl::OkStatus();
  }
  rest.remove_prefix(colon + 2);
  return absl::Status(static_cast<absl::StatusCode>(code),
                      absl::string_view(rest.data(), rest.size()));
}

struct PendingEvent {
  const PjrtApi* api;
  PJRT_Event* event;
  StatusCallback callback;
};

void EventReady(PJRT_Error* error, void* user_arg) {
  std::unique_ptr<PendingEvent> pending(static_cast<PendingEvent*>(user_arg));
  absl::Status status = pending->api->TakeError(error);
  PJRT_Event_Destroy_Args destroy{};
  destroy.event = pending->event;
  (void)pending->api->Call(&PJRT_Api::PJRT_Event_Destroy, destroy);
  pending->callback(std::move(status));
}

}  // namespace

absl::StatusOr<const PjrtApi*> PjrtApi::Load(const std::string& path, int thread_pool_size) {
  static Mutex mutex;
  static auto* const loaded =
      new std::map<std::string, const PjrtApi*>();  // never destroyed: see the file comment
  MutexLock lock(mutex);
  GANGWAY_RETURN_IF_ERROR(PinThreadPool(thread_pool_size));
  QuietenLog();
  if (auto found = loaded->find(path); found != loaded->end()) return found->second;
  GANGWAY_ASSIGN_OR_RETURN(const PJRT_Api* table, OpenLibrary(path));
  GANGWAY_RETURN_IF_ERROR(CheckTable(path, table));
  auto api = std::unique_ptr<PjrtApi>(new PjrtApi(table));
  PJRT_Plugin_Initialize_Args initialize{};
  GANGWAY_RETURN_IF_ERROR(api->Call(&PJRT_Api::PJRT_Plugin_Initialize, initialize), "plugin ", path,
                          " failed to initialize");
  return loaded->emplace(path, api.release()).first->second;
}

std::string PjrtApi::version() const {
  return absl::StrCat("PJRT C API ", table_->pjrt_api_version.major_version, ".",
                      table_->pjrt_api_version.minor_version);
}

const PJRT_Extension_Base* PjrtApi::FindExtension(PJRT_Extension_Type type) const {
  const PJRT_Extension_Base* extension = table_->extension_start;
  for (; extension != nullptr; extension = extension->next) {
    // A newer plugin has types that the enumeration lacks.
    std::underlying_type_t<PJRT_Extension_Type> number;
    std::memcpy(&number, &extension->type, sizeof(number));
    if (number == type) break;
  }
  return extension;
}

std::string MarkError(const absl::Status& error) {
  return absl::StrCat(std::string(kErrorMark), static_cast<int>(error.code()), ": ",
                      error.message());
}

absl::Status PjrtApi::TakeError(PJRT_Error* error) const {
  if (error == nullptr) return absl::OkStatus();
  PJRT_Error_GetCode_Args code{};
  code.struct_size = sizeof(code);
  code.error = error;
  (void)table_->PJRT_Error_GetCode(&code);
  PJRT_Error_Message_Args message{};
  message.struct_size = sizeof(message);
  message.error = error;
  table_->PJRT_Error_Message(&message);
  // PJRT uses abseil's codes. OK and unknown codes become UNKNOWN, so that the status is an error.
  auto status_code = static_cast<absl::StatusCode>(code.code);
  if (status_code == absl::StatusCode::kOk || code.code > PJRT_Error_Code_UNAUTHENTICATED) {
    status_code = absl::StatusCode::kUnknown;
  }
  absl::Status status = FindMarked({message.message, message.message_size});
  if (status.ok())
    status = absl::Status(status_code, absl::string_view(message.message, message.message_size));
  PJRT_Error_Destroy_Args destroy{};
  destroy.struct_size = sizeof(destroy);
  destroy.error = error;
  table_->PJRT_Error_Destroy(&destroy);
  return status;
}

void PjrtApi::OnEvent(PJRT_Event* event, StatusCallback callback) const {
  auto pending = std::make_unique<PendingEvent>(PendingEvent{this, event, std::move(callback)});
  PJRT_Event_OnReady_Args args{};
  args.event = event;
  args.callback = &EventReady;
  args.user_arg = pending.get();
  absl::Status status = Call(&PJRT_Api::PJRT_Event_OnReady, args);
  if (status.ok()) {
    (void)pending.release();  // EventReady owns it now
    return;
  }
  PJRT_Event_Destroy_Args destroy{};
  destroy.event = event;
  (void)Call(&PJRT_Api::PJRT_Event_Destroy, destroy);
  pending->callback(std::move(status));
}

}  // namespace gangway::device
