// Implementation of uploads.h.
#include "gangway/client/uploads.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/client/convert.h"
#include "gangway/wire/failure.h"
#include "gangway/wire/put_limits.h"

namespace gangway::client {
namespace {

// Whether the array may travel with its declaration. Wrong sizes are left to Push.
bool IsSmall(const ArraySpec& spec, std::span<const std::string_view> shards) {
  const bool is_whole = !shards.empty() && shards.size() == spec.devices.size() &&
                        std::ranges::all_of(shards, [&spec](std::string_view shard) {
                          return shard.size() == spec.shard_bytes;
                        });
  // What fails only some arrays, such as a memory that their devices do not have, must not fail those beside them.
  return is_whole && spec.memory_kind.empty() && shards.size() <= wire::kPutShardsMax &&
         spec.shard_dims.size() <= wire::kPutDimsMax &&
         spec.shard_bytes <= wire::kPutArrayBytesMax / shards.size();
}

void AddPut(ArrayHandle array, const ArraySpec& spec, std::span<const std::string_view> shards,
            wire::Put& op) {
  wire::PutArray& put = *op.add_arrays();
  put.set_array(NumberOf(array));
  wire::TensorSpec& tensor = *put.mutable_tensor();
  tensor.set_element_type(spec.element_type);
  tensor.mutable_shard_dims()->Add(spec.shard_dims.begin(), spec.shard_dims.end());
  tensor.set_shard_bytes(spec.shard_bytes);
  for (std::string_view shard : shards) put.add_shards(shard.data(), shard.size());
}

}  // namespace

void Uploads::SetDestination(WorkerKey worker, Destination destination) {
  MutexLock lock(mutex_);
  destinations_[worker] = destination;
}

// --- With their bytes ---

OperationId Uploads::Put(ArrayHandle array, const ArraySpec& spec,
                         std::span<const std::string_view> shards, StatusCallback ended) {
  if (IsSmall(spec, shards)) {
    if (const auto operation = PutWithDeclaration(array, spec, shards, ended)) return *operation;
  }
  const UploadId upload = Begin(array, spec, std::move(ended));
  const OperationId operation{NumberOf(upload)};
  if (shards.size() != spec.devices.size()) {
    Abandon(upload, absl::InvalidArgumentError(absl::StrCat("an array on ", spec.devices.size(),
                                                            " devices was put with the bytes of ",
                                                            shards.size(), " shards")));
    return operation;
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    auto copy = std::make_shared<const std::string>(shards[i]);
    Push(upload, static_cast<uint32_t>(i), *copy, [copy] {});
  }
  return operation;
}

std::optional<OperationId> Uploads::PutWithDeclaration(ArrayHandle array, const ArraySpec& spec,
                                                       std::span<const std::string_view> shards,
                                                       StatusCallback& ended) {
  const uint64_t cost = wire::PutCost(shards);
  OperationId operation{};
  const Submitter::Sending sending(submitter_, Urgency::kLater);
  {
    MutexLock lock(mutex_);
    if (!TakePutRoom(cost)) return std::nullopt;
    auto join = [&](wire::Op& last, OperationId number) GANGWAY_NO_ANALYSIS {
      const wire::Put& put = last.put();
      if (!last.has_put() || put.arrays_size() >= wire::kPutArraysMax ||
          put_cost_ + cost > wire::kPutCostMax || !std::ranges::equal(put.devices(), spec.devices))
        return false;
      operation = number;
      put_cost_ += cost;
      AddPut(array, spec, shards, *last.mutable_put());
      return true;
    };
    auto fill = [&](wire::Op& op, OperationId number) GANGWAY_NO_ANALYSIS {
      operation = number;
      put_cost_ = cost;
      op.mutable_put()->mutable_devices()->Add(spec.devices.begin(), spec.devices.end());
      AddPut(array, spec, shards, *op.mutable_put());
    };
    if (!submitter_.JoinOrAppend(1, ReturningPutRoom(cost, std::move(ended)), join, fill).ok())
      return operation;
  }
  LookForPutRoom();
  handles_.NoteArray(array, std::make_shared<const std::vector<uint32_t>>(spec.devices));
  return operation;
}

// Without being told of ends, a session knows only how many of its nodes may be under way: all of them may be puts.
bool Uploads::TakePutRoom(uint64_t cost) {
  if (!submitter_.reports_ends())
    return submitter_.pending() < wire::kPutSessionCostMax / wire::kPutArrayCostMax;
  if (puts_under_way_ + cost > wire::kPutSessionCostMax) return false;
  puts_under_way_ += cost;
  return true;
}

StatusCallback Uploads::ReturningPutRoom(uint64_t cost, StatusCallback ended) {
  if (!submitter_.reports_ends()) return ended;
  return [this, cost, ended = std::move(ended)](const absl::Status& status) {
    {
      MutexLock lock(mutex_);
      puts_under_way_ -= cost;
    }
    LookForPutRoom();
    if (ended) ended(status);
  };
}

// The ends of puts make room for more of them. While much of it is taken, they must not come late.
void Uploads::LookForPutRoom() {
  bool looks = false;
  {
    MutexLock lock(mutex_);
    looks = puts_under_way_ > wire::kPutSessionCostMax / 2;
    if (std::exchange(looks_for_put_room_, looks) == looks) return;
  }
  looks ? submitter_.BeginLook() : submitter_.EndLook();
}

// --- In pushes ---

UploadId Uploads::Begin(ArrayHandle array, const ArraySpec& spec, StatusCallback ended) {
  const Submitter::Sending sending(submitter_);
  UploadId id{};
  auto devices = std::make_shared<const std::vector<uint32_t>>(spec.devices);
  {
    MutexLock lock(mutex_);
    auto destinations = DestinationsOf(*devices);
    const auto fill = [&](wire::Op& op, OperationId number) {
      id = UploadId(NumberOf(number));
      wire::UploadOp& upload = *op.mutable_upload();
      upload.set_array(NumberOf(array));
      upload.set_upload(NumberOf(id));
      ToWire(spec, upload.mutable_spec());
      for (const auto& [worker, to] : destinations) {
        wire::Destination* destination = upload.add_destinations();
        destination->set_island(worker.first);
        destination->set_index(worker.second);
        destination->set_incarnation(to.incarnation.number());
        destination->set_next(to.next);
      }
    };
    if (!submitter_.Append(1, std::move(ended), fill).ok()) return id;
    uploads_[id] = {.devices = devices,
                    .destinations = std::move(destinations),
                    .shard_bytes = spec.shard_bytes,
                    .pushed = std::vector<bool>(spec.devices.size()),
                    .left = spec.devices.size()};
  }
  handles_.NoteArray(array, std::move(devices));
  return id;
}

std::map<WorkerKey, Destination> Uploads::DestinationsOf(
    const std::vector<uint32_t>& devices) const {
  std::map<WorkerKey, Destination> destinations;
  for (uint32_t device : devices) {
    const auto worker = handles_.WorkerOf(device);
    if (!worker) continue;
    const auto known = destinations_.find(*worker);
    if (known != destinations_.end()) destinations.insert(*known);
  }
  return destinations;
}

// The device of the shard is the cluster's.
Uploads::Outgoing Uploads::NewPush(UploadId upload, const Uploading& uploading,
                                   uint32_t shard) const {
  Outgoing outgoing{.worker = *handles_.WorkerOf((*uploading.devices)[shard])};
  outgoing.push.upload = upload;
  outgoing.push.shard = shard;
  const auto to = uploading.destinations.find(outgoing.worker);
  if (to != uploading.destinations.end()) outgoing.push.to = to->second;
  return outgoing;
}

void Uploads::Push(UploadId upload, uint32_t shard, std::string_view data,
                   std::function<void()> released) {
  // A burst's upload waits to be sent with others, and so may its bytes.
  const bool in_burst = data.size() < kPlacedBytesMin && submitter_.HoldsBurst();
  std::optional<Outgoing> outgoing = TakePush(upload, shard, data);
  if (outgoing && !in_burst && data.size() < kPlacedBytesMin &&
      links_->PushNow(outgoing->worker, outgoing->push))
    outgoing.reset();
  if (outgoing) {
    outgoing->push.released = std::move(released);
    if (Wait(*outgoing)) return in_burst ? submitter_.FlushSoon() : submitter_.Wake();
    released = std::move(outgoing->push.released);
  }
  if (released) released();
}

// Until the next flush. False: the session is lost.
bool Uploads::Wait(Outgoing& outgoing) {
  MutexLock lock(mutex_);
  if (!submitter_.lost().ok()) return false;
  waiting_.push_back(std::move(outgoing));
  return true;
}

absl::Status Uploads::Check(const Uploading& uploading, uint32_t shard, size_t bytes) const {
  std::string problem;
  if (shard >= uploading.pushed.size()) {
    problem = absl::StrCat("shard ", shard, " was pushed to an array of ", uploading.pushed.size(),
                           " shards");
  } else if (uploading.pushed[shard]) {
    problem = absl::StrCat("shard ", shard, " was pushed twice");
  } else if (bytes != uploading.shard_bytes) {
    problem = absl::StrCat("shard ", shard, " was pushed with ", bytes, " bytes, not the declared ",
                           uploading.shard_bytes);
  } else if (!handles_.WorkerOf((*uploading.devices)[shard])) {
    problem = absl::StrCat("shard ", shard, " is for device ", (*uploading.devices)[shard],
                           ", which the cluster does not have");
  }
  return problem.empty() ? absl::OkStatus() : absl::InvalidArgumentError(problem);
}

// Null: the bytes are not needed.
std::optional<Uploads::Outgoing> Uploads::TakePush(UploadId upload, uint32_t shard,
                                                   std::string_view data) {
  MutexLock lock(mutex_);
  const auto it = uploads_.find(upload);
  if (it == uploads_.end()) return std::nullopt;  // failed, abandoned, complete or lost
  Uploading& uploading = it->second;
  if (absl::Status wrong = Check(uploading, shard, data.size()); !wrong.ok()) {
    AbandonLocked(upload, wrong);
    return std::nullopt;
  }
  activity_.Watch();
  uploading.pushed[shard] = true;
  Outgoing outgoing = NewPush(upload, uploading, shard);
  outgoing.push.data = data;
  if (--uploading.left == 0) uploads_.erase(it);
  return outgoing;
}

void Uploads::Reserve(UploadId upload, uint32_t shard,
                      std::function<void(std::shared_ptr<char> place)> placed) {
  {
    MutexLock lock(mutex_);
    const auto it = uploads_.find(upload);
    if (it == uploads_.end()) return;
    const Uploading& uploading = it->second;
    if (!Check(uploading, shard, uploading.shard_bytes).ok()) return;
    Outgoing outgoing = NewPush(upload, uploading, shard);
    outgoing.push.bytes = uploading.shard_bytes;
    outgoing.placed = std::move(placed);
    waiting_.push_back(std::move(outgoing));
  }
  submitter_.Wake();
}

bool Uploads::HoldsPushes() const {
  MutexLock lock(mutex_);
  return !waiting_.empty();
}

std::function<void()> Uploads::TakeWaiting() {
  auto taken = std::make_shared<std::vector<Outgoing>>();
  {
    MutexLock lock(mutex_);
    if (waiting_.empty()) return nullptr;
    taken->swap(waiting_);
  }
  return [this, taken] {
    for (Outgoing& outgoing : *taken) {
      if (outgoing.placed) {
        links_->Reserve(outgoing.worker, outgoing.push, std::move(outgoing.placed));
      } else {
        links_->Add(outgoing.worker, std::move(outgoing.push));
      }
    }
  };
}

// --- Uploads that come to nothing ---

void Uploads::Abandon(UploadId upload, const absl::Status& why) {
  MutexLock lock(mutex_);
  if (uploads_.contains(upload)) AbandonLocked(upload, why);
}

void Uploads::Fail(UploadId upload, const absl::Status& why) {
  MutexLock lock(mutex_);
  AbandonLocked(upload, why);
}

void Uploads::AbandonLocked(UploadId upload, const absl::Status& why) {
  uploads_.erase(upload);
  const absl::Status appended = submitter_.Append(0, nullptr, [&](wire::Op& op) {
    op.mutable_abandon()->set_upload(NumberOf(upload));
    *op.mutable_abandon()->mutable_failure() = wire::ToFailure(why);
  });
  if (!appended.ok()) return;
  // The workers are told once the controller has failed the upload: so its array has this error, not theirs.
  loop_->Post([this, upload] { Withdraw(upload); });
  submitter_.Wake();
}

// Its bytes need not be sent.
void Uploads::Withdraw(UploadId upload) {
  std::vector<std::function<void()>> released;
  {
    MutexLock lock(mutex_);
    uploads_.erase(upload);
    std::erase_if(waiting_, [&](Outgoing& outgoing) {
      if (outgoing.push.upload != upload) return false;
      if (outgoing.push.released) released.push_back(std::move(outgoing.push.released));
      return true;
    });
  }
  for (auto& call : released) call();
  links_->Withdraw(upload);
}

void Uploads::Forget(UploadId upload) {
  Withdraw(upload);
  links_->TellDropped(upload);
}

void Uploads::Clear() {
  std::vector<Outgoing> waiting;
  {
    MutexLock lock(mutex_);
    uploads_.clear();
    waiting.swap(waiting_);
  }
  for (Outgoing& outgoing : waiting) {
    if (outgoing.push.released) outgoing.push.released();
  }
}

}  // namespace gangway::client
