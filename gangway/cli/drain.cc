// Implementation of drain.h.
#include "gangway/cli/drain.h"

#include <chrono>
#include <cstdio>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "gangway/base/clock.h"
#include "gangway/cli/tool_link.h"
#include "gangway/wire/failure.h"

namespace gangway::cli {
namespace {

constexpr std::chrono::seconds kLimit{5};
constexpr std::chrono::milliseconds kLookInterval{100};

int Fail(const absl::Status& status) {
  fprintf(stderr, "gangway drain: %s\n", std::string(status.message()).c_str());
  return 1;
}

// The pending nodes and the held bytes of the target's workers.
struct Left {
  uint64_t nodes = 0;
  uint64_t bytes = 0;
};

Left Sum(const wire::StatusReply& status, const wire::DrainRequest& target) {
  Left left;
  for (const auto& worker : status.workers()) {
    const wire::Worker& place = worker.state().worker();
    if (place.island() != target.island()) continue;
    if (!target.all() && place.index() != target.index()) continue;
    left.nodes += worker.nodes();
    for (const wire::DeviceUsage& device : worker.devices()) left.bytes += device.bytes();
  }
  return left;
}

absl::Status Send(const ControlDoor& door, const wire::DrainRequest& target) {
  wire::Frame request;
  *request.mutable_drain_request() = target;
  absl::Status answer;
  absl::Status asked = AskTool(*door.transport, door.address, door.token, "gangway drain",
                               std::move(request), kLimit, [&answer](const wire::Frame& frame) {
                                 if (!frame.has_drain_reply()) return false;
                                 answer = wire::ToStatus(frame.drain_reply().failure());
                                 return true;
                               });
  return asked.ok() ? answer : asked;
}

}  // namespace

absl::StatusOr<wire::DrainRequest> ParseTarget(const std::string& target) {
  wire::DrainRequest request;
  auto number = [](absl::string_view word, absl::string_view name, uint32_t* value) {
    return absl::StartsWith(word, name) && absl::SimpleAtoi(word.substr(name.size()), value);
  };
  const std::vector<std::string> parts = absl::StrSplit(target, '/');
  uint32_t island = 0, index = 0;
  const bool valid = parts.size() <= 2 && number(parts[0], "island", &island) &&
                     (parts.size() == 1 || number(parts[1], "worker", &index));
  if (!valid) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", target,
                     "' names no worker: give island0/worker1 for one, or island0 for "
                     "all of an island"));
  }
  request.set_island(island);
  request.set_index(index);
  request.set_all(parts.size() == 1);
  return request;
}

int Drain(const DrainOptions& options) {
  auto target = ParseTarget(options.target);
  if (!target.ok()) return Fail(target.status());
  target->set_undo(options.undo);
  auto door = OpenControl(options.cluster);
  if (!door.ok()) return Fail(door.status());
  if (absl::Status sent = Send(*door, *target); !sent.ok()) return Fail(sent);
  if (options.undo) {
    printf("%s takes new work again\n", options.target.c_str());
    return 0;
  }
  const auto deadline = Clock::now() + std::chrono::seconds(options.wait_s);
  while (true) {  // polls: the user waits at the terminal
    auto status = AskStatus(*door->transport, door->address, door->token, kLimit);
    if (!status.ok()) return Fail(status.status());
    const Left left = Sum(*status, *target);
    if (left.nodes == 0) {
      printf("%s is drained: nothing runs there, and it takes no new work. Arrays: %llu bytes%s\n",
             options.target.c_str(), static_cast<unsigned long long>(left.bytes),
             left.bytes == 0 ? "" : ", readable until the worker ends");
      return 0;
    }
    if (Clock::now() >= deadline) {
      return Fail(absl::DeadlineExceededError(
          absl::StrCat(options.target, " takes no new work, but ", left.nodes,
                       " operations still run there after ", options.wait_s,
                       " s: see `gangway why`, and run the command again")));
    }
    std::this_thread::sleep_for(kLookInterval);
  }
}

}  // namespace gangway::cli
