// The chain of extensions: layouts, memory descriptions, and Gangway's profiler. Their structs are declared here as
// their binary interface has them, since the header names their types only.
#include <cstring>
#include <set>

#include "tests/native/conformance/plugin.h"

namespace conformance {
namespace {

using testing::HasSubstr;

struct Layout;
struct SerializedLayout;
struct LayoutDestroyArgs {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  Layout* layout;
};
struct LayoutSerializeArgs {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  Layout* layout;
  const char* bytes;
  size_t size;
  SerializedLayout* holder;
  void (*deleter)(SerializedLayout*);
};
struct DefaultLayoutArgs {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  void* owner;  // a client or a topology
  PJRT_Buffer_Type type;
  const int64_t* dims;
  size_t num_dims;
  Layout* layout;
};
struct BufferLayoutArgs {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Buffer* buffer;
  Layout* layout;
};
struct ExecutableLayoutsArgs {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Executable* executable;
  size_t count;
  Layout** layouts;
};
struct Layouts {
  PJRT_Extension_Base base;
  PJRT_Error* (*destroy)(LayoutDestroyArgs*);
  PJRT_Error* (*serialize)(LayoutSerializeArgs*);
  PJRT_Error* (*client_default)(DefaultLayoutArgs*);
  PJRT_Error* (*of_buffer)(BufferLayoutArgs*);
  PJRT_Error* (*topology_default)(DefaultLayoutArgs*);
  PJRT_Error* (*of_results)(ExecutableLayoutsArgs*);
  PJRT_Error* (*of_parameters)(ExecutableLayoutsArgs*);
};

struct MemoryDescription;
struct DescriptionsArgs {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_DeviceDescription* description;
  const MemoryDescription* const* all;
  size_t count;
  size_t default_index;
};
struct DescriptionKindArgs {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  const MemoryDescription* description;
  const char* kind;
  size_t size;
  int id;
};
struct MemoryDescriptions {
  PJRT_Extension_Base base;
  PJRT_Error* (*descriptions)(DescriptionsArgs*);
  PJRT_Error* (*kind)(DescriptionKindArgs*);
};

// Null if the plugin's is smaller than `size`: its later functions are not there.
template <typename Extension>
const Extension* Find(PJRT_Extension_Type type, size_t size = sizeof(Extension)) {
  for (auto* each = RawApi().extension_start; each != nullptr; each = each->next) {
    if (each->type == type && each->struct_size >= size)
      return reinterpret_cast<const Extension*>(each);
  }
  return nullptr;
}

class ExtensionsTest : public Conformance {
 protected:
  const Layouts* layouts_ =
      Find<Layouts>(PJRT_Extension_Type_Layouts, offsetof(Layouts, of_parameters));
  const MemoryDescriptions* memories_ =
      Find<MemoryDescriptions>(PJRT_Extension_Type_MemoryDescriptions);

  std::string Text(Layout* layout) const {
    auto serialize = Make<LayoutSerializeArgs>();
    serialize.layout = layout;
    Do(layouts_->serialize, serialize);
    std::string text(serialize.bytes, serialize.size);
    serialize.deleter(serialize.holder);
    return text;
  }
  void Destroy(Layout* layout) const {
    auto destroy = Make<LayoutDestroyArgs>();
    destroy.layout = layout;
    Do(layouts_->destroy, destroy);
  }
  std::string TextOnce(Layout* layout) const {
    std::string text = Text(layout);
    Destroy(layout);
    return text;
  }
};

TEST_F(ExtensionsTest, OfTheChainHaveTheirTypesOnce) {
  std::set<int> types;
  for (auto* each = RawApi().extension_start; each != nullptr; each = each->next) {
    EXPECT_GE(each->struct_size, sizeof(PJRT_Extension_Base));
    EXPECT_TRUE(types.insert(each->type).second) << each->type;
  }
  EXPECT_TRUE(types.contains(PJRT_Extension_Type_Layouts));
  EXPECT_TRUE(types.contains(PJRT_Extension_Type_MemoryDescriptions));
  EXPECT_EQ(types.contains(PJRT_Extension_Type_Profiler), IsGangway());
}

TEST_F(ExtensionsTest, LayoutsAreRowMajor) {
  ASSERT_NE(layouts_, nullptr);
  const Buffer buffer = Upload(std::vector<float>(24), {2, 3, 4});
  auto of_buffer = Make<BufferLayoutArgs>();
  of_buffer.buffer = buffer.get();
  Do(layouts_->of_buffer, of_buffer);
  EXPECT_EQ(TextOnce(of_buffer.layout), "{2,1,0}");
  const int64_t dims[] = {5, 6};
  auto by_default = Make<DefaultLayoutArgs>();
  by_default.owner = client();
  by_default.type = PJRT_Buffer_Type_F32;
  by_default.dims = dims;
  by_default.num_dims = 2;
  Do(layouts_->client_default, by_default);
  EXPECT_EQ(TextOnce(by_default.layout), "{1,0}");
  auto topology = Make<PJRT_Client_TopologyDescription_Args>();
  topology.client = client();
  Do(Api().PJRT_Client_TopologyDescription, topology);
  by_default.owner = topology.topology;
  const Said said = Ask(layouts_->topology_default, by_default);
  EXPECT_EQ(said.code, Expected(Topic::kTopologyLayout)) << said.message;
  if (said.ok()) {
    EXPECT_EQ(TextOnce(by_default.layout), "{1,0}");
  }
}

TEST_F(ExtensionsTest, LayoutsOfProgramsAreRowMajor) {
  ASSERT_NE(layouts_, nullptr);
  const Loaded loaded = Compile(
      "module @t { func.func public @main(%x: tensor<2x3xf32>) -> tensor<6xf32> {\n"
      "  %y = stablehlo.reshape %x : (tensor<2x3xf32>) -> tensor<6xf32>\n"
      "  return %y : tensor<6xf32> } }\n");
  const Executable executable = ExecutableOf(loaded);
  auto results = Make<ExecutableLayoutsArgs>();
  results.executable = executable.get();
  Do(layouts_->of_results, results);
  ASSERT_EQ(results.count, 1u);
  EXPECT_EQ(Text(results.layouts[0]), "{0}");
  if (!Runs(Topic::kParameterLayouts)) return;
  auto parameters = Make<ExecutableLayoutsArgs>();
  parameters.executable = executable.get();
  Do(layouts_->of_parameters, parameters);
  ASSERT_EQ(parameters.count, 1u);
  EXPECT_EQ(Text(parameters.layouts[0]), "{1,0}");
  // The executable's own, which a caller may destroy by mistake.
  auto destroy = Make<LayoutDestroyArgs>();
  destroy.layout = results.layouts[0];
  EXPECT_EQ(Ask(layouts_->destroy, destroy).code, PJRT_Error_Code_FAILED_PRECONDITION);
  EXPECT_EQ(Text(results.layouts[0]), "{0}");
}

TEST_F(ExtensionsTest, MemoryDescriptionsAreTheDevicesMemories) {
  if (!Runs(Topic::kMemoryDescriptions)) GTEST_SKIP() << Reason(Topic::kMemoryDescriptions);
  ASSERT_NE(memories_, nullptr);
  auto of = Make<PJRT_Device_GetDescription_Args>();
  of.device = device();
  Do(Api().PJRT_Device_GetDescription, of);
  auto descriptions = Make<DescriptionsArgs>();
  descriptions.description = of.device_description;
  Do(memories_->descriptions, descriptions);
  std::vector<std::string> kinds;
  for (size_t i = 0; i < descriptions.count; ++i) {
    auto kind = Make<DescriptionKindArgs>();
    kind.description = descriptions.all[i];
    Do(memories_->kind, kind);
    kinds.emplace_back(kind.kind, kind.size);
  }
  EXPECT_THAT(kinds, testing::UnorderedElementsAre("device", "pinned_host", "unpinned_host"));
  EXPECT_EQ(kinds[descriptions.default_index], "device");
}

// Without a profiler's arguments; what a profile holds is tested from JAX.
struct ProfilerErrorArgs {
  size_t struct_size;
  void* reserved;
  void* error;
  const char* message;
  size_t message_size;
};
struct ProfilerCreateArgs {
  size_t struct_size;
  const char* options;
  size_t options_size;
  void* profiler;
};
struct ProfilerArgs {
  size_t struct_size;
  void* profiler;
};
struct ProfilerCollectArgs {
  size_t struct_size;
  void* profiler;
  uint8_t* buffer;
  size_t size;
};
struct ProfilerApi {
  size_t struct_size;
  void* reserved;
  void (*error_destroy)(ProfilerErrorArgs*);
  void (*error_message)(ProfilerErrorArgs*);
  void* (*error_code)(ProfilerErrorArgs*);
  void* (*create)(ProfilerCreateArgs*);
  void* (*destroy)(ProfilerArgs*);
  void* (*start)(ProfilerArgs*);
  void* (*stop)(ProfilerArgs*);
  void* (*collect)(ProfilerCollectArgs*);
};
struct Profiler {
  PJRT_Extension_Base base;
  const ProfilerApi* api;
};

TEST_F(ExtensionsTest, ProfilesNameTheDevices) {
  if (!IsGangway()) GTEST_SKIP() << "the CPU plugin has no profiler";
  const auto* const extension = Find<Profiler>(PJRT_Extension_Type_Profiler);
  ASSERT_NE(extension, nullptr);
  const ProfilerApi& profiler = *extension->api;
  auto create = Make<ProfilerCreateArgs>();
  ASSERT_EQ(profiler.create(&create), nullptr);
  auto args = Make<ProfilerArgs>();
  args.profiler = create.profiler;
  EXPECT_EQ(profiler.start(&args), nullptr);
  const Loaded twice = Compile(kTwice);
  const Buffer argument = Upload(std::vector<float>{1, 2, 3, 4});
  EXPECT_TRUE(Ready(Call(twice, {{argument.get()}}).results[0][0]).ok());
  EXPECT_EQ(profiler.stop(&args), nullptr);
  auto collect = Make<ProfilerCollectArgs>();
  collect.profiler = create.profiler;
  EXPECT_EQ(profiler.collect(&collect), nullptr);
  std::string data(collect.size, '\0');
  collect.buffer = reinterpret_cast<uint8_t*>(data.data());
  EXPECT_EQ(profiler.collect(&collect), nullptr);
  EXPECT_THAT(data, HasSubstr("/device:CUSTOM:Gangway:7"));
  EXPECT_EQ(profiler.destroy(&args), nullptr);

  ProfilerArgs none{sizeof(ProfilerArgs), nullptr};
  void* const error = profiler.start(&none);
  ASSERT_NE(error, nullptr);
  auto said = Make<ProfilerErrorArgs>();
  said.error = error;
  profiler.error_message(&said);
  EXPECT_THAT(std::string(said.message, said.message_size), HasSubstr("null"));
  profiler.error_destroy(&said);
  EXPECT_NE(profiler.create(nullptr), nullptr);
}

TEST_F(ExtensionsTest, NullHandlesAreErrors) {
  if (!Runs(Topic::kNullHandles)) GTEST_SKIP() << Reason(Topic::kNullHandles);
  ASSERT_NE(layouts_, nullptr);
  const auto refuses = [](auto* function, auto args) {
    EXPECT_EQ(Take(function(nullptr)).code, PJRT_Error_Code_INVALID_ARGUMENT);
    EXPECT_EQ(Ask(function, args).code, PJRT_Error_Code_INVALID_ARGUMENT);
    args.struct_size = sizeof(size_t);
    EXPECT_EQ(Ask(function, args).code, PJRT_Error_Code_INVALID_ARGUMENT);
  };
  refuses(layouts_->serialize, Make<LayoutSerializeArgs>());
  refuses(layouts_->client_default, Make<DefaultLayoutArgs>());
  refuses(layouts_->topology_default, Make<DefaultLayoutArgs>());
  refuses(layouts_->of_buffer, Make<BufferLayoutArgs>());
  refuses(layouts_->of_results, Make<ExecutableLayoutsArgs>());
  refuses(layouts_->of_parameters, Make<ExecutableLayoutsArgs>());
  refuses(memories_->descriptions, Make<DescriptionsArgs>());
  refuses(memories_->kind, Make<DescriptionKindArgs>());
  auto huge = Make<DefaultLayoutArgs>();
  huge.owner = client();
  huge.num_dims = size_t{1} << 40;
  EXPECT_EQ(Ask(layouts_->client_default, huge).code, PJRT_Error_Code_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace conformance
