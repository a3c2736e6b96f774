// The schedulers of all islands, as the controller reaches them. One in the controller's process is run by calls: at
// the end of each round of the loop, the controller and these schedulers run in turns until neither has anything for
// the other. One in a process of its own has a link; the two exchange heartbeats, and one whose link closes, that takes
// no more items, or that is silent for `silence_max` is dead. It gets what a round has for it as one batch, which
// PacedSender cuts where it is large.
//
// Threading: everything runs on the given event loop, which outlives this object. Events are called from Exchange, and
// from what a link's events call here; they may call Add and Ask.
#ifndef GANGWAY_CONTROLLER_SERVICE_SCHEDULER_LINKS_H_
#define GANGWAY_CONTROLLER_SERVICE_SCHEDULER_LINKS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"

#include "gangway/base/clock.h"
#include "gangway/base/executor.h"
#include "gangway/base/ids.h"
#include "gangway/transport/paced_sender.h"
#include "gangway/transport/transport.h"
#include "gangway/wire/island_port.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::controller {

class SchedulerLinks {
 public:
  struct Options {
    uint64_t epoch = 0;
    uint32_t islands = 0;
    std::set<uint32_t> remote;  // islands whose schedulers are processes of their own
    std::chrono::milliseconds silence_max{5000};
  };
  struct Events {
    std::function<void(uint32_t island, wire::Frame& frame)> on_frame;  // reports, or an answer
    // The rest is of schedulers with links.
    std::function<wire::Frame(uint32_t island)> terms;  // the reply to a Hello
    std::function<void(uint32_t island, uint64_t process_id)> on_up;
    std::function<void(uint32_t island, const std::string& why)> on_down;
    std::function<void(uint64_t process_id)> on_silent;  // it was declared dead for its silence
    std::function<void(const std::string& event)> say;   // for people
  };
  struct Programs {
    size_t count = 0;
    uint64_t bytes = 0;
  };

  SchedulerLinks(EventLoop* loop, Options options, Events events);

  // Runs the scheduler of an island that is not remote, from now on. Not owned.
  void Attach(uint32_t island, wire::IslandPort* scheduler);

  // Of a link of ROLE_SCHEDULER, by the key that the caller gave it. Welcome's error rejects the link.
  absl::Status Welcome(const std::shared_ptr<transport::Link>& link, const wire::Hello& hello,
                       uint64_t key);
  void OnFrame(uint64_t key, wire::Frame& frame);
  void OnWritable(uint64_t key);
  void OnClosed(uint64_t key, const absl::Status& why);

  // Sent at the end of this round, or once the island has a scheduler. A Load for a remote island comes without its
  // executable, which is kept.
  void Add(uint32_t island, wire::IslandItem item);
  // Keeps an executable if there are remote islands. `islands`: how many will be sent its Unload.
  void Keep(ExecutableId executable, const std::string& serialized, size_t islands);
  // A question, ahead of the items that wait. One without a scheduler does not answer.
  void Ask(uint32_t island, const wire::Frame& question);

  // At the end of a round: runs the schedulers of this process and the controller in turns, then sends to the others.
  void Exchange();
  void Flush();
  bool has_items() const;  // for a scheduler that is up
  // Heartbeats, and whose are missing.
  void OnPulse(Clock::time_point now, Clock::duration stood_still);

  uint32_t count() const { return static_cast<uint32_t>(islands_.size()); }
  bool is_up(uint32_t island) const;
  bool is_remote(uint32_t island) const { return islands_[island].remote; }
  Programs programs() const;  // that are kept

 private:
  struct Island {
    wire::IslandPort* here = nullptr;  // its scheduler in this process, which has no link
    bool remote = false;
    std::shared_ptr<transport::Link> link;           // null while it is down
    std::unique_ptr<transport::PacedSender> sender;  // on `link`
    uint64_t key = 0;                                // of the link
    uint64_t process_id = 0;
    Clock::time_point heard;
    wire::IslandBatch batch;  // items of this round, or since the link was missing
    // A second claimant of the place; it waits for proof that the incumbent is alive or dead.
    std::shared_ptr<transport::Link> newcomer;
    wire::Hello newcomer_hello;
    uint64_t newcomer_key = 0;
  };
  struct Program {
    std::shared_ptr<const std::string> bytes;
    size_t islands_left = 0;  // that have not been sent its Unload
  };

  bool ExchangeWith(uint32_t island);
  absl::Status Register(uint32_t island, const std::shared_ptr<transport::Link>& link,
                        const wire::Hello& hello, uint64_t key);
  void Admit(uint32_t island);
  void Refuse(uint32_t island);
  std::optional<uint32_t> Find(uint64_t key) const;
  void Lose(uint32_t island, const absl::Status& why);
  void AfterSend(uint32_t island, const absl::Status& sent);
  std::shared_ptr<const std::string> ProgramOf(const wire::Load& load) const;
  void DropUnloaded();

  EventLoop* const loop_;
  const Options options_;
  const Events events_;
  std::vector<Island> islands_;
  // Executables, if an island's scheduler is another process, whose successor needs them. Kept apart from the core, so
  // that the links to all islands share them.
  absl::flat_hash_map<ExecutableId, Program> programs_;
  std::vector<ExecutableId> unloaded_;  // in this round; by one island each
};

}  // namespace gangway::controller

#endif  // GANGWAY_CONTROLLER_SERVICE_SCHEDULER_LINKS_H_
