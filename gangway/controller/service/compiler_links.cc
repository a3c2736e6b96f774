// Implementation of compiler_links.h.
#include "gangway/controller/service/compiler_links.h"

#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/pulse.h"
#include "gangway/base/status.h"
#include "gangway/wire/failure.h"

namespace gangway::controller {
namespace {

std::string NameOf(uint32_t compiler) {
  return compiler == 0 ? "compiler" : absl::StrCat("spare compiler ", compiler);
}

}  // namespace

CompilerLinks::CompilerLinks(const Options& options, Events events)
    : options_(options), events_(std::move(events)), compilers_(options.count) {}

absl::Status CompilerLinks::Welcome(const std::shared_ptr<transport::Link>& link,
                                    const wire::Hello& hello, uint64_t key) {
  const uint32_t index = hello.compiler();
  if (index >= compilers_.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "compiler ", index, " is not declared: there are ", compilers_.size(), ", from 0"));
  }
  Compiler& compiler = compilers_[index];
  GANGWAY_RETURN_IF_ERROR(link->Send(events_.reply()));
  if (compiler.link) {
    compiler.link->Close(absl::AbortedError("a newer compiler process registered"));
    events_.on_down(index);
  }
  const auto stamp = [epoch = options_.epoch](wire::Frame& frame) { frame.set_epoch(epoch); };
  compiler = {.link = link,
              .sender = std::make_unique<transport::PacedSender>(
                  link, stamp,
                  transport::PacedSender::Options{.waiting_bytes_max =
                                                      SIZE_MAX}),  // CompileQueue bounds it
              .key = key,
              .process_id = hello.process_id(),
              .name = hello.name(),
              .heard = Clock::now()};
  events_.say(absl::StrCat("the ", NameOf(index), " is up (pid ", hello.process_id(), ")"));
  events_.on_up(index, hello.process_id());
  return absl::OkStatus();
}

std::optional<uint32_t> CompilerLinks::Find(uint64_t key) const {
  for (uint32_t index = 0; index < compilers_.size(); ++index)
    if (compilers_[index].link && compilers_[index].key == key) return index;
  return std::nullopt;
}

void CompilerLinks::OnFrame(uint64_t key, wire::Frame& frame) {
  const std::optional<uint32_t> index = Find(key);
  if (!index) return;
  compilers_[*index].heard = Clock::now();
  events_.on_frame(*index, frame);
}

void CompilerLinks::OnWritable(uint64_t key) {
  const std::optional<uint32_t> index = Find(key);
  if (!index) return;
  const absl::Status sent = compilers_[*index].sender->OnWritable();
  if (!sent.ok()) End({.compiler = *index, .why = std::string(sent.message())});
}

void CompilerLinks::OnClosed(uint64_t key, const absl::Status& why) {
  if (const std::optional<uint32_t> index = Find(key)) Lose(*index, why);
}

void CompilerLinks::OnPulse(Clock::time_point now, Clock::duration stood_still) {
  for (uint32_t index = 0; index < compilers_.size(); ++index) {
    Compiler& compiler = compilers_[index];
    if (!compiler.link) continue;
    compiler.heard = Pulse::Later(compiler.heard, stood_still, now);
    if (now - compiler.heard < options_.silence_max) continue;
    End({.compiler = index,
         .why = absl::StrCat("silent for ", options_.silence_max.count(), " ms")});
  }
}

void CompilerLinks::End(const CompilerEnd& end) {
  const Compiler& compiler = compilers_[end.compiler];
  if (!compiler.link) return;
  const absl::Status why = absl::AbortedError(end.why);
  const uint64_t process_id = compiler.process_id;
  compiler.link->Close(why);
  Lose(end.compiler, why);
  if (!end.idle) events_.on_silent(process_id);
}

void CompilerLinks::Lose(uint32_t index, const absl::Status& why) {
  compilers_[index].link.reset();
  compilers_[index].sender.reset();
  events_.say(absl::StrCat("the ", NameOf(index), " is down: ", why.message()));
  events_.on_down(index);
}

void CompilerLinks::Send(uint32_t index, wire::CompileRequest request) {
  CompileNotSent not_sent{.request = request.request()};
  wire::Frame frame;
  *frame.mutable_compile_request() = std::move(request);
  const std::unique_ptr<transport::PacedSender>& sender = compilers_[index].sender;
  const absl::Status sent =
      sender ? sender->Send(std::move(frame)) : absl::UnavailableError("no compiler");
  if (sent.ok()) return;
  events_.say(absl::StrCat("a compile request was not sent: ", sent.ToString()));
  not_sent.link_ends = absl::IsUnavailable(sent);
  not_sent.failure = wire::MakeFailure(
      sent.code(), absl::StrCat("the program was not sent to the compiler: ", sent.message()));
  events_.on_not_sent(std::move(not_sent));
}

std::set<std::string> CompilerLinks::Ask(const wire::Frame& question) {
  std::set<std::string> asked;
  for (const Compiler& compiler : compilers_) {
    if (!compiler.link) continue;
    (void)compiler.link->Send(question);  // a missing reply is named
    asked.insert(compiler.name);
  }
  return asked;
}

}  // namespace gangway::controller
