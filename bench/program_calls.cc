// The C++ client of the rows of bench/launch.py about programs, by the public C++ API alone: chains of a small
// function, made of single calls or of programs.
//
//   program_calls ADDRESS TOKEN WORKERS cpu|sim|scalar
//
// "cpu" adds 1 to a number on the first device of each of the first WORKERS workers. "sim" does nothing there, on
// simulated devices. "scalar" is the scalar program of bench/spmd.py on all devices of these workers.
//
// Commands and answers are those of commands.h, cases those of chain_cases.h, and COUNT is of nodes. One thread makes
// the calls; the library has its own. A failure prints its status and ends the program with 1.
#include <gangway/connect.h>
#include <gangway/gangway.h>

#include <cmath>
#include <cstdlib>
#include <deque>
#include <iostream>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "calls_session.h"
#include "chain_cases.h"
#include "spmd_scalar.h"

namespace {

using gangway::Array;
using gangway::bench::ChainCase;
using gangway::bench::Fail;
using gangway::bench::Ran;

constexpr size_t kMarks = 4;     // results that are not awaited yet, of those that are looked at
constexpr int kMarkEvery = 128;  // nodes, or more, from one such result to the next

constexpr char kAddOne[] = R"(module @add_one {
  func.func public @main(%x: tensor<1xf32>) -> tensor<1xf32> {
    %one = stablehlo.constant dense<1.0> : tensor<1xf32>
    %y = stablehlo.add %x, %one : tensor<1xf32>
    return %y : tensor<1xf32>
  }
})";

std::string SimText(size_t devices) {
  return "sim 1\nname add_one\npartitions " + std::to_string(devices) +
         "\npermute 0 1\nrounds 0\ninput 11 1\noutput 11 1\n";
}

std::string ScalarText(int devices) {
  std::string group;
  for (int i = 0; i < devices; ++i) group.append(i == 0 ? "" : ",").append(std::to_string(i));
  const std::string sum =
      "%sum = \"stablehlo.all_reduce\"(%x) ({\n^bb0(%l: tensor<f32>, %r: tensor<f32>):\n"
      "%t = stablehlo.add %l, %r : tensor<f32>\nstablehlo.return %t : tensor<f32>\n}) "
      "{replica_groups = dense<[[" +
      group + "]]> : tensor<1x" + std::to_string(devices) +
      "xi64>} : (tensor<1xf32>) -> tensor<1xf32>";
  return gangway::bench::ScalarProgram(sum, devices, false, "tensor<1xf32>");
}

// The devices of the first workers, or the first device of each.
std::vector<uint32_t> DevicesOf(const gangway::Cluster& cluster, size_t workers, bool all) {
  std::vector<uint32_t> devices;
  std::set<std::pair<uint32_t, uint32_t>> seen;
  for (const gangway::DeviceInfo& device : cluster.devices()) {
    const std::pair worker(device.island, device.worker);
    if (seen.size() == workers && !seen.contains(worker)) continue;
    if (seen.insert(worker).second || all) devices.push_back(device.id);
  }
  return devices;
}

template <typename T>
T ValueOf(const std::string& what, gangway::Result<T> result) {
  if (!result.ok()) Fail(what, result.status());
  return *std::move(result);
}

class Caller {
 public:
  Caller(const gangway::Cluster& cluster, size_t workers, std::string kind)
      : cluster_(cluster),
        kind_(std::move(kind)),
        devices_(DevicesOf(cluster, workers, kind_ == "scalar")),
        count_(static_cast<int64_t>(devices_.size())),
        split_(gangway::Mesh(devices_, {{"x", count_}}), {"x"}),
        function_(ValueOf(
            "compile",
            cluster.Compile(Text(), split_.mesh(),
                            {.results = {split_}, .format = kind_ == "sim" ? "sim" : "mlir"}))) {
    arguments_.push_back(Put(std::vector<float>(devices_.size(), 0.0F)));
    if (kind_ != "scalar") return;
    std::vector<float> biases;
    for (int i = 0; i < count_; ++i) biases.push_back(Bias(i));
    arguments_.push_back(Put(biases));
  }

  // Returns the seconds of a chain of `count` nodes.
  double Run(const ChainCase& wanted, int count) {
    const gangway::Callable& callable =
        wanted.is_program ? static_cast<const gangway::Callable&>(ProgramOf(wanted.nodes))
                          : function_;
    std::vector<Array> x = arguments_;
    int made = 0;
    const double seconds = gangway::bench::SecondsOf([&] {
      std::deque<Array> marks;
      for (int marked = 0; made < count; made += wanted.nodes) {
        x[0] = Next(callable, x);
        if (wanted.is_awaited) {
          Check(x[0].Wait());
        } else if (made + wanted.nodes - marked >= kMarkEvery) {
          marked = made + wanted.nodes;
          marks.push_back(x[0]);
          if (marks.size() > kMarks) {
            Check(marks.front().Wait());
            marks.pop_front();
          }
        }
      }
      Check(x[0].Wait());
    });
    if (kind_ != "sim") CheckCount(x[0], made);
    return seconds;
  }

 private:
  static void Check(const gangway::Status& status) {
    if (!status.ok()) Fail("a chain", status);
  }

  static Array Next(const gangway::Callable& callable, std::span<const Array> x) {
    return x.size() == 1 ? callable(x[0]) : callable(x[0], x[1]);
  }

  std::string Text() const {
    if (kind_ == "sim") return SimText(devices_.size());
    return kind_ == "scalar" ? ScalarText(static_cast<int>(count_)) : kAddOne;
  }

  float Bias(int position) const {
    return gangway::bench::Bias(position, static_cast<int>(count_));
  }

  Array Put(const std::vector<float>& values) const {
    return cluster_.Put(values, {count_}, split_);
  }

  const gangway::Program& ProgramOf(int nodes) {
    const auto known = programs_.find(nodes);
    if (known != programs_.end()) return known->second;
    const auto chain = [&](std::span<const Array> in) -> std::vector<Array> {
      std::vector<Array> x(in.begin(), in.end());
      for (int i = 0; i < nodes; ++i) x[0] = Next(function_, x);
      return {x[0]};
    };
    return programs_
        .emplace(nodes, ValueOf("trace", gangway::Trace(cluster_, "chain", chain, arguments_)))
        .first->second;
  }

  // Each number counts the nodes: of the scalar program above its own bias.
  void CheckCount(const Array& x, int nodes) const {
    const std::vector<float> values = ValueOf("get", x.Get<float>());
    for (int i = 0; i < count_; ++i) {
      const float counted = values[i] - (kind_ == "scalar" ? Bias(i) - 1 : 0);
      if (std::abs(counted - static_cast<float>(nodes)) <= 0.5F) continue;
      std::cerr << nodes << " nodes counted to " << counted << "\n";
      std::exit(1);
    }
  }

  const gangway::Cluster cluster_;
  const std::string kind_;
  const std::vector<uint32_t> devices_;
  const int64_t count_;  // of devices
  const gangway::Sharding split_;
  const gangway::Function function_;
  std::vector<Array>
      arguments_;  // the number on each device; the biases if the function takes them
  std::map<int, gangway::Program> programs_;  // by the number of nodes
};

}  // namespace

int main(int argc, char** argv) {
  const std::set<std::string> kinds = {"cpu", "sim", "scalar"};
  if (argc != 5 || !kinds.contains(argv[4])) {
    std::cerr << "usage: program_calls ADDRESS TOKEN WORKERS cpu|sim|scalar\n";
    return 2;
  }
  const auto cluster = ValueOf(
      "connect", gangway::Connect({.address = argv[1], .token = argv[2], .name = "program_calls"}));
  Caller caller(cluster, static_cast<size_t>(std::atoi(argv[3])), argv[4]);
  return gangway::bench::ServeClient([&caller](const std::string& name, int count) {
    const std::optional<ChainCase> wanted = gangway::bench::ParseChainCase(name);
    return wanted ? std::optional(Ran{caller.Run(*wanted, count)}) : std::nullopt;
  });
}
