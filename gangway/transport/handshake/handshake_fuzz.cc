// A peer's first frames: no frame reaches a service before a Hello of this version; any other first
// frame is rejected once, with a reason, and closes the link.
#include <google/protobuf/stubs/logging.h>

#include "gangway/base/check.h"
#include "gangway/base/fuzz.h"
#include "gangway/transport/handshake/handshake.h"
#include "gangway/wire/version.h"

namespace gangway::transport {
namespace {

struct Seen {
  int replies = 0;
  int closes = 0;
  int frames = 0;
  bool welcomed = false;
};

class FuzzLink final : public Link {
 public:
  explicit FuzzLink(Seen* seen) : seen_(seen) {}
  absl::Status Send(wire::Frame frame) override {
    GANGWAY_CHECK(frame.has_hello_reply() && frame.hello_reply().session() == 0,
                  "the greeter itself only refuses, or answers a probe");
    ++seen_->replies;
    return absl::OkStatus();
  }
  size_t queued_bytes() const override { return 0; }
  size_t writable_bytes() const override { return LinkOptions().writable_bytes(); }
  size_t frame_bytes_max() const override { return size_t{1} << 30; }
  void Close(const absl::Status& reason) override {
    GANGWAY_CHECK(!reason.ok(), "a refusal has a reason");
    ++seen_->closes;
  }
  const Peer& peer() const override { return peer_; }

 private:
  Seen* const seen_;
  const Peer peer_;
};

class FuzzEndpoint final : public Endpoint {
 public:
  explicit FuzzEndpoint(Seen* seen) : seen_(seen) {}
  void OnFrame(wire::Frame) override { ++seen_->frames; }
  void OnClosed(const absl::Status&) override {}

 private:
  Seen* const seen_;
};

void RunGreeter(std::string_view bytes) {
  // Never destroyed: its timers fire after their greeter is gone.
  static auto* loop = new EventLoop("fuzz");
  Seen seen;
  const auto link = std::make_shared<FuzzLink>(&seen);
  LinkEvents events =
      Greet(loop, {},
            [&seen](const std::shared_ptr<Link>&,
                    const wire::Hello& hello) -> absl::StatusOr<std::unique_ptr<Endpoint>> {
              GANGWAY_CHECK(hello.protocol_version() == wire::kProtocolVersion, "of this version");
              if (hello.role() == wire::ROLE_UNKNOWN)
                return absl::InvalidArgumentError("no such role");
              seen.welcomed = true;
              return std::make_unique<FuzzEndpoint>(&seen);
            })(link);
  int frames = 0;
  for (std::string_view piece : fuzz::Split(bytes)) {
    wire::Frame frame;
    if (!frame.ParseFromArray(piece.data(), static_cast<int>(piece.size()))) continue;
    ++frames;
    events.on_frame(std::move(frame));
  }
  events.on_closed(absl::CancelledError("the end"));
  const bool refused = frames > 0 && !seen.welcomed;
  GANGWAY_CHECK(seen.replies == (refused ? 1 : 0) && seen.closes == seen.replies,
                "a refusal is sent once");
  GANGWAY_CHECK(seen.frames == (seen.welcomed ? frames - 1 : 0), "frames follow a Hello");
}

}  // namespace
}  // namespace gangway::transport

namespace gangway::fuzz {

std::vector<std::string> Seeds() {
  wire::Frame hello;
  hello.mutable_hello()->set_protocol_version(wire::kProtocolVersion);
  hello.mutable_hello()->set_role(wire::ROLE_CLIENT);
  wire::Frame stranger = hello;
  stranger.mutable_hello()->set_role(wire::ROLE_UNKNOWN);
  wire::Frame beat;
  beat.mutable_heartbeat()->set_time_ns(5);
  return {Join({hello.SerializeAsString(), beat.SerializeAsString()}),
          Join({stranger.SerializeAsString(), beat.SerializeAsString()}),
          Join({beat.SerializeAsString(), hello.SerializeAsString()})};
}

}  // namespace gangway::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  [[maybe_unused]] static auto* const before = google::protobuf::SetLogHandler(nullptr);
  gangway::transport::RunGreeter(gangway::fuzz::View(data, size));
  return 0;
}
