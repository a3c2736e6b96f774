// Compile options from a client: they are rejected, or what is left of them is what a client may set, and the devices
// written to them are read back.
#include <google/protobuf/unknown_field_set.h>

#include <iterator>
#include <random>

#include "gangway/base/check.h"
#include "gangway/base/fuzz.h"
#include "gangway/xla/allowed_options.h"
#include "gangway/xla/compile_options.h"
#include "gangway/xla/fuzz_message.h"
#include "gangway/xla/option_table.h"
#include "gangway/xla/option_value.h"

namespace gangway::fuzz {
namespace {

using ::google::protobuf::UnknownFieldSet;

constexpr int kBuild = 3, kDebug = 3, kOverrides = 7;
constexpr xla::OptionsHost kHosts[] = {
    {.platform = "cpu", .flags = ""},
    {.platform = "cuda", .flags = "--a --xla_gpu_cuda_data_dir="}};

std::string Bytes(const UnknownFieldSet& fields) {
  std::string bytes;
  fields.SerializeToString(&bytes);
  return bytes;
}

// A field of any type, with a value that may be within its range.
void AddField(int number, std::mt19937& random, UnknownFieldSet& fields) {
  constexpr uint64_t kNumbers[] = {0, 1, 2, 40, UINT32_MAX, ~uint64_t{0}};
  constexpr const char* kTexts[] = {"",     "1",      "True",        "fusion,cse",
                                    "AVX2", "/tmp/x", "\n\1a\x12\1b"};
  switch (random() % 8) {
    case 0:
      return fields.AddFixed32(number, static_cast<uint32_t>(random()));
    case 1:
      return fields.AddFixed64(number, random());
    case 2:
    case 3:
      return fields.AddLengthDelimited(number, kTexts[random() % std::size(kTexts)]);
    default:
      return fields.AddVarint(number, kNumbers[random() % std::size(kNumbers)]);
  }
}

// Options with one more: a field of one of the messages, of the debug options, or an option by its name.
std::string WithOneMore(std::string_view options, std::mt19937& random) {
  UnknownFieldSet field, build, added;
  const xla::CompileOption& option = xla::kOptions[random() % std::size(xla::kOptions)];
  switch (random() % 4) {
    case 0:
      AddField(static_cast<int>(random() % 30) + 1, random, added);
      break;
    case 1:
      AddField(static_cast<int>(random() % 30) + 1, random, build);
      added.AddLengthDelimited(kBuild, Bytes(build));
      break;
    case 2:
      AddField(option.number, random, field);
      build.AddLengthDelimited(kDebug, Bytes(field));
      added.AddLengthDelimited(kBuild, Bytes(build));
      break;
    default:
      AddField(static_cast<int>(random() % 4) + 1, random, field);
      build.AddLengthDelimited(1, std::string(option.name));
      build.AddLengthDelimited(2, Bytes(field));
      added.AddLengthDelimited(kOverrides, Bytes(build));
  }
  return std::string(options) + Bytes(added);
}

// Each of the debug options is one that XLA may get.
void CheckDebug(const std::string& serialized) {
  UnknownFieldSet debug;
  GANGWAY_CHECK(debug.ParseFromString(serialized), "what is written parses");
  for (int i = 0; i < debug.field_count(); ++i) {
    const xla::CompileOption* const option = xla::FindOption(debug.field(i).number());
    GANGWAY_CHECK(option != nullptr, "a field that is not in the table is left out");
    const auto value = xla::ReadValue(*option, debug);
    GANGWAY_CHECK(value.ok(), "what is written is read");
    const bool is_forwarded =
        option->rule == xla::OptionRule::kProgram || option->rule == xla::OptionRule::kGpu;
    GANGWAY_CHECK(xla::Lists(option->sent, *value) || option->rule == xla::OptionRule::kGpuPath ||
                      (is_forwarded && (xla::IsInRange(*option, *value) || xla::IsZero(*value))),
                  "a value is within its range, or is JAX's own");
  }
}

void CheckAllowed(std::string_view bytes) {
  for (const xla::OptionsHost& host : kHosts) {
    const auto allowed = xla::AllowedOptions(bytes, host);
    if (!allowed.ok()) continue;
    const auto again = xla::AllowedOptions(*allowed, host);
    GANGWAY_CHECK(again.ok() && *again == *allowed, "allowed options stay as they are");
    xla::CompileOptionsProto options;
    GANGWAY_CHECK(options.ParseFromString(*allowed), "allowed options parse");
    const auto& build = options.executable_build_options();
    GANGWAY_CHECK(!build.run_backend_only() && !build.has_device_assignment() &&
                      build.device_ordinal() == -1 && !options.parameter_is_tupled_arguments(),
                  "what is never allowed is absent");
    const UnknownFieldSet& fields = build.GetReflection()->GetUnknownFields(build);
    for (int i = 0; i < fields.field_count(); ++i)
      if (fields.field(i).number() == kDebug) CheckDebug(fields.field(i).length_delimited());
  }
}

}  // namespace

std::vector<std::string> Seeds() {
  xla::CompileOptionsProto options;
  options.mutable_executable_build_options()->set_num_replicas(2);
  options.mutable_executable_build_options()->set_num_partitions(2);
  auto assigned = xla::WithDevices(options.SerializeAsString(), std::vector<uint32_t>{4, 5, 6, 7});
  GANGWAY_CHECK(assigned.ok(), "a seed is valid");
  std::vector<std::string> seeds = {options.SerializeAsString(), *assigned};
  std::mt19937 random(1);
  std::string many = seeds[0];
  for (int i = 0; i < 100; ++i) {  // those that stay alone, or with what is allowed
    const std::string more = WithOneMore(many, random);
    seeds.push_back(WithOneMore(seeds[0], random));
    if (xla::AllowedOptions(more, kHosts[0]).ok()) many = more;
  }
  seeds.push_back(many);
  return seeds;
}

}  // namespace gangway::fuzz

size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t size_max, unsigned int seed) {
  std::mt19937 random(seed);
  const std::string_view bytes = gangway::fuzz::View(data, size);
  const std::string mutated =
      seed % 2 == 0
          ? gangway::fuzz::WithOneMore(bytes, random)
          : gangway::xla::MutatedMessage<gangway::xla::CompileOptionsProto>(bytes, random);
  return mutated.copy(reinterpret_cast<char*>(data), size_max);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  gangway::xla::CompileOptionsProto options;
  if (options.ParseFromArray(data, static_cast<int>(size)))
    (void)gangway::xla::AssignedDevices(options);
  gangway::fuzz::CheckAllowed(gangway::fuzz::View(data, size));
  const std::vector<uint32_t> all[] = {{}, {3}, {9, 8, 7, 6}};
  for (const std::vector<uint32_t>& devices : all) {
    auto written = gangway::xla::WithDevices(gangway::fuzz::View(data, size), devices);
    if (!written.ok()) continue;
    GANGWAY_CHECK(options.ParseFromString(*written), "written options parse");
    auto read = gangway::xla::AssignedDevices(options);
    GANGWAY_CHECK(read.ok() && *read == devices, "the devices are those that were written");
  }
  const auto canonical = gangway::xla::CanonicalOptions(gangway::fuzz::View(data, size));
  if (canonical.ok()) {
    const auto again = gangway::xla::CanonicalOptions(*canonical);
    GANGWAY_CHECK(again.ok() && *again == *canonical, "canonical options stay as they are");
  }
  return 0;
}
