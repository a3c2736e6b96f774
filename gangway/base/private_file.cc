// Implementation of private_file.h.
#include "gangway/base/private_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"

#include "gangway/base/file_descriptor.h"

namespace gangway {
namespace {

absl::Status CannotWrite(const std::string& path) {
  return absl::InternalError(absl::StrCat("cannot write ", path, ": ", std::strerror(errno)));
}

}  // namespace

absl::StatusOr<std::string> ReadPrivateFile(const std::string& path) {
  struct stat about;
  std::ifstream file(path);
  if (stat(path.c_str(), &about) != 0 || !file) {
    return absl::NotFoundError(absl::StrCat("cannot read ", path, ": ", std::strerror(errno)));
  }
  if ((about.st_mode & 077) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, " is a secret, but other users can read it: chmod 600 ", path,
                     ", and replace it if another user may have read it"));
  }
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

absl::Status WritePrivateFile(const std::string& path, const std::string& text) {
  const std::string fresh = path + ".new";
  unlink(fresh.c_str());  // a writer that died may have left it
  FileDescriptor file(open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (file.get() < 0) return CannotWrite(fresh);
  size_t offset = 0;
  while (offset < text.size()) {
    const ssize_t written = write(file.get(), text.data() + offset, text.size() - offset);
    if (written < 0 && errno != EINTR) return CannotWrite(fresh);
    if (written > 0) offset += static_cast<size_t>(written);
  }
  if (rename(fresh.c_str(), path.c_str()) != 0) return CannotWrite(path);
  return absl::OkStatus();
}

}  // namespace gangway
