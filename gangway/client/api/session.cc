// Implementation of session.h, and of what a Cluster tells of it.
#include "gangway/client/api/session.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"

namespace gangway::api {
namespace {

constexpr std::chrono::hours kLook{1};  // the client answers each question in time, or ends

struct Told {
  explicit Told(std::shared_ptr<Wait> wait) : wait(std::move(wait)) {}

  const std::shared_ptr<Wait> wait;
  absl::Status status;  // set before `is_told`
  std::atomic<bool> is_told =
      false;  // a forked child is told, and has no loop that could end its wait
};

}  // namespace

std::vector<ArrayHandle> Session::NewHandles(size_t count) {
  std::vector<ArrayHandle> handles(count);
  for (ArrayHandle& handle : handles) handle = client_->NewArrayHandle();
  return handles;
}

absl::Status Session::Check(const Mesh& mesh) const {
  if (!mesh.status().ok()) return mesh.status();
  const std::vector<DeviceInfo>& devices = client_->cluster().devices;
  for (const uint32_t device : mesh.devices()) {
    const auto found = std::ranges::lower_bound(devices, device, {}, &DeviceInfo::id);
    if (found != devices.end() && found->id == device) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the mesh ", mesh.ToText(), " names device ", device,
                     ", which this session does not have: see Cluster::devices"));
  }
  return absl::OkStatus();
}

absl::Status Session::Ask(const std::function<void(StatusCallback)>& start) {
  auto told = std::make_shared<Told>(client_->NewWait());
  start([told](const Status& status) {
    told->status = status;
    told->is_told = true;
    told->wait->End();
  });
  while (!told->is_told) (void)told->wait->For(kLook);
  return told->status;
}

absl::Status Session::Await(std::span<const ArrayHandle> arrays) {
  return Ask([&](StatusCallback done) { client_->Await(arrays, std::move(done)); });
}

void Session::AwaitRoom() {
  if (client_->pending() < client_->pending_max()) [[likely]]
    return;
  Ask([&](const StatusCallback& done) {
    client_->WhenRoom([done] { done(Status()); });
  }).IgnoreError();
}

}  // namespace gangway::api
