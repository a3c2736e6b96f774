// The C++ client of bench/spmd.py and bench/launch.py: the scalar program on all devices of a cluster, by the client
// library's public headers alone.
//
//   spmd_calls ADDRESS TOKEN DEVICES
//
// One thread makes the calls; the library has its own. A failure prints its status and ends the program with 1.
#include <gangway/connect.h>

#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <future>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "spmd_scalar.h"

namespace {

constexpr int32_t kF32 = 11;      // number of the element type, as in XLA's PrimitiveType
constexpr uint64_t kAhead = 512;  // calls that are submitted before their results are awaited

[[noreturn]] void Fail(const std::string& what, const gangway::Status& status) {
  std::cerr << what << ": " << status.message() << "\n";
  std::exit(1);
}

class Caller {
 public:
  Caller(gangway::Client& client, int devices) : client_(client) {
    for (int i = 0; i < devices; ++i) devices_.push_back(i);
    std::string group;
    for (int i = 0; i < devices; ++i) group.append(i == 0 ? "" : ",").append(std::to_string(i));
    const std::string sum =
        "%sum = \"stablehlo.all_reduce\"(%x) ({\n^bb0(%l: tensor<f32>, %r: tensor<f32>):\n"
        "%t = stablehlo.add %l, %r : tensor<f32>\nstablehlo.return %t : tensor<f32>\n}) "
        "{replica_groups = dense<[[" +
        group + "]]> : tensor<1x" + std::to_string(devices) +
        "xi64>} : (tensor<f32>) -> tensor<f32>";
    one_ = Compile(gangway::bench::ScalarProgram(sum, devices, false));
    fused_ = Compile(gangway::bench::ScalarProgram(sum, devices, true));
    std::vector<float> biases;
    for (int i = 0; i < devices; ++i) biases.push_back(gangway::bench::Bias(i, devices));
    biases_ = Put(biases);
  }

  double Run(bool fused, int calls, int awaited_every) {
    gangway::ArrayHandle x = Put(std::vector<float>(devices_.size(), 0.0F));
    Await(x);
    const auto began = std::chrono::steady_clock::now();
    for (int i = 1; i <= calls; ++i) {
      const gangway::ArrayHandle y = client_.NewArrayHandle();
      client_.Call(fused ? fused_ : one_, std::array{x, biases_}, std::array{y});
      client_.Drop(std::array{x});
      x = y;
      if (i % awaited_every == 0 || i % kAhead == 0) Await(x);
    }
    Await(x);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    Check(x, calls * (fused ? gangway::bench::kChain : 1));
    client_.Drop(std::array{x});
    return took.count();
  }

 private:
  gangway::ExecutableHandle Compile(const std::string& program) {
    std::promise<gangway::Status> compiled;
    const gangway::ExecutableHandle executable =
        client_.Compile(program, "mlir", "", devices_,
                        [&compiled](const auto& info) { compiled.set_value(info.status()); });
    if (gangway::Status status = compiled.get_future().get(); !status.ok()) Fail("compile", status);
    return executable;
  }

  gangway::ArrayHandle Put(const std::vector<float>& values) {
    const gangway::ArrayHandle array = client_.NewArrayHandle();
    const uint64_t upload = client_.Upload(
        array, {.element_type = kF32, .devices = devices_, .shard_bytes = sizeof(float)});
    for (uint32_t shard = 0; shard < values.size(); ++shard) {
      const auto bytes = std::make_shared<std::string>(
          reinterpret_cast<const char*>(&values[shard]), sizeof(float));
      client_.Push(upload, shard, *bytes, [bytes] {});
    }
    return array;
  }

  void Await(gangway::ArrayHandle array) {
    std::promise<gangway::Status> ready;
    client_.Await(std::array{array},
                  [&ready](const gangway::Status& status) { ready.set_value(status); });
    client_.SendNow();
    if (gangway::Status status = ready.get_future().get(); !status.ok()) Fail("await", status);
  }

  // The first shard counts the computations, above its own bias.
  void Check(gangway::ArrayHandle array, int computations) {
    float value = 0;
    std::promise<gangway::Status> done;
    client_.Fetch(array, {0},
                  {.on_data =
                       [&value](size_t, uint64_t offset, std::string_view data) {
                         data.copy(reinterpret_cast<char*>(&value) + offset, data.size());
                       },
                   .on_done = [&done](const gangway::Status& status) { done.set_value(status); }});
    if (gangway::Status status = done.get_future().get(); !status.ok()) Fail("fetch", status);
    const float bias = gangway::bench::Bias(0, static_cast<int>(devices_.size()));
    if (std::abs(value - bias + 1 - static_cast<float>(computations)) <= 0.5F) return;
    std::cerr << computations << " computations counted to " << value - bias + 1 << "\n";
    std::exit(1);
  }

  gangway::Client& client_;
  std::vector<uint32_t> devices_;
  gangway::ExecutableHandle one_ = 0, fused_ = 0;
  gangway::ArrayHandle biases_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: spmd_calls ADDRESS TOKEN DEVICES\n";
    return 2;
  }
  auto client = gangway::Connect({.address = argv[1], .token = argv[2], .name = "spmd_calls"});
  if (!client.ok()) Fail("connect", client.status());
  Caller caller(**client, std::atoi(argv[3]));
  return gangway::bench::ServeCommands([&caller](bool fused, int calls, int awaited_every) {
    return caller.Run(fused, calls, awaited_every);
  })
             ? 0
             : 1;
}
