// Keeps the processes of one cluster alive. It starts the head, then the others; restarts a dead one
// (a worker as a new incarnation) for as long as the cluster lives, with the delays of RestartPolicy:
// what ended it may be one client's program; and starts spare compilers when the head wants them. It
// ends all processes in order when told to. The death of the head ends the cluster, and so does,
// before the cluster is ready, that of a child which has died too often or whose next start would
// fail as well.
//
// Threading: one thread, which waits for signals, the children's ends and their output, without
// polling. Failure: an error names the child, what happened and its last lines; Run returns 1.
#ifndef GANGWAY_CLI_SUPERVISOR_H_
#define GANGWAY_CLI_SUPERVISOR_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "gangway/base/clock.h"
#include "gangway/base/file_descriptor.h"
#include "gangway/cli/child_process.h"
#include "gangway/cli/restart_policy.h"
#include "gangway/cli/state_dir.h"

namespace gangway::cli {

struct ChildSpec {
  std::string name;  // "head", "compiler", "island0/worker1"
  // The command line. `control`: the address that the head announced, empty for the head.
  std::function<std::vector<std::string>(const std::string& control)> command;
  // Started when the head wants it, and not otherwise: not at first, and not after it has ended.
  bool on_demand = false;
  std::chrono::milliseconds restart_delay_max = RestartPolicy::kDelayMax;
  std::string scratch;  // a folder of the process, which is removed when it has ended
};

struct SupervisorOptions {
  std::vector<ChildSpec> children;               // the first is the head
  std::string ready_text;                        // said when all processes are up
  std::chrono::milliseconds ready_limit{30000};  // 0: no limit
  std::chrono::milliseconds stop_limit{5000};    // for the head, then for the rest, then SIGKILL
  std::function<void(const std::string& line)> say;       // events
  std::function<void(const std::string& text)> complain;  // errors that end the cluster
  std::function<void()> on_ready;                         // may be empty
  // The head listens at `control`. An error ends the cluster. May be empty.
  std::function<absl::Status(const std::string& control)> on_listening;
};

class Supervisor {
 public:
  // `dir` must be locked, and must outlive this.
  Supervisor(SupervisorOptions options, StateDir* dir);

  // Runs until SIGINT, SIGTERM or SIGHUP, or until the cluster cannot continue. Returns the exit
  // status. Blocks those signals permanently.
  int Run();

 private:
  enum class Phase { kStarting, kReady, kStoppingHead, kStoppingRest };
  struct Child {
    ChildSpec spec;
    std::unique_ptr<BoundedLog> log;
    std::unique_ptr<ChildProcess> process;  // null while it is not running
    RestartPolicy policy;
    uint64_t starts = 0;
    std::optional<Clock::time_point> start_at;
    Clock::time_point not_before;  // of a start on demand
    bool wanted = false;           // on demand, while its last process still ends
    std::string last_words;        // of the previous process
  };

  absl::Status OpenLogs();
  void WaitForEvents();
  void OnSignal();
  void OnDeadlines(Clock::time_point now);
  void OnHeadLine(const std::string& line);
  void OnLine(const Child& child, const std::string& line);
  void EndSilent(const std::string& pid);
  void StartOnDemand(const std::string& name);
  void AfterDeath(Child& child, const ChildProcess& process, const std::string& what);
  void OnDeath(Child& child);
  void Start(Child& child);
  void BeginStop(int exit_status);
  void StopRest();
  void GiveUp(const std::string& text);
  std::string PidFile(const Child& child) const;
  std::string AbsentWords() const;
  bool stopping() const { return phase_ == Phase::kStoppingHead || phase_ == Phase::kStoppingRest; }

  const SupervisorOptions options_;
  StateDir* const dir_;
  std::vector<Child> children_;
  FileDescriptor signals_;
  Phase phase_ = Phase::kStarting;
  std::optional<Clock::time_point> phase_deadline_;
  std::string control_;
  std::string absent_ = "the head";
  int exit_status_ = 0;
};

}  // namespace gangway::cli

#endif  // GANGWAY_CLI_SUPERVISOR_H_
