// The C++ client of the rows of bench/launch.py about clusters of simulated workers, by the client library's public
// headers alone: calls of declared functions on all devices of the cluster.
//
//   simulated_calls ADDRESS TOKEN
//
// Commands and answers are those of commands.h; the cases are those of bench/launch_simulated.py. An answer with
// "refused" tells why the cluster does not have the program. One thread makes the calls; the library has its own.
// Another failure prints its status and ends the program with 1.
#include <gangway/connect.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "calls_session.h"

namespace {

using gangway::ArrayHandle;
using gangway::Client;
using gangway::ExecutableHandle;
using gangway::OperationId;
using gangway::Status;
using gangway::bench::Answer;

constexpr int kAwaited = 16;  // calls from one wait for a result to the next
constexpr std::chrono::milliseconds kAgain{5};
constexpr int kTriesMax = 6000;  // half a minute

// A word on each device, which goes to the next device if `communicates`.
std::string Program(size_t devices, bool communicates) {
  return "sim 1\nname step\npartitions " + std::to_string(devices) + "\npermute 0 1\n" +
         (communicates ? "" : "rounds 0\n") + "input 11 1\noutput 11 1\n";
}

class Caller {
 public:
  explicit Caller(Client& client) : client_(client) {
    for (const gangway::DeviceInfo& device : client.cluster().devices)
      devices_.push_back(device.id);
  }

  // Why the program was refused; empty: it was made `count` times. None: there is no such case.
  std::optional<std::string> Run(const std::string& name, int count) {
    if (name == "gang") return Gangs(false, count);
    if (name == "gang communicates") return Gangs(true, count);
    if (name == "arrays") return Hold(count);
    if (name == "again") return Again();
    return std::nullopt;
  }

 private:
  struct Step {
    std::optional<ExecutableHandle> executable;
    std::string refused;
    ArrayHandle last{};
  };

  Status AwaitAll(const std::vector<ArrayHandle>& arrays) {
    Answer ready(client_);
    client_.Await(arrays, ready.Callback());
    client_.SendNow();
    return ready.Wait();
  }

  // A word of its own on each device.
  ArrayHandle Put(const std::vector<uint32_t>& devices) {
    static const std::string word(4, 'x');
    const ArrayHandle array = client_.NewArrayHandle();
    const OperationId upload = client_.Upload(array, {.element_type = gangway::bench::kF32,
                                                      .shard_dims = {1},
                                                      .devices = devices,
                                                      .shard_bytes = word.size()});
    for (uint32_t shard = 0; shard < devices.size(); ++shard)
      client_.Push(upload, shard, word, [] {});
    return array;
  }

  // Compiles at the first use.
  Step& StepOf(bool communicates) {
    Step& step = steps_[communicates ? 1 : 0];
    if (step.executable || !step.refused.empty()) return step;
    Answer compiled(client_);
    const ExecutableHandle executable =
        client_.Compile(Program(devices_.size(), communicates), "sim", "", devices_,
                        [done = compiled.Callback()](const auto& info) { done(info.status()); });
    if (Status status = compiled.Wait(); !status.ok()) {
      step.refused = status.message();
    } else {
      step.executable = executable;
      step.last = Put(devices_);
    }
    return step;
  }

  void Next(Step& step) {
    const ArrayHandle next = client_.NewArrayHandle();
    client_.Call(*step.executable, std::array{step.last}, std::array{next});
    client_.Drop(std::array{step.last});
    step.last = next;
  }

  std::string Gangs(bool communicates, int count) {
    Step& step = StepOf(communicates);
    if (!step.refused.empty()) return step.refused;
    for (int i = 1; i <= count; ++i) {
      Next(step);
      if (i % kAwaited != 0 && i != count) continue;
      // A program that no worker can have is refused at its first call.
      if (Status status = AwaitAll({step.last}); !status.ok()) {
        step.refused = status.message();
        return step.refused;
      }
    }
    return "";
  }

  // Arrays of one shard, on all devices in turn, which stay.
  std::string Hold(int count) {
    std::vector<ArrayHandle> arrays;
    for (int i = 0; i < count; ++i)
      arrays.push_back(Put({devices_[static_cast<size_t>(i) % devices_.size()]}));
    if (Status status = AwaitAll(arrays); !status.ok()) gangway::bench::Fail("arrays", status);
    return "";
  }

  // A gang on all devices, from new arrays, as soon as it succeeds.
  std::string Again() {
    Step& step = StepOf(false);
    if (!step.refused.empty()) return step.refused;
    for (int tries = 0; tries < kTriesMax; ++tries) {
      client_.Drop(std::array{step.last});
      step.last = Put(devices_);
      Next(step);
      if (AwaitAll({step.last}).ok()) return "";
      std::this_thread::sleep_for(kAgain);
    }
    return "no gang succeeded after the loss";
  }

  Client& client_;
  std::vector<uint32_t> devices_;
  std::array<Step, 2> steps_;
};

std::unique_ptr<Client> Open(char** argv) {
  return gangway::bench::Open(argv[1], argv[2], "simulated_calls");
}

// Of a message in an answer.
std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return quoted + "\"";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: simulated_calls ADDRESS TOKEN\n";
    return 2;
  }
  const std::unique_ptr<Client> client = Open(argv);
  Caller caller(*client);
  return gangway::bench::ServeClient([&](const std::string& name, int count) {
    std::optional<std::string> refused = "";
    gangway::bench::Ran ran;
    ran.seconds = gangway::bench::SecondsOf([&] {
      if (name != "welcome") {
        refused = caller.Run(name, count);
        return;
      }
      for (int i = 0; i < count; ++i) Open(argv);
    });
    if (refused && !refused->empty()) ran.more = ", \"refused\": " + Quoted(*refused);
    return refused ? std::optional(ran) : std::nullopt;
  });
}
