// What the capture of programs costs a session per call, and what a call costs that is not captured. For counts of CPU
// compared with each other in one run (docs/internals/programs.md).
#include <benchmark/benchmark.h>

#include <array>
#include <memory>
#include <utility>

#include "gangway/client/handles.h"
#include "gangway/client/submitter.h"

namespace gangway::client {
namespace {

constexpr uint64_t kBurst = 128;  // calls

// Takes frames and forgets them, but for the programs of which they tell.
class ForgetfulLink final : public transport::Link {
 public:
  absl::Status Send(wire::Frame frame) override {
    for (const wire::Op& op : frame.session_batch().ops())
      if (op.has_register_program()) programs_.push_back(op.register_program().program());
    return absl::OkStatus();
  }
  size_t queued_bytes() const override { return 0; }
  size_t writable_bytes() const override { return size_t{1} << 30; }
  size_t frame_bytes_max() const override { return size_t{1} << 30; }
  void Close(const absl::Status&) override {}
  const transport::Peer& peer() const override { return peer_; }

  std::vector<uint64_t> TakePrograms() { return std::exchange(programs_, {}); }

 private:
  const transport::Peer peer_;
  std::vector<uint64_t> programs_;
};

class BenchmarkedSession {
 public:
  explicit BenchmarkedSession(bool captures_bursts)
      : activity_({.loop = &loop_,
                   .interval = std::chrono::milliseconds(1000),
                   .look = [] { return false; },
                   .latency_request = &LatencyRequest::OfProcess()}),
        submitter_({.loop = &loop_,
                    .activity = &activity_,
                    .pending_max = 1 << 14,
                    .captures_bursts = captures_bursts,
                    .take_beside = [] { return nullptr; },
                    .on_failed = [](const absl::Status&) {}}) {
    submitter_.Open(link_, {});
  }
  ~BenchmarkedSession() { loop_.Stop(); }

  // A step of calls with three arguments and two results, whose frame is sent.
  void Send(ExecutableHandle executable, bool as_a_block) {
    if (as_a_block) submitter_.BeginProgram();
    for (uint64_t i = 0; i < kBurst; ++i) {
      const std::array arguments{ArrayHandle(1), ArrayHandle(next_ - 1), ArrayHandle(next_ - 2)};
      const std::array results{ArrayHandle(next_), ArrayHandle(next_ + 1)};
      wire::Op* made = nullptr;
      (void)submitter_.Append(1, nullptr, [&](wire::Op& op) {
        wire::CallOp& call = *op.mutable_call();
        call.set_executable(static_cast<uint64_t>(executable));
        for (const ArrayHandle array : arguments) call.add_arguments(static_cast<uint64_t>(array));
        for (const ArrayHandle array : results) call.add_results(static_cast<uint64_t>(array));
        made = &op;
      });
      benchmark::DoNotOptimize(made);
      next_ += 2;
    }
    if (as_a_block) submitter_.EndProgram();
    submitter_.SendBatches();
    for (const uint64_t program : link_->TakePrograms()) {
      wire::Registered registered;
      registered.set_program(program);
      submitter_.OnRegistered(registered);
    }
  }

 private:
  std::shared_ptr<ForgetfulLink> link_ = std::make_shared<ForgetfulLink>();
  EventLoop loop_{"gw-client"};
  Activity activity_;
  Submitter submitter_;
  uint64_t next_ = 10;
};

// Arguments: whether bursts are captured, whether they come again, whether the caller says that they are a block.
void BM_Burst(benchmark::State& state) {
  BenchmarkedSession session(state.range(0) != 0);
  uint64_t executable = 1;
  for (auto unused : state) {
    session.Send(ExecutableHandle(executable), state.range(2) != 0);
    executable += state.range(1) != 0 ? 0 : 1;
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * kBurst));
}
BENCHMARK(BM_Burst)
    ->ArgNames({"captures", "comes_again", "block"})
    ->Args({0, 0, 0})
    ->Args({1, 0, 0})
    ->Args({1, 1, 0})
    ->Args({0, 1, 1})
    ->Args({0, 0, 1});

}  // namespace
}  // namespace gangway::client

BENCHMARK_MAIN();
