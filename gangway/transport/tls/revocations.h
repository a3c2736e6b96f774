// Revocations: the policy of a TLS folder. It rejects the certificates whose serial numbers are in the
// folder's file `revoked`, of which each line begins with one. The file is read again at each check if
// it has changed, and a change at once closes the links whose peers are in it.
//
// Threading: thread-safe; a thread of its own waits for changes of the folder. Failure: a file that
// cannot be read revokes what it revoked before; the log says so.
#ifndef GANGWAY_TRANSPORT_TLS_REVOCATIONS_H_
#define GANGWAY_TRANSPORT_TLS_REVOCATIONS_H_

#include <sys/stat.h>

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "gangway/base/executor.h"
#include "gangway/base/file_descriptor.h"
#include "gangway/base/mutex.h"
#include "gangway/transport/grpc/peer_policy.h"

namespace gangway::transport {

inline constexpr char kRevokedFile[] = "revoked";

class Revocations final : public PeerPolicy {
 public:
  explicit Revocations(const std::string& folder);
  ~Revocations() override;

  absl::StatusOr<std::string> Check(const std::string& certificate) override;
  uint64_t Subscribe(std::function<void()> changed) override;
  void Unsubscribe(uint64_t id) override;

 private:
  class Watch;
  void StartWatch(const std::string& folder);
  void OnChange() GANGWAY_EXCLUDES(mutex_, subscribers_mutex_);
  void ReadIfChangedLocked() GANGWAY_REQUIRES(mutex_);

  const std::string path_;
  FileDescriptor folder_changes_;

  Mutex mutex_;
  struct stat read_ GANGWAY_GUARDED_BY(mutex_) = {};
  struct stat unreadable_ GANGWAY_GUARDED_BY(mutex_) = {};
  // By serial number: what the list says of it.
  std::map<std::string, std::string> revoked_ GANGWAY_GUARDED_BY(mutex_);

  Mutex subscribers_mutex_;  // held while they are called
  std::map<uint64_t, std::function<void()>> subscribers_ GANGWAY_GUARDED_BY(subscribers_mutex_);
  uint64_t next_ GANGWAY_GUARDED_BY(subscribers_mutex_) = 1;
  EventLoop loop_{"gw-revocations"};  // last: it uses the other members
};

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_TLS_REVOCATIONS_H_
