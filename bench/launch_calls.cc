// The C++ client of bench/launch.py: calls and small transfers on one device, by the client library's public headers
// alone. The cases are those of launch_client.py.
//
//   launch_calls ADDRESS TOKEN
//
// Commands and answers are those of commands.h. One thread makes the calls; the library has its own. A failure
// prints its status and ends the program with 1.
#include <gangway/connect.h>

#include <array>
#include <cstdlib>
#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "calls_session.h"

namespace {

using gangway::ArrayHandle;
using Arrays = std::vector<ArrayHandle>;

constexpr size_t kCallFloats = 16;     // 64 B
constexpr size_t kPutFloats = 512;     // 2 kB
constexpr size_t kArrayFloats = 1024;  // 4 KiB
constexpr size_t kArrays = 200;
constexpr uint32_t kAcross = 2;  // the device to which arrays are copied: another worker's

// x + 1
std::string AddOne(size_t floats) {
  const std::string type = "tensor<" + std::to_string(floats) + "xf32>";
  return "module @add_one {\nfunc.func public @main(%x: " + type + ") -> " + type +
         " {\n%one = stablehlo.constant dense<1.0> : " + type +
         "\n%y = stablehlo.add %x, %one : " + type + "\nreturn %y : " + type + "\n}\n}\n";
}

class Caller {
 public:
  explicit Caller(gangway::Client& client)
      : session_(client, {0}),
        add_call_(session_.Compile(AddOne(kCallFloats))),
        add_put_(session_.Compile(AddOne(kPutFloats))),
        x_(session_.Put(std::vector<float>(kCallFloats, 0.0F))) {
    for (size_t i = 0; i < kArrays; ++i) {
      leaves_.emplace_back(kArrayFloats, static_cast<float>(i));
      tree_.push_back(session_.Put(leaves_.back()));
    }
    session_.Await(tree_);
  }

  // Makes `count` operations of the case, if it has this name.
  bool Run(const std::string& name, int count) {
    static const std::map<std::string, void (Caller::*)()> kOnce = {
        {"call awaited", &Caller::CallAwaited},  {"call fetched", &Caller::CallFetched},
        {"put awaited", &Caller::PutAwaited},    {"put then call", &Caller::PutThenCall},
        {"arrays up", &Caller::ArraysUp},        {"arrays down", &Caller::ArraysDown},
        {"arrays across", &Caller::ArraysAcross}};
    if (name == "arrays down, prepared") return true;  // a fetch leaves nothing behind
    if (name == "call") {
      Chain(count);
      return true;
    }
    const auto found = kOnce.find(name);
    if (found == kOnce.end()) return false;
    for (int i = 0; i < count; ++i) (this->*found->second)();
    return true;
  }

 private:
  ArrayHandle Call(gangway::ExecutableHandle executable, ArrayHandle x) {
    const ArrayHandle y = session_.client().NewArrayHandle();
    session_.client().Call(executable, std::array{x}, std::array{y});
    return y;
  }

  void Drop(std::span<const ArrayHandle> arrays) { session_.client().Drop(arrays); }

  void AwaitAndDrop(std::span<const ArrayHandle> arrays) {
    session_.Await(arrays);
    Drop(arrays);
  }

  void Chain(int count) {
    ArrayHandle x = Call(add_call_, x_);
    for (uint64_t i = 1; i < static_cast<uint64_t>(count); ++i) {
      const ArrayHandle y = Call(add_call_, x);
      Drop(std::array{x});
      x = y;
      if (i % gangway::bench::kAhead == 0) session_.Await(std::array{x});
    }
    AwaitAndDrop(std::array{x});
  }

  void CallAwaited() { AwaitAndDrop(std::array{Call(add_call_, x_)}); }

  void CallFetched() {
    const ArrayHandle y = Call(add_call_, x_);
    Check(session_.Fetch(std::array{y}, kCallFloats), 1);
    Drop(std::array{y});
  }

  void PutAwaited() { AwaitAndDrop(std::array{session_.Put(host_)}); }

  void PutThenCall() {
    const ArrayHandle x = session_.Put(host_);
    AwaitAndDrop(std::array{Call(add_put_, x)});
    Drop(std::array{x});
  }

  void ArraysUp() {
    Arrays arrays;
    for (const auto& leaf : leaves_) arrays.push_back(session_.Put(leaf));
    AwaitAndDrop(arrays);
  }

  void ArraysDown() { Check(session_.Fetch(tree_, kArrayFloats), kArrays - 1); }

  void ArraysAcross() {
    Arrays arrays;
    for (size_t i = 0; i < kArrays; ++i) arrays.push_back(session_.client().NewArrayHandle());
    session_.client().Copy(tree_, arrays, std::array{kAcross}, "");
    AwaitAndDrop(arrays);
  }

  static void Check(const std::vector<float>& values, float last) {
    if (values.back() == last) return;
    std::cerr << "fetched " << values.back() << " instead of " << last << "\n";
    std::exit(1);
  }

  gangway::bench::Session session_;
  const gangway::ExecutableHandle add_call_, add_put_;
  const ArrayHandle x_;
  const std::vector<float> host_ = std::vector<float>(kPutFloats, 0.0F);
  std::vector<std::vector<float>> leaves_;
  Arrays tree_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: launch_calls ADDRESS TOKEN\n";
    return 2;
  }
  const auto client = gangway::bench::Open(argv[1], argv[2], "launch_calls");
  Caller caller(*client);
  using gangway::bench::Ran;
  return gangway::bench::ServeClient([&caller](const std::string& name, int count) {
    bool is_case = false;
    const double seconds = gangway::bench::SecondsOf([&] { is_case = caller.Run(name, count); });
    return is_case ? std::optional<Ran>(Ran{seconds}) : std::nullopt;
  });
}
