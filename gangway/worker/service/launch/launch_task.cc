// Implementation of launch_task.h.
#include "gangway/worker/service/launch/launch_task.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"
#include "gangway/base/trace.h"
#include "gangway/device/pjrt/position_call.h"
#include "gangway/wire/failure.h"
#include "gangway/worker/service/launch/host_caller.h"
#include "gangway/worker/service/launch/host_calls.h"
#include "gangway/worker/service/launch/late_argument.h"
#include "gangway/worker/service/memory/borrowed_memory.h"

namespace gangway::worker {
namespace {

// An execute may complete before its outputs are in their slots: a position ends after both.
constexpr size_t kPartsPerPosition = 2;

// Tasks on each device, of any session, behind a gang whose end is not told at once: as long as they take, the device
// needs no other work.
constexpr size_t kBacklogMin = 4;

}  // namespace

LaunchTask::LaunchTask(std::shared_ptr<const TaskEnvironment> environment,
                       const PrepareLaunch& launch, std::shared_ptr<ExecutableSlot> executable,
                       std::vector<Position> positions, Collectives collectives)
    : NodeTask(std::move(environment), launch.ordinal, launch.program,
               positions.size() * kPartsPerPosition),
      executable_(std::move(executable)),
      positions_(std::move(positions)),
      executed_(positions_.size()),
      launch_id_(launch.launch_id),
      callback_depth_(launch.callback_depth),
      verdict_(*this, positions_, executable_->waits_in_runtime()),
      members_(executable_->waits_in_runtime() ? positions_.size() : 0),
      progress_(collectives.peers == nullptr ? 0 : positions_.size()) {
  donated_.resize(positions_.empty() ? 0 : positions_[0].arguments.size(), false);
  for (uint32_t k : launch.donated) donated_.at(k) = true;  // the core has checked the range
  if (collectives.peers != nullptr) {
    collectives_.emplace(std::move(collectives), *executable_,
                         GangCollectives::Gang{.ordinal = ordinal(),
                                               .launch_id = launch_id_,
                                               .wait_limit = this->environment().wait_limit});
  }
  if (calls_host() && executable_->waits_in_runtime()) late_.emplace(positions_.size());
}

void LaunchTask::Enqueue() {
  auto self = std::static_pointer_cast<LaunchTask>(shared_from_this());
  if (collectives_) {
    collectives_->Enter();
    environment().running->Add(ordinal(), self);
  }
  if (takes_turn()) environment().arrivals->Add(ordinal(), positions_.size());
  for (Position& position : positions_) {
    const Ordinal follows = NoteFollows(position);
    environment().devices[position.device]->Post(
        {.run = [self,
                 &position](const absl::Status& entry) { self->RunPosition(position, entry); },
         .turn = executable_->turn(),
         .gang = ordinal(),
         .follows = follows});
  }
}

bool LaunchTask::HasWorkBehind() const {
  return std::ranges::all_of(positions_, [this](const Position& position) {
    return environment().devices[position.device]->backlog() >= kBacklogMin;
  });
}

Ordinal LaunchTask::NoteFollows(const Position& position) const {
  const bool alone = executable_->turn() == DeviceThread::Turn::kGangAlone;
  Ordinal follows;
  for (const auto& argument : position.arguments)
    follows = std::max(follows, argument->gang_alone());
  for (const auto& result : position.results) result->SetGangAlone(alone ? ordinal() : follows);
  return follows;
}

bool LaunchTask::RunHere(ShortLaunches& launches) {
  if (!executable_->may_run_on_loop() ||
      !launches.MayRun(executable_->time().IfShort(), positions_.size()) || !IsReady())
    return false;
  std::vector<int> devices;
  for (const Position& position : positions_) devices.push_back(position.device);
  if (!BorrowDevices(devices)) return false;
  const Clock::time_point begun = Clock::now();
  for (Position& position : positions_) {
    NoteFollows(position);
    RunPosition(position, absl::OkStatus());
    environment().devices[position.device]->GiveBack();
  }
  launches.Spend(Clock::now() - begun);
  return true;
}

bool LaunchTask::IsReady() const {
  if (!executable_->is_set()) return false;
  for (const Position& position : positions_) {
    for (const auto& argument : position.arguments)
      if (!argument->settled()) return false;
  }
  return true;
}

void LaunchTask::RunPosition(Position& position, const absl::Status& entry) {
  absl::Status status = entry.ok() ? Execute(position) : entry;
  if (takes_turn()) environment().arrivals->Arrive(ordinal());
  if (!status.ok()) {
    Note(status, position.device);
    FailResults(*failure());
    progress_.Set(IndexOf(position), wire::GangMember::STAGE_ENDED);
    FailMember(position.device, status);
    if (collectives_) collectives_->Leave(IndexOf(position), position.device, status);
    if (entry.ok()) LeaveDevice(position.device);
    EndPart();  // for the completion, which will not happen
  }
  EndPart();
}

absl::Status LaunchTask::Execute(Position& position) {
  const size_t index = IndexOf(position);
  Clock::time_point deadline = Deadline();
  GANGWAY_RETURN_IF_ERROR(verdict_.Take(deadline));
  progress_.Set(index, wire::GangMember::STAGE_PROGRAM);
  GANGWAY_ASSIGN_OR_RETURN(auto* executable, executable_->Wait(deadline));
  device::ExecuteOptions options{.launch_id = static_cast<int32_t>(launch_id_)};
  progress_.Set(index, wire::GangMember::STAGE_INPUT);
  GANGWAY_ASSIGN_OR_RETURN(std::vector<store::Content> contents,
                           verdict_.Arguments(index, deadline));
  std::vector<device::Buffer*> arguments;
  for (size_t k = 0; k < contents.size(); ++k) {
    if (!donated_[k] || contents[k].sharing == store::Sharing::kShared)
      options.non_donatable.push_back(k);
    arguments.push_back(contents[k].buffer.get());
  }
  progress_.Set(index, wire::GangMember::STAGE_PROGRAM);
  if (collectives_) {
    GANGWAY_ASSIGN_OR_RETURN(
        options.collective,
        collectives_->Join(index, {position.number, position.device, DeviceIdOf(position.device)},
                           environment().backend->capabilities().ffi_handlers, deadline,
                           [this] { return Unwanted(); }));
  }
  progress_.Set(index, wire::GangMember::STAGE_QUEUED);
  GANGWAY_RETURN_IF_ERROR(EnterDevice(position, deadline));
  const uint32_t device_id = DeviceIdOf(position.device).number();
  Trace(TraceKind::kExecuteBegin, device_id, {}, ordinal());
  auto self = std::static_pointer_cast<LaunchTask>(shared_from_this());
  members_.Enter(index, *executes(position));
  BeginCalls(position);
  std::optional<LateArgument> late;
  if (calls_host()) {
    late =
        LateArgument::Make(*environment().backend, position.device, contents, donated_, arguments);
  }
  NoteCall(position);
  const Clock::time_point begun = Clock::now();
  auto outputs = executable->ExecuteOn(
      position.device, arguments, options, Owed([self, device_id, &position](absl::Status status) {
        Trace(TraceKind::kExecuteEnd, device_id, {}, self->ordinal());
        self->OnExecuted(position, status);
      }));
  NoteReturn(position);
  if (executed_[index]) executable_->time().Note(Clock::now() - begun);
  if (!outputs.ok()) {
    members_.Leave(index);
    executes(position)->End();  // a rejected execute runs no callback
    EndCalls(position);
    Trace(TraceKind::kExecuteEnd, device_id, {}, ordinal());
    return outputs.status();
  }
  if (late) std::move(*late).Fill(environment_ptr());
  for (size_t k = 0; k < donated_.size(); ++k) {
    if (donated_[k]) position.arguments[k]->Empty();
  }
  if (late_) {
    SettleLate(position, *std::move(outputs));
  } else {
    TakeOutputs(position, *std::move(outputs));
  }
  return absl::OkStatus();
}

absl::Status LaunchTask::EnterDevice(const Position& position, Clock::time_point deadline) {
  if (takes_turn()) GANGWAY_RETURN_IF_ERROR(environment().arrivals->AwaitTurn(ordinal(), deadline));
  const bool may_call = !calls_host() || host_callers(position)->Begin(deadline);
  if (may_call && executes(position)->Begin(deadline)) return absl::OkStatus();
  if (calls_host() && may_call) host_callers(position)->End();
  return absl::DeadlineExceededError(
      "No earlier program on this device ended in time to start another one.");
}

void LaunchTask::BeginCalls(const Position& position) {
  if (calls_host()) {
    HostCalls::Caller caller{.session = executable_->host_caller(),
                             .gang = ordinal(),
                             .device = DeviceIdOf(position.device),
                             .local_device = position.device,
                             .depth = callback_depth_ + 1};
    device::ReceiveHostCalls(
        static_cast<int32_t>(launch_id_), position.device,
        std::make_shared<HostCaller>(
            shared_from_this(), environment().host_calls, std::move(caller),
            late_ ? HostCaller::OnFailure::kRunGoesOn : HostCaller::OnFailure::kEndsRun));
  }
  if (!executable_->asks()) return;
  const uint32_t partitions = std::max<uint32_t>(1, executable_->asks()->partitions());
  device::SetPosition(static_cast<int32_t>(launch_id_), position.device,
                      device::LogicalPosition{.replica = position.number / partitions,
                                              .partition = position.number % partitions});
}

void LaunchTask::EndCalls(const Position& position) {
  if (executable_->asks())
    device::SetPosition(static_cast<int32_t>(launch_id_), position.device, std::nullopt);
  if (!calls_host()) return;
  device::ReceiveHostCalls(static_cast<int32_t>(launch_id_), position.device, nullptr);
  host_callers(position)->End();
}

void LaunchTask::NoteCall(const Position& position) {
  progress_.NoteCall(IndexOf(position), *executes(position));
  environment().devices[position.device]->BeginCall(ordinal());
}

void LaunchTask::NoteReturn(const Position& position) {
  environment().devices[position.device]->EndCall();
  progress_.NoteReturn(IndexOf(position));
}

std::vector<wire::GangMember> LaunchTask::Members() const {
  std::vector<wire::GangMember> members;
  for (size_t i = 0; i < progress_.size(); ++i) {
    wire::GangMember& member = members.emplace_back();
    member.set_device(static_cast<uint32_t>(positions_[i].device));
    member.set_gang(ordinal().number());
    member.set_stage(progress_.Look(i, *executes(positions_[i])));
  }
  return members;
}

void LaunchTask::OnExecuted(Position& position, const absl::Status& executed) {
  const size_t index = IndexOf(position);
  const int device = position.device;
  members_.Leave(index);
  executed_[index] = true;
  progress_.Set(index, wire::GangMember::STAGE_ENDED);
  EndCalls(position);
  const absl::Status status = collectives_ ? collectives_->EndOf(executed) : executed;
  if (!status.ok()) FailMember(device, status);
  if (collectives_) collectives_->Leave(index, device, status);
  environment().devices[device]->executes()->End();
  LeaveDevice(device);
  if (status.ok()) MoveArguments(position);
  if (late_) SettleLate(position, std::nullopt);
  EndPart();
}

void LaunchTask::MoveArguments(const Position& position) {
  if (!collectives_) return;
  const std::vector<const std::byte*> addresses = collectives_->OutsideHeap();
  for (size_t k = 0; k < position.arguments.size() && !addresses.empty(); ++k)
    if (!donated_[k]) MoveToHeap(environment(), position.arguments[k], addresses, ordinal());
}

void LaunchTask::Cancel(const wire::Failure& failed) {
  if (!collectives_ && !calls_host()) return;  // it waits for no other process
  const absl::Status why = wire::ToStatus(failed);
  if (collectives_) collectives_->NoteReported();
  Note(why, positions_[0].device);
  if (collectives_) collectives_->Abort(why);
  if (calls_host()) environment().host_calls->FailGang(ordinal(), why);
}

void LaunchTask::SettleLate(Position& position, std::optional<Buffers> outputs) {
  const size_t index = IndexOf(position);
  outputs = outputs ? late_->NoteOutputs(index, *std::move(outputs)) : late_->NoteEnded(index);
  if (!outputs) return;
  if (std::optional<wire::Failure> failed = failure()) return FailResults(*failed);
  TakeOutputs(position, *std::move(outputs));
  environment().devices[position.device]->Recheck();
}

void LaunchTask::FailMember(int device, const absl::Status& why) {
  Note(why, device);
  const wire::Failure cause = *failure();
  if (environment().gangs != nullptr && members_.NoteFailed(device))
    environment().gangs->Note(std::static_pointer_cast<LaunchTask>(shared_from_this()));
  if (!collectives_) return;
  collectives_->Abort(wire::ToStatus(cause));
  if (positions_.size() > 1 && collectives_->TakeReport())
    environment().member_failed({.ordinal = ordinal(), .failure = cause});
}

std::vector<int> LaunchTask::Standing() const {
  std::vector<int> standing;
  for (size_t i = 0; i < members_.size(); ++i) {
    if (members_.IsStanding(i, *executes(positions_[i]))) standing.push_back(positions_[i].device);
  }
  return standing;
}

wire::Failure LaunchTask::DescribeStanding(const std::vector<int>& standing,
                                           std::chrono::milliseconds duration) const {
  wire::Failure failed = *failure();
  std::string devices;
  for (int device : standing)
    absl::StrAppend(&devices, devices.empty() ? "" : ", ", DeviceIdOf(device).number());
  failed.set_message(
      absl::StrCat("a member of gang ", ordinal(), program() == nullptr ? "" : " of program ",
                   program() == nullptr ? "" : wire::ToText(*program()), ", that on device ",
                   DeviceIdOf(members_.failed_device()).number(), ", failed (", failed.message(),
                   "), and those on ", standing.size() == 1 ? "device " : "devices ", devices,
                   " have waited for it for ", duration.count(),
                   " ms in a collective of the device runtime, which cannot end such a wait"));
  return failed;
}

void LaunchTask::LeaveDevice(int device) {
  if (executable_->turn() == DeviceThread::Turn::kGangAlone) environment().devices[device]->Leave();
}

void LaunchTask::TakeOutputs(Position& position, Buffers outputs) {
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

void LaunchTask::FailResults(const wire::Failure& failure) {
  for (const Position& position : positions_) {
    for (const auto& result : position.results) FailSlot(environment(), *result, failure);
  }
}

}  // namespace gangway::worker
