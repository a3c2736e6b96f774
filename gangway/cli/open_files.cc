// Implementation of open_files.h.
#include "gangway/cli/open_files.h"

#include <sys/resource.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "gangway/base/lasting_error.h"

namespace gangway::cli {
namespace {

// Beside what grows with the cluster: logs, listeners, event loops, the compilers, tools, sessions.
constexpr uint64_t kOfEachProcess = 128;
// The link to its head or scheduler, and that of one session to its data.
constexpr uint64_t kOfEachWorker = 2;
// Some programs look at each number up to the limit, of which a few systems allow 2^30.
constexpr rlim_t kRaisedMax = rlim_t{1} << 20;

}  // namespace

uint64_t RaiseOpenFiles() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  const rlimit raised = {std::max(limit.rlim_cur, std::min(limit.rlim_max, kRaisedMax)),
                         limit.rlim_max};
  return setrlimit(RLIMIT_NOFILE, &raised) == 0 ? raised.rlim_cur : limit.rlim_cur;
}

uint64_t OpenFilesFor(uint64_t workers) { return kOfEachProcess + kOfEachWorker * workers; }

absl::Status CheckOpenFiles(uint64_t workers, uint64_t limit) {
  const uint64_t needed = OpenFilesFor(workers);
  if (limit >= needed) return absl::OkStatus();
  return Lasting(absl::ResourceExhaustedError(absl::StrCat(
      "this process may open ", limit, " files, and ", workers, " workers need ", needed, ": ",
      kOfEachProcess, ", and ", kOfEachWorker, " for each worker, of which one is for the first ",
      "session; each further one needs ", workers, " more. Raise the hard limit of open files ",
      "(`ulimit -Hn`, or LimitNOFILE of its service), or declare fewer workers")));
}

}  // namespace gangway::cli
