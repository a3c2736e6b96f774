// Implementation of fetch_task.h.
#include "gangway/worker/service/transfer/fetch_task.h"

#include <chrono>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/device/element_type.h"

namespace gangway::worker {
namespace {

constexpr size_t kSharedBytesMin = size_t{64} << 10;  // smaller shards go on the stream
constexpr std::chrono::microseconds kSmallRead{3};    // about, of one such shard

}  // namespace

FetchTask::FetchTask(std::shared_ptr<const TaskEnvironment> environment, Ordinal ordinal,
                     std::vector<Part> parts, FetchedShard::Source memory, Send send)
    : NodeTask(std::move(environment), ordinal, wire::LabelOf("fetch"), parts.size()),
      parts_(std::move(parts)),
      memory_(std::move(memory)),
      send_(std::move(send)) {}

void FetchTask::Enqueue() {
  auto self = std::static_pointer_cast<FetchTask>(shared_from_this());
  for (const Part& part : parts_) {
    environment().devices[part.from->name().device]->Post(
        {.run = [self, &part](const absl::Status&) { self->Read(part); },
         .ready = [self, &part] { return part.from->settled(); }});
  }
}

// Of shards that are small and, most likely, ready: the bytes go out in the loop's round.
bool FetchTask::RunHere(ShortLaunches& launches) {
  if (!environment().backend->capabilities().executes_inline ||
      !launches.MayRun(kSmallRead, parts_.size()))
    return false;
  uint64_t bytes = 0;
  std::vector<int> devices;
  for (const Part& part : parts_) {
    if (!part.from->settled()) return false;
    bytes += part.from->name().bytes;
    devices.push_back(part.from->name().device);
  }
  if (bytes >= kSharedBytesMin || !BorrowDevices(devices)) return false;
  const Clock::time_point begun = Clock::now();
  for (const Part& part : parts_) {
    Read(part);
    environment().devices[part.from->name().device]->GiveBack();
  }
  launches.Spend(Clock::now() - begun);
  return true;
}

void FetchTask::Read(const Part& part) {
  absl::StatusOr<store::Content> content = part.from->Wait(Deadline());
  if (!content.ok()) return Fail(part, content.status());
  std::shared_ptr<device::Buffer> buffer = content->buffer;
  std::optional<size_t> size = device::HostBytes(buffer->spec());
  if (!size)
    return Fail(part, absl::InternalError("The array's element type has no size in host memory."));
  absl::StatusOr<StagingMemory::Charge> charge =
      memory_.staging->Take(memory_.session, *size, StagingMemory::Order::kInTurn);
  if (!charge.ok()) return AwaitMemory(part, *size);
  ReadInto(part, buffer, *size, *std::move(charge), true);
}

void FetchTask::AwaitMemory(const Part& part, size_t size) {
  absl::StatusOr<store::Content> content =
      part.from->BeginRead(Deadline());  // settled: it does not wait
  if (!content.ok()) return Fail(part, content.status());
  auto self = std::static_pointer_cast<FetchTask>(shared_from_this());
  memory_.staging->Await(memory_.session, size,
                         [self, &part, size, buffer = std::move(content->buffer)](
                             absl::StatusOr<StagingMemory::Charge> charge) {
                           if (charge.ok())
                             return self->ReadInto(part, buffer, size, *std::move(charge), false);
                           part.from->EndRead();
                           self->Fail(part, charge.status());
                         });
}

void FetchTask::ReadInto(const Part& part, const std::shared_ptr<device::Buffer>& buffer,
                         size_t size, StagingMemory::Charge charge, bool has_device) {
  std::shared_ptr<FetchedShard> bytes =
      FetchedShard::Make(memory_, std::move(charge), size, kSharedBytesMin);
  if (bytes == nullptr) {
    if (!has_device) part.from->EndRead();
    return Fail(part, absl::ResourceExhaustedError(
                          absl::StrCat("No host memory for the ", size,
                                       " bytes of a shard to fetch; fetch less at once.")));
  }
  auto self = std::static_pointer_cast<FetchTask>(shared_from_this());
  // A small shard waits for no other thread. Only a thread that has its device donates it.
  if (has_device && size < kSharedBytesMin && buffer->CopyToHostNow(bytes->data(), size))
    return send_(part.shard, std::move(bytes),
                 [self, &part](const absl::Status& sent) { self->Sent(part, sent); });
  buffer->CopyToHost(
      bytes->data(), size, Owed([self, &part, bytes, buffer, has_device](absl::Status status) {
        if (!has_device) part.from->EndRead();
        if (!status.ok()) return self->Fail(part, status);
        self->send_(part.shard, bytes,
                    [self, &part](const absl::Status& sent) { self->Sent(part, sent); });
      }));
}

// What could not be sent cannot be told on the stream either: the controller tells the client.
void FetchTask::Sent(const Part& part, const absl::Status& status) {
  if (!status.ok()) Note(status, part.from->name().device);
  EndPart();
}

void FetchTask::Fail(const Part& part, const absl::Status& status) {
  Note(status, part.from->name().device);
  NoteUnsent(part.shard);
  EndPart();
}

}  // namespace gangway::worker
