// Implementation of wire_form.h.
#include "gangway/program/wire_form.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "gangway/base/check.h"
#include "gangway/base/status.h"

namespace gangway::program {
namespace {

template <typename List>
std::vector<uint32_t> Numbers(const List& list) {
  return {list.begin(), list.end()};
}

template <typename... Parts>
absl::Status TooMany(uint64_t count, uint64_t limit, const Parts&... of) {
  return absl::ResourceExhaustedError(
      absl::StrCat("a program of ", count, " ", of..., " exceeds the limit of ", limit));
}

absl::Status CheckSizes(const wire::Program& message) {
  const auto nodes = static_cast<uint64_t>(message.nodes_size());
  const auto results = static_cast<uint64_t>(message.results_size());
  if (nodes > kNodesMax) return TooMany(nodes, kNodesMax, "nodes");
  if (message.arguments() > kNodesMax) return TooMany(message.arguments(), kNodesMax, "arguments");
  if (results > kNodesMax) return TooMany(results, kNodesMax, "results");
  uint64_t values = message.arguments(), inputs = results, devices = 0;
  for (const wire::ProgramNode& node : message.nodes()) {
    values += node.has_call() ? node.call().outputs() : 1;
    inputs += static_cast<uint64_t>(
        node.has_transfer() ? 1 : node.call().inputs_size() + node.view().inputs_size());
  }
  for (const wire::DeviceNumbers& list : message.device_lists())
    devices += static_cast<uint64_t>(list.devices_size());
  if (values > kValuesMax) return TooMany(values, kValuesMax, "values");
  if (inputs > kInputsMax) return TooMany(inputs, kInputsMax, "inputs");
  if (devices > kInputsMax) return TooMany(devices, kInputsMax, "devices in its lists");
  return absl::OkStatus();
}

// The nodes of a message whose sizes are within the limits.
class Reader {
 public:
  explicit Reader(const wire::Program& message)
      : message_(message),
        program_(message.name()),
        functions_(static_cast<size_t>(message.executables_size())),
        device_lists_(static_cast<size_t>(message.device_lists_size())),
        sources_(static_cast<size_t>(message.sources_size())) {}

  absl::StatusOr<Program> Read() {
    for (uint32_t i = 0; i < message_.arguments(); ++i) program_.AddArgument();
    for (const wire::ProgramNode& node : message_.nodes()) GANGWAY_RETURN_IF_ERROR(Add(node));
    for (uint32_t result : message_.results()) {
      GANGWAY_RETURN_IF_ERROR(CheckValue(result));
      program_.AddResult(result);
    }
    return std::move(program_);
  }

 private:
  absl::Status Add(const wire::ProgramNode& message);
  absl::Status AddCall(const wire::ProgramCall& message, Node node);
  absl::Status AddTransfer(const wire::ProgramTransfer& message, Node node);
  absl::Status AddView(const wire::ProgramView& message, Node node);

  template <typename... Parts>
  absl::Status Refuse(const Parts&... parts) const {
    return absl::InvalidArgumentError(
        absl::StrCat("node ", program_.nodes().size(), " ", parts...));
  }
  absl::Status CheckValue(uint32_t value) const {
    if (value < program_.value_count()) return absl::OkStatus();
    return Refuse("uses %", value, ", which is not defined before it");
  }
  absl::Status CheckValues(const std::vector<uint32_t>& values) const {
    for (uint32_t value : values) GANGWAY_RETURN_IF_ERROR(CheckValue(value));
    return absl::OkStatus();
  }

  const wire::Program& message_;
  Program program_;
  // By index in the message's tables: the index in the program's, which have each entry once.
  std::vector<std::optional<uint32_t>> functions_, device_lists_, sources_;
};

absl::Status Reader::AddCall(const wire::ProgramCall& message, Node node) {
  if (message.executable() >= functions_.size())
    return Refuse("calls executable ", message.executable(), " of ", functions_.size());
  std::optional<uint32_t>& function = functions_[message.executable()];
  if (!function) {
    const uint64_t handle = message_.executables(static_cast<int>(message.executable()));
    function = program_.FunctionNamed(absl::StrCat(handle));
  }
  node.kind = Kind::kCall;
  node.function = *function;
  node.inputs = Numbers(message.inputs());
  node.kept = Numbers(message.keep());
  node.output_count = message.outputs();
  node.is_irregular = message.irregular();
  GANGWAY_RETURN_IF_ERROR(CheckValues(node.inputs));
  program_.Add(std::move(node));
  return absl::OkStatus();
}

absl::Status Reader::AddTransfer(const wire::ProgramTransfer& message, Node node) {
  GANGWAY_RETURN_IF_ERROR(CheckValue(message.input()));
  if (message.devices() >= device_lists_.size()) {
    return Refuse("names list ", message.devices(), " of ", device_lists_.size(),
                  " lists of devices");
  }
  std::optional<uint32_t>& list = device_lists_[message.devices()];
  if (!list) {
    const int index = static_cast<int>(message.devices());
    list = program_.ListOf(Numbers(message_.device_lists(index).devices()));
  }
  node.kind = Kind::kTransfer;
  node.inputs = {message.input()};
  node.devices = list;
  node.memory_kind = message.memory_kind();
  node.output_count = 1;
  program_.Add(std::move(node));
  return absl::OkStatus();
}

absl::Status Reader::AddView(const wire::ProgramView& message, Node node) {
  node.kind = Kind::kView;
  node.inputs = Numbers(message.inputs());
  node.shards = Numbers(message.shards());
  node.output_count = 1;
  GANGWAY_RETURN_IF_ERROR(CheckValues(node.inputs));
  program_.Add(std::move(node));
  return absl::OkStatus();
}

absl::Status Reader::Add(const wire::ProgramNode& message) {
  Node node;
  if (message.has_source()) {
    if (message.source() >= sources_.size())
      return Refuse("names source ", message.source(), " of ", sources_.size());
    std::optional<uint32_t>& source = sources_[message.source()];
    if (!source)
      source = program_.SourceNamed(message_.sources(static_cast<int>(message.source())));
    node.source = source;
  }
  switch (message.kind_case()) {
    case wire::ProgramNode::kCall:
      return AddCall(message.call(), std::move(node));
    case wire::ProgramNode::kTransfer:
      return AddTransfer(message.transfer(), std::move(node));
    case wire::ProgramNode::kView:
      return AddView(message.view(), std::move(node));
    case wire::ProgramNode::KIND_NOT_SET:
      break;
  }
  return Refuse("is of no kind that is known");
}

class Writer {
 public:
  Writer(const Program& program, wire::Program& message)
      : program_(program), message_(message), device_lists_(program.device_lists().size()) {}

  void Write() {
    message_.set_name(program_.name());
    message_.set_arguments(program_.argument_count());
    for (const std::string& function : program_.functions()) {
      uint64_t handle = 0;
      GANGWAY_CHECK(absl::SimpleAtoi(function, &handle), "functions are named by numbers");
      message_.add_executables(handle);
    }
    for (const std::string& source : program_.sources()) message_.add_sources(source);
    for (const Node& node : program_.nodes()) {
      if (node.kind == Kind::kResult) message_.add_results(node.inputs[0]);
      if (node.kind != Kind::kResult && node.kind != Kind::kArgument) Add(node);
    }
  }

 private:
  void Add(const Node& node);
  uint32_t OfDevices(DevicesId list);

  const Program& program_;
  wire::Program& message_;
  std::vector<std::optional<uint32_t>> device_lists_;  // in the message: those of transfers
};

uint32_t Writer::OfDevices(DevicesId list) {
  std::optional<uint32_t>& index = device_lists_[list];
  if (!index) {
    index = static_cast<uint32_t>(message_.device_lists_size());
    const Devices& devices = program_.device_lists()[list];
    message_.add_device_lists()->mutable_devices()->Assign(devices.begin(), devices.end());
  }
  return *index;
}

void Writer::Add(const Node& node) {
  GANGWAY_CHECK(node.kind != Kind::kFree, "frees are added where programs are lowered");
  wire::ProgramNode& message = *message_.add_nodes();
  if (node.source) message.set_source(*node.source);
  if (node.kind == Kind::kCall) {
    wire::ProgramCall& call = *message.mutable_call();
    call.set_executable(node.function);
    call.mutable_inputs()->Assign(node.inputs.begin(), node.inputs.end());
    call.mutable_keep()->Assign(node.kept.begin(), node.kept.end());
    call.set_outputs(node.output_count);
    call.set_irregular(node.is_irregular);
  } else if (node.kind == Kind::kTransfer) {
    wire::ProgramTransfer& transfer = *message.mutable_transfer();
    transfer.set_input(node.inputs[0]);
    transfer.set_devices(OfDevices(*node.devices));
    transfer.set_memory_kind(node.memory_kind);
  } else {
    wire::ProgramView& view = *message.mutable_view();
    view.mutable_inputs()->Assign(node.inputs.begin(), node.inputs.end());
    view.mutable_shards()->Assign(node.shards.begin(), node.shards.end());
  }
}

}  // namespace

void ToWire(const Program& program, wire::Program& message) { Writer(program, message).Write(); }

absl::StatusOr<Program> FromWire(const wire::Program& message) {
  GANGWAY_RETURN_IF_ERROR(CheckSizes(message));
  return Reader(message).Read();
}

}  // namespace gangway::program
