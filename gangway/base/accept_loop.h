// AcceptLoop: listens at an address and hands over the connections that come, on a thread of its
// own. gRPC's own listener stops listening for good when the process is out of file descriptors;
// this one says so once, lets what comes wait in the system's queue, and goes on when there are
// some again.
//
// Threading: made and destroyed by one owner, not on the loop's thread. Failure: UNAVAILABLE, with
// the system's reason, where the address cannot be listened at.
#ifndef GANGWAY_BASE_ACCEPT_LOOP_H_
#define GANGWAY_BASE_ACCEPT_LOOP_H_

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"

#include "gangway/base/file_descriptor.h"

namespace gangway {

class AcceptLoop {
 public:
  // Given a connected socket, not blocking, which it owns from then on.
  using Take = std::function<void(int fd)>;

  // `host`: a name or a number, IPv6 without brackets. Port 0: any free one.
  static absl::StatusOr<std::unique_ptr<AcceptLoop>> ListenTcp(const std::string& host, int port);
  // A path; or a name in the abstract namespace, which begins with a zero byte, and is any free one
  // when nothing follows. A socket file that is there is replaced: that nobody listens at it is for
  // the caller to find out.
  static absl::StatusOr<std::unique_ptr<AcceptLoop>> ListenUnix(const std::string& path);
  ~AcceptLoop();

  int port() const { return port_; }                 // the real one
  const std::string& path() const { return path_; }  // of a unix socket: the real one

  void Start(Take take);  // once
  void Stop();            // nothing is taken after it

 private:
  AcceptLoop() = default;
  absl::Status Open(int family, const void* address, size_t size);
  void Run();
  bool Accept();  // false: no descriptors are left

  FileDescriptor listener_;
  FileDescriptor wake_;
  int port_ = 0;
  std::string path_;
  bool told_ = false;
  Take take_;
  std::thread thread_;
};

}  // namespace gangway

#endif  // GANGWAY_BASE_ACCEPT_LOOP_H_
