// The library's side of table.h: each function is one of transport.h, on the transport of transport/tls.
#include <memory>
#include <string>
#include <utility>

#include "gangway/base/executor.h"
#include "gangway/transport/library/table.h"
#include "gangway/transport/tls/tls.h"

namespace gangway::transport {
namespace {

void Report(const GangwayReport& report, const absl::Status& status) {
  report.status(report.to, static_cast<int>(status.code()), status.message().data(),
                status.message().size());
}

// The other side's executor. The link, its callbacks and each task that is posted share it.
class Forwarding final : public Executor, public std::enable_shared_from_this<Forwarding> {
 public:
  explicit Forwarding(const GangwayExecutor& executor) : executor_(executor) {}

  void Post(std::function<void()> task) override {
    auto* const posted = new Task{shared_from_this(), std::move(task)};
    executor_.post(
        executor_.executor, posted, [](void* kept) { static_cast<Task*>(kept)->run(); },
        [](void* kept) { delete static_cast<Task*>(kept); });
  }

 private:
  struct Task {
    std::shared_ptr<Forwarding> executor;
    std::function<void()> run;
  };

  const GangwayExecutor executor_;
};

// The other side's callbacks, released when the link has dropped its own.
class Callbacks {
 public:
  explicit Callbacks(const GangwayCallbacks& callbacks) : callbacks_(callbacks) {}
  ~Callbacks() { callbacks_.release(callbacks_.owner); }

  void OnFrame(const wire::Frame& frame) {
    const std::string bytes = frame.SerializeAsString();
    callbacks_.on_frame(callbacks_.owner, bytes.data(), bytes.size());
  }
  void OnWritable() { callbacks_.on_writable(callbacks_.owner); }
  void OnClosed(const absl::Status& status) {
    callbacks_.on_closed(callbacks_.owner, static_cast<int>(status.code()), status.message().data(),
                         status.message().size());
  }

 private:
  const GangwayCallbacks callbacks_;
};

LinkEvents EventsOf(const std::shared_ptr<Forwarding>& executor, const GangwayCallbacks& given) {
  auto callbacks = std::make_shared<Callbacks>(given);
  return {.executor = executor.get(),
          .on_frame = [callbacks](const wire::Frame& frame) { callbacks->OnFrame(frame); },
          .on_writable = [callbacks] { callbacks->OnWritable(); },
          .on_closed = [callbacks, executor](const absl::Status& s) { callbacks->OnClosed(s); }};
}

struct OpenedTransport {
  std::string tls;
  std::unique_ptr<Transport> transport;
};

// The link may post until it is destroyed.
struct OpenedLink {
  std::shared_ptr<Forwarding> executor;
  std::shared_ptr<Link> link;
};

Link& LinkOf(void* link) { return *static_cast<OpenedLink*>(link)->link; }

void* Open(const char* tls, GangwayReport report) {
  auto transport = OpenTransport(tls);
  if (transport.ok()) return new OpenedTransport{tls, *std::move(transport)};
  Report(report, transport.status());
  return nullptr;
}

void* ConnectTo(void* transport, const char* address, GangwayExecutor executor,
                GangwayCallbacks callbacks, GangwayLinkLimits limits, GangwayReport report) {
  auto& opened = *static_cast<OpenedTransport*>(transport);
  auto kept = std::make_shared<Forwarding>(executor);
  auto link = opened.transport->Connect(
      address, EventsOf(kept, callbacks), std::chrono::milliseconds(limits.connect_ms),
      {.queue_bytes_max = limits.queue_bytes_max, .writable_bytes_max = limits.writable_bytes_max});
  if (link.ok()) return new OpenedLink{std::move(kept), *std::move(link)};
  Report(report, ExplainConnection(link.status(), address, opened.tls));
  return nullptr;
}

void Send(void* link, const char* bytes, size_t size, GangwayReport report) {
  wire::Frame frame;
  if (!frame.ParseFromArray(bytes, static_cast<int>(size))) {
    return Report(report, absl::InternalError("a frame did not pass between two libraries"));
  }
  Report(report, LinkOf(link).Send(std::move(frame)));
}

void CloseLink(void* link, int code, const char* text, size_t size) {
  LinkOf(link).Close(absl::Status(static_cast<absl::StatusCode>(code), {text, size}));
}

GangwayPeer PeerOf(void* link) {
  const Peer& peer = LinkOf(link).peer();
  return {peer.address.c_str(), peer.certificate.c_str(), peer.authenticated ? 1 : 0};
}

constexpr GangwayLinks kLinks = {
    .version = kGangwayLinksVersion,
    .open = Open,
    .close = [](void* transport) { delete static_cast<OpenedTransport*>(transport); },
    .connect = ConnectTo,
    .send = Send,
    .queued_bytes = [](void* link) { return LinkOf(link).queued_bytes(); },
    .writable_bytes = [](void* link) { return LinkOf(link).writable_bytes(); },
    .frame_bytes_max = [](void* link) { return LinkOf(link).frame_bytes_max(); },
    .peer = PeerOf,
    .close_link = CloseLink,
    .release_link = [](void* link) { delete static_cast<OpenedLink*>(link); },
};

}  // namespace
}  // namespace gangway::transport

extern "C" const GangwayLinks* GangwayGrpcLinks(void) { return &gangway::transport::kLinks; }
