// Implementation of capture.h.
#include "gangway/client/capture.h"

#include <google/protobuf/descriptor.h>

namespace gangway::client {
namespace {

constexpr std::string_view kLimit = "the limit of one program";

std::string_view NameOf(const wire::Op& op) {
  const google::protobuf::FieldDescriptor* const field =
      wire::Op::descriptor()->FindFieldByNumber(static_cast<int>(op.op_case()));
  return field == nullptr ? std::string_view("nothing") : std::string_view(field->name());
}

}  // namespace

ProgramCapture Capture::EndProgram() {
  if (depth_ == 0) return {};
  --depth_;
  if (depth_ > 0) return {};
  End("", CapturedPrograms::Register::kFirstTime);
  return std::exchange(report_, {});
}

// The operation that was filled is the last one of the run.
void Capture::NoteHeld() {
  const int last = run_.size() - 1;
  const bool is_taken = CapturedRun::Takes(run_[last]);
  const uint64_t program_nodes = is_taken ? CapturedRun::ProgramNodesOf(run_[last]) : 0;
  const size_t bytes = is_taken ? run_[last].ByteSizeLong() : 0;
  const bool is_full =
      program_nodes_ + program_nodes > kNodesMax || last >= kOpsMax || bytes_ + bytes > kBytesMax;
  if (!is_taken || is_full) {
    wire::Op op;
    op.Swap(run_.Mutable(last));
    run_.RemoveLast();
    if (!is_taken) {
      Cut(NameOf(op));
      if (report_.cut_by.empty()) report_.cut_by = NameOf(op);
      ++report_.operations_sent_as_they_came;
      batches_.AddOp()->Swap(&op);
      return;
    }
    End(kLimit, CapturedPrograms::Register::kFirstTime);
    run_.Add()->Swap(&op);
  }
  nodes_ += CapturedRun::NodesOf(run_[run_.size() - 1]);
  program_nodes_ += program_nodes;
  bytes_ += bytes;
}

void Capture::End(std::string_view what, CapturedPrograms::Register when) {
  if (run_.empty()) return;
  if (report_.cut_by.empty()) report_.cut_by = what;
  const auto count = static_cast<uint64_t>(run_.size());
  if (programs_.Replace(run_, when) == CapturedPrograms::Sent::kByALaunch) {
    ++report_.launches;
  } else {
    report_.operations_sent_as_they_came += count;
  }
  for (wire::Op& op : run_) batches_.AddOp()->Swap(&op);
  DropEvicted();
  run_.Clear();
  nodes_ = program_nodes_ = bytes_ = 0;
}

void Capture::CaptureBursts(std::vector<wire::Frame>& frames) {
  for (wire::Frame& frame : frames)
    if (frame.has_session_batch()) bursts_.Replace(*frame.mutable_session_batch()->mutable_ops());
  DropEvicted();  // in a later frame: one of these may launch them
}

// The programs that call an executable go before it does.
void Capture::DropProgramsFirst() {
  wire::Op* const last = batches_.LastOp();
  if (last == nullptr || !last->has_drop_executables()) return;
  const std::vector<uint64_t> programs = programs_.Forget(last->drop_executables().handles());
  if (programs.empty()) return;
  wire::Op* const behind = batches_.AddOp();
  behind->Swap(last);
  last->mutable_drop_programs()->mutable_handles()->Add(programs.begin(), programs.end());
}

void Capture::DropEvicted() {
  const std::vector<uint64_t> evicted = programs_.TakeEvicted();
  if (evicted.empty()) return;
  batches_.AddOp()->mutable_drop_programs()->mutable_handles()->Add(evicted.begin(), evicted.end());
}

void Capture::Clear() {
  run_.Clear();
  nodes_ = program_nodes_ = bytes_ = 0;
}

}  // namespace gangway::client
