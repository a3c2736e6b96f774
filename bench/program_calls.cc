// The C++ client of the rows of bench/launch.py about programs, by the public C++ API alone: chains of a small
// function. It runs on one device of each of the first WORKERS workers. A chain is made of single calls, or of programs
// of N nodes.
//
//   program_calls ADDRESS TOKEN WORKERS cpu|sim
//
// Commands and answers are those of commands.h; cases are "single", "single awaited", "program N" and
// "program N awaited", and COUNT is of nodes. An awaited program or call is waited for before the next one. The
// function adds 1 on each device; on simulated devices it takes no time. One thread makes the calls; the library has
// its own. A failure prints its status and ends the program with 1.
#include <gangway/connect.h>
#include <gangway/gangway.h>

#include <cstdlib>
#include <iostream>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "calls_session.h"

namespace {

using gangway::Array;
using gangway::bench::Fail;
using gangway::bench::Ran;

constexpr int kAhead = 512;  // nodes that are submitted before their results are awaited

constexpr char kAddOne[] = R"(module @add_one {
  func.func public @main(%x: tensor<1xf32>) -> tensor<1xf32> {
    %one = stablehlo.constant dense<1.0> : tensor<1xf32>
    %y = stablehlo.add %x, %one : tensor<1xf32>
    return %y : tensor<1xf32>
  }
})";

// The first device of each of the first workers.
std::vector<uint32_t> DevicesOf(const gangway::Cluster& cluster, size_t workers) {
  std::vector<uint32_t> devices;
  std::set<std::pair<uint32_t, uint32_t>> seen;
  for (const gangway::DeviceInfo& device : cluster.devices()) {
    if (devices.size() < workers && seen.emplace(device.island, device.worker).second)
      devices.push_back(device.id);
  }
  return devices;
}

std::string SimText(size_t devices) {
  return "sim 1\nname add_one\npartitions " + std::to_string(devices) +
         "\npermute 0 1\nrounds 0\ninput 11 1\noutput 11 1\n";
}

template <typename T>
T ValueOf(const std::string& what, gangway::Result<T> result) {
  if (!result.ok()) Fail(what, result.status());
  return *std::move(result);
}

class Caller {
 public:
  Caller(const gangway::Cluster& cluster, size_t workers, bool simulated)
      : cluster_(cluster),
        mesh_(DevicesOf(cluster, workers), {{"x", static_cast<int64_t>(workers)}}),
        function_(ValueOf("compile", cluster.Compile(simulated ? SimText(workers) : kAddOne, mesh_,
                                                     {.results = {gangway::Sharding(mesh_, {"x"})},
                                                      .format = simulated ? "sim" : "mlir"}))),
        x_(cluster.Put(std::vector<float>(workers, 0.0F), {static_cast<int64_t>(workers)},
                       gangway::Sharding(mesh_, {"x"}))) {}

  bool Run(const std::string& name, int count) {
    const bool awaited = name.ends_with(" awaited");
    const std::string kind = name.substr(0, name.size() - (awaited ? 8 : 0));
    if (kind == "single") {
      Chain(function_, 1, count, awaited);
    } else if (kind.starts_with("program ")) {
      const int nodes = std::atoi(kind.substr(8).c_str());
      if (nodes < 1) return false;
      Chain(ProgramOf(nodes), nodes, count, awaited);
    } else {
      return false;
    }
    return true;
  }

 private:
  const gangway::Program& ProgramOf(int nodes) {
    const auto known = programs_.find(nodes);
    if (known != programs_.end()) return known->second;
    const auto chain = [&](std::span<const Array> in) -> std::vector<Array> {
      Array x = in[0];
      for (int i = 0; i < nodes; ++i) x = function_(x);
      return {x};
    };
    return programs_
        .emplace(nodes, ValueOf("trace", gangway::Trace(cluster_, "chain", chain, {x_})))
        .first->second;
  }

  void Chain(const gangway::Callable& callable, int nodes, int count, bool awaited) {
    Array x = x_;
    for (int done = 0, ahead = 0; done < count; done += nodes) {
      x = callable(x);
      ahead += nodes;
      if (!awaited && ahead < kAhead) continue;
      Check(x.Wait());
      ahead = 0;
    }
    Check(x.Wait());
  }

  static void Check(const gangway::Status& status) {
    if (!status.ok()) Fail("a chain", status);
  }

  const gangway::Cluster cluster_;
  const gangway::Mesh mesh_;
  const gangway::Function function_;
  const Array x_;
  std::map<int, gangway::Program> programs_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::cerr << "usage: program_calls ADDRESS TOKEN WORKERS cpu|sim\n";
    return 2;
  }
  const auto cluster = ValueOf(
      "connect", gangway::Connect({.address = argv[1], .token = argv[2], .name = "program_calls"}));
  Caller caller(cluster, static_cast<size_t>(std::atoi(argv[3])), std::string(argv[4]) == "sim");
  return gangway::bench::ServeClient([&caller](const std::string& name, int count) {
    bool is_case = false;
    const double seconds = gangway::bench::SecondsOf([&] { is_case = caller.Run(name, count); });
    return is_case ? std::optional<Ran>(Ran{seconds}) : std::nullopt;
  });
}
