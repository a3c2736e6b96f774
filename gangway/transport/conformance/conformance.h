// What every Transport must do, as two GoogleTest suites: what depends on the form of an address, and all else. An
// implementation's test instantiates TransportAddresses with each form that it has, and TransportConformance with one
// of them; the tests are in conformance.cc.
#ifndef GANGWAY_TRANSPORT_CONFORMANCE_CONFORMANCE_H_
#define GANGWAY_TRANSPORT_CONFORMANCE_CONFORMANCE_H_

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gangway/base/executor.h"
#include "gangway/base/mutex.h"
#include "gangway/transport/transport.h"

namespace gangway::transport {

struct Implementation {
  std::string name;
  std::function<std::unique_ptr<Transport>()> make;
  std::string listen_address;
  std::string nobody_address;  // well formed, and no process listens there
};

inline void PrintTo(const Implementation& implementation, std::ostream* out) {
  *out << implementation.name;
}

// One end of a link; records its events. Waits are bounded.
class End {
 public:
  explicit End(Executor* executor) : executor_(executor) {}

  LinkEvents Events();

  bool WaitFrames(size_t count);
  bool WaitClosed();
  bool WaitWritable(int count);  // counted from the start
  std::vector<wire::Frame> frames();
  absl::Status closed();
  int events_after_closed();

  std::function<void(const wire::Frame&)> on_frame;  // set before Events()
  std::shared_ptr<Link> link;  // of the accepting end: set by Accept, before its events

 private:
  Executor* const executor_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<wire::Frame> frames_ GANGWAY_GUARDED_BY(mutex_);
  std::optional<absl::Status> closed_ GANGWAY_GUARDED_BY(mutex_);
  int writable_count_ GANGWAY_GUARDED_BY(mutex_) = 0;
  int events_after_closed_ GANGWAY_GUARDED_BY(mutex_) = 0;
};

// Blocks callbacks until it is opened.
class Gate {
 public:
  void Pass();
  void Open();

 private:
  Mutex mutex_;
  CondVar changed_;
  bool open_ GANGWAY_GUARDED_BY(mutex_) = false;
};

class TransportConformance : public ::testing::TestWithParam<Implementation> {
 protected:
  void SetUp() override;
  void TearDown() override;

  // A listener whose next accepted link is `server_`.
  void Listen(LinkOptions options = {});
  void Connect(LinkOptions options = {});
  bool WaitAccepted();

  Gate gate_;  // opened by TearDown at the latest
  EventLoop client_loop_{"test-client"};
  EventLoop server_loop_{"test-server"};
  End client_{&client_loop_};
  End server_{&server_loop_};
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Listener> listener_;
  std::shared_ptr<Link> link_;  // the client's

 private:
  Mutex mutex_;
  CondVar accepted_;
  bool is_accepted_ GANGWAY_GUARDED_BY(mutex_) = false;
};

class TransportAddresses : public TransportConformance {};

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_CONFORMANCE_CONFORMANCE_H_
