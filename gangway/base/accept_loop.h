// AcceptLoop: listens at an address and hands over the accepted connections, on its own thread (Start) or on that of an
// owner which watches the socket (TakeWaiting).
// gRPC's listener stops for good when the process runs out of file descriptors. This one logs the
// shortage once, leaves new connections in the kernel's backlog, and resumes when descriptors are
// free.
//
// Threading: created and destroyed by one owner, not on the loop's thread. Failure: UNAVAILABLE,
// with the system's reason, if it cannot listen at the address.
#ifndef GANGWAY_BASE_ACCEPT_LOOP_H_
#define GANGWAY_BASE_ACCEPT_LOOP_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "gangway/base/file_descriptor.h"
#include "gangway/base/thread.h"

namespace gangway {

class AcceptLoop {
 public:
  // Receives a connected, non-blocking socket and owns it.
  using Take = std::function<void(int fd)>;

  // `host`: a name or a numeric address, IPv6 without brackets. Port 0: any free port.
  static absl::StatusOr<std::unique_ptr<AcceptLoop>> ListenTcp(const std::string& host, int port);
  // `path`: a socket file, or an abstract name, which begins with a zero byte; a lone zero byte
  // picks any free name. An existing socket file is replaced: the caller checks first that no
  // process listens at it.
  static absl::StatusOr<std::unique_ptr<AcceptLoop>> ListenUnix(const std::string& path);
  ~AcceptLoop();

  int port() const { return port_; }                 // the bound port
  const std::string& path() const { return path_; }  // the bound unix socket

  void Start(Take take);  // once
  void Stop();            // no connection is accepted after it

  // Instead of Start: readable when connections wait.
  int fd() const { return listener_.get(); }
  // Hands over those that wait, up to a limit. False: out of descriptors or memory; others wait until the next call.
  bool TakeWaiting(const Take& take);
  static constexpr std::chrono::milliseconds kRetryAfter{200};  // while out of descriptors

 private:
  AcceptLoop() = default;
  absl::Status Open(int family, const void* address, size_t size);
  void Run(const Take& take);

  FileDescriptor listener_;
  FileDescriptor wake_;
  int port_ = 0;
  std::string path_;
  bool told_ = false;
  Thread thread_;
};

}  // namespace gangway

#endif  // GANGWAY_BASE_ACCEPT_LOOP_H_
