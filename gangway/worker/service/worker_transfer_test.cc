// Tests transfers between real workers in this process, over the in-process transport and gRPC,
// with and without shared memory. The test plays their scheduler and their client.
#include <gmock/gmock.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <set>
#include <string>

#include "gangway/base/nightly_test_util.h"
#include "gangway/device/device.h"
#include "gangway/device/element_type.h"
#include "gangway/device/sim/sim_backend.h"
#include "gangway/transport/grpc/grpc.h"
#include "gangway/transport/recording_link_test_util.h"
#include "gangway/wire/failure.h"
#include "gangway/worker/service/memory/staging_memory.h"
#include "gangway/worker/service/transfer/shard_sender.h"
#include "gangway/worker/service/transfer/stream_transfers.h"
#include "gangway/worker/service/worker_test_util.h"

namespace gangway::worker {
namespace {

using ::testing::HasSubstr;

constexpr std::chrono::milliseconds kSilence{1500};
const std::string kToken = "the first half..the second half.";
constexpr size_t kSharedMin = 4;

// One worker with two simulated devices, ids 10 * number and 10 * number + 1.
class OneWorker {
 public:
  OneWorker(int number, transport::Transport* control, transport::Transport* data,
            std::string data_address, size_t shared_bytes_max,
            std::optional<uint64_t> staging_bytes)
      : number_(number), control_transport_(control), data_transport_(data) {
    std::string name = absl::StrCat("scheduler", number);
    listener_ = *control->Listen(name, [this](std::shared_ptr<transport::Link> link) {
      control_ = std::move(link);
      return control_inbox_.Events(&loop_);
    });
    auto sim = device::OpenSim({.device_count = 2});
    sim_ = sim.get();
    auto shared = std::make_shared<std::unique_ptr<device::Backend>>(std::move(sim));
    WorkerOptions options;
    options.scheduler_address = name;
    options.data_listen_address = std::move(data_address);
    options.index = static_cast<uint32_t>(number);
    options.device_count = 2;
    options.transfer_silence_max = kSilence;
    options.shared_bytes_max = shared_bytes_max;
    options.shared_shard_min = kSharedMin;
    options.host_bytes_max = staging_bytes;
    options.open_backend = [shared]() -> absl::StatusOr<std::unique_ptr<device::Backend>> {
      return std::move(*shared);
    };
    thread_ = std::thread([this, options] {
      (void)RunWorker(options, *control_transport_, *data_transport_, stop_);
    });
    EXPECT_TRUE(control_inbox_.Until([this](wire::Frame& frame) {
      if (frame.has_hello()) hello_ = frame.hello();
      return frame.has_hello();
    }));
    wire::Frame reply;
    reply.mutable_hello_reply()->set_epoch(9);
    reply.mutable_hello_reply()->set_data_key(kDataKey);
    EXPECT_TRUE(control_->Send(reply).ok());
    wire::IslandItem open;
    for (uint32_t device : devices()) open.mutable_open_devices()->add_devices(device);
    Item(open);
  }
  ~OneWorker() {
    Stop();
    data_.reset();
    control_.reset();
    listener_.reset();
    loop_.Stop();
  }

  void Stop() {
    stop_.Stop();
    if (thread_.joinable()) thread_.join();
  }
  std::vector<uint32_t> devices() const {
    auto first = static_cast<uint32_t>(10 * number_);
    return {first, first + 1};
  }
  std::string name() const { return absl::StrCat("island0/worker", number_); }
  const std::string& data_address() const { return hello_.worker().data_address(); }
  device::SimBackend* sim() { return sim_; }
  wire::Worker Describe() const {
    wire::Worker worker;
    worker.set_index(static_cast<uint32_t>(number_));
    worker.set_incarnation(hello_.worker().incarnation());
    worker.set_data_address(data_address());
    for (uint32_t device : devices()) worker.add_devices(device);
    return worker;
  }

  void Item(wire::IslandItem item) {
    wire::Frame frame;
    *frame.mutable_island_batch()->add_items() = std::move(item);
    EXPECT_TRUE(control_->Send(std::move(frame)).ok());
  }
  void Release(std::vector<uint64_t> ordinals) {
    wire::IslandItem item;
    item.mutable_release()->mutable_ordinals()->Add(ordinals.begin(), ordinals.end());
    Item(item);
  }
  void Cancel(uint64_t ordinal, const wire::Failure& failure) {
    wire::IslandItem item;
    item.mutable_cancel()->add_ordinals(ordinal);
    *item.mutable_cancel()->mutable_failure() = failure;
    Item(item);
  }
  void Free(std::vector<uint64_t> storages) {
    wire::IslandItem item;
    item.mutable_free()->mutable_storages()->Add(storages.begin(), storages.end());
    Item(item);
  }
  wire::Failure WaitDone(uint64_t ordinal) {
    EXPECT_TRUE(DoneWithin(ordinal, kPatience));
    return dones_[ordinal];
  }
  testing::AssertionResult DoneWithin(uint64_t ordinal, std::chrono::milliseconds limit) {
    return Watch([&] { return dones_.contains(ordinal); }, limit);
  }
  bool IsDone(uint64_t ordinal) const { return dones_.contains(ordinal); }
  wire::Usage Probe() {
    uint64_t probe = ++last_probe_;
    wire::IslandItem item;
    item.set_probe(probe);
    Item(item);
    EXPECT_TRUE(Watch([&] { return usage_.contains(probe); }, kPatience));
    return usage_[probe];
  }

  void OpenStream() {
    if (data_ != nullptr) return;
    auto link =
        data_transport_->Connect(data_address(), data_inbox_.Events(&data_loop_), kPatience);
    ASSERT_TRUE(link.ok()) << link.status();
    data_ = *std::move(link);
    wire::Frame frame;
    frame.mutable_hello()->set_protocol_version(wire::kProtocolVersion);
    frame.mutable_hello()->set_role(wire::ROLE_DATA);
    frame.mutable_hello()->set_session(kSession.number());
    frame.mutable_hello()->set_token(transport::DataToken(kDataKey, kSession));
    ASSERT_TRUE(data_->Send(std::move(frame)).ok());
  }
  void SendShard(uint64_t upload, uint32_t shard, const std::string& bytes) {
    wire::Frame frame;
    wire::Bulk& chunk = *frame.mutable_bulk();
    chunk.mutable_name()->set_session(kSession.number());
    chunk.mutable_name()->set_upload(upload);
    chunk.mutable_name()->set_shard(shard);
    chunk.mutable_bytes()->set_data(bytes);
    chunk.mutable_bytes()->set_last(true);
    ASSERT_TRUE(data_->Send(std::move(frame)).ok());
  }
  std::map<uint32_t, std::string> Fetched(uint64_t fetch, size_t count) {
    std::map<uint32_t, std::string> bytes;
    size_t complete = 0;
    EXPECT_TRUE(data_inbox_.Until([&](wire::Frame& frame) {
      const wire::Bulk& chunk = frame.bulk();
      if (!frame.has_bulk() || chunk.name().fetch() != fetch) return false;
      EXPECT_FALSE(chunk.has_failed()) << chunk.failed().message();
      bytes[chunk.name().shard()] += chunk.bytes().data();
      return chunk.bytes().last() && ++complete == count;
    }));
    return bytes;
  }

 private:
  testing::AssertionResult Watch(const std::function<bool()>& enough,
                                 std::chrono::milliseconds limit) {
    if (enough()) return testing::AssertionSuccess();
    const auto look = [&](wire::Frame& frame) {
      for (const wire::Report& report : frame.report_batch().reports()) {
        if (report.has_done()) {
          EXPECT_TRUE(dones_.emplace(report.done().ordinal(), report.done().failure()).second);
        }
        if (report.has_usage()) usage_[report.usage().probe()] = report.usage();
      }
      return enough();
    };
    return control_inbox_.Until(look, limit);
  }

  const int number_;
  transport::Transport* const control_transport_;
  transport::Transport* const data_transport_;
  device::SimBackend* sim_ = nullptr;
  EventLoop loop_{"test"};
  EventLoop data_loop_{"test-data"};
  Inbox control_inbox_;
  Inbox data_inbox_;
  std::unique_ptr<transport::Listener> listener_;
  std::shared_ptr<transport::Link> control_;
  std::shared_ptr<transport::Link> data_;
  StopFlag stop_;
  std::thread thread_;
  wire::Hello hello_;
  std::map<uint64_t, wire::Failure> dones_;
  std::map<uint64_t, wire::Usage> usage_;
  uint64_t last_probe_ = 0;
};

enum class Medium { kInproc, kGrpc, kShared, kSharedGrpc };

class TransferTest : public testing::TestWithParam<Medium> {
 protected:
  void SetUp() override {
    if (GetParam() == Medium::kGrpc || GetParam() == Medium::kSharedGrpc) {
      auto grpc = transport::NewGrpcTransport();
      ASSERT_TRUE(grpc.ok()) << grpc.status();
      grpc_ = *std::move(grpc);
    }
    for (int i = 0; i < 3; ++i) AddWorker(shared() ? size_t{1} << 30 : 0);
  }
  void AddWorker(size_t shared_bytes_max, std::optional<uint64_t> staging_bytes = std::nullopt) {
    const int number = static_cast<int>(workers_.size());
    workers_.push_back(std::make_unique<OneWorker>(
        number, hub_.get(), data(), grpc_ ? "127.0.0.1:0" : absl::StrCat("data", number),
        shared_bytes_max, staging_bytes));
  }
  bool shared() const { return GetParam() == Medium::kShared || GetParam() == Medium::kSharedGrpc; }
  transport::Transport* data() { return grpc_ ? grpc_.get() : hub_.get(); }
  OneWorker& worker(int i) { return *workers_.at(i); }

  static wire::ArraySpec Spec(const std::vector<uint32_t>& devices, size_t bytes) {
    wire::ArraySpec spec;
    spec.set_element_type(6);  // U8
    spec.add_shard_dims(static_cast<int64_t>(bytes));
    spec.set_shard_bytes(bytes);
    spec.mutable_devices()->Add(devices.begin(), devices.end());
    return spec;
  }
  static void Refer(wire::ArrayRef* ref, uint64_t storage, size_t count) {
    ref->add_runs()->set_storage(storage);
    ref->mutable_runs(0)->set_count(static_cast<uint32_t>(count));
  }
  static wire::IslandItem NodeItem(uint64_t ordinal) {
    wire::IslandItem item;
    item.mutable_node()->set_ordinal(ordinal);
    item.mutable_node()->set_session(kSession.number());
    return item;
  }
  static std::string Bytes(size_t size, int seed) {
    std::string bytes(size, '\0');
    uint32_t state = static_cast<uint32_t>(seed) * 2654435761u + 1;
    for (char& c : bytes) c = static_cast<char>((state = state * 1664525u + 1013904223u) >> 24);
    return bytes;
  }

  // Declares an array on both devices of a worker; the test sends its bytes later.
  void Declare(int at, uint64_t ordinal, uint64_t storage, size_t bytes) {
    wire::IslandItem item = NodeItem(ordinal);
    wire::Upload& upload = *item.mutable_node()->mutable_upload();
    upload.set_storage(storage);
    upload.set_upload(ordinal);
    *upload.mutable_spec() = Spec(worker(at).devices(), bytes);
    worker(at).Item(item);
    worker(at).Release({ordinal});
  }
  void Supply(int at, uint64_t ordinal, size_t bytes, int seed) {
    for (uint32_t shard : {0, 1})
      worker(at).SendShard(ordinal, shard, Bytes(bytes, seed + static_cast<int>(shard)));
  }
  void Have(int at, uint64_t ordinal, uint64_t storage, size_t bytes, int seed) {
    worker(at).OpenStream();
    Declare(at, ordinal, storage, bytes);
    Supply(at, ordinal, bytes, seed);
    ASSERT_EQ(worker(at).WaitDone(ordinal).code(), 0);
  }
  // One array of a copy, of two shards.
  struct Copied {
    uint64_t source = 0;
    uint64_t result = 0;
    size_t bytes = 0;
  };
  wire::IslandItem CopyItem(uint64_t ordinal, int from, int to, const std::vector<Copied>& arrays,
                            const std::string& token = kToken) {
    wire::IslandItem item = NodeItem(ordinal);
    wire::Copy& copy = *item.mutable_node()->mutable_copy();
    for (uint32_t device : worker(from).devices()) copy.add_source_devices(device);
    for (uint32_t device : worker(to).devices()) copy.add_devices(device);
    for (const Copied& each : arrays) {
      wire::CopiedArray& array = *copy.add_arrays();
      Refer(array.mutable_source(), each.source, 2);
      array.set_storage(each.result);
      const wire::ArraySpec spec = Spec({}, each.bytes);
      array.mutable_spec()->set_element_type(spec.element_type());
      *array.mutable_spec()->mutable_shard_dims() = spec.shard_dims();
      array.mutable_spec()->set_shard_bytes(each.bytes);
    }
    copy.set_token(token);
    return item;
  }
  // Sends both halves of a copy; neither is released.
  void CopyMany(uint64_t ordinal, int from, int to, const std::vector<Copied>& arrays,
                const std::string& token = kToken) {
    const wire::IslandItem item = CopyItem(ordinal, from, to, arrays, token);
    worker(from).Item(item);
    worker(to).Item(item);
  }
  void Copy(uint64_t ordinal, int from, uint64_t source, int to, uint64_t result, size_t bytes,
            const std::string& token = kToken) {
    CopyMany(ordinal, from, to, {{source, result, bytes}}, token);
  }
  void ReleaseReceiver(uint64_t ordinal, int to, const wire::Worker& from) {
    wire::IslandItem item;
    *item.mutable_peers()->add_workers() = from;
    worker(to).Item(item);
    worker(to).Release({ordinal});
  }
  void ExpectContents(int at, uint64_t ordinal, uint64_t storage, size_t bytes, int seed) {
    wire::IslandItem item = NodeItem(ordinal);
    wire::Fetch& fetch = *item.mutable_node()->mutable_fetch();
    Refer(fetch.mutable_source(), storage, 2);
    for (uint32_t device : worker(at).devices()) fetch.add_devices(device);
    fetch.set_fetch(ordinal);
    worker(at).Item(item);
    worker(at).Release({ordinal});
    std::map<uint32_t, std::string> got = worker(at).Fetched(ordinal, 2);
    EXPECT_TRUE(got[0] == Bytes(bytes, seed)) << bytes << " bytes of shard 0 differ";
    EXPECT_TRUE(got[1] == Bytes(bytes, seed + 1)) << bytes << " bytes of shard 1 differ";
  }
  void ExpectNothingLeft(int at) {
    wire::Usage usage = worker(at).Probe();
    EXPECT_EQ(usage.nodes(), 0u);
    EXPECT_EQ(usage.storages(), 0u);
    for (const wire::DeviceUsage& device : usage.devices()) EXPECT_EQ(device.bytes(), 0u);
  }

  // A stream to a worker's data port, as one worker opens it to another.
  std::shared_ptr<transport::Link> Stranger(
      int to, Inbox& inbox, EventLoop& loop,
      const std::string& token = transport::DataToken(kDataKey, kPeerSession)) {
    auto link = data()->Connect(worker(to).data_address(), inbox.Events(&loop), kPatience);
    EXPECT_TRUE(link.ok()) << link.status();
    wire::Frame frame;
    frame.mutable_hello()->set_protocol_version(wire::kProtocolVersion);
    frame.mutable_hello()->set_role(wire::ROLE_PEER);
    frame.mutable_hello()->set_name("island9/worker9");
    frame.mutable_hello()->set_token(token);
    EXPECT_TRUE((*link)->Send(std::move(frame)).ok());
    EXPECT_TRUE(inbox.Until([](wire::Frame& f) { return f.has_hello_reply(); }));
    return *std::move(link);
  }

  // A worker's data port that the test serves itself.
  struct Served {
    ~Served() {
      listener.reset();
      loop.Stop();
    }
    Inbox inbox;
    EventLoop loop{"served"};
    std::shared_ptr<transport::Link> link;  // the last one that was accepted
    std::unique_ptr<transport::Listener> listener;
  };
  std::unique_ptr<Served> Serve() {
    auto served = std::make_unique<Served>();
    auto listener = data()->Listen(grpc_ ? "127.0.0.1:0" : "served",
                                   [raw = served.get()](std::shared_ptr<transport::Link> accepted) {
                                     raw->link = std::move(accepted);
                                     return raw->inbox.Events(&raw->loop);
                                   });
    EXPECT_TRUE(listener.ok()) << listener.status();
    served->listener = *std::move(listener);
    return served;
  }

  std::unique_ptr<transport::Transport> hub_ = transport::NewInprocTransport();
  std::unique_ptr<transport::Transport> grpc_;
  std::vector<std::unique_ptr<OneWorker>> workers_;
};

std::string NameOf(const testing::TestParamInfo<Medium>& medium) {
  constexpr const char* kNames[] = {"Inproc", "Grpc", "Shared", "SharedGrpc"};
  return kNames[static_cast<int>(medium.param)];
}

INSTANTIATE_TEST_SUITE_P(Media, TransferTest,
                         testing::Values(Medium::kInproc, Medium::kGrpc, Medium::kShared,
                                         Medium::kSharedGrpc),
                         NameOf);

TEST_P(TransferTest, ShardsArriveBitwiseWhateverTheirSizeAndBytesAreCounted) {
  worker(1).OpenStream();
  uint64_t next = 1;
  uint64_t total = 0, large = 0;
  for (size_t bytes : {size_t{0}, size_t{1}, size_t{1} << 20, (size_t{5} << 20) + 3}) {
    const uint64_t n = next;
    next += 10;
    Have(0, n, n, bytes, static_cast<int>(n));
    Copy(n + 1, 0, n, 1, n + 1, bytes);
    worker(0).Release({n + 1});
    ReleaseReceiver(n + 1, 1, worker(0).Describe());
    EXPECT_EQ(worker(1).WaitDone(n + 1).code(), 0);
    EXPECT_EQ(worker(0).WaitDone(n + 1).code(), 0);
    ExpectContents(1, n + 2, n + 1, bytes, static_cast<int>(n));
    total += 2 * bytes;
    large += bytes < kSharedMin ? 0 : 2 * bytes;
    worker(0).Free({n});
    worker(1).Free({n + 1});
  }
  wire::DataBytes sent = worker(0).Probe().data(), received = worker(1).Probe().data();
  EXPECT_EQ(sent.to_workers(), total);
  EXPECT_EQ(received.from_workers(), total);
  EXPECT_EQ(sent.to_workers_shared(), shared() ? large : 0u);
  EXPECT_EQ(received.from_workers_shared(), shared() ? large : 0u);
  EXPECT_EQ(sent.from_workers() + received.to_workers() + sent.to_clients(), 0u);
  EXPECT_EQ(sent.from_clients(), total);
  EXPECT_EQ(received.to_clients(), total);
  ExpectNothingLeft(0);
  ExpectNothingLeft(1);
}

TEST_P(TransferTest, ArraysOfOneCopyArriveBitwiseAndAreFreedOneByOne_OB1) {
  const std::vector<size_t> sizes = {3, 0, 70'000, 1, (size_t{2} << 20) + 3, 1000, 70'000, 2};
  worker(1).OpenStream();
  std::vector<Copied> arrays;
  size_t total = 0, large = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    Have(0, i + 1, i + 1, sizes[i], static_cast<int>(10 * i));
    arrays.push_back({i + 1, 100 + i, sizes[i]});
    total += 2 * sizes[i];
    large += sizes[i] < kSharedMin ? 0 : 2 * sizes[i];
  }
  CopyMany(50, 0, 1, arrays);
  worker(0).Release({50});
  ReleaseReceiver(50, 1, worker(0).Describe());
  EXPECT_EQ(worker(1).WaitDone(50).code(), 0);
  EXPECT_EQ(worker(0).WaitDone(50).code(), 0);
  for (size_t i = 0; i < sizes.size(); ++i) {
    ExpectContents(1, 200 + i, 100 + i, sizes[i], static_cast<int>(10 * i));
    EXPECT_EQ(worker(1).WaitDone(200 + i).code(), 0);
  }
  EXPECT_EQ(worker(1).Probe().data().from_workers(), total);
  EXPECT_EQ(worker(1).Probe().data().from_workers_shared(), shared() ? large : 0u);
  uint64_t held = total;
  for (size_t i = 0; i < sizes.size(); ++i) {
    worker(1).Free({100 + i});
    worker(0).Free({i + 1});
    held -= 2 * sizes[i];
    uint64_t bytes = 0;
    const wire::Usage usage = worker(1).Probe();
    for (const wire::DeviceUsage& device : usage.devices()) bytes += device.bytes();
    EXPECT_EQ(bytes, held);
  }
  ExpectNothingLeft(0);
  ExpectNothingLeft(1);
}

// Its other arrays are there, and do not arrive either.
TEST_P(TransferTest, ASpoiledArraySpoilsItsCopyAsAWhole_ER1) {
  Have(0, 1, 1, 1000, 1);
  Declare(0, 3, 3, 1000);
  CopyMany(5, 0, 1, {{1, 11, 1000}, {3, 13, 1000}, {1, 12, 1000}});
  worker(0).Release({5});
  ReleaseReceiver(5, 1, worker(0).Describe());
  worker(0).Cancel(3, wire::MakeFailure(absl::StatusCode::kDeadlineExceeded, "no bytes came"));
  const wire::Failure sender = worker(0).WaitDone(5);
  EXPECT_EQ(sender.message(), "no bytes came");
  EXPECT_FALSE(worker(1).IsDone(5));
  worker(1).Cancel(5, sender);
  EXPECT_EQ(worker(1).WaitDone(5).message(), "no bytes came");
  worker(0).Free({1, 3});
  worker(1).Free({11, 12, 13});
  ExpectNothingLeft(0);
  ExpectNothingLeft(1);
}

// The batch does not fit into the host memory of either.
TEST_P(TransferTest, WorkersThatExchangeShardsAndCannotSendThemDoNotWaitForOneAnother_ER2) {
  for (int i = 0; i < 2; ++i) AddWorker(shared() ? size_t{1} << 30 : 0, /*staging_bytes=*/8);
  const uint32_t left = worker(3).devices()[0], right = worker(4).devices()[0];
  for (int at : {3, 4}) worker(at).OpenStream();
  wire::IslandItem copy = NodeItem(10);
  for (uint64_t n : {1, 2, 3}) {
    wire::IslandItem item = NodeItem(n);
    item.mutable_node()->mutable_upload()->set_storage(n);
    item.mutable_node()->mutable_upload()->set_upload(n);
    *item.mutable_node()->mutable_upload()->mutable_spec() = Spec({left, right}, 3);
    for (int at : {3, 4}) {
      worker(at).Item(item);
      worker(at).Release({n});
      worker(at).SendShard(n, static_cast<uint32_t>(at - 3), "abc");
      ASSERT_EQ(worker(at).WaitDone(n).code(), 0);
    }
    wire::CopiedArray& array = *copy.mutable_node()->mutable_copy()->add_arrays();
    Refer(array.mutable_source(), n, 2);
    array.set_storage(10 + n);
    array.mutable_spec()->set_element_type(6);
    array.mutable_spec()->add_shard_dims(3);
    array.mutable_spec()->set_shard_bytes(3);
  }
  for (uint32_t device : {left, right})
    copy.mutable_node()->mutable_copy()->add_source_devices(device);
  for (uint32_t device : {right, left}) copy.mutable_node()->mutable_copy()->add_devices(device);
  copy.mutable_node()->mutable_copy()->set_token(kToken);
  for (int at : {3, 4}) worker(at).Item(copy);
  ReleaseReceiver(10, 3, worker(4).Describe());
  ReleaseReceiver(10, 4, worker(3).Describe());
  int first = 3;  // that ends; the scheduler then ends the other one's wait
  for (int i = 0; i < 200 && !worker(first).DoneWithin(10, std::chrono::milliseconds(50)); ++i)
    first = 7 - first;
  const wire::Failure failure = worker(first).WaitDone(10);
  EXPECT_EQ(failure.code(), static_cast<int>(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(failure.message(), HasSubstr("no host memory for 9 bytes"));
  worker(7 - first).Cancel(10, failure);
  for (int at : {3, 4}) {
    EXPECT_EQ(worker(at).WaitDone(10).message(), failure.message());
    worker(at).Free({1, 2, 3, 11, 12, 13});
    ExpectNothingLeft(at);
  }
}

// The receiver asks before the sender knows the node, and before the array exists.
TEST_P(TransferTest, ARequestMayComeBeforeItsShard) {
  worker(0).OpenStream();
  worker(1).OpenStream();
  const wire::IslandItem item = CopyItem(2, 0, 1, {{1, 2, 1000}});
  worker(1).Item(item);
  ReleaseReceiver(2, 1, worker(0).Describe());
  worker(1).Probe();
  Declare(0, 1, 1, 1000);
  worker(0).Item(item);
  worker(0).Release({2});
  worker(0).Probe();
  EXPECT_FALSE(worker(1).IsDone(2));
  Supply(0, 1, 1000, 5);
  EXPECT_EQ(worker(1).WaitDone(2).code(), 0);
  EXPECT_EQ(worker(0).WaitDone(2).code(), 0);
  ExpectContents(1, 3, 2, 1000, 5);
}

TEST_P(TransferTest, AChainOfHopsRunsWithoutAnybodyWaiting_DF2) {
  for (int i = 0; i < 3; ++i) worker(i).OpenStream();
  Declare(0, 1, 1, 70000);
  Copy(2, 0, 1, 1, 2, 70000);
  Copy(3, 1, 2, 2, 3, 70000);
  Copy(4, 2, 3, 0, 4, 70000);
  worker(0).Release({2});
  ReleaseReceiver(2, 1, worker(0).Describe());
  worker(1).Release({3});
  ReleaseReceiver(3, 2, worker(1).Describe());
  worker(2).Release({4});
  ReleaseReceiver(4, 0, worker(2).Describe());
  Supply(0, 1, 70000, 9);
  for (int i = 0; i < 3; ++i) {
    for (uint64_t ordinal : {2, 3, 4}) {
      bool takes_part =
          (ordinal == 2 && i != 2) || (ordinal == 3 && i != 0) || (ordinal == 4 && i != 1);
      if (takes_part) {
        EXPECT_EQ(worker(i).WaitDone(ordinal).code(), 0) << ordinal;
      }
    }
  }
  ExpectContents(0, 5, 4, 70000, 9);
}

TEST_P(TransferTest, ManyAtOnceInBothDirections) {
  Have(0, 1, 1, 300000, 1);
  Have(1, 2, 2, 300000, 3);
  constexpr uint64_t kCount = 40;
  for (uint64_t i = 0; i < kCount; ++i) {
    Copy(100 + i, 0, 1, 1, 100 + i, 300000);
    Copy(200 + i, 1, 2, 0, 200 + i, 300000);
  }
  for (uint64_t i = 0; i < kCount; ++i) {
    worker(0).Release({100 + i});
    ReleaseReceiver(100 + i, 1, worker(0).Describe());
    worker(1).Release({200 + i});
    ReleaseReceiver(200 + i, 0, worker(1).Describe());
  }
  for (uint64_t i = 0; i < kCount; ++i) {
    for (int at : {0, 1}) {
      EXPECT_EQ(worker(at).WaitDone(100 + i).code(), 0);
      EXPECT_EQ(worker(at).WaitDone(200 + i).code(), 0);
    }
  }
  ExpectContents(1, 500, 100 + kCount - 1, 300000, 1);
  ExpectContents(0, 501, 200 + kCount - 1, 300000, 3);
  EXPECT_EQ(worker(0).Probe().data().to_workers(), kCount * 2 * 300000);
}

// Like the scheduler, the test ends the receiver's wait with the sender's record.
TEST_P(TransferTest, ASpoiledSourceIsTheRecordOnBothSides_ER1) {
  worker(0).OpenStream();
  Declare(0, 1, 1, 1000);
  Copy(2, 0, 1, 1, 2, 1000);
  worker(0).Release({2});
  ReleaseReceiver(2, 1, worker(0).Describe());
  wire::Failure root = wire::MakeFailure(absl::StatusCode::kDeadlineExceeded, "the client sleeps");
  root.set_worker("island0/worker0");
  root.set_gang(1);
  worker(0).Cancel(1, root);
  EXPECT_EQ(worker(0).WaitDone(1).SerializeAsString(), root.SerializeAsString());
  wire::Failure sender = worker(0).WaitDone(2);
  EXPECT_EQ(sender.SerializeAsString(), root.SerializeAsString());
  worker(1).Cancel(2, sender);
  EXPECT_EQ(worker(1).WaitDone(2).SerializeAsString(), root.SerializeAsString());
  worker(0).Free({1});
  worker(1).Free({2});
  ExpectNothingLeft(0);
  ExpectNothingLeft(1);
}

TEST_P(TransferTest, ASenderThatDiesIsNamed_ER1) {
  worker(0).OpenStream();
  Declare(0, 1, 1, 1000);
  Copy(2, 0, 1, 1, 2, 1000);
  worker(0).Release({2});
  const wire::Worker sender = worker(0).Describe();
  ReleaseReceiver(2, 1, sender);
  worker(0).Probe();
  worker(1).Probe();
  worker(0).Stop();
  wire::Failure failure = worker(1).WaitDone(2);
  EXPECT_EQ(failure.code(), static_cast<int>(absl::StatusCode::kDataLoss));
  EXPECT_EQ(failure.worker(), "island0/worker0");
  EXPECT_EQ(failure.incarnation(), sender.incarnation());
  EXPECT_EQ(failure.gang(), 2u);
  worker(1).Free({2});
  ExpectNothingLeft(1);
  // A sender that was gone before the first request.
  Copy(3, 2, 1, 1, 3, 1000);
  ReleaseReceiver(3, 1, sender);
  EXPECT_EQ(worker(1).WaitDone(3).code(), static_cast<int>(absl::StatusCode::kDataLoss));
}

TEST_P(TransferTest, AReceiverThatDiesIsNamed_ER1) {
  worker(0).OpenStream();
  Declare(0, 1, 1, 1000);
  Copy(2, 0, 1, 1, 2, 1000);
  worker(0).Release({2});
  ReleaseReceiver(2, 1, worker(0).Describe());
  Copy(3, 0, 1, 2, 3, 1000);  // another copy goes on
  worker(0).Release({3});
  ReleaseReceiver(3, 2, worker(0).Describe());
  Have(0, 10, 10, 8, 1);  // follows the request for 2 on the same stream
  Copy(11, 0, 10, 1, 11, 8);
  worker(0).Release({11});
  ReleaseReceiver(11, 1, worker(0).Describe());
  EXPECT_EQ(worker(1).WaitDone(11).code(), 0);
  worker(1).Stop();
  Supply(0, 1, 1000, 4);  // the verdict waits for the source, which may be the cause
  wire::Failure failure = worker(0).WaitDone(2);
  EXPECT_EQ(failure.code(), static_cast<int>(absl::StatusCode::kDataLoss));
  EXPECT_EQ(failure.worker(), "island0/worker1");
  EXPECT_EQ(worker(2).WaitDone(3).code(), 0);
  EXPECT_EQ(worker(0).WaitDone(3).code(), 0);
}

TEST_P(TransferTest, OnlyTheClustersWorkersMayOpenAStream) {
  for (const std::string& token :
       {std::string(), std::string("a guess"), transport::DataToken(kDataKey, kSession)}) {
    Inbox inbox;
    EventLoop loop("stranger");
    auto link = Stranger(0, inbox, loop, token);
    EXPECT_TRUE(inbox.WaitClosed());
    loop.Stop();
  }
}

// Not even a worker may, without the token of the copy.
TEST_P(TransferTest, AStrangerCanNeitherReadNorDisturb) {
  Have(0, 1, 1, 1000, 1);
  worker(1).OpenStream();
  Inbox before_inbox, after_inbox;
  EventLoop loop("stranger");
  auto ask = [](transport::Link& link, const std::string& token) {
    wire::Frame frame;
    frame.mutable_bulk()->mutable_name()->set_transfer(2);
    frame.mutable_bulk()->mutable_request()->set_token(token);
    EXPECT_TRUE(link.Send(std::move(frame)).ok());
  };
  auto before = Stranger(0, before_inbox, loop);  // asks before the shard is offered
  ask(*before, "a guess.........");
  Copy(2, 0, 1, 1, 2, 1000);
  worker(0).Release({2});
  worker(0).Probe();
  auto after = Stranger(0, after_inbox, loop);
  ask(*after, "");
  EXPECT_TRUE(before_inbox.WaitClosed());
  EXPECT_TRUE(after_inbox.WaitClosed());
  ReleaseReceiver(2, 1, worker(0).Describe());
  EXPECT_EQ(worker(1).WaitDone(2).code(), 0);
  EXPECT_EQ(worker(0).WaitDone(2).code(), 0);  // its count of sent bytes is final
  ExpectContents(1, 3, 2, 1000, 1);
  EXPECT_EQ(worker(0).Probe().data().to_workers(), 2000u);
  loop.Stop();
}

// Another process may listen at the address of a dead worker.
TEST_P(TransferTest, BytesOfAnImpostorAreNotTaken) {
  const auto served = Serve();
  auto greet = [&] {
    EXPECT_TRUE(served->inbox.Until([](wire::Frame& frame) { return frame.has_hello(); }));
    wire::Frame reply;
    reply.mutable_hello_reply();
    EXPECT_TRUE(served->link->Send(std::move(reply)).ok());
  };
  wire::Worker impostor = worker(0).Describe();
  impostor.set_data_address(served->listener->address());
  Copy(2, 0, 1, 1, 2, 4);
  ReleaseReceiver(2, 1, impostor);
  greet();
  wire::Bulk request;
  EXPECT_TRUE(served->inbox.Until([&](wire::Frame& frame) {
    if (frame.bulk().has_request()) request = frame.bulk();
    return frame.bulk().has_request();
  }));
  wire::Frame frame;
  wire::Bulk& chunk = *frame.mutable_bulk();
  chunk.mutable_name()->set_transfer(2);
  chunk.mutable_name()->set_shard(request.name().shard());
  chunk.mutable_bytes()->set_data("lies");
  chunk.mutable_bytes()->set_last(true);
  chunk.mutable_bytes()->set_proof(request.request().token());
  EXPECT_TRUE(served->link->Send(std::move(frame)).ok());
  wire::Failure failure = worker(1).WaitDone(2);
  EXPECT_EQ(failure.code(), static_cast<int>(absl::StatusCode::kDataLoss));
  EXPECT_THAT(failure.message(), HasSubstr("not the worker"));
}

// A stream has the limit of silence, whatever it carries: so each kind of link is tested once, and with each kind of
// memory in the nightly run.
std::vector<Medium> MediaOfSilence() {
  std::vector<Medium> media = {Medium::kInproc, Medium::kSharedGrpc};
  if (IsNightly()) media.insert(media.end(), {Medium::kGrpc, Medium::kShared});
  return media;
}
using SilenceTest = TransferTest;
INSTANTIATE_TEST_SUITE_P(Media, SilenceTest, testing::ValuesIn(MediaOfSilence()), NameOf);

TEST_P(SilenceTest, ASilentPeerIsADeadline_TM1) {
  const auto served = Serve();
  wire::Worker silent = worker(0).Describe();
  silent.set_data_address(served->listener->address());
  Copy(2, 0, 1, 1, 2, 4);
  ReleaseReceiver(2, 1, silent);
  wire::Failure failure = worker(1).WaitDone(2);
  EXPECT_EQ(failure.code(), static_cast<int>(absl::StatusCode::kDataLoss));
  EXPECT_EQ(failure.worker(), "island0/worker0");
  EXPECT_THAT(failure.message(), HasSubstr("silent"));
}

// A live sender sends heartbeats for as long as it waits for its own source.
TEST_P(SilenceTest, ASlowSourceIsNoSilence_TM1) {
  worker(0).OpenStream();
  worker(1).OpenStream();
  Declare(0, 1, 1, 1000);
  Copy(2, 0, 1, 1, 2, 1000);
  worker(0).Release({2});
  ReleaseReceiver(2, 1, worker(0).Describe());
  EXPECT_FALSE(worker(1).DoneWithin(2, 2 * kSilence));
  Supply(0, 1, 1000, 2);
  EXPECT_EQ(worker(1).WaitDone(2).code(), 0);
  ExpectContents(1, 3, 2, 1000, 2);
}

TEST_P(TransferTest, ACancelEndsBothHalves_ER2) {
  worker(0).OpenStream();
  Declare(0, 1, 1, 1000);
  Copy(2, 0, 1, 1, 2, 1000);
  worker(0).Release({2});
  ReleaseReceiver(2, 1, worker(0).Describe());
  const wire::Failure why = wire::MakeFailure(absl::StatusCode::kCancelled, "no longer wanted");
  worker(1).Cancel(2, why);
  EXPECT_EQ(worker(1).WaitDone(2).message(), "no longer wanted");
  worker(0).Cancel(2, why);
  Supply(0, 1, 1000, 2);
  EXPECT_EQ(worker(0).WaitDone(2).message(), "no longer wanted");
  EXPECT_EQ(worker(0).WaitDone(1).code(), 0);
  worker(0).Free({1});
  worker(1).Free({2});
  ExpectNothingLeft(0);
  ExpectNothingLeft(1);
}

// The sender may keep it for a shard that it never offers.
TEST_P(TransferTest, ACancelledRequestIsDropped) {
  const auto served = Serve();
  wire::Worker sender = worker(0).Describe();
  sender.set_data_address(served->listener->address());
  Copy(2, 0, 1, 1, 2, 4);
  ReleaseReceiver(2, 1, sender);
  EXPECT_TRUE(served->inbox.Until([](wire::Frame& frame) { return frame.has_hello(); }));
  wire::Frame reply;
  reply.mutable_hello_reply();
  EXPECT_TRUE(served->link->Send(std::move(reply)).ok());
  std::set<uint32_t> requested, dropped;
  EXPECT_TRUE(served->inbox.Until([&](wire::Frame& frame) {
    if (frame.bulk().has_request()) requested.insert(frame.bulk().name().shard());
    return requested.size() == 2;
  }));
  worker(1).Cancel(2, wire::MakeFailure(absl::StatusCode::kCancelled, "no longer wanted"));
  EXPECT_TRUE(served->inbox.Until([&](wire::Frame& frame) {
    if (!frame.bulk().has_dropped()) return false;
    EXPECT_EQ(frame.bulk().name().transfer(), 2u);
    dropped.insert(frame.bulk().name().shard());
    return dropped.size() == 2;
  }));
  EXPECT_EQ(worker(1).WaitDone(2).message(), "no longer wanted");
}

// The first of two shards has no sender any more, and the second one's sender never answers.
TEST_P(TransferTest, AFailureBeforeARequestEndsItAtOnce_ER2) {
  const auto served = Serve();
  wire::Worker sender = worker(0).Describe();
  sender.set_data_address(served->listener->address());
  sender.clear_devices();
  sender.add_devices(worker(0).devices()[1]);
  Copy(2, 0, 1, 1, 2, 4);
  const auto begun = Clock::now();
  ReleaseReceiver(2, 1, sender);
  EXPECT_EQ(worker(1).WaitDone(2).code(), static_cast<int>(absl::StatusCode::kDataLoss));
  EXPECT_LT(Clock::now() - begun, std::chrono::seconds(1));
}

class SharedTransferTest : public TransferTest {
 protected:
  // Copies one array from worker `from` to worker `to`, and checks its contents.
  void Move(int from, uint64_t source, int to, uint64_t ordinal, size_t bytes, int seed) {
    Copy(ordinal, from, source, to, ordinal, bytes);
    worker(from).Release({ordinal});
    ReleaseReceiver(ordinal, to, worker(from).Describe());
    EXPECT_EQ(worker(to).WaitDone(ordinal).code(), 0);
    EXPECT_EQ(worker(from).WaitDone(ordinal).code(), 0);
    ExpectContents(to, ordinal + 1, ordinal, bytes, seed);
    EXPECT_EQ(worker(to).WaitDone(ordinal + 1).code(), 0);
  }
};

INSTANTIATE_TEST_SUITE_P(Media, SharedTransferTest, testing::Values(Medium::kSharedGrpc), NameOf);

// Bytes of shared memory that this process maps.
size_t MappedSharedBytes() {
  std::ifstream maps("/proc/self/maps");
  size_t total = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("gangway-shards") == std::string::npos) continue;
    size_t first = 0, last = 0;
    if (sscanf(line.c_str(), "%zx-%zx", &first, &last) == 2) total += last - first;
  }
  return total;
}

TEST_P(SharedTransferTest, TheSamePagesAreUsedAgain) {
  constexpr size_t kBytes = size_t{20} << 20, kTimes = 8;
  worker(1).OpenStream();
  Have(0, 1, 1, kBytes, 7);
  size_t after_first = 0;
  for (uint64_t i = 1; i <= kTimes; ++i) {
    Move(0, 1, 1, 10 * i, kBytes, 7);
    worker(1).Free({10 * i});
    ExpectNothingLeft(1);
    if (i == 2) after_first = MappedSharedBytes();  // the first buffer may be freed a little late
  }
  EXPECT_GT(after_first, 0u);
  EXPECT_EQ(MappedSharedBytes(), after_first);
  EXPECT_EQ(worker(1).Probe().data().from_workers_shared(), kBytes * kTimes * 2);
}

TEST_P(SharedTransferTest, WhatDoesNotFitInThePoolComesOnTheStream_TM2) {
  constexpr size_t kBytes = size_t{3} << 20;
  AddWorker(size_t{8} << 20);  // half of it for workers
  for (int at : {0, 3}) worker(at).OpenStream();
  Declare(0, 1, 1, kBytes);
  Copy(2, 0, 1, 3, 2, kBytes);
  worker(0).Release({2});
  ReleaseReceiver(2, 3, worker(0).Describe());
  Have(0, 10, 10, 8, 1);  // follows the requests for 2, which have their blocks now
  Copy(11, 0, 10, 3, 11, 8);
  worker(0).Release({11});
  ReleaseReceiver(11, 3, worker(0).Describe());
  EXPECT_EQ(worker(3).WaitDone(11).code(), 0);
  Supply(0, 1, kBytes, 7);
  EXPECT_EQ(worker(3).WaitDone(2).code(), 0);
  ExpectContents(3, 3, 2, kBytes, 7);
  EXPECT_EQ(worker(3).Probe().data().from_workers(), 2 * kBytes + 16);
  EXPECT_EQ(worker(3).Probe().data().from_workers_shared(), kBytes + 16);
}

TEST_P(SharedTransferTest, AWorkerWithoutSharedMemoryUsesTheStreamBothWays) {
  AddWorker(0);
  for (int at : {0, 3}) worker(at).OpenStream();
  Have(0, 1, 1, 70000, 7);
  Have(3, 2, 2, 70000, 9);
  Move(0, 1, 3, 10, 70000, 7);
  Move(3, 2, 0, 20, 70000, 9);
  for (int at : {0, 3}) {
    EXPECT_EQ(worker(at).Probe().data().from_workers(), 140000u);
    EXPECT_EQ(worker(at).Probe().data().from_workers_shared(), 0u);
    EXPECT_EQ(worker(at).Probe().data().to_workers_shared(), 0u);
  }
}

// A worker whose named socket has no listener here counts as being on another host.
TEST_P(SharedTransferTest, WhoIsNotReachedByItsSocketIsOnAnotherHost) {
  Inbox inbox;
  EventLoop loop("far");
  std::shared_ptr<transport::Link> link;
  auto listener = data()->Listen("127.0.0.1:0", [&](std::shared_ptr<transport::Link> accepted) {
    link = std::move(accepted);
    return inbox.Events(&loop);
  });
  ASSERT_TRUE(listener.ok()) << listener.status();
  wire::Worker far = worker(0).Describe();
  far.set_data_address((*listener)->address());
  Copy(2, 0, 1, 1, 2, 4);
  ReleaseReceiver(2, 1, far);
  ASSERT_TRUE(inbox.Until([](wire::Frame& frame) { return frame.has_hello(); }));
  wire::Frame reply;
  wire::DescriptorSocket& socket = *reply.mutable_hello_reply()->mutable_descriptors();
  socket.set_name("gangway-1-of-another-host");
  socket.set_secret("x");
  ASSERT_TRUE(link->Send(std::move(reply)).ok());
  EXPECT_TRUE(inbox.Until([](wire::Frame& frame) {
    EXPECT_TRUE(frame.bulk().request().into().empty());
    return frame.bulk().has_request();
  }));
  listener->reset();
  loop.Stop();
}

// A block that the requester did not hand over is not written; the shard goes on the stream.
TEST_P(SharedTransferTest, APlaceThatWasNotHandedOverIsNotWritten) {
  Have(0, 1, 1, 1000, 1);
  Inbox inbox;
  EventLoop loop("asker");
  auto link = Stranger(0, inbox, loop);
  Copy(2, 0, 1, 1, 2, 1000);
  worker(0).Release({2});
  wire::Frame frame;
  frame.mutable_bulk()->mutable_name()->set_transfer(2);
  wire::ShardRequest& request = *frame.mutable_bulk()->mutable_request();
  request.set_token(TransferToken::Split(kToken).ask);
  request.add_into()->set_segment(1);
  request.mutable_into(0)->set_offset(~uint64_t{0});
  request.mutable_into(0)->set_size(1000);
  ASSERT_TRUE(link->Send(std::move(frame)).ok());
  EXPECT_TRUE(inbox.Until([](wire::Frame& f) {
    if (!f.has_bulk()) return false;
    EXPECT_FALSE(f.bulk().has_placed());
    EXPECT_EQ(f.bulk().bytes().data().size(), 1000u);
    return true;
  }));
  loop.Stop();
}

// The sender may still write after the request was cancelled, so the block is retired.
TEST_P(SharedTransferTest, APlaceOfACancelledRequestIsNotUsedAgain) {
  worker(0).OpenStream();
  worker(1).OpenStream();
  Declare(0, 1, 1, 1000);
  Copy(2, 0, 1, 1, 2, 1000);
  worker(0).Release({2});
  ReleaseReceiver(2, 1, worker(0).Describe());
  Have(0, 10, 10, 8, 1);  // follows the request for 2 on the same stream
  Move(0, 10, 1, 11, 8, 1);
  const size_t before = MappedSharedBytes();
  worker(1).Cancel(2, wire::MakeFailure(absl::StatusCode::kCancelled, "no longer wanted"));
  EXPECT_EQ(worker(1).WaitDone(2).message(), "no longer wanted");
  Supply(0, 1, 1000, 2);
  worker(1).Free({2});
  Move(0, 10, 1, 21, 8, 1);
  EXPECT_GT(MappedSharedBytes(), before) << "the copy needed a new segment";
}

// A buffer that this process can read, if it must not ask the runtime for that.
class ReadableBuffer final : public device::Buffer {
 public:
  explicit ReadableBuffer(size_t floats)
      : spec_{.element_type = device::kF32, .dims = {static_cast<int64_t>(floats)}} {}

  int device() const override { return 0; }
  const device::ArraySpec& spec() const override { return spec_; }
  std::string memory_kind() const override { return "device"; }
  absl::StatusOr<size_t> OnDeviceBytes() const override { return device::HostBytes(spec_).value(); }
  void OnReady(device::StatusCallback callback) override { callback(absl::OkStatus()); }
  void CopyToHost(void*, size_t, device::StatusCallback) override { ++asked_; }
  bool CopyToHostNow(void* dst, size_t bytes) override {
    std::memset(dst, 1, bytes);
    return true;
  }
  absl::StatusOr<std::unique_ptr<device::Buffer>> CopyToDevice(int, std::string_view) override {
    return absl::UnimplementedError("not of this test");
  }
  void Delete() override {}
  bool IsDeleted() const override { return false; }
  int asked() const { return asked_; }

 private:
  const device::ArraySpec spec_;
  int asked_ = 0;  // the runtime
};

class ShardSenderTest : public testing::Test {
 protected:
  ShardSenderTest()
      : sender_({.loop = &loop_,
                 .staging = StagingMemory::Make({.bytes_max = size_t{1} << 30, .loop = &loop_}),
                 .callbacks = std::make_shared<InFlight>(),
                 .on_refused = [this](uint64_t) { ++refused_; }}) {
    OnLoop([this] {
      for (uint64_t stream : {1, 2}) sender_.Accept(stream, links_[stream - 1], "island0/worker1");
    });
  }
  ~ShardSenderTest() override {
    OnLoop([this] { sender_.Close(absl::CancelledError("the test is over")); });
    loop_.Stop();
  }

  // The sender belongs to its loop.
  void OnLoop(const std::function<void()>& test) {
    std::promise<void> ended;
    loop_.Post([&] {
      test();
      ended.set_value();
    });
    ended.get_future().wait();
  }
  void Request(uint64_t stream, uint64_t ordinal, const std::string& token = kToken) {
    wire::Frame frame;
    frame.mutable_bulk()->mutable_name()->set_transfer(ordinal);
    frame.mutable_bulk()->mutable_request()->set_token(token);
    sender_.OnFrame(stream, frame);
  }
  void Drop(uint64_t stream, uint64_t ordinal) {
    wire::Frame frame;
    frame.mutable_bulk()->mutable_name()->set_transfer(ordinal);
    frame.mutable_bulk()->mutable_dropped();
    sender_.OnFrame(stream, frame);
  }
  static TransferKey Key(uint64_t ordinal) { return {Ordinal(ordinal), 0}; }

  // Of shards that were sent on the first stream.
  size_t SentBytes() const {
    size_t bytes = 0;
    for (const wire::Frame& frame : links_[0]->frames) bytes += frame.bulk().bytes().data().size();
    return bytes;
  }

  const std::array<std::shared_ptr<transport::RecordingLink>, 2> links_{
      std::make_shared<transport::RecordingLink>(), std::make_shared<transport::RecordingLink>()};
  EventLoop loop_{"sender"};
  int refused_ = 0;
  ShardSender sender_;
};

TEST_F(ShardSenderTest, ASmallShardIsReadWithoutTheRuntimesThreads) {
  const auto small = std::make_shared<ReadableBuffer>(250);
  const auto large = std::make_shared<ReadableBuffer>(250'000);
  uint64_t ordinal = 0;
  for (const auto& buffer : {small, large}) {
    OnLoop([&] {
      Request(1, ++ordinal, TransferToken::Split(kToken).ask);
      sender_.Offer({.key = Key(ordinal),
                     .token = TransferToken::Split(kToken),
                     .taken = [](const auto&) {}});
      sender_.Settle(Key(ordinal), TransferPlane::Buffers{buffer});
    });
    OnLoop([] {});  // its memory is taken
    OnLoop([] {});  // what was read is sent in the next round
    EXPECT_EQ(SentBytes(), 1000u) << "of the small one alone";
  }
  EXPECT_EQ(small->asked(), 0);
  EXPECT_EQ(large->asked(), 1);
}

// More of them than a stream may have parked. Every second one is offered, and its offer is cancelled before.
TEST_F(ShardSenderTest, ADroppedRequestIsNotParked) {
  int cancelled = 0;
  OnLoop([&] {
    for (uint64_t ordinal = 1; ordinal <= 140'000; ++ordinal) {
      if (ordinal % 2 == 0) {
        sender_.Offer({.key = Key(ordinal), .taken = [&](const absl::Status&) { ++cancelled; }});
        EXPECT_TRUE(sender_.Cancel(Key(ordinal), absl::CancelledError("no longer wanted")));
      }
      Request(1, ordinal);
      Drop(1, ordinal);
    }
  });
  EXPECT_EQ(cancelled, 70'000);
  EXPECT_EQ(refused_, 0);
}

TEST_F(ShardSenderTest, ADropConcernsItsOwnStream) {
  OnLoop([&] {
    Request(1, 7, TransferToken::Split(kToken).ask);
    Request(2, 7, "a stranger's");
    Drop(2, 7);
    sender_.Offer(
        {.key = Key(7), .token = TransferToken::Split(kToken), .taken = [](const auto&) {}});
    EXPECT_EQ(refused_, 0) << "the dropped request is still there";
    Request(2, 7, "a stranger's");
    EXPECT_EQ(refused_, 1);
    Request(1, 7, TransferToken::Split(kToken).ask);
    EXPECT_EQ(refused_, 2) << "the first stream's request was dropped, too";
  });
}

}  // namespace
}  // namespace gangway::worker
