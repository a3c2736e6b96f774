// What a gang over all devices of a large cluster costs: the CPU time of every role together, the client's part
// included, over the simulated network and simulated devices whose programs take no time. The real roles run in one
// thread (fiber_world.h), one process after the other, each until it has nothing to do: so a role finds what it needs
// in the core's cache, as on cores of its own, however many others there are. An iteration is one call of a step that
// takes the last one's result, a word on each device, and passes it to the next device, which costs each device as much
// in any cluster.
#include <benchmark/benchmark.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gangway/base/answer.h"
#include "gangway/base/check.h"
#include "gangway/simulation/processes.h"

namespace gangway::simulation {
namespace {

constexpr uint32_t kDevicesOfWorker = 64;
constexpr int32_t kF32 = 11;  // xla::PrimitiveType
constexpr int kAwaited = 16;  // calls from one wait for a result to the next
constexpr std::chrono::minutes kLimit{10};

std::string Program(size_t devices) {
  return absl::StrCat("sim 1\nname step\npartitions ", devices,
                      "\ncost_us 0\npermute 0 1\ninput 11 1\noutput 11 1\n");
}

class Script {
 public:
  Script(Processes& processes, uint32_t devices)
      : client_(*processes.Connect("script")), devices_(devices) {
    std::iota(devices_.begin(), devices_.end(), 0);
    last_ = Upload();
    step_ = Compile(Program(devices));
    for (int i = 0; i < kAwaited; ++i) Step();
    Await();
  }

  void Step() {
    const ArrayHandle next = client_->NewArrayHandle();
    client_->Call(step_, {&last_, 1}, {&next, 1});
    client_->Drop({&last_, 1});
    last_ = next;
  }
  void Await() {
    auto ready = std::make_shared<Answer<absl::Status>>();
    client_->Await({&last_, 1}, [ready](absl::Status status) { ready->Set(std::move(status)); });
    Expect(*ready);
  }

 private:
  static void Expect(Answer<absl::Status>& ready) {
    const auto status = ready.WaitFor(kLimit);
    GANGWAY_CHECK(status == absl::OkStatus(), "nothing of the cluster fails");
  }
  ExecutableHandle Compile(const std::string& program) {
    auto compiled = std::make_shared<Answer<absl::Status>>();
    const ExecutableHandle executable =
        client_->Compile(program, "sim", "", devices_,
                         [compiled](const auto& info) { compiled->Set(info.status()); });
    Expect(*compiled);
    return executable;
  }
  ArrayHandle Upload() {
    const ArrayHandle array = client_->NewArrayHandle();
    const OperationId upload = client_->Upload(
        array, {.element_type = kF32, .shard_dims = {1}, .devices = devices_, .shard_bytes = 4});
    static const std::string word(4, 'x');
    for (uint32_t shard = 0; shard < devices_.size(); ++shard)
      client_->Push(upload, shard, word, [] {});
    return array;
  }

  std::unique_ptr<Client> client_;
  std::vector<uint32_t> devices_;
  ExecutableHandle step_{};
  ArrayHandle last_{};
};

void BM_Gang(benchmark::State& state) {
  spdlog::set_level(spdlog::level::off);
  const auto devices = static_cast<uint32_t>(state.range(0));
  ProcessesOptions options;
  options.islands = {std::vector<uint32_t>(devices / kDevicesOfWorker, kDevicesOfWorker)};
  FiberWorld world(1, FiberWorld::Order::kByProcess);
  const absl::Status ended = world.Run(
      [&] {
        Processes processes(&world, options);
        GANGWAY_CHECK(processes.Start().ok(), "the cluster starts");
        Script script(processes, devices);
        int calls = 0;
        for (auto _ : state) {
          script.Step();
          if (++calls % kAwaited == 0) script.Await();
        }
        script.Await();
      },
      std::chrono::hours(10));
  GANGWAY_CHECK(ended.ok(), "the world ends");
}
BENCHMARK(BM_Gang)->Arg(512)->Arg(1024)->Arg(2048)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace gangway::simulation

BENCHMARK_MAIN();
