// Owns one file descriptor, or none. Moves, never copies; not thread-safe, as an int is not. What
// close() says is dropped: a file whose writes must be known to have arrived is closed by hand.
#ifndef GANGWAY_BASE_FILE_DESCRIPTOR_H_
#define GANGWAY_BASE_FILE_DESCRIPTOR_H_

#include <unistd.h>

#include <utility>

namespace gangway {

class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}  // negative, as failing calls return it: none
  ~FileDescriptor() { Reset(); }
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.Release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    Reset(other.Release());
    return *this;
  }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  [[nodiscard]] int Release() { return std::exchange(fd_, -1); }  // the caller's from here on
  void Reset(int fd = -1) {
    if (fd_ >= 0) close(fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

}  // namespace gangway

#endif  // GANGWAY_BASE_FILE_DESCRIPTOR_H_
