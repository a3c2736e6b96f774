// Implementation of launch_task.h.
#include "gangway/worker/service/launch/launch_task.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"
#include "gangway/base/trace.h"
#include "gangway/collective/execution/collective_call.h"
#include "gangway/device/element_type.h"
#include "gangway/device/pjrt/position_call.h"
#include "gangway/wire/failure.h"
#include "gangway/worker/service/memory/borrowed_memory.h"

namespace gangway::worker {
namespace {

// An execute may complete before its outputs are in their slots: a position ends after both.
constexpr size_t kPartsPerPosition = 2;

// Of an argument that is copied so that its program does not run on the device's thread: programs that would do so are
// small.
constexpr size_t kLateBytesMax = size_t{1} << 20;
// Tasks on each device, behind a gang whose end is not told at once: as long as they take, the device needs no other
// work, and whoever waits for the end has sent work since.
constexpr size_t kBacklogMin = 4;
// Of one run of a gang with collectives. Zeros may keep a loop of the program from ending.
constexpr int kFailedCallsMax = 1000;
// For the memory of a gang's other workers, which they send when they learn of its program.
constexpr std::chrono::seconds kPeersMax{15};

}  // namespace

class LaunchTask::HostCaller final : public device::HostCallReceiver {
 public:
  HostCaller(std::shared_ptr<LaunchTask> task, int device)
      : task_(std::move(task)),
        caller_({.session = task_->executable_->host_caller(),
                 .gang = task_->ordinal(),
                 .device = task_->DeviceIdOf(device),
                 .local_device = device,
                 .depth = task_->callback_depth_ + 1}) {}

  absl::Status OnHostCall(const device::HostCall& call) override {
    absl::Status status =
        task_->environment().host_calls->Call(caller_, call, [this] { return task_->Unwanted(); });
    if (status.ok()) return status;
    task_->Note(status, caller_.local_device);
    return task_->IsLate() && ++failed_calls_ < kFailedCallsMax ? absl::OkStatus() : status;
  }

 private:
  const std::shared_ptr<LaunchTask> task_;
  const HostCalls::Caller caller_;
  std::atomic<int> failed_calls_ = 0;
};

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
      members_(executable_->waits_in_runtime() ? positions_.size() : 0),
      collectives_(std::move(collectives)),
      progress_(collectives_.places == nullptr ? 0 : positions_.size()) {
  donated_.resize(positions_.empty() ? 0 : positions_[0].arguments.size(), false);
  for (uint32_t k : launch.donated) donated_.at(k) = true;  // the core has checked the range
  MutexLock lock(late_mutex_);
  if (IsLate()) late_.resize(positions_.size());
}

void LaunchTask::Enqueue() {
  auto self = std::static_pointer_cast<LaunchTask>(shared_from_this());
  for (const auto& device : collectives_.devices)
    if (device != nullptr) device->Enter(order_position_.number());
  if (has_own_collectives()) environment().running->Add(ordinal(), self);
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
    SetStage(position, wire::GangMember::STAGE_ENDED);
    FailMember(position.device, status);
    LeaveCollectives(position, status);
    if (entry.ok()) LeaveDevice(position.device);
    EndPart();  // for the completion, which will not happen
  }
  EndPart();
}

absl::Status LaunchTask::Execute(Position& position) {
  Clock::time_point deadline = Deadline();
  GANGWAY_RETURN_IF_ERROR(Verdict(deadline));
  SetStage(position, wire::GangMember::STAGE_PROGRAM);
  GANGWAY_ASSIGN_OR_RETURN(auto* executable, executable_->Wait(deadline));
  device::ExecuteOptions options{.launch_id = static_cast<int32_t>(launch_id_)};
  SetStage(position, wire::GangMember::STAGE_INPUT);
  GANGWAY_ASSIGN_OR_RETURN(std::vector<store::Content> contents, Arguments(position, deadline));
  std::vector<device::Buffer*> arguments;
  for (size_t k = 0; k < contents.size(); ++k) {
    if (!donated_[k] || contents[k].sharing == store::Sharing::kShared)
      options.non_donatable.push_back(k);
    arguments.push_back(contents[k].buffer.get());
  }
  SetStage(position, wire::GangMember::STAGE_PROGRAM);
  GANGWAY_ASSIGN_OR_RETURN(options.collective, JoinCollectives(position, deadline));
  DeviceThread& thread = *environment().devices[position.device];
  SetStage(position, wire::GangMember::STAGE_QUEUED);
  if (takes_turn()) GANGWAY_RETURN_IF_ERROR(environment().arrivals->AwaitTurn(ordinal(), deadline));
  const std::shared_ptr<InFlight>& executes = thread.executes();
  const bool may_call = !calls_host() || host_callers(position)->Begin(deadline);
  if (!may_call || !executes->Begin(deadline)) {
    if (calls_host() && may_call) host_callers(position)->End();
    return absl::DeadlineExceededError(
        "No earlier program on this device ended in time to start another one.");
  }
  const uint32_t device_id = DeviceIdOf(position.device).number();
  Trace(TraceKind::kExecuteBegin, device_id, {}, ordinal());
  auto self = std::static_pointer_cast<LaunchTask>(shared_from_this());
  Member* member = members_.empty() ? nullptr : &members_[IndexOf(position)];
  if (member != nullptr) member->begun_before = executes->begun() - 1;
  if (calls_host()) {
    device::ReceiveHostCalls(options.launch_id, position.device,
                             std::make_shared<HostCaller>(self, position.device));
  }
  if (executable_->asks()) TellPosition(position);
  std::optional<LateArgument> late;
  if (calls_host()) late = MakeLate(position, contents, arguments);
  NoteCall(position);
  const Clock::time_point begun = Clock::now();
  auto outputs =
      executable->ExecuteOn(position.device, arguments, options,
                            Owed([self, device_id, member, &position](absl::Status status) {
                              Trace(TraceKind::kExecuteEnd, device_id, {}, self->ordinal());
                              if (member != nullptr) member->begun_before = Member::kOutside;
                              self->OnExecuted(position, status);
                            }));
  NoteReturn(position);
  if (executed_[IndexOf(position)]) executable_->time().Note(Clock::now() - begun);
  if (!outputs.ok()) {
    if (member != nullptr) member->begun_before = Member::kOutside;
    executes->End();  // a rejected execute runs no callback
    EndCalls(position);
    Trace(TraceKind::kExecuteEnd, device_id, {}, ordinal());
    return outputs.status();
  }
  if (late) FillLate(*std::move(late));
  for (size_t k = 0; k < donated_.size(); ++k) {
    if (donated_[k]) position.arguments[k]->Empty();
  }
  if (IsLate()) {
    SettleLate(position, *std::move(outputs));
  } else {
    TakeOutputs(position, *std::move(outputs));
  }
  return absl::OkStatus();
}

void LaunchTask::TellPosition(const Position& position) const {
  const uint32_t partitions = std::max<uint32_t>(1, executable_->asks()->partitions());
  device::SetPosition(static_cast<int32_t>(launch_id_), position.device,
                      device::LogicalPosition{.replica = position.number / partitions,
                                              .partition = position.number % partitions});
}

void LaunchTask::NoteCall(const Position& position) {
  DeviceThread& thread = *environment().devices[position.device];
  if (!progress_.empty())
    progress_[IndexOf(position)].begun_before = thread.executes()->begun() - 1;
  SetStage(position, wire::GangMember::STAGE_CALL);
  thread.BeginCall(ordinal());
}

void LaunchTask::NoteReturn(const Position& position) {
  environment().devices[position.device]->EndCall();
  if (progress_.empty()) return;
  Stage called = wire::GangMember::STAGE_CALL;  // else it has ended already
  progress_[IndexOf(position)].stage.compare_exchange_strong(called,
                                                             wire::GangMember::STAGE_ENQUEUED);
}

std::vector<wire::GangMember> LaunchTask::Members() const {
  std::vector<wire::GangMember> members;
  for (size_t i = 0; i < progress_.size(); ++i) {
    wire::GangMember& member = members.emplace_back();
    member.set_device(static_cast<uint32_t>(positions_[i].device));
    member.set_gang(ordinal().number());
    const Stage stage = progress_[i].stage;
    const InFlight& executes = *environment().devices[positions_[i].device]->executes();
    const bool is_first = executes.ended() >= progress_[i].begun_before;
    member.set_stage(stage == wire::GangMember::STAGE_ENQUEUED && is_first
                         ? wire::GangMember::STAGE_RUNNING
                         : stage);
  }
  return members;
}

std::optional<LaunchTask::LateArgument> LaunchTask::MakeLate(
    const Position& position, const std::vector<store::Content>& contents,
    std::vector<device::Buffer*>& arguments) const {
  // Where ExecuteOn waits for the argument, nothing would fill it.
  if (environment().backend->capabilities().execute_waits_for_arguments) return std::nullopt;
  size_t least = kLateBytesMax + 1, index = 0;
  for (size_t k = 0; k < contents.size(); ++k) {
    const auto bytes = device::HostBytes(contents[k].buffer->spec());
    if (donated_[k] || !bytes || *bytes >= least || *bytes == 0) continue;
    least = *bytes;
    index = k;
  }
  if (least > kLateBytesMax) return std::nullopt;
  const std::shared_ptr<device::Buffer>& original = contents[index].buffer;
  auto made = environment().backend->CreatePlaceholder(position.device, original->spec());
  if (!made.ok() || made->buffer->memory_kind() != original->memory_kind()) return std::nullopt;
  LateArgument late{original, *std::move(made), least};
  arguments[index] = late.placeholder.buffer.get();
  return late;
}

void LaunchTask::FillLate(LateArgument late) {
  auto bytes = std::make_shared<std::vector<std::byte>>(late.bytes);
  std::shared_ptr<device::Filler> filler = std::move(late.placeholder.filler);
  const std::shared_ptr<device::Buffer> original = std::move(late.original);
  original->CopyToHost(
      bytes->data(), bytes->size(),
      Owed([filler, bytes, environment = environment_ptr()](const absl::Status& copied) {
        // Counted, like a callback: the program may run in Fill.
        environment->callbacks->Add();
        environment->spare_threads->Run([filler, bytes, copied, environment] {
          const absl::Status filled = copied.ok()
                                          ? filler->Fill(*bytes, [bytes](const absl::Status&) {})
                                          : filler->Fail(copied);
          filled.IgnoreError();  // a filler that is dropped fails its buffer
          environment->callbacks->End();
        });
      }));
}

void LaunchTask::OnExecuted(Position& position, const absl::Status& executed) {
  const int device = position.device;
  executed_[IndexOf(position)] = true;
  SetStage(position, wire::GangMember::STAGE_ENDED);
  EndCalls(position);
  const absl::Status status = EndOf(executed);
  if (!status.ok()) FailMember(device, status);
  LeaveCollectives(position, status);
  environment().devices[device]->executes()->End();
  LeaveDevice(device);
  if (status.ok()) MoveArguments(position);
  if (IsLate()) SettleLate(position, std::nullopt);
  EndPart();
}

void LaunchTask::EndCalls(const Position& position) {
  if (executable_->asks())
    device::SetPosition(static_cast<int32_t>(launch_id_), position.device, std::nullopt);
  if (!calls_host()) return;
  device::ReceiveHostCalls(static_cast<int32_t>(launch_id_), position.device, nullptr);
  host_callers(position)->End();
}

absl::Status LaunchTask::Unwanted() const {
  const std::optional<wire::Failure> failed = failure();
  return failed ? wire::ToStatus(*failed) : absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<collective::Launch>> LaunchTask::CollectiveLaunch(
    Clock::time_point deadline) {
  // Without the lock, which the event loop takes when it cancels the launch.
  GANGWAY_ASSIGN_OR_RETURN(auto places,
                           collectives_.places->Wait(std::min(deadline, Clock::now() + kPeersMax),
                                                     [this] { return Unwanted(); }));
  MutexLock lock(launch_mutex_);
  if (launch_ == nullptr) {
    launch_ = collective::Launch::Begin(
        executable_->plan(), std::move(places),
        {.order = order_position_.number(), .ordinal = ordinal().number()},
        environment().wait_limit);
  }
  // A failure that came before the launch was made did not abort it.
  if (std::optional<wire::Failure> failed = failure()) launch_->Abort(wire::ToStatus(*failed));
  return launch_;
}

absl::StatusOr<device::CollectiveCall> LaunchTask::JoinCollectives(const Position& position,
                                                                   Clock::time_point deadline) {
  if (collectives_.places == nullptr) return device::CollectiveCall();
  GANGWAY_ASSIGN_OR_RETURN(auto launch, CollectiveLaunch(deadline));
  auto member = std::make_shared<collective::Member>(
      std::move(launch), collectives_.devices[IndexOf(position)], position.number,
      DeviceIdOf(position.device).number());
  if (environment().backend->capabilities().ffi_handlers ==
      device::Capabilities::FfiHandlers::kHostMemory) {
    collective::SetMember(static_cast<int32_t>(launch_id_), position.device, std::move(member));
    return device::CollectiveCall();
  }
  return [member = std::move(member)](int64_t number, auto operands, auto results) {
    return member->Run(number, operands, results);
  };
}

void LaunchTask::LeaveCollectives(const Position& position, const absl::Status& status) {
  if (collectives_.places == nullptr) return;
  using Ending = collective::LocalDevice::Ending;
  Ending ending = Ending::kEarly;
  if (status.ok())
    ending = executable_->plan()->may_diverge() ? Ending::kUnread : Ending::kComplete;
  collective::SetMember(static_cast<int32_t>(launch_id_), position.device, nullptr);
  const auto& device = collectives_.devices[IndexOf(position)];
  if (device != nullptr) device->Leave(order_position_.number(), ending);
}

void LaunchTask::MoveArguments(const Position& position) {
  if (collectives_.places == nullptr) return;
  std::vector<const std::byte*> places;
  {
    MutexLock lock(launch_mutex_);
    if (launch_ == nullptr) return;
    places = launch_->outside_heap();
  }
  for (size_t k = 0; k < position.arguments.size() && !places.empty(); ++k)
    if (!donated_[k]) MoveToHeap(environment(), position.arguments[k], places, ordinal());
}

void LaunchTask::Skip(OrderPosition position) const {
  collective::LocalDevice::Skip(collectives_.devices, position.number());
}

// The runtime says of an aborted collective only that a handler has failed, with its text.
absl::Status LaunchTask::EndOf(const absl::Status& status) {
  MutexLock lock(launch_mutex_);
  if (launch_ == nullptr) return status;
  if (launch_->is_aborted()) return launch_->reason();
  if (!status.ok()) return status;
  return ++ended_well_ == positions_.size() ? launch_->End() : absl::OkStatus();
}

void LaunchTask::AbortCollectives(const absl::Status& why) {
  MutexLock lock(launch_mutex_);
  if (launch_ != nullptr) launch_->Abort(why);
}

void LaunchTask::Cancel(const wire::Failure& failed) {
  if (collectives_.places == nullptr && !calls_host()) return;  // it waits for no other process
  const absl::Status why = wire::ToStatus(failed);
  is_told_ = true;
  Note(why, positions_[0].device);
  AbortCollectives(why);
  if (calls_host()) environment().host_calls->FailGang(ordinal(), why);
}

void LaunchTask::SettleLate(Position& position, std::optional<Buffers> outputs) {
  {
    MutexLock lock(late_mutex_);
    Late& late = late_[IndexOf(position)];
    if (outputs) {
      late.outputs = std::move(outputs);
    } else {
      late.ended = true;
    }
    if (!late.ended || !late.outputs) return;
    outputs = std::move(late.outputs);
  }
  if (std::optional<wire::Failure> failed = failure()) return FailResults(*failed);
  TakeOutputs(position, *std::move(outputs));
  environment().devices[position.device]->Recheck();
}

void LaunchTask::FailMember(int device, const absl::Status& why) {
  Note(why, device);
  const wire::Failure cause = *failure();
  NoteFailedMember(device);
  AbortCollectives(wire::ToStatus(cause));
  const bool are_others_elsewhere = collectives_.places != nullptr;
  if (are_others_elsewhere && positions_.size() > 1 && !is_told_.exchange(true))
    environment().member_failed({.ordinal = ordinal(), .failure = cause});
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

absl::Status LaunchTask::Verdict(Clock::time_point deadline) {
  MutexLock lock(verdict_mutex_);
  if (is_committed_) return absl::OkStatus();
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
  return executable_->waits_in_runtime() ? HoldArguments(deadline) : absl::OkStatus();
}

absl::Status LaunchTask::HoldArguments(Clock::time_point deadline) {
  held_.resize(positions_.size());
  for (const Position& position : positions_) {
    for (const auto& argument : position.arguments) {
      absl::StatusOr<store::Content> content = argument->Wait(deadline);
      if (!content.ok()) Note(content.status(), position.device);
      if (std::optional<wire::Failure> known = failure()) {  // perhaps another position's
        held_.clear();
        return wire::ToStatus(*known);
      }
      held_[IndexOf(position)].push_back(*std::move(content));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<store::Content>> LaunchTask::Arguments(const Position& position,
                                                                  Clock::time_point deadline) {
  std::vector<store::Content> held;
  if (executable_->waits_in_runtime()) {
    MutexLock lock(verdict_mutex_);
    held.swap(held_[IndexOf(position)]);
  }
  std::vector<store::Content> contents;
  contents.reserve(position.arguments.size());
  absl::Status spoiled;
  for (const auto& argument : position.arguments) {
    auto content = argument->Wait(deadline);
    if (content.ok()) {
      contents.push_back(*std::move(content));
      continue;
    }
    spoiled = content.status();
    if (held.empty()) return spoiled;
    // Another slot may have the buffer as well.
    contents.push_back(std::move(held[contents.size()]));
    contents.back().sharing = store::Sharing::kShared;
  }
  if (!executable_->waits_in_runtime()) return contents;
  MutexLock lock(verdict_mutex_);
  if (is_committed_) return contents;
  if (!spoiled.ok()) Note(spoiled, position.device);
  if (std::optional<wire::Failure> known = failure()) return wire::ToStatus(*known);
  is_committed_ = true;
  return contents;
}

void LaunchTask::FailResults(const wire::Failure& failure) {
  for (const Position& position : positions_) {
    for (const auto& result : position.results) FailSlot(environment(), *result, failure);
  }
}

}  // namespace gangway::worker
