// Compiled programs of the C API, and their calls. A PJRT_Executable describes; a PJRT_LoadedExecutable runs, on the
// devices that it was compiled for, or, if it is portable, on the device that a call names (portable.h).
//
// Threading: any thread; constant but for the flag that a loaded executable was deleted. Compile blocks until the
// cluster has answered; a call returns at once, and its errors are those of its results (ER-1).
#ifndef GANGWAY_FRONTDOOR_PJRT_EXECUTABLE_H_
#define GANGWAY_FRONTDOOR_PJRT_EXECUTABLE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "pjrt_c_api.h"

#include "gangway/client/client.h"
#include "gangway/frontdoor/pjrt/array.h"
#include "gangway/frontdoor/pjrt/cluster.h"
#include "gangway/frontdoor/pjrt/extensions.h"
#include "gangway/frontdoor/pjrt/portable.h"
#include "gangway/frontdoor/pjrt/stored_program.h"

namespace gangway::pjrt {

// What the C API tells about a program, in the form in which it tells it.
struct Program {
  std::shared_ptr<const ExecutableInfo> info;
  std::shared_ptr<const StoredProgram> source;  // to serialize it
  std::string optimized;  // with the parameters' layouts; empty: `info` has it
  size_t replicas = 1, partitions = 1;
  std::vector<std::shared_ptr<const Shape>> results;
  std::vector<int> result_kinds;  // indices of kMemoryKinds
  std::vector<PJRT_Buffer_Type> result_types;
  std::vector<int64_t> result_dims;  // of all results, one after the other
  std::vector<size_t> result_ranks;
  std::vector<const char*> kind_names;
  std::vector<size_t> kind_sizes;
  std::vector<PJRT_NamedValue> cost;
  // Of extensions.h; the pointers are those of the layouts.
  std::vector<std::unique_ptr<Layout>> layouts;
  std::vector<Layout*> parameter_layouts, result_layouts;
};

}  // namespace gangway::pjrt

struct PJRT_Executable {
  std::shared_ptr<const gangway::pjrt::Program> program;
};

struct PJRT_LoadedExecutable {
  PJRT_Client* client = nullptr;
  std::shared_ptr<gangway::pjrt::Drops> drops;  // the client's, which may be destroyed before
  gangway::ExecutableHandle handle{};           // 0: portable
  std::shared_ptr<const gangway::pjrt::Program> program;
  std::vector<PJRT_Device*> devices;  // by logical position; none if it is portable
  std::unique_ptr<gangway::pjrt::Portable> portable;
  std::atomic<bool> deleted{false};
};

namespace gangway::pjrt {

// Blocks. The options assign the devices.
absl::StatusOr<PJRT_LoadedExecutable*> Compile(PJRT_Client* owner, StoredProgram source);

// serialize.cc
absl::Status ExecutableSerialize(PJRT_Executable_Serialize_Args& args);
absl::Status ExecutableLoad(PJRT_Executable_DeserializeAndLoad_Args& args);

// executable.cc
absl::Status ClientCompile(PJRT_Client_Compile_Args& args);
absl::Status ExecutableDestroy(PJRT_Executable_Destroy_Args& args);
absl::Status ExecutableName(PJRT_Executable_Name_Args& args);
absl::Status ExecutableReplicas(PJRT_Executable_NumReplicas_Args& args);
absl::Status ExecutablePartitions(PJRT_Executable_NumPartitions_Args& args);
absl::Status ExecutableResults(PJRT_Executable_NumOutputs_Args& args);
absl::Status ExecutableCodeSize(PJRT_Executable_SizeOfGeneratedCodeInBytes_Args& args);
absl::Status ExecutableFingerprint(PJRT_Executable_Fingerprint_Args& args);
absl::Status ExecutableCost(PJRT_Executable_GetCostAnalysis_Args& args);
absl::Status ExecutableMemory(PJRT_Executable_GetCompiledMemoryStats_Args& args);
absl::Status ExecutableResultTypes(PJRT_Executable_OutputElementTypes_Args& args);
absl::Status ExecutableResultDims(PJRT_Executable_OutputDimensions_Args& args);
absl::Status ExecutableResultKinds(PJRT_Executable_OutputMemoryKinds_Args& args);
absl::Status ExecutableOptimized(PJRT_Executable_OptimizedProgram_Args& args);

// loaded_executable.cc
absl::Status LoadedDestroy(PJRT_LoadedExecutable_Destroy_Args& args);
absl::Status LoadedExecutable(PJRT_LoadedExecutable_GetExecutable_Args& args);
absl::Status LoadedDevices(PJRT_LoadedExecutable_AddressableDevices_Args& args);
absl::Status LoadedAssignment(PJRT_LoadedExecutable_GetDeviceAssignment_Args& args);
absl::Status LoadedDelete(PJRT_LoadedExecutable_Delete_Args& args);
absl::Status LoadedIsDeleted(PJRT_LoadedExecutable_IsDeleted_Args& args);
absl::Status LoadedFingerprint(PJRT_LoadedExecutable_Fingerprint_Args& args);
absl::Status LoadedExecute(PJRT_LoadedExecutable_Execute_Args& args);
absl::Status ContextCreate(PJRT_ExecuteContext_Create_Args& args);
absl::Status ContextDestroy(PJRT_ExecuteContext_Destroy_Args& args);

}  // namespace gangway::pjrt

#endif  // GANGWAY_FRONTDOOR_PJRT_EXECUTABLE_H_
