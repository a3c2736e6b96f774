// Capture: what a session captures of its operations: those between BeginProgram and EndProgram of its client, which
// are held as a run, and, if it wants that, bursts. What cannot be part of a run ends it: then the run goes to the
// batches of what is to be sent, as a launch if its program is known (captured_programs.h), and the next run begins
// behind that operation. So nothing is reordered.
//
// Bounded (TM-2): a run that reaches the limits of one program ends by itself.
//
// Pure; not thread-safe.
#ifndef GANGWAY_CLIENT_CAPTURE_H_
#define GANGWAY_CLIENT_CAPTURE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "gangway/client/captured_bursts.h"
#include "gangway/client/captured_programs.h"
#include "gangway/client/captured_run.h"
#include "gangway/client/client.h"
#include "gangway/client/op_batches.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::client {

class Capture {
 public:
  static constexpr uint64_t kNodesMax = 4096;  // of a run's program
  static constexpr int kOpsMax = 4096;
  static constexpr size_t kBytesMax = size_t{4} << 20;  // of a run's operations

  // Runs go to `batches`; `new_program` numbers programs.
  Capture(OpBatches* batches, std::function<uint64_t()> new_program)
      : batches_(*batches), programs_(std::move(new_program)) {}

  // As in Client.
  void BeginProgram() { ++depth_; }
  ProgramCapture EndProgram();

  bool is_on() const { return depth_ > 0; }  // between them

  // A new operation, behind all others: of the run between them, else of the batches. Once it is filled: NoteFilled.
  wire::Op* AddOp() { return is_on() ? run_.Add() : batches_.AddOp(); }
  // Null: there is none to which anything may be added.
  wire::Op* LastOp() { return run_.empty() ? batches_.LastOp() : run_.Mutable(run_.size() - 1); }
  void NoteFilled() {
    if (is_on()) NoteHeld();
    if (!programs_.empty()) DropProgramsFirst();
  }
  uint64_t held_nodes() const { return nodes_; }  // of the run, as the session counts them

  // Ends the run, if it has operations. `what`: for people.
  void Cut(std::string_view what) { End(what, CapturedPrograms::Register::kSecondTime); }
  void Clear();  // the session is lost

  // Of frames that are about to be sent (captured_bursts.h).
  void CaptureBursts(std::vector<wire::Frame>& frames);
  void OnRegistered(const wire::Registered& registered) {
    programs_.OnRegistered(registered.program(), registered.failure().code() == 0);
  }

 private:
  void NoteHeld();
  void DropProgramsFirst();
  void DropEvicted();
  void End(std::string_view what, CapturedPrograms::Register when);

  OpBatches& batches_;
  CapturedPrograms programs_;
  CapturedBursts bursts_{&programs_};
  uint64_t depth_ = 0;  // of BeginProgram
  CapturedRun::Ops run_;
  uint64_t nodes_ = 0;
  uint64_t program_nodes_ = 0;
  size_t bytes_ = 0;
  ProgramCapture report_;
};

}  // namespace gangway::client

#endif  // GANGWAY_CLIENT_CAPTURE_H_
