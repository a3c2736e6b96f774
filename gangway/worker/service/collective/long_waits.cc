// Implementation of long_waits.h.
#include "gangway/worker/service/collective/long_waits.h"

#include <optional>
#include <utility>

#include "gangway/wire/failure.h"

namespace gangway::worker {
namespace {

void Describe(const collective::Awaited& awaited, wire::Deed& deed) {
  deed.set_read(awaited.deed == collective::Deed::kRead);
  deed.set_order_position(awaited.key.gang);
  deed.set_number(awaited.key.number);
  deed.set_round(awaited.key.round);
  deed.set_part(awaited.key.part);
  deed.set_sequence(awaited.sequence);
}

collective::Awaited Parse(const wire::Deed& deed) {
  return {.deed = deed.read() ? collective::Deed::kRead : collective::Deed::kWritten,
          .key = {.gang = deed.order_position(),
                  .number = deed.number(),
                  .round = deed.round(),
                  .part = deed.part()},
          .sequence = deed.sequence()};
}

// nullopt: it names a device that no island has.
std::optional<collective::WaitQuestion> Parse(const wire::WaitQuestion& asked) {
  collective::WaitQuestion question{.wait = asked.wait()};
  if (!asked.has_deed()) return question;
  if (asked.for_worker() >= collective::kWorkersMax ||
      asked.for_device() >= collective::kDevicesMax)
    return std::nullopt;
  question.owed = {Parse(asked.deed()),
                   collective::PeerNumber(asked.for_worker(), asked.for_device())};
  return question;
}

}  // namespace

LongWaits::LongWaits(const CollectivePeers* peers, std::shared_ptr<EventLoop> loop,
                     TellScheduler tell)
    : peers_(peers), loop_(std::move(loop)), tell_(std::move(tell)) {}

void LongWaits::Tell(uint64_t gang) {
  loop_->Post([this, gang] { Report(gang); });
}

void LongWaits::Report(uint64_t gang) {
  wire::Report report;
  wire::GangWaits& news = *report.mutable_gang_waits();
  news.set_gang(gang);
  for (const auto& [device, waiting] : peers_->Waiting()) {
    // One that waits for the reason of a failure is not in a ring: the failure ends its wait.
    if (waiting.gang != gang || !waiting.awaited) continue;
    uint64_t& told = told_[device];
    if (waiting.wait <= told) continue;
    told = waiting.wait;
    wire::MemberWait& wait = *news.add_waits();
    wait.set_device(static_cast<uint32_t>(device));
    wait.set_wait(waiting.wait);
    wait.set_collective(wire::ValidUtf8(waiting.collective));
    wait.set_number(waiting.number);
    wait.set_call(waiting.round);
    wait.set_awaited_worker(waiting.peer_worker);
    wait.set_awaited_device(waiting.peer_device);
    if (waiting.is_mirrored) Describe(*waiting.awaited, *wait.mutable_deed());
  }
  if (news.waits_size() != 0) tell_(std::move(report));
}

void LongWaits::Check(const wire::WaitCheck& check) const {
  for (const wire::WaitQuestion& asked : check.questions()) {
    if (asked.device() >= collective::kDevicesMax) continue;
    const auto device = peers_->local(static_cast<int>(asked.device()));
    const auto question = Parse(asked);
    if (device == nullptr || !question) continue;
    wire::Report report;
    report.mutable_wait_confirmed()->set_gang(check.gang());
    report.mutable_wait_confirmed()->set_check(check.check());
    report.mutable_wait_confirmed()->set_device(asked.device());
    device->Ask(*question, [this, loop = loop_, report = std::move(report)] {
      loop->Post([this, report] { tell_(report); });
    });
  }
}

}  // namespace gangway::worker
