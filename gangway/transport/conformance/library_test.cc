// Runs the conformance suite on links that cross the border of transport/library: this end's, while the other end is a
// gRPC link of the same process.
#include <future>

#include "gangway/transport/conformance/conformance.h"
#include "gangway/transport/grpc/grpc.h"
#include "gangway/transport/library/loaded.h"

namespace gangway::transport {
namespace {

class AcrossTheBorder final : public Transport {
 public:
  AcrossTheBorder()
      : listens_(*NewGrpcTransport()), connects_(*NewLoadedTransport(*GangwayGrpcLinks(), "")) {}

  absl::StatusOr<std::unique_ptr<Listener>> Listen(const std::string& address, Accept accept,
                                                   LinkOptions options) override {
    return listens_->Listen(address, std::move(accept), options);
  }
  absl::StatusOr<std::shared_ptr<Link>> Connect(const std::string& address, LinkEvents events,
                                                std::chrono::milliseconds limit,
                                                LinkOptions options) override {
    return connects_->Connect(address, std::move(events), limit, options);
  }

 private:
  const std::unique_ptr<Transport> listens_, connects_;
};

const Implementation kTcp{"tcp", [] { return std::make_unique<AcrossTheBorder>(); }, "127.0.0.1:0",
                          "127.0.0.1:1"};

INSTANTIATE_TEST_SUITE_P(Library, TransportAddresses, ::testing::Values(kTcp),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Library, TransportConformance, ::testing::Values(kTcp),
                         [](const auto& info) { return info.param.name; });

// Callbacks often hold their own link, so only their release ends that cycle.
TEST(Library, ReleasesTheCallbacksOfAClosedLink) {
  EventLoop loop("test");
  End server(&loop);
  AcrossTheBorder transport;
  auto listener = transport.Listen("127.0.0.1:0",
                                   [&](std::shared_ptr<Link> link) {
                                     server.link = std::move(link);
                                     return server.Events();
                                   },
                                   {});
  ASSERT_TRUE(listener.ok()) << listener.status();
  std::promise<void> released;
  std::shared_ptr<std::shared_ptr<Link>> held(new std::shared_ptr<Link>,
                                              [&released](std::shared_ptr<Link>* last) {
                                                delete last;
                                                released.set_value();
                                              });
  auto link = transport.Connect((*listener)->address(),
                                {.executor = &loop, .on_frame = [held](const wire::Frame&) {}},
                                std::chrono::seconds(10), {});
  ASSERT_TRUE(link.ok()) << link.status();
  *held = *link;
  held.reset();
  (*link)->Close(absl::CancelledError("done"));
  link = absl::CancelledError("dropped");
  EXPECT_EQ(released.get_future().wait_for(std::chrono::seconds(10)), std::future_status::ready);
  listener->reset();
  loop.Stop();
}

TEST(Library, ErrorsCrossTheBorder) {
  EventLoop loop("test");
  AcrossTheBorder transport;
  auto link = transport.Connect("10.0.0.1:80", {.executor = &loop}, std::chrono::seconds(1), {});
  EXPECT_EQ(link.status().code(), absl::StatusCode::kInvalidArgument) << link.status();
  EXPECT_EQ(NewLoadedTransport(*GangwayGrpcLinks(), "/none").status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace gangway::transport
