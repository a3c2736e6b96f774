// Implementation of executable_cache.h. A file holds magic bytes, the SHA-256 (hex) of key and
// payload together, and the payload (a serialized CompileResult). Its name is the key; its
// modification time is the last use.
#include "gangway/compiler/executable_cache.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gangway/base/file_descriptor.h"
#include "gangway/base/sha256.h"

namespace gangway::compiler {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic = "GANGWAY1";
constexpr size_t kHeaderBytes = kMagic.size() + 64;
constexpr char kEntrySuffix[] = ".executable";
constexpr char kTemporaryPrefix[] = "temporary-";
constexpr std::chrono::hours kTemporaryAge{1};  // an older file's writer has died

std::string Checksum(const std::string& key, std::string_view payload) {
  return Sha256Hex(absl::StrCat(key, Sha256Hex(payload)));
}

absl::Status Errno(std::string_view what, const std::string& path) {
  return absl::UnavailableError(std::string(what) + " " + path + ": " + std::strerror(errno));
}

struct File {
  fs::path path;
  fs::file_time_type used;
  uint64_t bytes;
};

std::vector<File> FilesOf(const std::string& folder) {
  std::vector<File> files;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code gone;  // another process may have evicted it
    File file{it->path(), it->last_write_time(gone), 0};
    if (!gone) file.bytes = it->file_size(gone);
    if (!gone) files.push_back(std::move(file));
  }
  return files;
}

bool IsEntry(const File& file) { return file.path.extension() == kEntrySuffix; }

absl::Status WriteAll(int fd, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Errno("cannot write", path);
    bytes.remove_prefix(written);
  }
  return absl::OkStatus();
}

// What can be read of the file: less than all fails its checksum.
std::string ReadAll(int fd) {
  std::string bytes;
  struct stat stat;
  if (::fstat(fd, &stat) != 0 || !S_ISREG(stat.st_mode)) return bytes;
  bytes.resize(static_cast<size_t>(stat.st_size));
  size_t have = 0;
  while (have < bytes.size()) {
    const ssize_t count = ::read(fd, bytes.data() + have, bytes.size() - have);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    have += static_cast<size_t>(count);
  }
  bytes.resize(have);
  return bytes;
}

}  // namespace

std::string DefaultCacheFolder() {
  if (const char* folder = std::getenv("GANGWAY_CACHE_DIR")) return folder;
  const char* home = std::getenv("HOME");
  return home == nullptr || *home == '\0' ? "" : absl::StrCat(home, "/.cache/gangway/executables");
}

ExecutableCache::ExecutableCache(std::string folder, uint64_t bytes_max)
    : folder_(std::move(folder)), bytes_max_(bytes_max) {
  if (folder_.empty()) return;
  if (absl::Status status = Open(); !status.ok()) {
    ++counters_.store_failures;
    spdlog::warn("compiled programs are not cached: {}", std::string(status.message()));
  }
}

absl::Status ExecutableCache::Open() {
  std::error_code error;
  fs::path folder(folder_);
  if (folder.has_parent_path()) fs::create_directories(folder.parent_path(), error);
  if (::mkdir(folder_.c_str(), 0700) != 0 && errno != EEXIST)
    return Errno("cannot make the folder", folder_);
  struct stat stat;
  if (::lstat(folder_.c_str(), &stat) != 0) return Errno("cannot read the folder", folder_);
  if (!S_ISDIR(stat.st_mode)) {
    return absl::UnavailableError(
        absl::StrCat(folder_, " is not a folder, or a link to one: set GANGWAY_CACHE_DIR"));
  }
  if (stat.st_uid != ::geteuid() || (stat.st_mode & 022) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat("other users may write into ", folder_,
                     ", whose entries are run as code: chmod 700 it, or set GANGWAY_CACHE_DIR"));
  }
  readable_ = writable_ = true;
  auto stale = fs::file_time_type::clock::now() - kTemporaryAge;
  for (const File& file : FilesOf(folder_)) {
    bool temporary = file.path.filename().string().starts_with(kTemporaryPrefix);
    if (temporary && file.used < stale) fs::remove(file.path, error);
    if (IsEntry(file)) bytes_ += file.bytes;
  }
  if (bytes_ > bytes_max_) Evict();
  return absl::OkStatus();
}

std::string ExecutableCache::PathOf(const std::string& key) const {
  return absl::StrCat(folder_, "/", key, kEntrySuffix);
}

std::optional<wire::CompileResult> ExecutableCache::Lookup(const std::string& key) {
  std::string content;
  bool there = false;
  if (readable_) {
    const FileDescriptor file(::open(PathOf(key).c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
    there = file.valid();
    if (there) content = ReadAll(file.get());
  }
  std::string_view view(content);
  wire::CompileResult result;
  bool valid = view.size() >= kHeaderBytes && view.starts_with(kMagic);
  if (valid) {
    std::string_view payload = view.substr(kHeaderBytes);
    valid = payload.size() <= INT32_MAX &&
            view.substr(kMagic.size(), 64) == Checksum(key, payload) &&
            result.ParseFromArray(payload.data(), static_cast<int>(payload.size()));
  }
  if (!valid) {
    ++counters_.misses;
    if (there) {
      ++counters_.corrupt;
      spdlog::warn("{} is damaged; its program will be recompiled", PathOf(key));
      std::error_code error;
      fs::remove(PathOf(key), error);
    }
    return std::nullopt;
  }
  ++counters_.hits;
  std::error_code error;  // ignored: a folder that has become read-only still serves lookups
  fs::last_write_time(PathOf(key), fs::file_time_type::clock::now(), error);
  result.set_request(0);
  result.set_from_cache(true);
  return result;
}

void ExecutableCache::Store(const std::string& key, const wire::CompileResult& result) {
  if (!writable_) return;
  const std::string payload = result.SerializeAsString();
  uint64_t bytes = kHeaderBytes + payload.size();
  if (bytes > bytes_max_) return;
  if (absl::Status status = Write(key, payload); !status.ok()) {
    StopWriting(status);
    return;
  }
  ++counters_.stores;
  bytes_ += bytes;
  if (bytes_ > bytes_max_) Evict();
}

absl::Status ExecutableCache::Write(const std::string& key, std::string_view payload) {
  std::string temporary =
      absl::StrCat(folder_, "/", kTemporaryPrefix, ::getpid(), "-", next_temporary_++);
  int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return Errno("cannot create", temporary);
  absl::Status status =
      WriteAll(fd, absl::StrCat(std::string(kMagic), Checksum(key, payload)), temporary);
  if (status.ok()) status = WriteAll(fd, payload, temporary);
  // No fsync: a file that a machine crash left incomplete fails its checksum.
  if (::close(fd) != 0 && status.ok()) status = Errno("cannot write", temporary);
  if (status.ok() && ::rename(temporary.c_str(), PathOf(key).c_str()) != 0) {
    status = Errno("cannot rename", temporary);
  }
  if (!status.ok()) ::unlink(temporary.c_str());
  return status;
}

void ExecutableCache::StopWriting(const absl::Status& why) {
  ++counters_.store_failures;
  writable_ = false;
  spdlog::warn("compiled programs are no longer cached: {}", std::string(why.message()));
}

void ExecutableCache::Evict() {
  std::vector<File> files = FilesOf(folder_);
  std::erase_if(files, [](const File& file) { return !IsEntry(file); });
  std::sort(files.begin(), files.end(),
            [](const File& a, const File& b) { return a.used < b.used; });
  bytes_ = 0;
  for (const File& file : files) bytes_ += file.bytes;
  uint64_t goal = bytes_max_ - bytes_max_ / 10;  // so that not every store scans the folder
  for (const File& file : files) {
    if (bytes_ <= goal) break;
    std::error_code error;
    fs::remove(file.path, error);
    if (error) continue;
    bytes_ -= file.bytes;
    ++counters_.evictions;
  }
}

}  // namespace gangway::compiler
