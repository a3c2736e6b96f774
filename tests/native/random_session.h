// A session of the random-programs test: operations drawn from a seed, sent to a cluster through
// the client library, and recorded as a dataflow graph. Each fetched shard must equal, bit by bit,
// the reference interpreter's result for that graph (DF-3), or, where processes are killed or links are cut, be an
// error that names the worker or what else was lost (ER-1).
//
// Threading: one thread makes the operations; replies arrive on the client's loop. Failure: every
// wait has the limit kLimit; an error is reported with the seed that reproduces it.
#ifndef TESTS_NATIVE_RANDOM_SESSION_H_
#define TESTS_NATIVE_RANDOM_SESSION_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/native/native_client.h"

#include "gangway/program/interpreter.h"
#include "gangway/program/program.h"

namespace gangway::e2e {

// What happens to the cluster, and so which errors may occur: none; those of a killed process; those of a cut link,
// which may also be the session's own.
enum class Trouble { kNone, kKills, kCuts };

class RandomSession {
 public:
  RandomSession(std::unique_ptr<Client> client, uint64_t seed, Trouble trouble)
      : client_(std::move(client)), random_(seed), seed_(seed), trouble_(trouble) {}

  // Draws and sends `count` operations, and calls `step` before each.
  void Run(int count, const std::function<void()>& step);
  // Waits for all replies, compares them, and drops all arrays.
  void Finish();

  uint64_t compared_count() const { return compared_count_; }
  uint64_t failed_count() const { return failed_count_; }
  uint64_t call_count() const { return call_count_; }
  uint64_t copy_count() const { return copy_count_; }
  // From a question (a compile, a fetch, an await) to its answer; the longest of all, after Finish.
  std::chrono::milliseconds slowest() const { return std::chrono::milliseconds(*slowest_ms_); }
  const std::string& last_error() const { return last_error_; }

 private:
  using Devices = std::vector<uint32_t>;
  struct Array {
    program::ValueId value = 0;
    Devices devices;
    std::set<uint64_t> storages;
  };
  // A requested shard.
  struct Fetched {
    uint32_t result = 0;  // index among the program's results
    uint32_t shard = 0;
    std::shared_ptr<std::string> bytes;
    std::shared_ptr<Arrival<absl::Status>> done;
  };

  uint64_t Below(uint64_t limit) { return random_() % limit; }
  const Devices& Placement();
  ArrayHandle PickUsable();
  std::optional<ExecutableHandle> Compile(const std::string& program, const Devices& devices);
  ArrayHandle Add(program::ValueId value, Devices devices, std::set<uint64_t> storages);
  ArrayHandle Upload(const Devices& devices);
  void Call();
  void Copy();
  void Regroup();
  void Fetch();
  void Drop(bool consume);
  void Consume(const std::set<uint64_t>& storages);
  void Check(const absl::Status& status, const std::string& what);
  // To be called with the answer to a question that is asked now.
  std::function<void()> Timed();

  std::unique_ptr<Client> client_;
  std::mt19937_64 random_;
  const uint64_t seed_;
  const Trouble trouble_;
  std::map<std::pair<std::string, Devices>, std::optional<ExecutableHandle>> executables_;
  std::map<ArrayHandle, Array> arrays_;  // the usable ones
  uint64_t next_storage_ = 1;
  program::Program program_;  // in the order of the operations
  std::vector<program::Array> arguments_;
  uint32_t result_count_ = 0;
  std::vector<Fetched> fetched_;
  uint64_t compared_count_ = 0, failed_count_ = 0, call_count_ = 0, copy_count_ = 0;
  std::shared_ptr<std::atomic<int64_t>> slowest_ms_ = std::make_shared<std::atomic<int64_t>>(0);
  std::string last_error_;
};

}  // namespace gangway::e2e

#endif  // TESTS_NATIVE_RANDOM_SESSION_H_
