// Implementation of supervisor.h.
#include "gangway/cli/supervisor.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/private_file.h"
#include "gangway/base/shown_name.h"
#include "gangway/base/status.h"
#include "gangway/cli/announcement.h"

namespace gangway::cli {
namespace {

std::string FileName(std::string name) {
  std::replace(name.begin(), name.end(), '/', '-');
  return name;
}

}  // namespace

Supervisor::Supervisor(SupervisorOptions options, StateDir* dir)
    : options_(std::move(options)), dir_(dir) {
  for (const ChildSpec& spec : options_.children) {
    Child& child = children_.emplace_back();
    child.spec = spec;
  }
}

absl::Status Supervisor::OpenLogs() {
  GANGWAY_ASSIGN_OR_RETURN(auto folder, dir_->Logs());
  const auto shared = std::make_shared<const PrivateFolder>(std::move(folder));
  for (Child& child : children_) {
    GANGWAY_ASSIGN_OR_RETURN(child.log,
                             BoundedLog::Open(shared, FileName(child.spec.name) + ".log"));
  }
  return absl::OkStatus();
}

int Supervisor::Run() {
  if (const absl::Status opened = OpenLogs(); !opened.ok()) {
    options_.complain(std::string(opened.message()));
    return 1;
  }
  sigset_t handled;
  sigemptyset(&handled);
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&handled, signal);
  sigprocmask(SIG_BLOCK, &handled, nullptr);
  signal(SIGPIPE, SIG_IGN);
  signals_.Reset(signalfd(-1, &handled, SFD_NONBLOCK | SFD_CLOEXEC));
  if (options_.ready_limit.count() > 0) phase_deadline_ = Clock::now() + options_.ready_limit;
  Start(children_.front());
  auto running = [](const Child& child) { return child.process != nullptr; };
  while (!stopping() || std::any_of(children_.begin(), children_.end(), running)) {
    WaitForEvents();
    OnDeadlines(Clock::now());
  }
  dir_->Remove(kControlAddress);
  return exit_status_;
}

void Supervisor::WaitForEvents() {
  std::vector<pollfd> fds = {{.fd = signals_.get(), .events = POLLIN}};
  for (Child& child : children_) {  // three each; a negative one is skipped by poll
    const ChildProcess* process = child.process.get();
    for (int fd : {process ? process->output_fd() : -1, process ? process->error_fd() : -1,
                   process ? process->pid_fd() : -1}) {
      fds.push_back({.fd = fd, .events = POLLIN});
    }
  }
  auto next = phase_deadline_;
  for (const Child& child : children_) {
    if (child.start_at && (!next || *child.start_at < *next)) next = child.start_at;
  }
  int timeout = -1;
  if (next) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*next - Clock::now()).count();
    timeout = static_cast<int>(std::clamp<int64_t>(left, 0, 3600000));
  }
  if (poll(fds.data(), fds.size(), timeout) <= 0) return;
  if (fds[0].revents != 0) OnSignal();
  for (size_t i = 0; i < children_.size(); ++i) {
    Child& child = children_[i];
    const pollfd* of_child = &fds[1 + 3 * i];
    if (!child.process) continue;
    if (of_child[0].revents != 0) child.process->ReadOutput();
    if (of_child[1].revents != 0) child.process->ReadError();
    if (of_child[2].revents != 0) OnDeath(child);
  }
}

void Supervisor::OnSignal() {
  signalfd_siginfo info;
  while (read(signals_.get(), &info, sizeof(info)) == sizeof(info)) {
    if (stopping()) {  // the second signal: kill at once
      phase_ = Phase::kStoppingRest;
      phase_deadline_ = Clock::now();
    } else {
      options_.say("ending the cluster");
      BeginStop(0);
    }
  }
}

void Supervisor::OnDeadlines(Clock::time_point now) {
  for (Child& child : children_) {
    if (!child.start_at || *child.start_at > now) continue;
    child.start_at.reset();
    if (!stopping()) Start(child);
  }
  if (!phase_deadline_ || *phase_deadline_ > now) return;
  phase_deadline_.reset();
  switch (phase_) {
    case Phase::kStarting:
      return GiveUp(absl::StrCat("the cluster is not ready after ", options_.ready_limit.count(),
                                 " ms: still waiting for ", absent_, AbsentWords()));
    case Phase::kStoppingHead:
      return StopRest();
    case Phase::kStoppingRest:
      for (Child& child : children_) {
        if (child.process) child.process->Signal(SIGKILL);
      }
      return;
    case Phase::kReady:
      return;
  }
}

void Supervisor::OnHeadLine(const std::string& line) {
  auto announcement = FromLine(line);
  if (!announcement) return children_.front().log->Write(ShownLines(line) + "\n");
  switch (announcement->kind) {
    case Announcement::Kind::kListening:
      if (stopping() || !control_.empty()) return;
      control_ = announcement->text;
      if (auto status = dir_->Write(kControlAddress, control_); !status.ok()) {
        return GiveUp(std::string(status.message()));
      }
      if (options_.on_listening) {
        if (auto status = options_.on_listening(control_); !status.ok())
          return GiveUp(std::string(status.message()));
      }
      for (size_t i = 1; i < children_.size(); ++i)
        if (!children_[i].spec.on_demand) Start(children_[i]);
      return;
    case Announcement::Kind::kEvent:
      return options_.say(announcement->text);
    case Announcement::Kind::kWaiting:
      absent_ = announcement->text;
      return;
    case Announcement::Kind::kReady:
      if (phase_ != Phase::kStarting) return;
      phase_ = Phase::kReady;
      phase_deadline_.reset();
      options_.say(options_.ready_text);
      if (options_.on_ready) options_.on_ready();
      return;
    case Announcement::Kind::kSilent:
      return EndSilent(announcement->text);
    case Announcement::Kind::kWanted:
      return StartOnDemand(announcement->text);
  }
}

// A line of another child than the head. Only schedulers write announcements.
void Supervisor::OnLine(const Child& child, const std::string& line) {
  auto announcement = FromLine(line);
  if (!announcement) return child.log->Write(ShownLines(line) + "\n");
  if (announcement->kind == Announcement::Kind::kEvent) options_.say(announcement->text);
  if (announcement->kind == Announcement::Kind::kSilent) EndSilent(announcement->text);
}

// The cluster has already fenced this process, so it can only be replaced. SIGKILL, because a
// stopped process does not handle SIGTERM.
void Supervisor::EndSilent(const std::string& pid) {
  for (Child& child : children_) {
    if (child.process && absl::StrCat(child.process->pid()) == pid) child.process->Signal(SIGKILL);
  }
}

void Supervisor::StartOnDemand(const std::string& name) {
  for (Child& child : children_) {
    if (!child.spec.on_demand || child.spec.name != name) continue;
    child.wanted = child.process != nullptr;
    if (!child.wanted && !child.start_at) child.start_at = std::max(child.not_before, Clock::now());
  }
}

void Supervisor::OnDeath(Child& child) {
  auto process = std::move(child.process);  // null while Reap handles its last lines
  const std::string how = process->Reap();
  child.last_words = process->LastWords();
  dir_->Remove(PidFile(child));
  std::error_code ignored;
  if (!child.spec.scratch.empty()) std::filesystem::remove_all(child.spec.scratch, ignored);
  const bool head = &child == &children_.front();
  if (stopping()) {
    if (head && phase_ == Phase::kStoppingHead) StopRest();
    return;
  }
  const std::string what = absl::StrCat(child.spec.name, " (pid ", process->pid(), ") ", how);
  if (head) {
    return GiveUp(absl::StrCat(what, ", and the cluster cannot run without it. Its last lines:\n",
                               child.last_words));
  }
  if (phase_ == Phase::kStarting && process->exit_status() == RestartPolicy::kHopeless) {
    return GiveUp(absl::StrCat(what, ", as it would after another start. Its last lines:\n",
                               child.last_words));
  }
  AfterDeath(child, *process, what);
}

// Of a process that the cluster can do without: it is started again, at once or later, or given up.
void Supervisor::AfterDeath(Child& child, const ChildProcess& process, const std::string& what) {
  const auto lived =
      std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - process.started());
  auto delay = child.policy.OnDeath(lived, process.exit_status());
  if (!delay && phase_ == Phase::kStarting && !child.spec.on_demand) {
    return GiveUp(
        absl::StrCat(what, ", for the ", RestartPolicy::kShortLivesMax,
                     "th time in a row soon after its start: not restarting it. Its last lines:\n",
                     child.last_words));
  }
  delay = std::min(delay.value_or(RestartPolicy::kDelayMax), child.spec.restart_delay_max);
  if (child.spec.on_demand) {
    child.not_before = Clock::now() + *delay;
    if (process.exit_status() != RestartPolicy::kBlameless) options_.say(what);
    if (std::exchange(child.wanted, false)) child.start_at = child.not_before;
    return;
  }
  options_.say(absl::StrCat(
      what, "; restarting it",
      delay->count() > 0 ? absl::StrCat(" in ", delay->count(), " ms") : std::string()));
  child.start_at = Clock::now() + *delay;
}

void Supervisor::Start(Child& child) {
  const bool head = &child == &children_.front();
  ++child.starts;
  auto process = ChildProcess::Start(child.spec.command(control_), child.log.get(),
                                     [this, head, &child](const std::string& line) {
                                       head ? OnHeadLine(line) : OnLine(child, line);
                                     });
  if (!process.ok())
    return GiveUp(absl::StrCat(child.spec.name, ": ", std::string(process.status().message())));
  child.process = *std::move(process);
  if (auto status = dir_->Write(PidFile(child), absl::StrCat(child.process->pid())); !status.ok()) {
    return GiveUp(std::string(status.message()));
  }
  if (child.starts > 1 || child.spec.on_demand) {
    options_.say(absl::StrCat(child.spec.name, child.spec.on_demand ? " started" : " restarted",
                              " (pid ", child.process->pid(), ", start ", child.starts, ")"));
  }
}

// Ends the head first: its front door tells clients that the cluster ends before any array is lost.
void Supervisor::BeginStop(int exit_status) {
  if (stopping()) return;
  exit_status_ = exit_status;
  if (!children_.front().process) return StopRest();
  phase_ = Phase::kStoppingHead;
  phase_deadline_ = Clock::now() + options_.stop_limit;
  children_.front().process->Signal(SIGTERM);
}

void Supervisor::StopRest() {
  phase_ = Phase::kStoppingRest;
  phase_deadline_ = Clock::now() + options_.stop_limit;
  for (Child& child : children_) {
    if (child.process) child.process->Signal(SIGTERM);
  }
}

void Supervisor::GiveUp(const std::string& text) {
  if (stopping()) return;
  options_.complain(text);
  BeginStop(1);
}

std::string Supervisor::PidFile(const Child& child) const {
  return FileName(child.spec.name) + ".pid";
}

std::string Supervisor::AbsentWords() const {
  std::string text;
  for (const Child& child : children_) {
    const std::string words = child.process ? child.process->LastWords() : child.last_words;
    if (absent_.find(child.spec.name) == std::string::npos || words.empty()) continue;
    absl::StrAppend(&text, "\n  last lines of ", child.spec.name, ":\n", words);
  }
  return text;
}

}  // namespace gangway::cli
