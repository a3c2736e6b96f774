// Owns one file descriptor or none. Movable, not copyable, not thread-safe. The result of close()
// is ignored: a caller that must know that its writes arrived closes the file itself.
#ifndef GANGWAY_BASE_FILE_DESCRIPTOR_H_
#define GANGWAY_BASE_FILE_DESCRIPTOR_H_

#include <unistd.h>

#include <utility>

namespace gangway {

class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}  // negative (a failed call's result): none
  ~FileDescriptor() { Reset(); }
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.Release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    Reset(other.Release());
    return *this;
  }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  [[nodiscard]] int Release() { return std::exchange(fd_, -1); }  // the caller owns the result
  void Reset(int fd = -1) {
    if (fd_ >= 0) close(fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

}  // namespace gangway

#endif  // GANGWAY_BASE_FILE_DESCRIPTOR_H_
