// Implementation of role_process.h.
#include "gangway/cli/role_process.h"

#include <signal.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <ctime>
#include <memory>
#include <string>

#include "gangway/base/lasting_error.h"
#include "gangway/base/log.h"
#include "gangway/base/shown_name.h"
#include "gangway/cli/open_files.h"
#include "gangway/cli/restart_policy.h"

namespace gangway::cli {
namespace {

// %* of a pattern: the message, in which no name, error or program of others begins a line or steers a terminal.
class ShownMessage final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm& /*when*/,
              spdlog::memory_buf_t& line) override {
    const std::string shown = ShownLines({message.payload.data(), message.payload.size()});
    line.append(shown.data(), shown.data() + shown.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<ShownMessage>();
  }
};

}  // namespace

int EndWatchSignal() { return SIGRTMIN; }

void BeginRole(const char* name) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, EndWatchSignal());
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  spdlog::set_default_logger(spdlog::stderr_color_mt(name));
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<ShownMessage>('*').set_pattern("%Y-%m-%d %H:%M:%S.%e %n %L %*");
  spdlog::set_formatter(std::move(formatter));
  spdlog::flush_on(spdlog::level::info);
  SetLogSink([](LogLevel level, const std::string& line) {
    const auto own = level == LogLevel::kInfo    ? spdlog::level::info
                     : level == LogLevel::kError ? spdlog::level::err
                                                 : spdlog::level::warn;
    spdlog::log(own, "{}", line);
  });
  RaiseOpenFiles();
}

int WaitForStop() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  int signal = 0;
  sigwait(&signals, &signal);
  return signal;
}

int FailRole(const absl::Status& status) {
  spdlog::error("{}", std::string(status.message()));
  return IsLasting(status) ? RestartPolicy::kHopeless : 1;
}

}  // namespace gangway::cli
