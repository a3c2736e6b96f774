// Implementation of loaded.h.
#include "gangway/transport/library/loaded.h"

#include <dlfcn.h>

#include <climits>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"
#include "gangway/transport/traffic.h"

namespace gangway::transport {
namespace {

absl::Status StatusOf(int code, const char* text, size_t size) {
  return absl::Status(static_cast<absl::StatusCode>(code), {text, size});
}

GangwayReport Into(absl::Status* status) {
  return {status, [](void* to, int code, const char* text, size_t size) {
            *static_cast<absl::Status*>(to) = StatusOf(code, text, size);
          }};
}

GangwayExecutor Lend(Executor* executor) {
  return {.executor = executor,
          .post = [](void* own, void* task, void (*run)(void*), void (*drop)(void*)) {
            std::shared_ptr<void> kept(task, drop);
            static_cast<Executor*>(own)->Post([kept, run] { run(kept.get()); });
          }};
}

// What a link of the library calls, until it releases it.
GangwayCallbacks Lend(LinkEvents events) {
  static constexpr auto kOf = [](void* owner) { return static_cast<LinkEvents*>(owner); };
  return {
      .owner = new LinkEvents(std::move(events)),
      .on_frame =
          [](void* owner, const char* bytes, size_t size) {
            wire::Frame frame;
            CountReceived(1, size);
            if (frame.ParseFromArray(bytes, static_cast<int>(size)) && kOf(owner)->on_frame)
              kOf(owner)->on_frame(std::move(frame));
          },
      .on_writable =
          [](void* owner) {
            if (kOf(owner)->on_writable) kOf(owner)->on_writable();
          },
      .on_closed =
          [](void* owner, int code, const char* text, size_t size) {
            if (kOf(owner)->on_closed) kOf(owner)->on_closed(StatusOf(code, text, size));
          },
      .release = [](void* owner) { delete kOf(owner); },
  };
}

class LoadedLink final : public Link {
 public:
  LoadedLink(const GangwayLinks& links, void* link) : links_(links), link_(link) {
    const GangwayPeer peer = links_.peer(link_);
    peer_ = {peer.address, peer.authenticated != 0, peer.certificate};
  }
  ~LoadedLink() override { links_.release_link(link_); }

  absl::Status Send(wire::Frame frame) override {
    const std::string bytes = frame.SerializeAsString();
    absl::Status status;
    links_.send(link_, bytes.data(), bytes.size(), Into(&status));
    if (status.ok()) CountSent(frame, bytes.size());  // the library counts for itself alone
    return status;
  }

  size_t queued_bytes() const override { return links_.queued_bytes(link_); }
  size_t writable_bytes() const override { return links_.writable_bytes(link_); }
  size_t frame_bytes_max() const override { return links_.frame_bytes_max(link_); }

  void Close(const absl::Status& reason) override {
    links_.close_link(link_, static_cast<int>(reason.code()), reason.message().data(),
                      reason.message().size());
  }

  const Peer& peer() const override { return peer_; }

 private:
  const GangwayLinks& links_;
  void* const link_;
  Peer peer_;
};

class LoadedTransport final : public Transport {
 public:
  LoadedTransport(const GangwayLinks& links, void* transport)
      : links_(links), transport_(transport) {}
  ~LoadedTransport() override { links_.close(transport_); }

  absl::StatusOr<std::unique_ptr<Listener>> Listen(const std::string& address, Accept accept,
                                                   LinkOptions options) override {
    return absl::UnimplementedError("a library in another program listens nowhere");
  }

  absl::StatusOr<std::shared_ptr<Link>> Connect(const std::string& address, LinkEvents events,
                                                std::chrono::milliseconds limit,
                                                LinkOptions options) override {
    absl::Status status;
    const GangwayExecutor executor = Lend(events.executor);
    // NOLINTNEXTLINE(clang-analyzer-cplusplus.NewDeleteLeaks): the library releases it
    void* const link =
        links_.connect(transport_, address.c_str(), executor, Lend(std::move(events)),
                       {.queue_bytes_max = options.queue_bytes_max,
                        .writable_bytes_max = options.writable_bytes_max,
                        .connect_ms = limit.count()},
                       Into(&status));
    if (link == nullptr) return status;
    return std::make_shared<LoadedLink>(links_, link);
  }

 private:
  const GangwayLinks& links_;
  void* const transport_;
};

}  // namespace

absl::StatusOr<const GangwayLinks*> LoadGrpcLibrary() {
  Dl_info here = {};
  char own[PATH_MAX] = {};
  if (dladdr(reinterpret_cast<void*>(&LoadGrpcLibrary), &here) == 0 ||
      realpath(here.dli_fname, own) == nullptr)
    return absl::NotFoundError("this library does not know its own path");
  const std::string folder(own, std::string(own).rfind('/') + 1);
  void* const library = dlopen(absl::StrCat(folder, kGrpcLibrary).c_str(), RTLD_NOW | RTLD_LOCAL);
  void* const entry = library == nullptr ? nullptr : dlsym(library, "GangwayGrpcLinks");
  if (entry == nullptr) {
    return absl::NotFoundError(absl::StrCat("connections to other hosts need ", kGrpcLibrary,
                                            " beside ", own,
                                            ", and it cannot be loaded: ", dlerror()));
  }
  const GangwayLinks* const links = reinterpret_cast<decltype(&GangwayGrpcLinks)>(entry)();
  if (links->version == kGangwayLinksVersion) return links;
  return absl::FailedPreconditionError(
      absl::StrCat(folder, kGrpcLibrary,
                   " is of another version than the library beside it: install both anew"));
}

absl::StatusOr<std::unique_ptr<Transport>> NewLoadedTransport(const GangwayLinks& links,
                                                              const std::string& tls) {
  absl::Status status;
  void* const transport = links.open(tls.c_str(), Into(&status));
  if (transport == nullptr) return status;
  return std::make_unique<LoadedTransport>(links, transport);
}

}  // namespace gangway::transport
