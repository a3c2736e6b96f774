// Layouts, memory descriptions, partitioners, and the chain of all extensions (extensions.h).
#include "gangway/frontdoor/pjrt/extensions.h"

#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gangway/base/status.h"
#include "gangway/frontdoor/memory_kinds.h"
#include "gangway/frontdoor/pjrt/buffer.h"
#include "gangway/frontdoor/pjrt/error.h"
#include "gangway/frontdoor/pjrt/executable.h"
#include "gangway/frontdoor/pjrt/layout.h"
#include "gangway/frontdoor/pjrt/partitioner.h"

namespace gangway::pjrt {

struct SerializedLayout {
  std::string text;
};

struct MemoryDescription {
  int kind = 0;  // index of kMemoryKinds
};

namespace {

constexpr size_t kRanksMax = 256;

absl::Status Destroy(LayoutDestroyArgs& args) {
  if (args.layout != nullptr && args.layout->is_executables)
    return absl::FailedPreconditionError("the layout belongs to an executable");
  delete args.layout;
  return absl::OkStatus();
}

absl::Status Serialize(LayoutSerializeArgs& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.layout, "the layout"));
  auto serialized = std::make_unique<SerializedLayout>(
      SerializedLayout{absl::StrCat("{", absl::StrJoin(args.layout->minor_to_major, ","), "}")});
  args.serialized_bytes = serialized->text.data();
  args.serialized_bytes_size = serialized->text.size();
  args.serialized_layout_deleter = [](SerializedLayout* done) { delete done; };
  args.serialized_layout = serialized.release();
  return absl::OkStatus();
}

template <typename Owner>
absl::Status Default(DefaultLayoutArgs<Owner>& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.owner, "the client, or the topology,"));
  if (args.num_dims >= kRanksMax)
    return absl::InvalidArgumentError(absl::StrCat("an array of ", args.num_dims, " dimensions"));
  args.layout = new Layout{RowMajorOrder(args.num_dims)};
  return absl::OkStatus();
}

absl::Status OfBuffer(LayoutOfBufferArgs& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.buffer, "the buffer"));
  args.layout = new Layout{args.buffer->shape->minor_to_major};
  return absl::OkStatus();
}

absl::Status OfResults(ExecutableLayoutsArgs& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.executable, "the executable"));
  const std::vector<Layout*>& layouts = args.executable->program->result_layouts;
  args.layouts = const_cast<Layout**>(layouts.data());  // callers only read
  args.count = layouts.size();
  return absl::OkStatus();
}

absl::Status OfParameters(ExecutableLayoutsArgs& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.executable, "the executable"));
  const std::vector<Layout*>& layouts = args.executable->program->parameter_layouts;
  args.layouts = const_cast<Layout**>(layouts.data());  // callers only read
  args.count = layouts.size();
  return absl::OkStatus();
}

// The same for all devices, in the order of Device_AddressableMemories.
absl::Status Descriptions(MemoryDescriptionsArgs& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.device_description, "the device's description"));
  static const MemoryDescription* const* const all = [] {
    auto** made = new const MemoryDescription*[kMemoryKindCount];
    for (int kind = 0; kind < kMemoryKindCount; ++kind) made[kind] = new MemoryDescription{kind};
    return made;
  }();
  args.memory_descriptions = all;
  args.num_memory_descriptions = kMemoryKindCount;
  args.default_memory_index = 0;
  return absl::OkStatus();
}

absl::Status Kind(MemoryDescriptionKindArgs& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.memory_description, "the memory's description"));
  args.kind_id = args.memory_description->kind;
  args.kind = kMemoryKinds[args.kind_id];
  args.kind_size = std::char_traits<char>::length(args.kind);
  return absl::OkStatus();
}

// A function of an extension, guarded as those of the table are.
#define GANGWAY_EXTENSION(name, Args, implementation) \
  [](std::add_pointer_t<Args> args) { return Guard(name, sizeof(Args), args, implementation); }

LayoutsExtension MakeLayouts(PJRT_Extension_Base* next) {
  using ClientArgs = DefaultLayoutArgs<PJRT_Client>;
  using TopologyArgs = DefaultLayoutArgs<PJRT_TopologyDescription>;
  LayoutsExtension made{};
  made.base = {sizeof(made), PJRT_Extension_Type_Layouts, next};
  made.destroy = GANGWAY_EXTENSION("PJRT_Layouts_MemoryLayout_Destroy", LayoutDestroyArgs, Destroy);
  made.serialize =
      GANGWAY_EXTENSION("PJRT_Layouts_MemoryLayout_Serialize", LayoutSerializeArgs, Serialize);
  made.client_default = GANGWAY_EXTENSION("PJRT_Layouts_PJRT_Client_GetDefaultLayout", ClientArgs,
                                          Default<PJRT_Client>);
  made.of_buffer =
      GANGWAY_EXTENSION("PJRT_Layouts_PJRT_Buffer_MemoryLayout", LayoutOfBufferArgs, OfBuffer);
  made.topology_default = GANGWAY_EXTENSION("PJRT_Layouts_PJRT_Topology_GetDefaultLayout",
                                            TopologyArgs, Default<PJRT_TopologyDescription>);
  made.of_results = GANGWAY_EXTENSION("PJRT_Layouts_PJRT_Executable_GetOutputLayouts",
                                      ExecutableLayoutsArgs, OfResults);
  made.of_parameters = GANGWAY_EXTENSION("PJRT_Layouts_PJRT_Executable_GetParameterLayouts",
                                         ExecutableLayoutsArgs, OfParameters);
  return made;
}

MemoryDescriptionsExtension MakeMemoryDescriptions(PJRT_Extension_Base* next) {
  MemoryDescriptionsExtension made{};
  made.base = {sizeof(made), PJRT_Extension_Type_MemoryDescriptions, next};
  made.descriptions = GANGWAY_EXTENSION("PJRT_DeviceDescription_MemoryDescriptions",
                                        MemoryDescriptionsArgs, Descriptions);
  made.kind = GANGWAY_EXTENSION("PJRT_MemoryDescription_Kind", MemoryDescriptionKindArgs, Kind);
  return made;
}

PartitionerExtension MakePartitioners(PJRT_Extension_Base* next) {
  PartitionerExtension made{};
  made.base = {sizeof(made), PJRT_Extension_Type_Custom_Partitioner, next};
  made.register_partitioner = GANGWAY_EXTENSION("PJRT_Register_Custom_Partitioner",
                                                RegisterPartitionerArgs, RegisterPartitioner);
  // Ignored: the compiler knows LAPACK's, and workers have no functions of a client.
  made.register_batch_partitionable =
      GANGWAY_EXTENSION("PJRT_Register_Batch_Partitionable", RegisterBatchPartitionableArgs,
                        [](RegisterBatchPartitionableArgs&) { return absl::OkStatus(); });
  return made;
}

#undef GANGWAY_EXTENSION

}  // namespace

PJRT_Extension_Base* Extensions() {
  static ProfilerExtension profiler{
      {sizeof(ProfilerExtension), PJRT_Extension_Type_Profiler, nullptr}, TheProfilerApi(), 0};
  static PartitionerExtension partitioners = MakePartitioners(&profiler.base);
  static MemoryDescriptionsExtension memories = MakeMemoryDescriptions(&partitioners.base);
  static LayoutsExtension layouts = MakeLayouts(&memories.base);
  return &layouts.base;
}

}  // namespace gangway::pjrt
