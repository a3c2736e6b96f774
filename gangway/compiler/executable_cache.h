// ExecutableCache: compiled programs on disk, shared by the compilers of one user on a host. It
// never fails a compile: an unreadable, truncated or altered entry counts as missing; a full disk
// or a folder that cannot be written stops the writing, with one log line. Entries are machine code
// that workers run, so a folder that other users can write is not used.
//
// Threading: one thread at a time per object. Any number of processes may share a folder: an entry
// appears whole (by rename) and carries a checksum.
#ifndef GANGWAY_COMPILER_EXECUTABLE_CACHE_H_
#define GANGWAY_COMPILER_EXECUTABLE_CACHE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

#include "gangway/wire/wire.pb.h"

namespace gangway::compiler {

// $GANGWAY_CACHE_DIR, else $HOME/.cache/gangway/executables, else "": no cache.
std::string DefaultCacheFolder();

class ExecutableCache {
 public:
  struct Counters {
    uint64_t hits = 0;
    uint64_t misses = 0;
    uint64_t corrupt = 0;  // misses with a file present
    uint64_t stores = 0;
    uint64_t store_failures = 0;
    uint64_t evictions = 0;
  };

  // `bytes_max` bounds the total size of the files; the least recently used are evicted first. An
  // empty `folder` turns the cache off.
  ExecutableCache(std::string folder, uint64_t bytes_max);

  // Returns the entry with `from_cache` set and `request` 0.
  std::optional<wire::CompileResult> Lookup(const std::string& key);
  void Store(const std::string& key, const wire::CompileResult& result);

  bool readable() const { return readable_; }
  bool writable() const { return writable_; }
  const Counters& counters() const { return counters_; }

 private:
  std::string PathOf(const std::string& key) const;
  absl::Status Open();
  absl::Status Write(const std::string& key, std::string_view payload);
  void StopWriting(const absl::Status& why);
  void Evict();

  const std::string folder_;
  const uint64_t bytes_max_;
  bool readable_ = false;
  bool writable_ = false;
  uint64_t bytes_ = 0;  // of the entries this process knows of; others may have added more
  uint64_t next_temporary_ = 0;
  Counters counters_;
};

}  // namespace gangway::compiler

#endif  // GANGWAY_COMPILER_EXECUTABLE_CACHE_H_
