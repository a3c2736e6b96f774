// Runs declared functions on all devices of a cluster of simulated workers (tests/test_simulated.py), by the client
// library's public headers alone.
//
//   simulated_client ADDRESS TOKEN DEVICES CASE...
//
// "silent": the shards stay where they are; "ring": each goes to the next device. Ends with 1 if the cluster has
// another number of devices, or a shard is another than it should be.
#include <gangway/connect.h>

#include <array>
#include <cstring>
#include <future>
#include <iostream>
#include <string>
#include <vector>

namespace {

using gangway::ArrayHandle;
using gangway::OperationId;
using gangway::Status;

constexpr int32_t kU32 = 8;  // number of the element type, as in XLA's PrimitiveType

[[noreturn]] void Fail(const std::string& what, const std::string& why) {
  std::cerr << what << ": " << why << "\n";
  std::exit(1);
}

void Expect(const std::string& what, std::promise<Status>& done) {
  const Status status = done.get_future().get();
  if (!status.ok()) Fail(what, status.message());
}

class Ring {
 public:
  Ring(gangway::Client& client, std::vector<uint32_t> devices)
      : client_(client), devices_(std::move(devices)) {
    for (uint32_t i = 0; i < devices_.size(); ++i) words_.push_back(1000 + i);
  }

  void Run(const std::string& name, bool moves) {
    const std::string program = "sim 1\nname " + name + "\npartitions " +
                                std::to_string(devices_.size()) + "\npermute 0 1\nrounds " +
                                (moves ? "1" : "0") + "\ninput 8 1\noutput 8 1\n";
    std::promise<Status> compiled;
    const auto executable =
        client_.Compile(program, "sim", "", devices_,
                        [&compiled](const auto& info) { compiled.set_value(info.status()); });
    Expect(name, compiled);
    const ArrayHandle before = Put(), after = client_.NewArrayHandle();
    client_.Call(executable, std::array{before}, std::array{after});
    const std::vector<uint32_t> got = Fetch(after);
    for (size_t i = 0; i < got.size(); ++i) {
      const size_t from = moves ? (i + got.size() - 1) % got.size() : i;
      if (got[i] != words_[from])
        Fail(name, "device " + std::to_string(i) + " has " + std::to_string(got[i]));
    }
  }

 private:
  ArrayHandle Put() {
    const ArrayHandle array = client_.NewArrayHandle();
    const OperationId upload = client_.Upload(
        array, {.element_type = kU32, .shard_dims = {1}, .devices = devices_, .shard_bytes = 4});
    for (uint32_t shard = 0; shard < devices_.size(); ++shard)
      client_.Push(upload, shard, {reinterpret_cast<const char*>(&words_[shard]), 4}, [] {});
    return array;
  }

  std::vector<uint32_t> Fetch(ArrayHandle array) {
    std::vector<uint32_t> shards(devices_.size()), words(devices_.size());
    for (uint32_t i = 0; i < shards.size(); ++i) shards[i] = i;
    std::promise<Status> done;
    client_.Fetch(array, shards,
                  {.on_data =
                       [&words](size_t index, uint64_t, std::string_view data) {
                         std::memcpy(&words[index], data.data(), data.size());
                       },
                   .on_done = [&done](const Status& status) { done.set_value(status); }});
    client_.SendNow();
    Expect("fetch", done);
    return words;
  }

  gangway::Client& client_;
  const std::vector<uint32_t> devices_;
  std::vector<uint32_t> words_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) Fail("usage", "simulated_client ADDRESS TOKEN DEVICES CASE...");
  auto client = gangway::ConnectClient({.address = argv[1], .token = argv[2], .name = "simulated"});
  if (!client.ok()) Fail("connect", client.status().message());
  std::vector<uint32_t> devices;
  for (const auto& device : (*client)->cluster().devices) devices.push_back(device.id);
  if (std::to_string(devices.size()) != argv[3])
    Fail("devices", std::to_string(devices.size()) + " of " + argv[3]);
  Ring ring(**client, devices);
  for (int i = 4; i < argc; ++i) ring.Run(argv[i], std::string(argv[i]) == "ring");
  return 0;
}
