// Implementation of programs.h.
#include "gangway/client/programs.h"

#include <utility>

#include "absl/strings/numbers.h"

#include "gangway/client/host_callbacks.h"
#include "gangway/client/op_fields.h"
#include "gangway/program/wire_form.h"
#include "gangway/wire/failure.h"

namespace gangway::client {
namespace {

using program::Kind;
using program::ValueId;

// Where the values of one program are, in the order of its nodes.
class Placements {
 public:
  Placements(const program::Program& program, std::span<const ArrayHandle> like,
             const Handles& handles)
      : handles_(handles) {
    for (const program::Devices& devices : program.device_lists())
      lists_.push_back(std::make_shared<const std::vector<uint32_t>>(devices));
    for (const std::string& function : program.functions()) {
      uint64_t executable = 0;
      const bool is_number = absl::SimpleAtoi(function, &executable);
      functions_.push_back(is_number ? handles.DevicesOf(ExecutableHandle(executable)) : nullptr);
    }
    for (const program::Node& node : program.nodes()) {
      const Devices devices = Of(node, like);
      values_.insert(values_.end(), node.output_count, devices);
    }
  }

  const Devices& of(ValueId value) const { return values_[value]; }

 private:
  Devices Of(const program::Node& node, std::span<const ArrayHandle> like) const {
    if (node.devices) return lists_[*node.devices];
    switch (node.kind) {
      case Kind::kArgument: {
        const size_t index = node.first_output;  // the arguments are the first values
        return index < like.size() ? handles_.DevicesOf(like[index]) : nullptr;
      }
      case Kind::kCall:
        return functions_[node.function];
      case Kind::kView:
        return OfView(node);
      default:
        return nullptr;
    }
  }
  Devices OfView(const program::Node& view) const {
    auto devices = std::make_shared<std::vector<uint32_t>>();
    for (size_t i = 0; i < view.shards.size(); ++i) {
      const Devices& from = values_[view.inputs[i]];
      if (from == nullptr || view.shards[i] >= from->size()) return nullptr;
      devices->push_back((*from)[view.shards[i]]);
    }
    return devices->empty() ? nullptr : devices;  // of a replica, any may be chosen
  }

  const Handles& handles_;
  std::vector<Devices> lists_;
  std::vector<Devices> functions_;
  std::vector<Devices> values_;
};

}  // namespace

Programs::Registered Programs::Describe(const program::Program& program,
                                        std::span<const ArrayHandle> like) const {
  const Placements placements(program, like, handles_);
  Registered registered{.nodes = program.work_count(), .results = {}};
  for (const program::Node& node : program.nodes())
    if (node.kind == Kind::kResult) registered.results.push_back(placements.of(node.inputs[0]));
  return registered;
}

ProgramHandle Programs::Register(const program::Program& program, std::span<const ArrayHandle> like,
                                 StatusCallback done, bool sequential) {
  const Submitter::Sending sending(submitter_, Urgency::kAnswered);
  const auto handle = submitter_.NewId<ProgramHandle>();
  auto registered = std::make_shared<const Registered>(Describe(program, like));
  MutexLock lock(mutex_);
  const absl::Status refused = submitter_.Append(0, nullptr, [&](wire::Op& op) {
    wire::RegisterProgramOp& definition = *op.mutable_register_program();
    definition.set_program(NumberOf(handle));
    program::ToWire(program, *definition.mutable_definition());
    AddNumbers(like, *definition.mutable_like());
    definition.set_sequential(sequential);
  });
  if (!refused.ok()) {
    if (done) submitter_.Defer([done = std::move(done), refused] { done(refused); });
    return handle;
  }
  programs_[handle] = std::move(registered);
  unanswered_[handle] = std::move(done);
  activity_.Begin();
  return handle;
}

std::shared_ptr<const Programs::Registered> Programs::Find(ProgramHandle program) const {
  MutexLock lock(mutex_);
  const auto known = programs_.find(program);
  return known == programs_.end() ? nullptr : known->second;
}

OperationId Programs::Launch(ProgramHandle program, std::span<const ArrayHandle> arguments,
                             std::span<const ArrayHandle> results, LaunchOptions options) {
  const Submitter::Sending sending(submitter_);
  const std::shared_ptr<const Registered> registered = Find(program);
  const uint64_t nodes = registered == nullptr ? 1 : registered->nodes;
  OperationId operation{};
  const auto fill = [&](wire::Op& op, OperationId number) {
    operation = number;
    wire::LaunchOp& launch = *op.mutable_launch();
    launch.set_program(NumberOf(program));
    AddNumbers(arguments, *launch.mutable_arguments());
    AddNumbers(results, *launch.mutable_results());
    AddGathered(options.gathered, *launch.mutable_gathered());
    launch.set_nodes(static_cast<uint32_t>(nodes));
    launch.set_callback_depth(HostCallbacks::Depth());
  };
  if (!submitter_.Append(nodes, std::move(options.ended), fill).ok()) return operation;
  if (registered != nullptr) handles_.NoteArrays(results, registered->results);
  return operation;
}

void Programs::Drop(std::span<const ProgramHandle> programs) {
  const Submitter::Sending sending(submitter_);
  MutexLock lock(mutex_);
  for (const ProgramHandle program : programs) programs_.erase(program);
  submitter_
      .Append(0, nullptr,
              [&](wire::Op& op) {
                AddNumbers(programs, *op.mutable_drop_programs()->mutable_handles());
              })
      .IgnoreError();
}

void Programs::OnRegistered(const wire::Registered& registered) {
  StatusCallback done;
  {
    MutexLock lock(mutex_);
    auto node = unanswered_.extract(ProgramHandle(registered.program()));
    if (node.empty()) return;
    done = std::move(node.mapped());
    activity_.End();
  }
  if (done) done(wire::ToStatus(registered.failure()));
}

void Programs::EndAll(const absl::Status& why) {
  absl::flat_hash_map<ProgramHandle, StatusCallback> unanswered;
  {
    MutexLock lock(mutex_);
    unanswered.swap(unanswered_);
    programs_.clear();
    activity_.End(unanswered.size());
  }
  for (auto& [program, done] : unanswered)
    if (done) done(why);
}

}  // namespace gangway::client
