// The C++ client of bench/spmd.py and bench/launch.py: the scalar program on all devices of a cluster, by the client
// library's public headers alone.
//
//   spmd_calls ADDRESS TOKEN DEVICES
//
// One thread makes the calls; the library has its own. A failure prints its status and ends the program with 1.
#include <gangway/connect.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <numeric>
#include <string>
#include <vector>

#include "calls_session.h"
#include "spmd_scalar.h"

namespace {

std::vector<uint32_t> FirstDevices(int count) {
  std::vector<uint32_t> devices(count);
  std::iota(devices.begin(), devices.end(), 0);
  return devices;
}

class Caller {
 public:
  Caller(gangway::Client& client, int devices) : session_(client, FirstDevices(devices)) {
    std::string group;
    for (int i = 0; i < devices; ++i) group.append(i == 0 ? "" : ",").append(std::to_string(i));
    const std::string sum =
        "%sum = \"stablehlo.all_reduce\"(%x) ({\n^bb0(%l: tensor<f32>, %r: tensor<f32>):\n"
        "%t = stablehlo.add %l, %r : tensor<f32>\nstablehlo.return %t : tensor<f32>\n}) "
        "{replica_groups = dense<[[" +
        group + "]]> : tensor<1x" + std::to_string(devices) +
        "xi64>} : (tensor<f32>) -> tensor<f32>";
    one_ = session_.Compile(gangway::bench::ScalarProgram(sum, devices, false));
    fused_ = session_.Compile(gangway::bench::ScalarProgram(sum, devices, true));
    std::vector<float> biases;
    for (int i = 0; i < devices; ++i) biases.push_back(gangway::bench::Bias(i, devices));
    biases_ = session_.Put(biases);
  }

  double Run(bool fused, int calls, int awaited_every) {
    gangway::Client& client = session_.client();
    gangway::ArrayHandle x = session_.Put(std::vector<float>(session_.device_count(), 0.0F));
    session_.Await(std::array{x});
    const double seconds = gangway::bench::SecondsOf([&] {
      for (int i = 1; i <= calls; ++i) {
        const gangway::ArrayHandle y = client.NewArrayHandle();
        client.Call(fused ? fused_ : one_, std::array{x, biases_}, std::array{y});
        client.Drop(std::array{x});
        x = y;
        if (i % awaited_every == 0 || i % gangway::bench::kAhead == 0)
          session_.Await(std::array{x});
      }
      session_.Await(std::array{x});
    });
    Check(x, calls * (fused ? gangway::bench::kChain : 1));
    client.Drop(std::array{x});
    return seconds;
  }

 private:
  // The first shard counts the computations, above its own bias.
  void Check(gangway::ArrayHandle array, int computations) {
    const float value = session_.Fetch(std::array{array}, 1)[0];
    const float bias = gangway::bench::Bias(0, static_cast<int>(session_.device_count()));
    if (std::abs(value - bias + 1 - static_cast<float>(computations)) <= 0.5F) return;
    std::cerr << computations << " computations counted to " << value - bias + 1 << "\n";
    std::exit(1);
  }

  gangway::bench::Session session_;
  gangway::ExecutableHandle one_{}, fused_{};
  gangway::ArrayHandle biases_{};
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: spmd_calls ADDRESS TOKEN DEVICES\n";
    return 2;
  }
  const auto client = gangway::bench::Open(argv[1], argv[2], "spmd_calls");
  Caller caller(*client, std::atoi(argv[3]));
  const auto run = [&caller](bool fused, int calls, int awaited_every) {
    return caller.Run(fused, calls, awaited_every);
  };
  return gangway::bench::ServeClient([&run](const std::string& name, int count) {
    return gangway::bench::RunScalar(name, count, run);
  });
}
