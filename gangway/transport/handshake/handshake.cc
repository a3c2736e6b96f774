// Implementation of handshake.h.
#include "gangway/transport/handshake/handshake.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/clock.h"
#include "gangway/transport/handshake/cluster_token.h"
#include "gangway/wire/failure.h"
#include "gangway/wire/version.h"

namespace gangway::transport {
namespace {

constexpr std::chrono::seconds kHelloLimit{10};

class Greeter : public std::enable_shared_from_this<Greeter> {
 public:
  Greeter(EventLoop* loop, std::shared_ptr<Link> link, Admission admission, Welcome welcome)
      : loop_(loop),
        link_(std::move(link)),
        admission_(std::move(admission)),
        welcome_(std::move(welcome)) {}

  LinkEvents Events() {
    auto self = shared_from_this();
    std::weak_ptr<Greeter> weak = self;
    loop_->PostAt(Clock::now() + kHelloLimit, [weak] {
      if (auto greeter = weak.lock()) greeter->OnHelloLimit();
    });
    return {.executor = loop_,
            .on_frame = [self](wire::Frame frame) { self->OnFrame(std::move(frame)); },
            .on_writable =
                [self] {
                  if (self->endpoint_) self->endpoint_->OnWritable();
                },
            .on_closed = [self](const absl::Status& why) { self->OnClosed(why); }};
  }

 private:
  void OnFrame(wire::Frame frame) {
    if (endpoint_) return endpoint_->OnFrame(std::move(frame));
    if (!link_) return;
    absl::Status refused = absl::InvalidArgumentError("the first frame on a link must be a Hello");
    if (frame.has_hello()) {
      refused = Admit(frame.hello());
      if (refused.ok()) {
        auto endpoint = welcome_(link_, frame.hello());
        refused = endpoint.status();
        if (endpoint.ok()) endpoint_ = *std::move(endpoint);
      }
    }
    if (!refused.ok()) return Refuse(refused);
    link_.reset();  // the endpoint owns it now
  }

  absl::Status Admit(const wire::Hello& hello) const {
    absl::Status versions = CheckVersions(hello);
    if (!versions.ok() || !admission_.token_needed) return versions;
    return CheckClusterToken(admission_.token, hello.token(), hello.name());
  }

  void OnHelloLimit() {
    if (!endpoint_ && link_) Refuse(absl::DeadlineExceededError("no Hello came within 10 s"));
  }

  void Refuse(const absl::Status& why) {
    wire::Frame reply;
    *reply.mutable_hello_reply()->mutable_failure() = wire::ToFailure(why);
    reply.mutable_hello_reply()->set_build_version(wire::kBuildVersion);
    reply.mutable_hello_reply()->set_protocol_version(wire::kProtocolVersion);
    (void)link_->Send(std::move(reply));  // the link closes either way
    link_->Close(why);
    link_.reset();
  }

  void OnClosed(const absl::Status& why) {
    link_.reset();
    if (auto endpoint = std::move(endpoint_)) endpoint->OnClosed(why);
  }

  EventLoop* const loop_;
  std::shared_ptr<Link> link_;  // until the endpoint owns it or the link ends
  const Admission admission_;
  const Welcome welcome_;
  std::unique_ptr<Endpoint> endpoint_;
};

}  // namespace

absl::Status CheckVersions(const wire::Hello& hello) {
  if (hello.protocol_version() == wire::kProtocolVersion) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(hello.name(), " runs Gangway ", hello.build_version(), " (protocol ",
                   hello.protocol_version(), "), this side runs ", wire::kBuildVersion,
                   " (protocol ", wire::kProtocolVersion, "): install the same version on both."));
}

Accept Greet(EventLoop* loop, Admission admission, Welcome welcome) {
  return [loop, admission = std::move(admission),
          welcome = std::move(welcome)](std::shared_ptr<Link> link) {
    return std::make_shared<Greeter>(loop, std::move(link), admission, welcome)->Events();
  };
}

}  // namespace gangway::transport
