// Implementation of launch_task.h.
#include "gangway/worker/service/launch_task.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"
#include "gangway/base/trace.h"
#include "gangway/wire/failure.h"

namespace gangway::worker {
namespace {

// An execute may complete before its outputs are in their slots: a position ends after both.
constexpr size_t kPartsPerPosition = 2;

}  // namespace

LaunchTask::LaunchTask(std::shared_ptr<const TaskEnvironment> environment,
                       const PrepareLaunch& launch, std::shared_ptr<ExecutableSlot> executable,
                       std::vector<Position> positions)
    : NodeTask(std::move(environment), launch.ordinal, launch.program,
               positions.size() * kPartsPerPosition),
      executable_(std::move(executable)),
      positions_(std::move(positions)),
      launch_id_(launch.launch_id),
      members_(executable_->has_collectives() ? positions_.size() : 0) {
  donated_.resize(positions_.empty() ? 0 : positions_[0].arguments.size(), false);
  for (uint32_t k : launch.donated) donated_.at(k) = true;  // the core has checked the range
}

void LaunchTask::Enqueue() {
  auto self = std::static_pointer_cast<LaunchTask>(shared_from_this());
  const bool alone = executable_->turn() == DeviceThread::Turn::kGangAlone;
  for (Position& position : positions_) {
    Ordinal follows;
    for (const auto& argument : position.arguments)
      follows = std::max(follows, argument->gang_alone());
    for (const auto& result : position.results) result->SetGangAlone(alone ? ordinal() : follows);
    environment().devices[position.device]->Post(
        {.run = [self,
                 &position](const absl::Status& entry) { self->RunPosition(position, entry); },
         .turn = executable_->turn(),
         .gang = ordinal(),
         .follows = follows});
  }
}

void LaunchTask::RunPosition(Position& position, const absl::Status& entry) {
  absl::Status status = entry.ok() ? Execute(position) : entry;
  if (!status.ok()) {
    Note(status, position.device);
    FailResults(*failure());
    NoteFailedMember(position.device);
    if (entry.ok()) LeaveDevice(position.device);
    EndPart();  // for the completion, which will not happen
  }
  EndPart();
}

absl::Status LaunchTask::Execute(Position& position) {
  GANGWAY_RETURN_IF_ERROR(Verdict());
  Clock::time_point deadline = Deadline();
  GANGWAY_ASSIGN_OR_RETURN(auto* executable, executable_->Wait(deadline));
  std::vector<store::Content> contents;
  std::vector<device::Buffer*> arguments;
  device::ExecuteOptions options{.launch_id = static_cast<int32_t>(launch_id_)};
  for (size_t k = 0; k < position.arguments.size(); ++k) {
    GANGWAY_ASSIGN_OR_RETURN(store::Content content, position.arguments[k]->Wait(deadline));
    if (!donated_[k] || content.sharing == store::Sharing::kShared)
      options.non_donatable.push_back(k);
    arguments.push_back(content.buffer.get());
    contents.push_back(std::move(content));
  }
  DeviceThread& thread = *environment().devices[position.device];
  const std::shared_ptr<InFlight>& executes = thread.executes();
  if (!executes->Begin(deadline)) {
    return absl::DeadlineExceededError(
        "No earlier program on this device ended in time to start another one.");
  }
  const uint32_t place = DeviceIdOf(position.device).number();
  Trace(TraceKind::kExecuteBegin, place, {}, ordinal());
  auto self = std::static_pointer_cast<LaunchTask>(shared_from_this());
  Member* member = members_.empty() ? nullptr : &members_[IndexOf(position)];
  if (member != nullptr) member->begun_before = executes->begun() - 1;
  thread.BeginCall(ordinal());
  auto outputs = executable->ExecuteOn(
      position.device, arguments, options,
      Owed([self, executes, place, member, device = position.device](absl::Status status) {
        Trace(TraceKind::kExecuteEnd, place, {}, self->ordinal());
        if (member != nullptr) member->begun_before = Member::kOutside;
        executes->End();
        self->LeaveDevice(device);
        if (!status.ok()) {
          self->Note(status, device);
          self->NoteFailedMember(device);
        }
        self->EndPart();
      }));
  thread.EndCall();
  if (!outputs.ok()) {
    if (member != nullptr) member->begun_before = Member::kOutside;
    executes->End();  // a rejected execute runs no callback
    Trace(TraceKind::kExecuteEnd, place, {}, ordinal());
    return outputs.status();
  }
  for (size_t k = 0; k < donated_.size(); ++k) {
    if (donated_[k]) position.arguments[k]->Empty();
  }
  TakeOutputs(position, *std::move(outputs));
  return absl::OkStatus();
}

void LaunchTask::NoteFailedMember(int device) {
  if (members_.size() < 2 || environment().gangs == nullptr) return;
  int none = -1;
  if (!failed_device_.compare_exchange_strong(none, device)) return;  // noted already
  environment().gangs->Note(std::static_pointer_cast<LaunchTask>(shared_from_this()));
}

std::vector<int> LaunchTask::Standing() const {
  std::vector<int> standing;
  for (size_t i = 0; i < members_.size(); ++i) {
    const uint64_t before = members_[i].begun_before;
    const int device = positions_[i].device;
    if (before != Member::kOutside && environment().devices[device]->executes()->ended() >= before)
      standing.push_back(device);
  }
  return standing;
}

wire::Failure LaunchTask::DescribeStanding(const std::vector<int>& standing,
                                           std::chrono::milliseconds duration) const {
  wire::Failure failed = *failure();
  std::string devices;
  for (int device : standing)
    absl::StrAppend(&devices, devices.empty() ? "" : ", ", DeviceIdOf(device).number());
  failed.set_message(absl::StrCat(
      "a member of gang ", ordinal(), program() == nullptr ? "" : " of program ",
      program() == nullptr ? "" : wire::ToText(*program()), ", that on device ",
      DeviceIdOf(failed_device_).number(), ", failed (", failed.message(), "), and those on ",
      standing.size() == 1 ? "device " : "devices ", devices, " have waited for it for ",
      duration.count(), " ms in a collective of the device runtime, which cannot end such a wait"));
  return failed;
}

void LaunchTask::LeaveDevice(int device) {
  if (executable_->turn() == DeviceThread::Turn::kGangAlone) environment().devices[device]->Leave();
}

void LaunchTask::TakeOutputs(Position& position,
                             std::vector<std::unique_ptr<device::Buffer>> outputs) {
  if (outputs.size() != position.results.size()) {
    Note(absl::InternalError(absl::StrCat("The program made ", outputs.size(), " results, but ",
                                          position.results.size(), " were announced.")),
         position.device);
    return FailResults(*failure());
  }
  for (size_t r = 0; r < outputs.size(); ++r) {
    position.results[r]->Fill(std::move(outputs[r]), store::Sharing::kOwned);
  }
}

absl::Status LaunchTask::Verdict() {
  MutexLock lock(verdict_mutex_);
  if (std::optional<wire::Failure> known = failure()) return wire::ToStatus(*known);
  if (std::exchange(verdict_taken_, true)) return absl::OkStatus();
  for (const Position& position : positions_) {
    for (const auto& argument : position.arguments) {
      std::optional<wire::Failure> spoiled = argument->failure();
      if (!spoiled) continue;
      Note(wire::ToStatus(*spoiled), position.device);
      return wire::ToStatus(*spoiled);
    }
  }
  return absl::OkStatus();
}

void LaunchTask::FailResults(const wire::Failure& failure) {
  for (const Position& position : positions_) {
    for (const auto& result : position.results) result->Fail(failure);
  }
}

}  // namespace gangway::worker
