// Implementation of partitioner.h.
#include "gangway/frontdoor/pjrt/partitioner.h"

#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gangway/base/mutex.h"
#include "gangway/base/status.h"
#include "gangway/frontdoor/pjrt/error.h"
#include "gangway/xla/sharded_calls.h"
#include "gangway/xla/sharded_calls.pb.h"

namespace gangway::pjrt {
namespace {

struct Partitioners {
  Mutex mutex;
  std::map<std::string, PartitionerCallbacks*> by_target GANGWAY_GUARDED_BY(mutex);
};

Partitioners& All() {
  static Partitioners* const all = new Partitioners;
  return *all;
}

PartitionerText Text(const std::string& text) { return {text.data(), text.size()}; }

std::string ToString(const PartitionerText& text) {
  return text.data == nullptr ? "" : std::string(text.data, text.size);
}

absl::Status Malformed() { return absl::InternalError("what the compiler asks is malformed"); }

bool Parse(const PartitionerText& text, xla::OpShardingProto& sharding) {
  return text.size <= INT32_MAX && sharding.ParseFromString(ToString(text));
}

absl::StatusOr<xla::PartitionedCall> Partition(const xla::CallToPartition& call) {
  PartitionerCallbacks* callbacks = nullptr;
  {
    const MutexLock lock(All().mutex);
    if (const auto found = All().by_target.find(call.target()); found != All().by_target.end())
      callbacks = found->second;
  }
  if (callbacks == nullptr || callbacks->partition == nullptr)
    return absl::UnimplementedError(
        absl::StrCat("this process has no partitioner for calls of ", call.target()));
  if (call.operands_size() != call.operand_shardings_size()) return Malformed();
  std::vector<std::string> texts;
  texts.reserve(2 * static_cast<size_t>(call.operands_size()) + 2);
  const auto array = [&](const xla::ShapeProto& shape, const xla::OpShardingProto& sharding) {
    texts.push_back(shape.SerializeAsString());
    texts.push_back(sharding.SerializeAsString());
    return PartitionerArray{Text(texts[texts.size() - 2]), true, Text(texts.back())};
  };
  std::vector<PartitionerArray> operands;
  for (int i = 0; i < call.operands_size(); ++i)
    operands.push_back(array(call.operands(i), call.operand_shardings(i)));
  PartitionArgs args{};
  args.num_operands = operands.size();
  args.operands = operands.data();
  args.result = array(call.result(), call.result_sharding());
  args.backend_config = Text(call.backend_config());
  callbacks->partition(callbacks, &args);
  absl::StatusOr<xla::PartitionedCall> answer = xla::PartitionedCall();
  if (args.header.has_error) {
    answer = absl::Status(static_cast<absl::StatusCode>(args.header.code),
                          absl::StrCat("the partition function of a custom_partitioning failed: ",
                                       ToString(args.header.message)));
  } else {
    answer->set_module(ToString(args.module));
    bool known = Parse(args.result_sharding, *answer->mutable_result_sharding());
    for (size_t i = 0; known && i < args.num_operands; ++i)
      known = Parse(args.operand_shardings[i], *answer->add_operand_shardings());
    if (!known)
      answer = absl::InternalError("the shardings of a custom_partitioning are malformed");
  }
  if (args.header.cleanup != nullptr) args.header.cleanup(args.header.data);
  return answer;
}

// jaxlib's: what an InspectSharding call has in its backend_config, and what the function gets.
struct InspectArgs {
  const char* sharding;
  size_t sharding_size;
  const char* error;  // out, as the rest
  void* scratch;
  void (*free_error)(InspectArgs* args);
};

struct InspectCallback {
  void (*call)(void* data, InspectArgs* args);
  void* data;
};

// `program` is what this process compiles: only an address that occurs in it is called.
absl::Status Inspect(const xla::CallToPartition& call, const std::string& program) {
  InspectCallback callback{};
  if (call.backend_config().size() != sizeof(callback) || call.operand_shardings_size() != 1 ||
      program.find(call.backend_config()) == std::string::npos)
    return Malformed();
  std::memcpy(&callback, call.backend_config().data(), sizeof(callback));
  if (callback.call == nullptr) return Malformed();
  const std::string sharding = call.operand_shardings(0).SerializeAsString();
  InspectArgs args{};
  args.sharding = sharding.data();
  args.sharding_size = sharding.size();
  callback.call(callback.data, &args);
  if (args.error == nullptr) return absl::OkStatus();
  absl::Status failed = absl::InternalError(
      absl::StrCat("the callback of inspect_array_sharding failed: ", args.error));
  if (args.free_error != nullptr) args.free_error(&args);
  return failed;
}

}  // namespace

absl::Status RegisterPartitioner(RegisterPartitionerArgs& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.name, "the name of a partitioner"));
  GANGWAY_RETURN_IF_ERROR(Need(args.callbacks, "the functions of a partitioner"));
  const MutexLock lock(All().mutex);
  All().by_target[std::string(args.name, args.name_size)] = args.callbacks;
  return absl::OkStatus();
}

StoredProgram AsAsking(StoredProgram program, size_t device_count) {
  if (device_count < 2 || program.format == xla::kProgramWithCalls ||
      !xla::MayAskItsClient(program.program))
    return program;
  xla::ProgramWithCalls asking;
  asking.set_program(std::move(program.program));
  asking.set_format(std::move(program.format));
  program.program = asking.SerializeAsString();
  program.format = std::string(xla::kProgramWithCalls);
  return program;
}

absl::StatusOr<StoredProgram> Answer(const StoredProgram& program, const std::string& asks) {
  xla::CallsToPartition asked;
  xla::ProgramWithCalls answered;
  if (!asked.ParseFromString(asks) || !answered.ParseFromString(program.program))
    return Malformed();
  answered.clear_calls();
  for (const xla::CallToPartition& call : asked.calls()) {
    xla::PartitionedCall& answer = *answered.add_calls();
    if (call.target() == xla::kInspectTarget) {
      GANGWAY_RETURN_IF_ERROR(Inspect(call, answered.program()));
    } else {
      GANGWAY_ASSIGN_OR_RETURN(answer, Partition(call));
    }
  }
  StoredProgram whole = program;
  whole.program = answered.SerializeAsString();
  return whole;
}

}  // namespace gangway::pjrt
