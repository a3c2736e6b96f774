// Session: one session with a cluster, from its Hello to its end. It composes what a session keeps: Submitter (the
// control link and what goes to the controller), Handles, Programs, Uploads, Fetches, Questions, Activity (what is
// under way), HostCallbacks and DataLinks (the workers' streams). It opens the session, hands what the cluster sends to
// these parts, and ends them. ClientImpl hands the calls of the session's client to them.
//
// Threading: the parts are thread-safe, each with a lock of its own; the order of the locks is Fetches, Programs,
// Uploads or Questions, then this class's own, Handles, Submitter, Activity. No callback runs under any of them. Data
// links are used on the loop only, but PushNow runs on callers' threads, too.
//
// Failure: losing the controller ends everything pending with UNAVAILABLE; the session does not reconnect. Its
// destructor, which must not run in one of its callbacks, ends what is pending with CANCELLED.
#ifndef GANGWAY_CLIENT_SESSION_H_
#define GANGWAY_CLIENT_SESSION_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"

#include "gangway/base/executor.h"
#include "gangway/base/mutex.h"
#include "gangway/client/activity.h"
#include "gangway/client/client.h"
#include "gangway/client/connect.h"
#include "gangway/client/controller_silence.h"
#include "gangway/client/data_links.h"
#include "gangway/client/fetches.h"
#include "gangway/client/handles.h"
#include "gangway/client/host_callbacks.h"
#include "gangway/client/programs.h"
#include "gangway/client/questions.h"
#include "gangway/client/submitter.h"
#include "gangway/client/uploads.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::client {

class Session {
 public:
  explicit Session(const ClientOptions& options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Blocks, within the limit. Once, before all else.
  absl::Status Open();

  const ClientOptions& options() const { return options_; }
  const ClusterInfo& cluster() const { return cluster_; }
  // As in Client.
  uint64_t losses() const { return losses_.load(std::memory_order_relaxed); }
  void OnLost(StatusCallback lost) GANGWAY_EXCLUDES(mutex_);

  EventLoop& loop() { return loop_; }
  Submitter& submitter() { return submitter_; }
  const Submitter& submitter() const { return submitter_; }
  Handles& handles() { return handles_; }
  Programs& programs() { return programs_; }
  Uploads& uploads() { return uploads_; }
  Fetches& fetches() { return fetches_; }
  Questions& questions() { return questions_; }
  HostCallbacks& host_callbacks() { return host_callbacks_; }

 private:
  // All on the loop.
  void OnFrame(wire::Frame frame);
  void OnWelcome(const wire::HelloReply& reply) GANGWAY_EXCLUDES(mutex_);
  void OpenLinks(const wire::HelloReply& reply);
  void OnEvent(wire::SessionEvent& event);
  void NoteWorker(const wire::Worker& worker, bool up, const std::string& why_down = "");
  bool Look();
  void Lose(const absl::Status& why) GANGWAY_EXCLUDES(mutex_);  // the session is gone
  void EndPending(const absl::Status& why);                     // runs all pending callbacks
  void Shutdown() GANGWAY_EXCLUDES(mutex_);

  const ClientOptions options_;
  std::atomic<uint64_t> losses_{0};
  ClusterInfo cluster_;  // set while opening, constant afterwards

  Mutex mutex_;
  CondVar opened_;
  std::optional<absl::Status> welcome_ GANGWAY_GUARDED_BY(mutex_);
  StatusCallback on_lost_ GANGWAY_GUARDED_BY(mutex_);

  HostCallbacks host_callbacks_;
  EventLoop loop_{"gw-client"};
  Activity activity_;
  Submitter submitter_;
  Handles handles_{&loop_, &submitter_};
  Programs programs_{&activity_, &submitter_, &handles_};
  Uploads uploads_{&loop_, &activity_, &submitter_, &handles_};
  Fetches fetches_{&activity_, &submitter_, &handles_,
                   [this](WorkerKey worker) { data_links_->Use(worker); }};
  Questions questions_{&loop_, &activity_, &submitter_};
  ControllerSilence controller_;           // on the loop
  std::unique_ptr<DataLinks> data_links_;  // made on the loop
};

}  // namespace gangway::client

#endif  // GANGWAY_CLIENT_SESSION_H_
