// Hands descriptors of shared memory from process to process of one host, over a unix socket whose
// name is random and in no file system. Who reaches it is on this host; both sides also compare
// user ids, and the connecting one says a secret that it was told on a stream which proved who it
// is.
//
// Nothing here blocks or has a thread: a message that was sent lies in the socket, so whoever is
// told by other means that one was sent finds it. Threading: each object for one thread at a time.
// Nothing remains of the socket when its process ends, however it ends.
#ifndef GANGWAY_TRANSPORT_SHM_DESCRIPTOR_SOCKET_H_
#define GANGWAY_TRANSPORT_SHM_DESCRIPTOR_SOCKET_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gangway/base/file_descriptor.h"

namespace gangway::transport {

inline constexpr size_t kDescriptorSecretBytes = 32;
std::string NewDescriptorSecret();

// Where those connect that have descriptors to hand over.
class DescriptorListener {
 public:
  // UNAVAILABLE: the system gives no such socket.
  static absl::StatusOr<std::unique_ptr<DescriptorListener>> Open();

  const std::string& name() const { return name_; }

  // The connection whose other end said `secret`, if it has come by now; else an invalid one. Those
  // that said something else are kept for their own Take, up to a limit; the oldest are closed.
  FileDescriptor Take(const std::string& secret);

 private:
  struct Pending {
    FileDescriptor socket;
    std::string secret;  // empty: not come yet
  };
  DescriptorListener(FileDescriptor socket, std::string name)
      : socket_(std::move(socket)), name_(std::move(name)) {}

  void AcceptAll();

  const FileDescriptor socket_;
  const std::string name_;
  std::deque<Pending> pending_;
};

// Connects to the listener `name` and says `secret`. UNAVAILABLE: it is not on this host, or is of
// another user, or has too many waiting.
absl::StatusOr<FileDescriptor> ConnectDescriptors(const std::string& name,
                                                  const std::string& secret);

// A piece of shared memory, by the number that its owner gave it.
struct SegmentName {
  uint64_t segment = 0;
  uint64_t bytes = 0;
};

// UNAVAILABLE: the other end is gone, or has too many that it did not look at.
absl::Status SendDescriptor(const FileDescriptor& socket, SegmentName name, int descriptor);

// The next one that has come; none: nothing has, or what came was no such message.
struct ReceivedDescriptor {
  SegmentName name;
  FileDescriptor descriptor;
};
std::optional<ReceivedDescriptor> ReceiveDescriptor(const FileDescriptor& socket);

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_SHM_DESCRIPTOR_SOCKET_H_
