// Descriptors sent to other processes of the host without a connection: a socket of datagrams with a random abstract
// name. A sender knows the name and a secret, which it learned over an authenticated link; the kernel says that it is a
// process of the same user. Nothing here blocks. Threading: one thread at a time. The socket leaves nothing behind.
#ifndef GANGWAY_TRANSPORT_SHM_DESCRIPTOR_MAIL_H_
#define GANGWAY_TRANSPORT_SHM_DESCRIPTOR_MAIL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gangway/base/file_descriptor.h"

namespace gangway::transport {

inline constexpr size_t kMailDescriptorsMax = 2;

struct DescriptorMail {
  uint64_t sender = 0;  // a number of the sender's choice
  // All that were sent, or none: then this process is at its limit of open files.
  std::vector<FileDescriptor> descriptors;
};

class DescriptorMailbox {
 public:
  // UNAVAILABLE: the system cannot create the socket.
  static absl::StatusOr<std::unique_ptr<DescriptorMailbox>> Open();

  const std::string& name() const { return name_; }
  const std::string& secret() const { return secret_; }
  int fd() const { return socket_.get(); }  // readable when mail is there

  // The next mail that knows the secret. Other mail is dropped.
  std::optional<DescriptorMail> Receive();

  // UNAVAILABLE: nobody of this host has the name. RESOURCE_EXHAUSTED: its box is full; try again later.
  // INVALID_ARGUMENT: not one to kMailDescriptorsMax descriptors.
  absl::Status Send(const std::string& name, const std::string& secret, uint64_t sender,
                    std::span<const int> descriptors) const;

 private:
  DescriptorMailbox(FileDescriptor socket, std::string name, std::string secret)
      : socket_(std::move(socket)), name_(std::move(name)), secret_(std::move(secret)) {}

  const FileDescriptor socket_;
  const std::string name_;
  const std::string secret_;
};

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_SHM_DESCRIPTOR_MAIL_H_
