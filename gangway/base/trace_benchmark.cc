// The cost of one record, alone and with other threads recording. Aim: well under 1 us.
#include <benchmark/benchmark.h>

#include "gangway/base/trace.h"

namespace gangway {
namespace {

void BM_Record(benchmark::State& state) {
  uint64_t gang = 0;
  for (auto _ : state) Trace(TraceKind::kRelease, 3, SessionId(5), Ordinal(++gang), 7);
}
BENCHMARK(BM_Record)->Threads(1)->Threads(2)->Threads(8);

void BM_ReadAll(benchmark::State& state) {
  for (uint64_t i = 0; i < kTraceCapacity; ++i)
    Trace(TraceKind::kRelease, 3, SessionId(5), Ordinal(i));
  for (auto _ : state) benchmark::DoNotOptimize(ReadTrace());
}
BENCHMARK(BM_ReadAll)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace gangway

BENCHMARK_MAIN();
