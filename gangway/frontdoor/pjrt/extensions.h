// Extensions of the C API that callers look for in the table: layouts, memory descriptions, partitioners, profiler. The
// plugin's header names their types only, so their structs are declared here, as their binary interface has them. A
// caller checks struct_size before it reads a later field, and so do the functions here.
//
// Threading: any thread.
#ifndef GANGWAY_FRONTDOOR_PJRT_EXTENSIONS_H_
#define GANGWAY_FRONTDOOR_PJRT_EXTENSIONS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "pjrt_c_api.h"

namespace gangway::pjrt {

// The first of the chain, for PJRT_Api::extension_start.
PJRT_Extension_Base* Extensions();

// --- Layouts, version 3: those of results are part of it from API 0.81 on; 4 adds those of parameters ---

// Opaque to callers.
struct Layout {
  std::vector<int64_t> minor_to_major;
  bool is_executables = false;  // callers do not destroy it
};
struct SerializedLayout;  // likewise

struct LayoutDestroyArgs {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  Layout* layout;
};

struct LayoutSerializeArgs {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  Layout* layout;
  const char* serialized_bytes;  // out, as the next three; XLA's text form of a layout
  size_t serialized_bytes_size;
  SerializedLayout* serialized_layout;
  void (*serialized_layout_deleter)(SerializedLayout* serialized);
};

struct LayoutOfBufferArgs {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Buffer* buffer;
  Layout* layout;  // out; the caller destroys it
};

// Of a client and of a topology.
template <typename Owner>
struct DefaultLayoutArgs {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  Owner* owner;
  PJRT_Buffer_Type type;
  const int64_t* dims;
  size_t num_dims;
  Layout* layout;  // out; the caller destroys it
};

// Of results and of parameters.
struct ExecutableLayoutsArgs {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Executable* executable;
  size_t count;      // out
  Layout** layouts;  // out; the executable's
};

struct LayoutsExtension {
  PJRT_Extension_Base base;
  PJRT_Error* (*destroy)(LayoutDestroyArgs*);
  PJRT_Error* (*serialize)(LayoutSerializeArgs*);
  PJRT_Error* (*client_default)(DefaultLayoutArgs<PJRT_Client>*);
  PJRT_Error* (*of_buffer)(LayoutOfBufferArgs*);
  PJRT_Error* (*topology_default)(DefaultLayoutArgs<PJRT_TopologyDescription>*);
  PJRT_Error* (*of_results)(ExecutableLayoutsArgs*);
  PJRT_Error* (*of_parameters)(ExecutableLayoutsArgs*);
};

// --- Memory descriptions, version 1 ---

struct MemoryDescription;  // opaque to callers

struct MemoryDescriptionsArgs {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_DeviceDescription* device_description;
  const MemoryDescription* const* memory_descriptions;  // out, as the rest
  size_t num_memory_descriptions;
  size_t default_memory_index;
};

struct MemoryDescriptionKindArgs {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  const MemoryDescription* memory_description;
  const char* kind;  // out, as the rest
  size_t kind_size;
  int kind_id;
};

struct MemoryDescriptionsExtension {
  PJRT_Extension_Base base;
  PJRT_Error* (*descriptions)(MemoryDescriptionsArgs*);
  PJRT_Error* (*kind)(MemoryDescriptionKindArgs*);
};

// --- Custom partitioners, version 1: functions of the script that partition calls (partitioner.h) ---

struct PartitionerText {
  const char* data;
  size_t size;
};

// An operand, or the result.
struct PartitionerArray {
  PartitionerText shape;  // xla.ShapeProto
  bool has_sharding;
  PartitionerText sharding;  // xla.OpSharding
};

struct PartitionerHeader {
  int64_t api_version;
  void* data;                   // out, as the rest
  void (*cleanup)(void* data);  // frees what was returned, an error too
  bool has_error;
  PJRT_Error_Code code;
  PartitionerText message;
};

struct PartitionArgs {
  PartitionerHeader header;
  size_t num_operands;
  PartitionerArray* operands;
  PartitionerArray result;
  PartitionerText backend_config;
  PartitionerText module;  // out, as the next two: StableHLO of shards
  PartitionerText* operand_shardings;
  PartitionerText result_sharding;
};

struct PartitionerCallbacks {
  int64_t version;
  void* data;
  void (*destroy)(PartitionerCallbacks* callbacks);
  void (*partition)(PartitionerCallbacks* callbacks, PartitionArgs* args);
  void (*infer_sharding)(PartitionerCallbacks* callbacks, void* args);           // not called:
  void (*propagate_user_sharding)(PartitionerCallbacks* callbacks, void* args);  // Shardy has rules
  bool can_side_effecting_have_replicated_sharding;
};

struct RegisterPartitionerArgs {
  size_t struct_size;
  const char* name;
  size_t name_size;
  PartitionerCallbacks* callbacks;  // lives as long as the process
};

struct RegisterBatchPartitionableArgs {
  size_t struct_size;
  const char* name;
  size_t name_size;
};

struct PartitionerExtension {
  PJRT_Extension_Base base;
  PJRT_Error* (*register_partitioner)(RegisterPartitionerArgs*);
  PJRT_Error* (*register_batch_partitionable)(RegisterBatchPartitionableArgs*);
};

// --- The profiler, version 1. It has errors of its own, and no client ---

struct Profiler;       // opaque to callers
struct ProfilerError;  // likewise

struct ProfilerErrorDestroyArgs {
  size_t struct_size;
  void* reserved;
  ProfilerError* error;
};

struct ProfilerErrorMessageArgs {
  size_t struct_size;
  void* reserved;
  const ProfilerError* error;
  const char* message;  // out
  size_t message_size;  // out
};

struct ProfilerErrorCodeArgs {
  size_t struct_size;
  void* reserved;
  const ProfilerError* error;
  int code;  // out
};

struct ProfilerCreateArgs {
  size_t struct_size;
  const char* options;
  size_t options_size;
  Profiler* profiler;  // out
};

// Of destroy, start and stop.
struct ProfilerArgs {
  size_t struct_size;
  Profiler* profiler;
};

struct ProfilerCollectArgs {
  size_t struct_size;
  Profiler* profiler;
  uint8_t* buffer;  // in and out: null asks for the size, and gets the profiler's own
  size_t buffer_size_in_bytes;
};

struct ProfilerApi {
  size_t struct_size;
  void* reserved;
  void (*error_destroy)(ProfilerErrorDestroyArgs*);
  void (*error_message)(ProfilerErrorMessageArgs*);
  ProfilerError* (*error_code)(ProfilerErrorCodeArgs*);
  ProfilerError* (*create)(ProfilerCreateArgs*);
  ProfilerError* (*destroy)(ProfilerArgs*);
  ProfilerError* (*start)(ProfilerArgs*);
  ProfilerError* (*stop)(ProfilerArgs*);
  ProfilerError* (*collect)(ProfilerCollectArgs*);
};

struct ProfilerExtension {
  PJRT_Extension_Base base;
  const ProfilerApi* api;
  int64_t context_id;  // of callers that attach this struct to arguments
};

const ProfilerApi* TheProfilerApi();

}  // namespace gangway::pjrt

#endif  // GANGWAY_FRONTDOOR_PJRT_EXTENSIONS_H_
