// Round trips, small frames per second and bulk bytes per second of each transport, both ends in
// one process.
#include <benchmark/benchmark.h>

#include <memory>

#include "gangway/base/executor.h"
#include "gangway/base/mutex.h"
#include "gangway/transport/grpc/grpc.h"
#include "gangway/transport/inproc/inproc.h"
#include "gangway/transport/local/local.h"

namespace gangway::transport {
namespace {

constexpr std::chrono::seconds kLimit{20};

enum Kind { kInproc, kTcp, kUnix };

// A link whose server end counts frames or echoes them.
class Pair {
 public:
  Pair(Kind kind, bool echo) {
    transport_ = kind == kInproc ? NewInprocTransport()
                 : kind == kUnix ? NewLocalTransport()
                                 : *NewGrpcTransport();
    const char* address = kind == kUnix ? "unix:/tmp/gangway-benchmark" : "127.0.0.1:0";
    listener_ = *transport_->Listen(address, [this, echo](std::shared_ptr<Link> link) {
      server_ = link;
      LinkEvents events{&server_loop_};
      events.on_frame = [this, echo](wire::Frame frame) {
        if (echo) {
          (void)server_->Send(std::move(frame));
        } else {
          Count();
        }
      };
      return events;
    });
    LinkEvents events{&client_loop_};
    events.on_frame = [this](const wire::Frame&) { Count(); };
    link_ = *transport_->Connect(listener_->address(), events, kLimit);
  }
  ~Pair() {
    link_->Close(absl::CancelledError("done"));
    listener_.reset();
    transport_.reset();
    client_loop_.Stop();
    server_loop_.Stop();
  }

  void Send(wire::Frame frame) {
    if (!link_->Send(std::move(frame)).ok()) std::abort();
  }
  void Wait(size_t count) {
    MutexLock lock(mutex_);
    wanted_ = count;
    if (!changed_.WaitFor(mutex_, kLimit, [&]() GANGWAY_NO_ANALYSIS { return count_ >= count; }))
      std::abort();
    count_ = 0;
    wanted_ = ~size_t{0};
  }

 private:
  void Count() {
    MutexLock lock(mutex_);
    if (++count_ >= wanted_) changed_.NotifyAll();
  }

  EventLoop client_loop_{"client"}, server_loop_{"server"};
  Mutex mutex_;
  CondVar changed_;
  size_t count_ GANGWAY_GUARDED_BY(mutex_) = 0;
  size_t wanted_ GANGWAY_GUARDED_BY(mutex_) = ~size_t{0};
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Listener> listener_;
  std::shared_ptr<Link> server_, link_;
};

wire::Frame Small() {
  wire::Frame frame;
  frame.set_sequence(1);
  frame.mutable_heartbeat()->set_time_ns(1);
  return frame;
}

void RoundTrip(benchmark::State& state) {
  Pair pair(static_cast<Kind>(state.range(0)), /*echo=*/true);
  for (auto _ : state) {
    pair.Send(Small());
    pair.Wait(1);
  }
}
BENCHMARK(RoundTrip)->Arg(kInproc)->Arg(kTcp)->Arg(kUnix)->UseRealTime()->MeasureProcessCPUTime();

void SmallFrames(benchmark::State& state) {
  Pair pair(static_cast<Kind>(state.range(0)), /*echo=*/false);
  for (auto _ : state) {
    for (int i = 0; i < 1000; ++i) pair.Send(Small());
    pair.Wait(1000);
  }
  state.SetItemsProcessed(state.iterations() * 1000);
}
BENCHMARK(SmallFrames)->Arg(kInproc)->Arg(kTcp)->Arg(kUnix)->UseRealTime()->MeasureProcessCPUTime();

// 64 MiB in chunks of range(1) bytes, each newly allocated, as an upload does.
void BulkBytes(benchmark::State& state) {
  Pair pair(static_cast<Kind>(state.range(0)), /*echo=*/false);
  std::string source(64 << 20, 'x');
  size_t chunk = state.range(1);
  for (auto _ : state) {
    for (size_t at = 0; at < source.size(); at += chunk) {
      wire::Frame frame;
      frame.mutable_bulk()->mutable_bytes()->set_data(source.substr(at, chunk));
      pair.Send(std::move(frame));
    }
    pair.Wait(source.size() / chunk);
  }
  state.SetBytesProcessed(state.iterations() * source.size());
}
BENCHMARK(BulkBytes)
    ->ArgsProduct({{kInproc, kTcp, kUnix}, {256 << 10, 1 << 20, 4 << 20}})
    ->UseRealTime()
    ->MeasureProcessCPUTime();

}  // namespace
}  // namespace gangway::transport

BENCHMARK_MAIN();
