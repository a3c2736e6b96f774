// The links to the compiler processes, by their numbers. A process whose link closes, that takes no more requests, or
// that is silent for `silence_max` is down; its successor registers under the same number. PacedSender cuts large
// programs.
//
// Threading: everything runs on one event loop. Events are called from what a link's events call here, from Send, End
// and OnPulse; they may call all of these.
#ifndef GANGWAY_CONTROLLER_SERVICE_COMPILER_LINKS_H_
#define GANGWAY_CONTROLLER_SERVICE_COMPILER_LINKS_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "gangway/base/clock.h"
#include "gangway/controller/core/compile_queue.h"
#include "gangway/controller/core/events.h"
#include "gangway/transport/paced_sender.h"
#include "gangway/transport/transport.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::controller {

class CompilerLinks {
 public:
  struct Options {
    uint64_t epoch = 0;
    uint32_t count = 1;  // processes, from 0
    std::chrono::milliseconds silence_max{5000};
  };
  struct Events {
    std::function<wire::Frame()> reply;  // to a Hello
    std::function<void(uint32_t compiler, uint64_t process_id)> on_up;
    std::function<void(uint32_t compiler)> on_down;
    std::function<void(uint32_t compiler, wire::Frame& frame)> on_frame;  // a result, or an answer
    std::function<void(CompileNotSent not_sent)> on_not_sent;             // called by Send
    std::function<void(uint64_t process_id)> on_silent;  // it is to be ended and replaced
    std::function<void(const std::string& event)> say;   // for people
  };

  CompilerLinks(const Options& options, Events events);

  // Of a link of ROLE_COMPILER, by the key that the caller gave it. Welcome's error rejects the link; a link that
  // another one has replaced is ignored.
  absl::Status Welcome(const std::shared_ptr<transport::Link>& link, const wire::Hello& hello,
                       uint64_t key);
  void OnFrame(uint64_t key, wire::Frame& frame);
  void OnWritable(uint64_t key);
  void OnClosed(uint64_t key, const absl::Status& why);

  void Send(uint32_t compiler, wire::CompileRequest request);
  void End(const CompilerEnd& end);
  // Sends a question to the processes that are up, and returns their names.
  std::set<std::string> Ask(const wire::Frame& question);
  // Ends those that are silent.
  void OnPulse(Clock::time_point now, Clock::duration stood_still);

 private:
  struct Compiler {
    std::shared_ptr<transport::Link> link;           // null while it is down
    std::unique_ptr<transport::PacedSender> sender;  // on `link`
    uint64_t key = 0;                                // of the link
    uint64_t process_id = 0;
    std::string name;
    Clock::time_point heard;
  };

  std::optional<uint32_t> Find(uint64_t key) const;
  void Lose(uint32_t index, const absl::Status& why);

  const Options options_;
  const Events events_;
  std::vector<Compiler> compilers_;
};

}  // namespace gangway::controller

#endif  // GANGWAY_CONTROLLER_SERVICE_COMPILER_LINKS_H_
