// Implementation of revocations.h.
#include "gangway/transport/tls/revocations.h"

#include <sys/epoll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/log.h"
#include "gangway/base/private_file.h"
#include "gangway/base/status.h"
#include "gangway/transport/tls/certificate_id.h"

namespace gangway::transport {
namespace {

bool AreSame(const timespec& a, const timespec& b) {
  return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

// Of one file that has not changed, nor its mode.
bool AreSame(const struct stat& a, const struct stat& b) {
  return a.st_ino == b.st_ino && a.st_size == b.st_size && AreSame(a.st_mtim, b.st_mtim) &&
         AreSame(a.st_ctim, b.st_ctim);
}

}  // namespace

// Reads what the system says of the folder, and looks at the list.
class Revocations::Watch final : public Poller::Watched {
 public:
  explicit Watch(Revocations* owner) : owner_(owner) {}
  void OnReady(uint32_t) override {
    char events[4096];
    while (read(owner_->folder_changes_.get(), events, sizeof(events)) > 0) continue;
    owner_->OnChange();
  }

 private:
  Revocations* const owner_;
};

Revocations::Revocations(const std::string& folder)
    : path_(absl::StrCat(folder, "/", kRevokedFile)) {
  {
    MutexLock lock(mutex_);
    ReadIfChangedLocked();
  }
  StartWatch(folder);
}

Revocations::~Revocations() { loop_.Stop(); }

void Revocations::StartWatch(const std::string& folder) {
  folder_changes_.Reset(inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  const int fd = folder_changes_.get();
  auto poller = loop_.poller();
  absl::Status status = poller.status();
  if (fd < 0 ||
      inotify_add_watch(fd, folder.c_str(), IN_CLOSE_WRITE | IN_MOVED_TO | IN_ATTRIB) < 0) {
    status = absl::UnavailableError("the system has no more watches of folders");
  } else if (status.ok()) {
    status = (*poller)->Watch((*poller)->NextId(), fd, EPOLLIN, std::make_shared<Watch>(this));
  }
  if (!status.ok()) {
    Log(LogLevel::kWarning, absl::StrCat("a certificate revoked in ", path_,
                                         " keeps its open links: ", status.message()));
  }
}

absl::StatusOr<std::string> Revocations::Check(const std::string& certificate) {
  GANGWAY_ASSIGN_OR_RETURN(auto id, ReadCertificateId(certificate));
  MutexLock lock(mutex_);
  ReadIfChangedLocked();
  const auto found = revoked_.find(id.serial);
  if (found == revoked_.end()) return id.name;
  return absl::PermissionDeniedError(absl::StrCat(
      "the certificate ", id.name, " was revoked (", found->second,
      "): ask the cluster's operator for another, which `gangway certs DIR --add NAME` makes"));
}

uint64_t Revocations::Subscribe(std::function<void()> changed) {
  MutexLock lock(subscribers_mutex_);
  subscribers_.emplace(next_, std::move(changed));
  return next_++;
}

void Revocations::Unsubscribe(uint64_t id) {
  MutexLock lock(subscribers_mutex_);
  subscribers_.erase(id);
}

void Revocations::OnChange() {
  MutexLock lock(subscribers_mutex_);
  for (const auto& [id, changed] : subscribers_) changed();
}

void Revocations::ReadIfChangedLocked() {
  struct stat now = {};
  if (stat(path_.c_str(), &now) != 0) return;  // no list, or not any more
  if (AreSame(now, read_)) return;
  auto text = ReadPrivateFile(path_);
  if (!text.ok()) {  // it is tried again at the next check: who copies a file may set its mode last
    if (AreSame(now, std::exchange(unreadable_, now))) return;
    Log(LogLevel::kError,
        absl::StrCat("the list of revoked certificates is not used: ", text.status().message()));
    return;
  }
  read_ = now;
  revoked_.clear();
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) {
    const std::string serial = line.substr(0, line.find(' '));
    if (!serial.empty()) revoked_[serial] = line;
  }
}

}  // namespace gangway::transport
