// For tests: a scripted scheduler and client around a real worker in this process, over the
// in-process transport.
#ifndef GANGWAY_WORKER_SERVICE_WORKER_TEST_UTIL_H_
#define GANGWAY_WORKER_SERVICE_WORKER_TEST_UTIL_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gangway/base/executor.h"
#include "gangway/base/mutex.h"
#include "gangway/device/device.h"
#include "gangway/transport/handshake/data_token.h"
#include "gangway/transport/inproc/inproc.h"
#include "gangway/wire/ended_sessions.h"
#include "gangway/wire/version.h"
#include "gangway/worker/service/worker.h"

namespace gangway::worker {

constexpr std::chrono::seconds kPatience{30};
constexpr SessionId kSession(5);
constexpr char kDataKey[] = "of the test";

// The frames that arrived on one link, in order; a test waits for the one that it expects.
class Inbox {
 public:
  transport::LinkEvents Events(Executor* executor) {
    return {.executor = executor,
            .on_frame =
                [this](wire::Frame frame) {
                  MutexLock lock(mutex_);
                  frames_.push_back(std::move(frame));
                  changed_.NotifyAll();
                },
            .on_closed =
                [this](const absl::Status&) {
                  MutexLock lock(mutex_);
                  closed_ = true;
                  changed_.NotifyAll();
                }};
  }

  // Passes each unread frame to `look`, until that returns true.
  testing::AssertionResult Until(const std::function<bool(wire::Frame&)>& look,
                                 std::chrono::milliseconds limit = kPatience) {
    auto deadline = std::chrono::steady_clock::now() + limit;
    while (true) {
      wire::Frame frame;
      {
        MutexLock lock(mutex_);
        if (!changed_.WaitUntil(mutex_, deadline,
                                [this]() GANGWAY_NO_ANALYSIS { return next_ < frames_.size(); })) {
          return testing::AssertionFailure() << "the expected frame did not arrive";
        }
        frame = frames_[next_++];
      }
      if (look(frame)) return testing::AssertionSuccess();
    }
  }

  bool WaitClosed() {
    MutexLock lock(mutex_);
    return changed_.WaitFor(mutex_, kPatience, [this]() GANGWAY_NO_ANALYSIS { return closed_; });
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::deque<wire::Frame> frames_ GANGWAY_GUARDED_BY(mutex_);
  size_t next_ GANGWAY_GUARDED_BY(mutex_) = 0;
  bool closed_ GANGWAY_GUARDED_BY(mutex_) = false;
};

struct Tensor {
  std::vector<int64_t> dims;
  uint64_t bytes = 0;
};

class WorkerHarness : public testing::Test {
 protected:
  using OpenBackend = std::function<absl::StatusOr<std::unique_ptr<device::Backend>>()>;

  // Global device ids are 100, 101, ...
  void Start(int device_count, OpenBackend open, WorkerOptions options = {}) {
    device_count_ = device_count;
    listener_ = *hub_->Listen("scheduler", [this](std::shared_ptr<transport::Link> link) {
      control_ = std::move(link);
      return control_inbox_.Events(&loop_);
    });
    options.scheduler_address = "scheduler";
    options.scheduler_silence_max = silence_max_;
    options.data_listen_address = "worker-data";
    options.device_count = device_count;
    options.open_backend = std::move(open);
    worker_ =
        std::thread([this, options] { ended_with_ = RunWorker(options, *hub_, *hub_, stop_); });
    ASSERT_TRUE(control_inbox_.Until([this](wire::Frame& frame) {
      if (frame.has_hello()) hello_ = frame.hello();
      return frame.has_hello();
    }));
    if (!welcome_late_) Welcome();
  }

  void Welcome() {
    wire::Frame reply;
    reply.mutable_hello_reply()->set_epoch(9);
    reply.mutable_hello_reply()->set_data_key(kDataKey);
    reply.mutable_hello_reply()->set_isolated(isolated_);
    wire::EndedSessions ended;
    for (const SessionId session : ended_) ended.Insert(session);
    ended.AppendTo(*reply.mutable_hello_reply()->mutable_ended_sessions());
    ASSERT_TRUE(control_->Send(reply).ok());
    OpenDevices();
  }

  void OpenDevices() {
    wire::IslandItem open_devices;
    for (int i = 0; i < device_count_; ++i)
      open_devices.mutable_open_devices()->add_devices(100 + i);
    Item(open_devices);
  }

  void TearDown() override {
    stop_.Stop();
    if (worker_.joinable()) worker_.join();
    data_.reset();
    control_.reset();
    listener_.reset();
    loop_.Stop();
    data_loop_.Stop();
  }

  void Item(wire::IslandItem item) {
    wire::Frame frame;
    *frame.mutable_island_batch()->add_items() = std::move(item);
    ASSERT_TRUE(control_->Send(std::move(frame)).ok());
  }

  void OpenStream(SessionId session = kSession, transport::LinkOptions options = {}) {
    AskForStream(session, options);
    ASSERT_TRUE(data_inbox_.Until([this](wire::Frame& f) {
      if (f.has_hello_reply()) data_reply_ = f.hello_reply();
      return f.has_hello_reply();
    }));
  }

  void AskForStream(SessionId session = kSession, transport::LinkOptions options = {}) {
    auto link = hub_->Connect("worker-data", data_inbox_.Events(&data_loop_), kPatience, options);
    ASSERT_TRUE(link.ok()) << link.status();
    data_ = *std::move(link);
    wire::Frame frame;
    frame.mutable_hello()->set_protocol_version(wire::kProtocolVersion);
    frame.mutable_hello()->set_role(wire::ROLE_DATA);
    frame.mutable_hello()->set_session(session.number());
    frame.mutable_hello()->set_token(transport::DataToken(kDataKey, session));
    ASSERT_TRUE(data_->Send(std::move(frame)).ok());
  }

  void LoadExecutable(uint64_t id, const std::string& name, const std::string& serialized,
                      int device_count, const std::vector<Tensor>& results,
                      bool has_collectives = false) {
    wire::IslandItem item;
    wire::Load& load = *item.mutable_load();
    load.set_has_collectives(has_collectives);
    load.set_executable(id);
    load.set_name(name);
    load.set_serialized(serialized);
    for (int i = 0; i < device_count; ++i) load.add_devices(100 + i);
    for (const Tensor& tensor : results) {
      wire::TensorSpec& spec = *load.add_results();
      spec.set_element_type(11);
      spec.mutable_shard_dims()->Add(tensor.dims.begin(), tensor.dims.end());
      spec.set_shard_bytes(tensor.bytes);
    }
    Item(item);
  }

  // f32 shards on the devices from `first` on.
  wire::ArraySpec Spec(const Tensor& tensor, int count, int first = 0) {
    wire::ArraySpec spec;
    spec.set_element_type(11);
    spec.mutable_shard_dims()->Add(tensor.dims.begin(), tensor.dims.end());
    spec.set_shard_bytes(tensor.bytes);
    for (int i = 0; i < count; ++i) spec.add_devices(100 + first + i);
    return spec;
  }
  static wire::ArrayRef Ref(uint64_t storage, uint32_t count) {
    wire::ArrayRef ref;
    wire::ShardRun& run = *ref.add_runs();
    run.set_storage(storage);
    run.set_count(count);
    return ref;
  }
  wire::IslandItem NodeItem(uint64_t ordinal) {
    wire::IslandItem item;
    item.mutable_node()->set_ordinal(ordinal);
    item.mutable_node()->set_session(kSession.number());
    return item;
  }

  void UploadNode(uint64_t ordinal, uint64_t storage, const Tensor& tensor, int count) {
    wire::IslandItem item = NodeItem(ordinal);
    wire::Upload& upload = *item.mutable_node()->mutable_upload();
    upload.set_storage(storage);
    upload.set_upload(ordinal);
    *upload.mutable_spec() = Spec(tensor, count);
    Item(item);
  }
  // Storages from `first` on, each with its bytes on the first device.
  void PutNode(uint64_t ordinal, uint64_t first, const Tensor& tensor,
               const std::vector<std::string>& arrays) {
    wire::IslandItem item = NodeItem(ordinal);
    wire::Put& put = *item.mutable_node()->mutable_put();
    *put.mutable_devices() = Spec(tensor, 1).devices();
    for (const std::string& bytes : arrays) {
      wire::PutArray& array = *put.add_arrays();
      array.set_storage(first++);
      array.mutable_tensor()->set_element_type(11);
      array.mutable_tensor()->mutable_shard_dims()->Add(tensor.dims.begin(), tensor.dims.end());
      array.mutable_tensor()->set_shard_bytes(tensor.bytes);
      array.add_shards(bytes);
    }
    Item(item);
  }
  void LaunchNode(uint64_t ordinal, uint64_t executable, const std::vector<uint64_t>& arguments,
                  const std::vector<uint64_t>& results, int count,
                  std::vector<uint32_t> donated = {}) {
    wire::IslandItem item = NodeItem(ordinal);
    wire::Launch& launch = *item.mutable_node()->mutable_launch();
    launch.set_executable(executable);
    launch.set_launch_id(static_cast<uint32_t>(ordinal));
    for (uint64_t argument : arguments) *launch.add_arguments() = Ref(argument, count);
    launch.mutable_results()->Add(results.begin(), results.end());
    launch.mutable_donated()->Add(donated.begin(), donated.end());
    Item(item);
  }
  void FetchNode(uint64_t ordinal, uint64_t storage, const Tensor& tensor, int count) {
    wire::IslandItem item = NodeItem(ordinal);
    wire::Fetch& fetch = *item.mutable_node()->mutable_fetch();
    *fetch.mutable_source() = Ref(storage, count);
    *fetch.mutable_devices() = Spec(tensor, count).devices();
    fetch.set_fetch(ordinal);
    Item(item);
  }
  void Release(std::vector<uint64_t> ordinals) {
    wire::IslandItem item;
    item.mutable_release()->mutable_ordinals()->Add(ordinals.begin(), ordinals.end());
    Item(item);
  }
  void Free(std::vector<uint64_t> storages) {
    wire::IslandItem item;
    item.mutable_free()->mutable_storages()->Add(storages.begin(), storages.end());
    Item(item);
  }

  void SendChunk(wire::Bulk chunk) {
    wire::Frame frame;
    *frame.mutable_bulk() = std::move(chunk);
    ASSERT_TRUE(data_->Send(std::move(frame)).ok());
  }
  void SendShard(uint64_t upload, uint32_t shard, const std::string& bytes,
                 size_t piece = size_t{1} << 20) {
    size_t offset = 0;
    do {
      wire::Bulk chunk;
      chunk.mutable_name()->set_session(kSession.number());
      chunk.mutable_name()->set_upload(upload);
      chunk.mutable_name()->set_shard(shard);
      chunk.mutable_bytes()->set_offset(offset);
      chunk.mutable_bytes()->set_data(bytes.substr(offset, piece));
      offset += chunk.bytes().data().size();
      chunk.mutable_bytes()->set_last(offset == bytes.size());
      SendChunk(std::move(chunk));
    } while (offset < bytes.size());
  }

  // Declares, releases and sends an array, and waits until it is done.
  void Upload(uint64_t ordinal, uint64_t storage, const Tensor& tensor,
              const std::vector<std::string>& shards) {
    UploadNode(ordinal, storage, tensor, static_cast<int>(shards.size()));
    Release({ordinal});
    for (size_t i = 0; i < shards.size(); ++i) SendShard(ordinal, i, shards[i]);
    wire::Failure failure = WaitDone(ordinal);
    ASSERT_EQ(failure.code(), 0) << failure.DebugString();
  }

  // Reads and records reports until `enough` returns true.
  void WatchReports(const std::function<bool()>& enough) {
    if (enough()) return;
    ASSERT_TRUE(control_inbox_.Until([&](wire::Frame& frame) {
      if (frame.has_heartbeat()) ++heartbeats_;
      for (const wire::Report& report : frame.report_batch().reports()) {
        if (report.has_done()) {
          EXPECT_TRUE(dones_.emplace(report.done().ordinal(), report.done().failure()).second)
              << "a second Done of " << report.done().ordinal();
        }
        if (report.has_failing()) failing_[report.failing().ordinal()] = report.failing().failure();
        if (report.has_loaded()) loaded_[report.loaded().executable()] = report.loaded().failure();
        if (report.has_usage()) usage_[report.usage().probe()] = report.usage();
      }
      return enough();
    }));
  }
  wire::Failure WaitDone(uint64_t ordinal) {
    WatchReports([&] { return dones_.contains(ordinal); });
    return dones_[ordinal];
  }
  wire::Failure WaitLoaded(uint64_t executable) {
    WatchReports([&] { return loaded_.contains(executable); });
    return loaded_[executable];
  }
  wire::Usage Probe() {
    uint64_t probe = ++last_probe_;
    wire::IslandItem item;
    item.set_probe(probe);
    Item(item);
    WatchReports([&] { return usage_.contains(probe); });
    return usage_[probe];
  }

  // The bytes of all `count` shards of a fetch; `pieces` counts the chunks. A failure ends the
  // shard.
  struct Fetched {
    std::map<uint32_t, std::string> bytes;
    std::map<uint32_t, wire::Failure> failures;
    size_t pieces = 0;
    size_t biggest_piece = 0;
  };
  Fetched& ReceiveFetch(uint64_t fetch, size_t count) {
    auto complete = [&] { return ended_shards_[fetch].size() == count; };
    if (complete()) return fetched_[fetch];
    EXPECT_TRUE(data_inbox_.Until([&](wire::Frame& frame) {
      if (frame.bulk().has_bytes() || frame.bulk().has_failed()) TakeChunk(frame.bulk());
      return complete();
    }));
    return fetched_[fetch];
  }
  void TakeChunk(const wire::Bulk& chunk) {
    Fetched& fetched = fetched_[chunk.name().fetch()];
    EXPECT_FALSE(ended_shards_[chunk.name().fetch()].contains(chunk.name().shard()))
        << "a chunk after the last one";
    ++fetched.pieces;
    fetched.biggest_piece = std::max(fetched.biggest_piece, chunk.bytes().data().size());
    if (chunk.has_failed()) {
      fetched.failures[chunk.name().shard()] = chunk.failed();
    } else {
      EXPECT_EQ(chunk.bytes().offset(), fetched.bytes[chunk.name().shard()].size());
      fetched.bytes[chunk.name().shard()] += chunk.bytes().data();
    }
    if (chunk.bytes().last() || chunk.has_failed())
      ended_shards_[chunk.name().fetch()].insert(chunk.name().shard());
  }

  static std::string Floats(const std::vector<float>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
  }
  static std::vector<float> AsFloats(const std::string& bytes) {
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

  EventLoop loop_{"test"};
  EventLoop data_loop_{"test-data"};
  std::unique_ptr<transport::Transport> hub_ = transport::NewInprocTransport();
  Inbox control_inbox_;
  Inbox data_inbox_;
  std::unique_ptr<transport::Listener> listener_;
  std::shared_ptr<transport::Link> control_;
  std::shared_ptr<transport::Link> data_;
  StopFlag stop_;
  std::thread worker_;
  absl::Status ended_with_;
  int device_count_ = 0;
  // The test sends no heartbeats, and may copy for long.
  std::chrono::milliseconds silence_max_ = 2 * kPatience;
  bool welcome_late_ = false;     // the test calls Welcome() itself
  bool isolated_ = false;         // sessions are admitted by the test
  std::vector<SessionId> ended_;  // before this worker started
  wire::Hello hello_;
  wire::HelloReply data_reply_;
  std::map<uint64_t, wire::Failure> dones_;
  std::map<uint64_t, wire::Failure> failing_;  // by ordinal
  std::map<uint64_t, wire::Failure> loaded_;
  std::map<uint64_t, wire::Usage> usage_;
  uint64_t last_probe_ = 0;
  int heartbeats_ = 0;
  std::map<uint64_t, Fetched> fetched_;
  std::map<uint64_t, std::set<uint32_t>> ended_shards_;
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_WORKER_TEST_UTIL_H_
