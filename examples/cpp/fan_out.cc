// The program of Figure 2 of the Pathways paper: three functions, each compiled for a slice of two devices, here on two
// islands of one cluster. The block is traced once, and each run of it is one message:
//
//   f(v) = (b(a(v)), a(c(a(v))))  with  a(x) = 2x, b(x) = x + 1, c(x) = x / 2
//
//   gangway up --islands 2 --workers 2 --devices 2 --detach
//   build/dev/examples/fan_out unix:FOLDER/control.sock TOKEN [LAUNCHES]
#include <gangway/connect.h>

#include <span>
#include <string>

#include "example.h"

using gangway::Array, gangway::Cluster, gangway::Function, gangway::Mesh, gangway::Sharding;

// `operation` of its element and `number`, on each of two devices.
Function Compile(const Cluster& cluster, const std::string& name, const std::string& operation,
                 const std::string& number, const std::vector<uint32_t>& devices) {
  const Mesh mesh(devices, {{"x", 2}});
  const std::string text = "module @" + name + R"( {
    func.func public @main(%x: tensor<1xf32>) -> tensor<1xf32> {
      %n = stablehlo.constant dense<)" +
                           number + R"(> : tensor<1xf32>
      %y = stablehlo.)" + operation +
                           R"( %x, %n : tensor<1xf32>
      return %y : tensor<1xf32>
    }
  })";
  return Value(cluster.Compile(text, mesh, {.results = {Sharding(mesh, {"x"})}}));
}

void Print(const Array& array) {
  std::cout << " [";
  for (const float value : Floats(array)) std::cout << " " << value;
  std::cout << " ]";
}

int main(int argc, char** argv) {
  const Cluster cluster = Open(argc, argv, "fan_out");
  const Function a = Compile(cluster, "a", "multiply", "2.0", {0, 1});  // island 0, a worker
  const Function b = Compile(cluster, "b", "add", "1.0", {2, 3});       // island 0, another worker
  const Function c = Compile(cluster, "c", "divide", "2.0", {4, 5});    // island 1
  const Array v = cluster.Put<float>({1, 2}, {2}, Sharding(a.mesh(), {"x"}));

  const auto block = [&](std::span<const Array> in) -> std::vector<Array> {
    const Array x = a(in[0]);
    return {b(x), a(c(x))};  // the controller inserts the copies between slices
  };
  const gangway::Program f = Value(gangway::Trace(cluster, "f", block, {v}));

  const int launches = argc > 3 ? std::atoi(argv[3]) : 1;
  const uint64_t frames = gangway::TrafficOfProcess().frames_sent;
  std::vector<Array> results;
  for (int i = 0; i < launches; ++i) results = f({v});
  Check(cluster.Wait(results));  // one question
  const uint64_t sent = gangway::TrafficOfProcess().frames_sent - frames;
  std::cout << "f([1, 2]) =";
  for (const Array& result : results) Print(result);
  std::cout << "; " << launches << " launches of " << f.node_count() << " nodes, " << sent
            << " frames\n";
}
