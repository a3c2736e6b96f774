// Implementation of captured_bursts.h.
#include "gangway/client/captured_bursts.h"

#include <utility>
#include <vector>

namespace gangway::client {
namespace {

uint64_t Mix(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
  return hash ^ (hash >> 32);
}

// What can be said of an operation without a look at its arrays.
uint64_t Glance(const wire::Op& op) {
  const auto kind = static_cast<uint64_t>(op.op_case());
  if (op.has_call()) {
    const wire::CallOp& call = op.call();
    const uint64_t counts = static_cast<uint64_t>(call.arguments_size()) << 32 |
                            static_cast<uint64_t>(call.results_size());
    return Mix(Mix(kind, call.executable()), counts);
  }
  if (op.has_copy()) return Mix(kind, static_cast<uint64_t>(op.copy().sources_size()));
  if (op.has_regroup()) return Mix(kind, static_cast<uint64_t>(op.regroup().results_size()));
  return kind;
}

}  // namespace

void CapturedBursts::Replace(Ops& ops) {
  std::vector<Run> again;
  for (Run run = RunFrom(0, ops); run.end > run.begin; run = RunFrom(run.end, ops))
    if (run.nodes >= kNodesMin && CameBefore(run.hash)) again.push_back(run);
  if (again.empty()) return;
  Ops sent;
  int next = 0;
  const auto move_to = [&](int end, Ops& to) {
    for (; next < end; ++next) to.Add()->Swap(ops.Mutable(next));
  };
  for (const Run& run : again) {
    move_to(run.begin, sent);
    Ops captured;
    move_to(run.end, captured);
    programs_.Replace(captured, CapturedPrograms::Register::kSecondTime);
    for (wire::Op& op : captured) sent.Add()->Swap(&op);
  }
  move_to(ops.size(), sent);
  ops.Swap(&sent);
}

CapturedBursts::Run CapturedBursts::RunFrom(int begin, const Ops& ops) {
  while (begin < ops.size() && !CapturedRun::Takes(ops[begin])) ++begin;
  Run run{.begin = begin, .end = begin};
  for (; run.end < ops.size() && CapturedRun::Takes(ops[run.end]); ++run.end) {
    run.nodes += CapturedRun::NodesOf(ops[run.end]);
    run.hash = Mix(run.hash, Glance(ops[run.end]));
  }
  return run;
}

bool CapturedBursts::CameBefore(uint64_t hash) {
  return std::exchange(seen_[hash % kSeen], hash) == hash;
}

}  // namespace gangway::client
