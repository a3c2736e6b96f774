// For the client's tests: a controller and workers that record every frame they receive and send
// what the test tells them, over the in-process transport or over unix sockets.
#ifndef GANGWAY_CLIENT_SCRIPTED_CLUSTER_H_
#define GANGWAY_CLIENT_SCRIPTED_CLUSTER_H_

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gangway/base/executor.h"
#include "gangway/base/mutex.h"
#include "gangway/client/connect.h"
#include "gangway/transport/inproc/inproc.h"
#include "gangway/transport/local/local.h"
#include "gangway/transport/shm/descriptor_socket.h"
#include "gangway/wire/version.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::client {

inline constexpr std::chrono::seconds kLimit{10};

// One listening role: all frames that its peers sent, and its newest link.
class ScriptedRole {
 public:
  ScriptedRole(transport::Transport& transport, EventLoop& loop, const std::string& address,
               std::function<void(ScriptedRole&, const wire::Hello&)> on_hello)
      : loop_(loop), on_hello_(std::move(on_hello)) {
    auto listener = transport.Listen(
        address, [this](std::shared_ptr<transport::Link> link) { return Accept(std::move(link)); });
    listener_ = *std::move(listener);
  }
  ~ScriptedRole() {
    Cut();
    listener_.reset();
  }

  std::atomic<bool> mute = false;  // questions are not answered

  const std::string& address() const { return listener_->address(); }

  // Without a link, as after Cut, the frame is lost: a frame of the old link may still be answered.
  void Send(wire::Frame frame) {
    MutexLock lock(mutex_);
    if (link_) (void)link_->Send(std::move(frame));
  }
  void SendEvent(wire::SessionEvent event) {
    wire::Frame frame;
    *frame.mutable_session_events()->add_events() = std::move(event);
    Send(std::move(frame));
  }

  // Drops the newest link, as a dying process does.
  void Cut() {
    std::shared_ptr<transport::Link> link;
    {
      MutexLock lock(mutex_);
      link.swap(link_);
    }
    if (link) link->Close(absl::UnavailableError("cut by the test"));
  }

  // Waits until `ready(frames so far)`; false at the limit.
  bool Wait(const std::function<bool(const std::vector<wire::Frame>&)>& ready) {
    MutexLock lock(mutex_);
    return changed_.WaitFor(mutex_, kLimit, [&]() GANGWAY_NO_ANALYSIS { return ready(frames_); });
  }
  std::vector<wire::Frame> frames() {
    MutexLock lock(mutex_);
    return frames_;
  }

  // The operations that the client sent, in order, regardless of batches; waits until there are
  // `count`.
  std::vector<wire::Op> Ops(size_t count) {
    auto all = [](const std::vector<wire::Frame>& frames) {
      std::vector<wire::Op> ops;
      for (const wire::Frame& frame : frames) {
        for (const wire::Op& op : frame.session_batch().ops()) ops.push_back(op);
      }
      return ops;
    };
    Wait([&](const auto& frames) { return all(frames).size() >= count; });
    return all(frames());
  }
  // The messages about bytes that the client sent; waits until `count` shards are closed.
  std::vector<wire::Bulk> Chunks(size_t count) {
    auto all = [](const std::vector<wire::Frame>& frames) {
      std::vector<wire::Bulk> chunks;
      for (const wire::Frame& frame : frames) {
        const wire::Bulk& bulk = frame.bulk();
        if (bulk.has_bytes() || bulk.has_placed() || bulk.has_dropped()) chunks.push_back(bulk);
      }
      return chunks;
    };
    Wait([&](const std::vector<wire::Frame>& frames) {
      size_t closed = 0;
      for (const wire::Frame& frame : frames)
        closed +=
            frame.bulk().bytes().last() || frame.bulk().has_placed() || frame.bulk().has_dropped();
      return closed >= count;
    });
    return all(frames());
  }
  // Waits until the client has asked for a sign of life `count` times.
  bool WaitQuestions(size_t count) {
    return Wait([&](const auto&) GANGWAY_NO_ANALYSIS { return questions_ >= count; });
  }
  bool WaitHellos(size_t count) {
    return Wait([count](const std::vector<wire::Frame>& frames) {
      size_t hellos = 0;
      for (const wire::Frame& frame : frames) hellos += frame.has_hello();
      return hellos >= count;
    });
  }

 private:
  transport::LinkEvents Accept(std::shared_ptr<transport::Link> link) {
    {
      MutexLock lock(mutex_);
      link_ = std::move(link);
    }
    transport::LinkEvents events;
    events.executor = &loop_;
    events.on_frame = [this](wire::Frame frame) {
      if (frame.has_heartbeat()) {  // a question, answered as it is
        {
          MutexLock lock(mutex_);
          ++questions_;
          changed_.NotifyAll();
        }
        return mute ? void() : Send(std::move(frame));
      }
      wire::Hello hello = frame.hello();
      const bool greeted = frame.has_hello();
      if (greeted) on_hello_(*this, hello);
      MutexLock lock(mutex_);
      frames_.push_back(std::move(frame));
      changed_.NotifyAll();
    };
    events.on_closed = [](const absl::Status&) {};
    return events;
  }

  EventLoop& loop_;
  std::function<void(ScriptedRole&, const wire::Hello&)> on_hello_;
  std::unique_ptr<transport::Listener> listener_;
  Mutex mutex_;
  CondVar changed_;
  std::shared_ptr<transport::Link> link_ GANGWAY_GUARDED_BY(mutex_);
  std::vector<wire::Frame> frames_ GANGWAY_GUARDED_BY(mutex_);
  size_t questions_ GANGWAY_GUARDED_BY(mutex_) = 0;
};

// Two islands of one worker with two devices each: worker i has devices 2i and 2i+1.
class ScriptedCluster {
 public:
  enum class Over { kThisProcess, kUnixSockets };

  explicit ScriptedCluster(Over over = Over::kThisProcess)
      : over_(over),
        transport_(over == Over::kUnixSockets ? transport::NewLocalTransport()
                                              : transport::NewInprocTransport()),
        loop_("scripted"),
        controller_(*transport_, loop_, AddressOf("controller"),
                    [this](ScriptedRole& role, const wire::Hello&) { Welcome(role); }) {
    for (int i = 0; i < 2; ++i) {
      workers_.push_back(std::make_unique<ScriptedRole>(
          *transport_, loop_, AddressOf("worker" + std::to_string(i)),
          [this](ScriptedRole& role, const wire::Hello&) { WelcomeData(role); }));
      reply.mutable_topology()->mutable_workers(i)->set_data_address(workers_[i]->address());
    }
  }
  ~ScriptedCluster() {
    controller_.Cut();
    for (auto& worker : workers_) worker->Cut();
    loop_.Stop();
  }

  ClientOptions Options() {
    ClientOptions options;
    options.controller_address = controller_.address();
    options.name = "test";
    options.control = transport_.get();
    options.data = transport_.get();
    options.connect_limit = kLimit;
    options.used_from_start = 0;
    return options;
  }

  static wire::Worker Worker(uint32_t island, uint64_t incarnation = 1) {
    wire::Worker worker;
    worker.set_island(island);
    worker.add_devices(2 * island);
    worker.add_devices(2 * island + 1);
    worker.set_device_kind("cpu");
    worker.set_data_address("worker" + std::to_string(island));
    worker.set_incarnation(incarnation);
    return worker;
  }

  ScriptedRole& controller() { return controller_; }
  ScriptedRole& worker(size_t i) { return *workers_[i]; }

  // The reply to the next Hello of a client; a welcome by default. Set before Connect.
  wire::HelloReply reply = DefaultReply();
  bool answers = true;
  std::atomic<bool> silent_data = false;  // Hellos of data streams are not answered
  // Set before Connect: the first worker names this listener, with kSecret, like a worker on the
  // client's host.
  std::unique_ptr<transport::DescriptorListener> listener;
  static inline const std::string kSecret = std::string(transport::kDescriptorSecretBytes, 's');

 private:
  static wire::HelloReply DefaultReply() {
    wire::HelloReply reply;
    reply.set_protocol_version(wire::kProtocolVersion);
    reply.set_epoch(7);
    reply.set_session(42);
    reply.mutable_topology()->set_platform("cpu");
    for (uint32_t island : {0, 1}) *reply.mutable_topology()->add_workers() = Worker(island);
    return reply;
  }
  std::string AddressOf(const std::string& name) const {
    return over_ == Over::kUnixSockets ? "unix-abstract:" : name;  // the system chooses the name
  }
  void Welcome(ScriptedRole& role) {
    if (!answers) return;
    wire::Frame frame;
    *frame.mutable_hello_reply() = reply;
    role.Send(std::move(frame));
  }

  void WelcomeData(ScriptedRole& role) {
    if (silent_data) return;
    wire::Frame frame;
    frame.mutable_hello_reply();
    if (listener != nullptr && &role == workers_[0].get()) {
      frame.mutable_hello_reply()->mutable_descriptors()->set_name(listener->name());
      frame.mutable_hello_reply()->mutable_descriptors()->set_secret(kSecret);
    }
    role.Send(std::move(frame));
  }

  const Over over_;
  std::unique_ptr<transport::Transport> transport_;
  EventLoop loop_;
  ScriptedRole controller_;
  std::vector<std::unique_ptr<ScriptedRole>> workers_;
};

// Collects the values that a callback delivers.
template <typename T>
class Arrival {
 public:
  void Set(T value) {
    MutexLock lock(mutex_);
    values_.push_back(std::move(value));
    changed_.NotifyAll();
  }
  // The first value. Throws std::out_of_range if none arrives within the limit.
  T Get() {
    MutexLock lock(mutex_);
    changed_.WaitFor(mutex_, kLimit, [this]() GANGWAY_NO_ANALYSIS { return !values_.empty(); });
    return values_.at(0);
  }
  void Clear() {
    MutexLock lock(mutex_);
    values_.clear();
  }
  size_t count() {
    MutexLock lock(mutex_);
    return values_.size();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<T> values_ GANGWAY_GUARDED_BY(mutex_);
};

}  // namespace gangway::client

#endif  // GANGWAY_CLIENT_SCRIPTED_CLUSTER_H_
