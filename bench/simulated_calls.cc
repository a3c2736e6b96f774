// The C++ client of the rows of bench/launch.py about clusters of simulated workers, by the client library's public
// headers alone: calls of declared functions on all devices of the cluster.
//
//   simulated_calls ADDRESS TOKEN
//
// Commands and answers are those of spmd_client.py; the cases are those of bench/launch_simulated.py. An answer with
// "refused" tells why the cluster does not have the program. One thread makes the calls; the library has its own.
// Another failure prints its status and ends the program with 1.
#include <gangway/connect.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
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
using gangway::Status;

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

  // Why the program was refused; empty: it was made `count` times.
  std::string Run(const std::string& name, int count) {
    if (name == "gang") return Gangs(false, count);
    if (name == "gang communicates") return Gangs(true, count);
    if (name == "arrays") return Hold(count);
    if (name == "again") return Again();
    std::cerr << "not a case: " << name << "\n";
    std::exit(1);
  }

 private:
  struct Step {
    std::optional<ExecutableHandle> executable;
    std::string refused;
    ArrayHandle last = 0;
  };

  static Status Wait(std::promise<Status>& done) { return done.get_future().get(); }

  Status AwaitAll(const std::vector<ArrayHandle>& arrays) {
    std::promise<Status> ready;
    client_.Await(arrays, [&ready](const Status& status) { ready.set_value(status); });
    client_.SendNow();
    return Wait(ready);
  }

  // A word of its own on each device.
  ArrayHandle Put(const std::vector<uint32_t>& devices) {
    static const std::string word(4, 'x');
    const ArrayHandle array = client_.NewArrayHandle();
    const uint64_t upload = client_.Upload(array, {.element_type = gangway::bench::kF32,
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
    std::promise<Status> compiled;
    const ExecutableHandle executable =
        client_.Compile(Program(devices_.size(), communicates), "sim", "", devices_,
                        [&compiled](const auto& info) { compiled.set_value(info.status()); });
    if (Status status = Wait(compiled); !status.ok()) {
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
  auto client = gangway::Connect({.address = argv[1], .token = argv[2], .name = "simulated_calls"});
  if (!client.ok()) gangway::bench::Fail("connect", client.status());
  return *std::move(client);
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
  std::cout << "{\"ready\": true}" << std::endl;
  for (std::string name, count;
       std::getline(std::cin, name, '\t') && std::getline(std::cin, count);) {
    const auto began = std::chrono::steady_clock::now();
    std::string refused;
    if (name == "welcome") {
      for (int i = 0; i < std::atoi(count.c_str()); ++i) Open(argv);
    } else {
      refused = caller.Run(name, std::atoi(count.c_str()));
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    const std::string told = refused.empty() ? "" : ", \"refused\": " + Quoted(refused);
    std::printf("{\"seconds\": %.9f%s%s}\n", took.count(), told.c_str(),
                gangway::bench::TrafficMember().c_str());
    std::fflush(stdout);
  }
  return 0;
}
