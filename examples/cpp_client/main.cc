// A C++ program as a client of a cluster: it compiles a program of StableHLO text for the first two devices, runs it on
// each with its own part of the argument, and prints the results; then an error.
//
//   gangway up --devices 2 --detach
//   build/dev/examples/cpp_client unix:FOLDER/control.sock TOKEN
//
// FOLDER is the cluster's part of the state folder, where the file `token` holds TOKEN. For a cluster on other hosts:
// HOST:PORT TOKEN TLS_FOLDER.
#include <gangway/connect.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace {

constexpr int32_t kF32 = 11;  // number of the element type, as in XLA's PrimitiveType

constexpr char kSquare[] = R"(module @square {
  func.func public @main(%x: tensor<3xf32>) -> tensor<3xf32> {
    %y = stablehlo.multiply %x, %x : tensor<3xf32>
    return %y : tensor<3xf32>
  }
})";

// The status that a callback of the client tells, for the thread that waits for it. A promise and its future would do,
// too; with the client's own wait, this thread reads the answer itself, and no other thread has to wake it.
class Answer {
 public:
  explicit Answer(gangway::Client& client) : told_(std::make_shared<Told>(client.NewWait())) {}

  gangway::StatusCallback Callback() const {
    return [told = told_](const gangway::Status& status) {
      told->status = status;
      told->wait->End();
    };
  }

  // The library answers all that it is asked, or loses its session; the hour only bounds one wait.
  gangway::Status Wait() {
    while (!told_->wait->For(std::chrono::hours(1))) continue;
    return told_->status;
  }

 private:
  struct Told {
    explicit Told(std::shared_ptr<gangway::Wait> wait) : wait(std::move(wait)) {}
    const std::shared_ptr<gangway::Wait> wait;
    gangway::Status status;  // set before End
  };
  const std::shared_ptr<Told> told_;
};

[[noreturn]] void Fail(const std::string& what, const gangway::Status& status) {
  std::cerr << what << ": " << status.message() << "\n";
  std::exit(1);
}

gangway::ArrayHandle Put(gangway::Client& client, const std::vector<float>& values) {
  const gangway::ArrayHandle array = client.NewArrayHandle();
  const auto* const bytes = reinterpret_cast<const char*>(values.data());
  constexpr size_t kShardBytes = 3 * sizeof(float);
  const std::array<std::string_view, 2> shards = {
      std::string_view(bytes, kShardBytes), std::string_view(bytes + kShardBytes, kShardBytes)};
  client.Put(
      array,
      {.element_type = kF32, .shard_dims = {3}, .devices = {0, 1}, .shard_bytes = kShardBytes},
      shards);
  return array;
}

gangway::Result<std::vector<float>> Get(gangway::Client& client, gangway::ArrayHandle array) {
  std::vector<float> values(6);
  Answer done(client);
  client.Fetch(array, {0, 1},
               {.on_data =
                    [&values](size_t index, uint64_t offset, std::string_view data) {
                      auto* const to = reinterpret_cast<char*>(values.data() + 3 * index) + offset;
                      data.copy(to, data.size());
                    },
                .on_done = done.Callback()});
  if (gangway::Status status = done.Wait(); !status.ok()) return status;
  return values;
}

gangway::ExecutableHandle Compile(gangway::Client& client, const std::string& program) {
  Answer compiled(client);
  const gangway::ExecutableHandle executable =
      client.Compile(program, "mlir", "", {0, 1},
                     [done = compiled.Callback()](const auto& info) { done(info.status()); });
  if (gangway::Status status = compiled.Wait(); !status.ok()) Fail("compile", status);
  return executable;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "usage: cpp_client ADDRESS TOKEN [TLS_FOLDER]\n";
    return 2;
  }
  auto client = gangway::ConnectClient(
      {.address = argv[1], .token = argv[2], .tls = argc > 3 ? argv[3] : "", .name = "cpp_client"});
  if (!client.ok()) Fail("connect", client.status());
  gangway::Client& session = **client;
  std::cout << session.cluster().devices.size() << " devices of platform "
            << session.cluster().platform << "\n";

  const gangway::ExecutableHandle square = Compile(session, kSquare);
  const gangway::ArrayHandle x = Put(session, {1, 2, 3, 4, 5, 6});
  const gangway::ArrayHandle y = session.NewArrayHandle();
  session.Call(square, std::vector{x}, std::vector{y});
  const auto values = Get(session, y);
  if (!values.ok()) Fail("fetch", values.status());
  std::cout << "x * x =";
  for (float value : *values) std::cout << " " << value;
  std::cout << "\n";

  session.Delete(std::vector{x});
  const gangway::ArrayHandle z = session.NewArrayHandle();
  session.Call(square, std::vector{x}, std::vector{z});
  Answer spoiled(session);
  session.Await(std::vector{z}, spoiled.Callback());
  const gangway::Status status = spoiled.Wait();
  std::cout << "of a deleted array: " << status.message() << "\n";
  return status.ok() ? 1 : 0;
}
