// Files and folders of this user alone: secrets, and what a process keeps in a folder that others must not steer.
//
// A process of root that opens /tmp/state/up.log, say, would append to whatever file a link of another user's names. So
// a folder of this kind belongs to the user, lets nobody else in, and is held by a descriptor. Its files are opened
// below that, never through a link, and belong to the user, too.
//
// Threading: functions and constant methods without state of their own. Failure: a status that names the file and says
// what to do.
#ifndef GANGWAY_BASE_PRIVATE_FILE_H_
#define GANGWAY_BASE_PRIVATE_FILE_H_

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gangway/base/file_descriptor.h"

namespace gangway {

// Errors of all methods: NOT_FOUND: nothing has that name. PERMISSION_DENIED: it is a link, or another user's, or of
// another kind. INTERNAL: the system's own reason.
class PrivateFolder {
 public:
  // Makes the folder and those above it, unless they exist, and takes the rights of others away (0700).
  static absl::StatusOr<PrivateFolder> Make(const std::string& path);
  static absl::StatusOr<PrivateFolder> Open(const std::string& path);

  // A folder in this one, made unless it exists.
  absl::StatusOr<PrivateFolder> MakeFolder(const std::string& name) const;

  // A regular file. `flags`: of open(2). Made for its owner only (0600), where they have O_CREAT.
  absl::StatusOr<FileDescriptor> OpenFile(const std::string& name, int flags) const;
  absl::StatusOr<std::string> Read(const std::string& name) const;
  absl::Status Write(const std::string& name, std::string_view text) const;  // atomically
  absl::Status Rename(const std::string& from, const std::string& to) const;
  void Remove(const std::string& name) const;

  const std::string& path() const { return path_; }

 private:
  PrivateFolder(std::string path, FileDescriptor folder)
      : path_(std::move(path)), folder_(std::move(folder)) {}
  static absl::StatusOr<PrivateFolder> Take(std::string path, FileDescriptor folder);
  std::string PathOf(const std::string& name) const { return path_ + "/" + name; }

  std::string path_;
  FileDescriptor folder_;
};

// Whether other users can put something else in place of what `folder` holds: it, or a link at its path, belongs to
// neither this user nor root, or all users may write to it, and may rename what is not theirs. PERMISSION_DENIED: they
// can. NOT_FOUND: it does not exist.
absl::Status CheckHolder(const std::string& folder);

// Opens a file that the user has named for the output of a command, and empties it. PERMISSION_DENIED: it is a link of
// another user's. UNAVAILABLE: the system's own reason.
absl::StatusOr<FileDescriptor> OpenOutput(const std::string& path);

// False, with errno set, if not all could be written.
bool WriteAll(int fd, std::string_view bytes);

// NOT_FOUND: the file does not exist. PERMISSION_DENIED: other users can read it; the members of its group may, if it
// is root's and this process is not.
absl::StatusOr<std::string> ReadPrivateFile(const std::string& path);

// Writes the file atomically, for its owner only (0600).
absl::Status WritePrivateFile(const std::string& path, const std::string& text);

}  // namespace gangway

#endif  // GANGWAY_BASE_PRIVATE_FILE_H_
