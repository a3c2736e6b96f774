// A first C++ program: it squares an array on two devices, by a call and in a loop, and shows how an error reaches it.
//
//   gangway up --devices 2 --detach
//   build/dev/examples/hello unix:FOLDER/control.sock TOKEN
#include "example.h"

using gangway::Array, gangway::Cluster, gangway::Function, gangway::Mesh, gangway::Sharding;

// What each device does with its own three elements.
constexpr char kSquare[] = R"(module @square {
  func.func public @main(%x: tensor<3xf32>) -> tensor<3xf32> {
    %y = stablehlo.multiply %x, %x : tensor<3xf32>
    return %y : tensor<3xf32>
  }
})";

void Print(const char* what, const Array& array) {
  std::cout << what << " =";
  for (const float value : Floats(array)) std::cout << " " << value;
  std::cout << "\n";
}

int main(int argc, char** argv) {
  const Cluster cluster = Open(argc, argv, "hello");
  std::cout << cluster.devices().size() << " devices of platform " << cluster.info().platform
            << "\n";

  const Mesh mesh({0, 1}, {{"x", 2}});
  const Sharding halves(mesh, {"x"});
  const Function square = Value(cluster.Compile(kSquare, mesh, {.results = {halves}}));

  Array x = cluster.Put<float>({1, 2, 3, 4, 5, 6}, {6}, halves);
  Print("x * x", square(x));
  for (int i = 0; i < 2; ++i) x = square(x);  // each x is freed once the next one is there
  Print("x ^ 4", x);

  const Array wrong = square(cluster.Put<float>({1, 2}, {2}, halves));  // shards of one element
  const gangway::Status status = wrong.Wait();
  std::cout << "in " << status.record().source << ": " << status.message() << "\n";
  return status.ok() ? 1 : 0;
}
