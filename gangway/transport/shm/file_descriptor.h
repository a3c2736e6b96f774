// Owns one file descriptor. Moves, never copies; not thread-safe, as an int is not.
#ifndef GANGWAY_TRANSPORT_SHM_FILE_DESCRIPTOR_H_
#define GANGWAY_TRANSPORT_SHM_FILE_DESCRIPTOR_H_

#include <unistd.h>

#include <utility>

namespace gangway::transport {

class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() { Reset(); }
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) {
      Reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  void Reset() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }

 private:
  int fd_ = -1;
};

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_SHM_FILE_DESCRIPTOR_H_
