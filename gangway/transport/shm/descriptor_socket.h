// Passes descriptors of shared memory between processes of one host, over an abstract unix socket
// with a random name. Only processes of this host can reach it. Both sides also compare user ids,
// and the connecting side presents a secret that it received on an authenticated stream.
//
// Nothing here blocks or owns a thread: a sent message stays in the socket, so a receiver that
// learns of it by other means finds it there. Threading: one thread at a time per object. The
// socket leaves nothing behind when its process ends, however it ends.
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

// Accepts the connections over which descriptors pass.
class DescriptorListener {
 public:
  // UNAVAILABLE: the system cannot create the socket.
  static absl::StatusOr<std::unique_ptr<DescriptorListener>> Open();

  const std::string& name() const { return name_; }

  // The connection whose other end has presented `secret`, or an invalid descriptor if none has.
  // Connections with other secrets are kept for their own Take; past a limit the oldest are closed.
  FileDescriptor Take(const std::string& secret);

 private:
  struct Pending {
    FileDescriptor socket;
    std::string secret;  // empty: not received yet
  };
  DescriptorListener(FileDescriptor socket, std::string name)
      : socket_(std::move(socket)), name_(std::move(name)) {}

  void AcceptAll();

  const FileDescriptor socket_;
  const std::string name_;
  std::deque<Pending> pending_;
};

// Connects to the listener `name` and presents `secret`. UNAVAILABLE: the listener is not on this
// host, belongs to another user or has a full backlog.
absl::StatusOr<FileDescriptor> ConnectDescriptors(const std::string& name,
                                                  const std::string& secret);

// A segment of shared memory, by its owner's number.
struct SegmentName {
  uint64_t segment = 0;
  uint64_t bytes = 0;
};

// UNAVAILABLE: the other end is gone or has too many unread messages.
absl::Status SendDescriptor(const FileDescriptor& socket, SegmentName name, int descriptor);

// The next received descriptor; none: no message has arrived, or the message was malformed.
struct ReceivedDescriptor {
  SegmentName name;
  FileDescriptor descriptor;
};
std::optional<ReceivedDescriptor> ReceiveDescriptor(const FileDescriptor& socket);

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_SHM_DESCRIPTOR_SOCKET_H_
