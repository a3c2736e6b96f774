// Implementation of member.h.
#include "gangway/collective/execution/member.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/clock.h"
#include "gangway/collective/execution/call.h"
#include "gangway/collective/execution/exchange.h"
#include "gangway/collective/execution/relay.h"

namespace gangway::collective {

Member::Member(std::shared_ptr<Launch> launch, std::shared_ptr<LocalDevice> device,
               uint32_t position, uint32_t device_id)
    : position_(position),
      rounds_(launch->plan().size()),
      flight_(device_id, launch->gang().ordinal),
      waiter_(std::move(launch), std::move(device)),
      sender_(waiter_) {
  const Launch& begun = waiter_.launch();
  waiter_.device().SetMembers(begun.gang().order, begun.devices());
}

Member::~Member() { waiter_.device().reads().Say(); }

absl::Status Member::Run(int64_t number, std::span<const std::span<const std::byte>> operands,
                         std::span<const std::span<std::byte>> results) {
  if (number < 0 || static_cast<size_t>(number) >= rounds_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the program calls collective ", number, " of ", rounds_.size()));
  }
  const Launch& launch = waiter_.launch();
  const PlannedCollective& planned = launch.plan().at(number);
  const auto size_of = [](const auto& array) { return array.size(); };
  if (!std::ranges::equal(operands, planned.operand_bytes, {}, size_of) ||
      !std::ranges::equal(results, planned.result_bytes, {}, size_of)) {
    return absl::InvalidArgumentError(absl::StrCat("the operands of collective ", planned.Name(),
                                                   " are not those of its description"));
  }
  if (launch.is_aborted()) return launch.reason();
  const auto named = static_cast<uint32_t>(number);
  const uint32_t round = rounds_[number]++;
  waiter_.Begin(named, round);
  const Clock::time_point began = Clock::now();
  const Call call{.planned = planned,
                  .role = planned.roles[position_],
                  .position = position_,
                  .key = {.gang = launch.gang().order, .number = named, .round = round},
                  .operands = operands,
                  .results = results};
  const absl::Status status = planned.route == Route::kRelayed
                                  ? Relay(waiter_, sender_, call).Run()
                                  : Exchange(waiter_, sender_, call).Run();
  if (status.ok()) waiter_.SetMet();
  flight_.Add(named, began, Clock::now());
  return status;
}

}  // namespace gangway::collective
