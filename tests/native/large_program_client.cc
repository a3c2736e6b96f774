// A C++ program that tests drive by lines of its input, and that answers each by one line: a program of 10,000 nodes
// over four devices, a chain of calls on each and a copy of its end to the next device. The call in the middle of each
// chain takes a second, so that tests can act while all chains stand there.
//
//   large_program_client ADDRESS TOKEN NAME
//   trace      traces the program NAME: "10000 nodes, 2500 in a chain"
//   launch     launches it, and waits until each chain is in its middle: "middle"
//   result I   waits for the end of chain I: "VALUE", or the failure: "PROGRAM|NODE|SOURCE|WORKER|MESSAGE"
//   drop       drops the program and all arrays
#include <gangway/gangway.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <span>
#include <sstream>
#include <string>
#include <vector>

namespace {

using gangway::Array, gangway::Cluster, gangway::Function, gangway::Mesh, gangway::Sharding,
    gangway::Status;

constexpr uint32_t kChains = 4;
constexpr int kCalls = 2499;  // of each chain; with the copy at its end, 2,500 nodes

template <typename T>
T Value(gangway::Result<T> result) {
  if (result.ok()) return std::move(*result);
  std::cerr << result.status().message() << "\n";
  std::exit(1);
}

constexpr char kPlusOne[] = R"(module @plus_one {
  func.func public @main(%x: tensor<f32>) -> tensor<f32> {
    %one = stablehlo.constant dense<1.0> : tensor<f32>
    %y = stablehlo.add %x, %one : tensor<f32>
    return %y : tensor<f32>
  }
})";

constexpr char kMiddle[] = R"(module @middle {
  func.func public @main(%x: tensor<f32>) -> tensor<f32> {
    %r:2 = stablehlo.custom_call @gangway_simulated_work(%x, %x)
        {api_version = 4 : i32, backend_config = {microseconds = 1000000 : i64}}
        : (tensor<f32>, tensor<f32>) -> (tensor<f32>, tensor<f32>)
    return %r#1 : tensor<f32>
  }
})";

Sharding On(uint32_t device) { return Sharding(Mesh({device % kChains}, {})); }

class LargeProgram {
 public:
  LargeProgram(const Cluster& cluster, const std::string& name) : cluster_(cluster), name_(name) {
    for (uint32_t device = 0; device < kChains; ++device) {
      plus_one_.push_back(Value(cluster_.Compile(kPlusOne, On(device).mesh())));
      middle_.push_back(Value(cluster_.Compile(kMiddle, On(device).mesh())));
    }
  }

  std::string Trace() {
    program_ = Value(gangway::Trace(
        cluster_, name_, [this](std::span<const Array> in) { return Chains(in); }, Starts()));
    return std::to_string(program_.node_count()) + " nodes, " + std::to_string(kCalls + 1) +
           " in a chain";
  }

  std::string Launch() {
    results_ = program_(Starts());
    const Status status = cluster_.Wait(std::span(results_).first(kChains));
    return status.ok() ? "middle" : status.message();
  }

  std::string ResultOf(uint32_t chain) const {
    const Array& result = results_.at(kChains + chain);
    const Status status = result.Wait();
    std::ostringstream text;
    if (status.ok()) {
      text << Value(result.Get<float>())[0];
    } else {
      const gangway::FailureRecord record = status.record();
      text << record.launched_program << "|" << (record.node ? std::to_string(*record.node) : "")
           << "|" << record.source << "|" << record.worker << "|" << status.message();
    }
    std::string line = text.str();
    std::replace(line.begin(), line.end(), '\n', ' ');
    return line;
  }

  std::string Drop() {
    results_.clear();
    program_ = {};
    return "dropped";
  }

 private:
  // Chain i begins with i.
  std::vector<Array> Starts() const {
    std::vector<Array> starts;
    for (uint32_t i = 0; i < kChains; ++i)
      starts.push_back(cluster_.Put<float>({static_cast<float>(i)}, {}, On(i)));
    return starts;
  }

  // What each chain is ahead of its middle, then at its end.
  std::vector<Array> Chains(std::span<const Array> starts) const {
    std::vector<Array> middles, ends;
    for (uint32_t i = 0; i < kChains; ++i) {
      Array x = starts[i];
      for (int call = 0; call < kCalls / 2; ++call) x = plus_one_[i](x);
      middles.push_back(x);
      x = middle_[i](x);
      for (int call = kCalls / 2 + 1; call < kCalls; ++call) x = plus_one_[i](x);
      ends.push_back(x.CopyTo(On(i + 1)));
    }
    middles.insert(middles.end(), ends.begin(), ends.end());
    return middles;
  }

  const Cluster cluster_;
  const std::string name_;
  std::vector<Function> plus_one_, middle_;  // by device
  gangway::Program program_;
  std::vector<Array> results_;
};

std::string Answer(LargeProgram& program, const std::string& command, uint32_t chain) {
  if (command == "trace") return program.Trace();
  if (command == "launch") return program.Launch();
  if (command == "result") return program.ResultOf(chain);
  if (command == "drop") return program.Drop();
  return "unknown";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  LargeProgram program(
      Value(gangway::Connect({.address = argv[1], .token = argv[2], .name = argv[3]})), argv[3]);
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string command;
    uint32_t chain = 0;
    words >> command >> chain;
    std::cout << Answer(program, command, chain) << std::endl;
  }
}
