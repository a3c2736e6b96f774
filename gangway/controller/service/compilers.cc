// The links to the compiler processes.
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/clock.h"
#include "gangway/base/status.h"
#include "gangway/controller/service/controller_service.h"
#include "gangway/wire/failure.h"

namespace gangway::controller {

absl::Status ControllerService::WelcomeCompiler(const std::shared_ptr<transport::Link>& link,
                                                const wire::Hello& hello, uint64_t key) {
  const uint32_t index = hello.compiler();
  if (index >= compilers_.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "compiler ", index, " is not declared: there are ", compilers_.size(), ", from 0"));
  }
  CompilerLink& compiler = compilers_[index];
  GANGWAY_RETURN_IF_ERROR(link->Send(NewReply()));
  if (compiler.link) {
    compiler.link->Close(absl::AbortedError("a newer compiler process registered"));
    Step(CompilerDown{index});
  }
  compiler = {.link = link,
              .sender = NewSender(link, {.waiting_bytes_max = SIZE_MAX}),  // CompileQueue bounds it
              .key = key,
              .process_id = hello.process_id(),
              .name = hello.name(),
              .heard = Clock::now()};
  Say(absl::StrCat("the ", index == 0 ? "compiler" : absl::StrCat("spare compiler ", index),
                   " is up (pid ", hello.process_id(), ")"));
  Step(CompilerUp{hello.process_id(), index});
  return absl::OkStatus();
}

// Null if another link has replaced this one.
ControllerService::CompilerLink* ControllerService::FindCompiler(uint64_t key) {
  for (CompilerLink& compiler : compilers_)
    if (compiler.link && compiler.key == key) return &compiler;
  return nullptr;
}

void ControllerService::WatchCompilers(Clock::time_point now, Clock::duration stood_still) {
  for (uint32_t i = 0; i < compilers_.size(); ++i) {
    CompilerLink& compiler = compilers_[i];
    if (!compiler.link) continue;
    compiler.heard = Pulse::Later(compiler.heard, stood_still, now);
    if (now - compiler.heard < options_.silence_max) continue;
    EndCompiler(
        {.compiler = i, .why = absl::StrCat("silent for ", options_.silence_max.count(), " ms")});
  }
}

void ControllerService::EndCompiler(const CompilerEnd& end) {
  CompilerLink& compiler = compilers_[end.compiler];
  if (!compiler.link) return;
  const absl::Status why = absl::AbortedError(end.why);
  const uint64_t process_id = compiler.process_id;
  compiler.link->Close(why);
  OnCompilerClosed(end.compiler, why);
  if (options_.on_silent && !end.at_ease) options_.on_silent(process_id);
}

void ControllerService::OnCompilerClosed(uint32_t index, const absl::Status& why) {
  CompilerLink& compiler = compilers_[index];
  compiler.link.reset();
  compiler.sender.reset();
  Say(absl::StrCat("the ", index == 0 ? "compiler" : absl::StrCat("spare compiler ", index),
                   " is down: ", why.message()));
  Step(CompilerDown{index});
}

// A request that the link does not take is answered in a later round, or sent to the next compiler.
void ControllerService::SendCompile(uint32_t compiler, wire::CompileRequest request) {
  CompileNotSent not_sent{.request = request.request()};
  wire::Frame frame;
  *frame.mutable_compile_request() = std::move(request);
  const std::unique_ptr<transport::PacedSender>& sender = compilers_[compiler].sender;
  const absl::Status sent =
      sender ? sender->Send(std::move(frame)) : absl::UnavailableError("no compiler");
  if (sent.ok()) return;
  Say(absl::StrCat("a compile request was not sent: ", sent.ToString()));
  not_sent.link_ends = absl::IsUnavailable(sent);
  not_sent.failure = wire::MakeFailure(
      sent.code(), absl::StrCat("the program was not sent to the compiler: ", sent.message()));
  if (not_sent.link_ends) return Step(std::move(not_sent));  // ahead of CompilerDown
  loop_->Post([this, alive = alive_, not_sent = std::move(not_sent)] {
    if (*alive) Step(not_sent);
  });
}

}  // namespace gangway::controller
