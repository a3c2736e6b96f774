// The C++ client of bench/figures.py, by the public C++ API alone: pipelines whose stages are each on another worker,
// as programs that are dispatched in parallel or sequentially (Figures 4 and 7 of the Pathways paper). Devices are
// simulated: a stage takes device time, and no CPU. The transfers between the stages are real.
//
//   pipeline_dispatch ADDRESS TOKEN STAGES COST_US FLOATS
//
// Stage k is on the first device of worker k, takes COST_US of device time, and passes FLOATS elements on. A program
// takes some microbatches through all stages. Commands and answers are those of commands.h; cases are
// "parallel MICROBATCHES" and "sequential MICROBATCHES", with " awaited" behind it if each launch is waited for before
// the next one, and COUNT is of launches. Results of both kinds are compared, bitwise. One thread makes the calls; the
// library has its own. A failure prints its status and ends the program with 1.
#include <gangway/connect.h>
#include <gangway/gangway.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <map>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "calls_session.h"

namespace {

using gangway::Array;
using gangway::Dispatch;
using gangway::bench::Fail;
using gangway::bench::Ran;

constexpr int kNodesAhead = 4096;  // calls and copies that are submitted before results are awaited

template <typename T>
T ValueOf(const std::string& what, gangway::Result<T> result) {
  if (!result.ok()) Fail(what, result.status());
  return *std::move(result);
}

std::string StageText(int cost_us, int floats) {
  const std::string array = "put 11 " + std::to_string(floats) + "\n";
  return "sim 1\nname stage\ncost_us " + std::to_string(cost_us) + "\nin" + array + "out" + array;
}

class Pipeline {
 public:
  Pipeline(const gangway::Cluster& cluster, size_t stages, int cost_us, int floats)
      : cluster_(cluster), floats_(floats) {
    for (const gangway::DeviceInfo& device : cluster.devices()) {
      if (meshes_.size() == stages) break;
      if (!meshes_.empty() && device.worker == worker_ && device.island == island_) continue;
      worker_ = device.worker, island_ = device.island;
      const gangway::Mesh mesh({device.id}, {{"x", 1}});
      meshes_.emplace_back(mesh);
      stages_.push_back(
          ValueOf("compile", cluster.Compile(StageText(cost_us, floats), mesh, {.format = "sim"})));
    }
    if (meshes_.size() < stages) {
      std::cerr << stages << " stages need as many workers\n";
      std::exit(1);
    }
  }

  bool Run(const std::string& name, int count) {
    std::istringstream words(name);
    std::string kind, awaited;
    int microbatches = 0;
    words >> kind >> microbatches >> awaited;
    if ((kind != "parallel" && kind != "sequential") || microbatches < 1) return false;
    const Traced& traced = TracedOf(kind, microbatches);
    const int ahead = kNodesAhead / static_cast<int>(traced.program.node_count());
    Launch(traced, count, awaited.empty() ? std::max(1, ahead) : 1);
    return true;
  }

 private:
  struct Traced {
    gangway::Program program;
    std::vector<Array> inputs;
  };

  const Traced& TracedOf(const std::string& kind, int microbatches) {
    const auto known = programs_.find({kind, microbatches});
    if (known != programs_.end()) return known->second;
    std::vector<Array> inputs;
    for (int m = 0; m < microbatches; ++m) {
      const std::vector<float> values(static_cast<size_t>(floats_), static_cast<float>(m));
      inputs.push_back(cluster_.Put(values, {floats_}, meshes_.front()));
    }
    const Dispatch dispatch = kind == "parallel" ? Dispatch::kParallel : Dispatch::kSequential;
    gangway::Program program = ValueOf(
        "trace", gangway::Trace(
                     cluster_, kind, [this](std::span<const Array> in) { return Through(in); },
                     inputs, dispatch));
    const Traced traced{std::move(program), std::move(inputs)};
    Compare(microbatches, traced.program(traced.inputs));
    return programs_.emplace(std::pair(kind, microbatches), traced).first->second;
  }

  // All microbatches through all stages, as GPipe's forward half orders them.
  std::vector<Array> Through(std::span<const Array> in) const {
    std::vector<Array> values(in.begin(), in.end());
    for (size_t step = 0; step + 1 < stages_.size() + values.size(); ++step) {
      for (size_t stage = std::min(step, stages_.size() - 1) + 1; stage-- > 0;) {
        if (step - stage >= values.size()) continue;
        Array& value = values[step - stage];
        value = stages_[stage](stage == 0 ? value : value.CopyTo(meshes_[stage]));
      }
    }
    return values;
  }

  // With what the other kind of dispatch has computed, if it ran.
  void Compare(int microbatches, const std::vector<Array>& results) {
    std::vector<std::vector<std::byte>> found;
    for (const Array& each : results) found.push_back(ValueOf("fetch", each.GetBytes()));
    if (found == results_.emplace(microbatches, found).first->second) return;
    std::cerr << "other results by sequential dispatch than by parallel dispatch\n";
    std::exit(1);
  }

  // At most twice `ahead` launches have not ended.
  void Launch(const Traced& traced, int count, int ahead) {
    std::vector<Array> before, last;
    for (int i = 1; i <= count; ++i) {
      last = traced.program(traced.inputs);
      if (ahead > 1 && i % ahead != 0) continue;
      if (ahead == 1) before = last;
      if (!before.empty()) Await(before);
      before = last;
    }
    Await(last);
  }

  void Await(const std::vector<Array>& results) const {
    if (gangway::Status status = cluster_.Wait(results); !status.ok()) Fail("a launch", status);
  }

  const gangway::Cluster cluster_;
  const int floats_;
  uint32_t worker_ = 0, island_ = 0;  // of the last stage
  std::vector<gangway::Sharding> meshes_;
  std::vector<gangway::Function> stages_;
  std::map<std::pair<std::string, int>, Traced> programs_;
  std::map<int, std::vector<std::vector<std::byte>>> results_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    std::cerr << "usage: pipeline_dispatch ADDRESS TOKEN STAGES COST_US FLOATS\n";
    return 2;
  }
  const auto cluster = ValueOf(
      "connect",
      gangway::Connect({.address = argv[1], .token = argv[2], .name = "pipeline_dispatch"}));
  Pipeline pipeline(cluster, static_cast<size_t>(std::atoi(argv[3])), std::atoi(argv[4]),
                    std::atoi(argv[5]));
  return gangway::bench::ServeClient([&pipeline](const std::string& name, int count) {
    bool is_case = false;
    const double seconds = gangway::bench::SecondsOf([&] { is_case = pipeline.Run(name, count); });
    return is_case ? std::optional<Ran>(Ran{seconds}) : std::nullopt;
  });
}
