// Sums two arrays on one device, by a call and by a program: outside ADDRESS TOKEN.
#include <gangway/gangway.h>

#include <iostream>
#include <span>
#include <vector>

constexpr char kSum[] = R"(module @sum {
  func.func public @main(%x: tensor<2xi32>, %y: tensor<2xi32>) -> tensor<2xi32> {
    %z = stablehlo.add %x, %y : tensor<2xi32>
    return %z : tensor<2xi32>
  }
})";

int Fail(const gangway::Status& status) {
  std::cerr << status.message() << "\n";
  return 1;
}

int main(int, char** argv) {
  const auto cluster = gangway::Connect({.address = argv[1], .token = argv[2], .name = "outside"});
  if (!cluster.ok()) return Fail(cluster.status());
  const gangway::Mesh mesh({cluster->devices().front().id}, {});
  const auto sum = cluster->Compile(kSum, mesh);
  if (!sum.ok()) return Fail(sum.status());
  const gangway::Array x = cluster->Put<int32_t>({1, 2}, {2}, gangway::Sharding(mesh));
  const auto twice =
      gangway::Trace(*cluster, "twice",
                     [&](std::span<const gangway::Array> in) -> std::vector<gangway::Array> {
                       return {(*sum)((*sum)(in[0], x), x)};
                     },
                     {x});
  if (!twice.ok()) return Fail(twice.status());
  for (const gangway::Array& each : {(*sum)(x, x), (*twice)(x)}) {
    const auto values = each.Get<int32_t>();
    if (!values.ok()) return Fail(values.status());
    for (const int32_t value : *values) std::cout << value << " ";
  }
  std::cout << "\n";
}
