// Implementation of elements.h.
#include "gangway/client/api/elements.h"

#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"
#include "gangway/client/api/shard_runs.h"
#include "gangway/xla/dtype.h"

namespace gangway::api {
namespace {

// The parts of an array that differ: for each, where it is in the array, and one position that has it.
struct Parts {
  std::vector<ShardRuns> runs;
  std::vector<uint32_t> positions;  // by part
  std::vector<size_t> of_position;  // the part
};

absl::StatusOr<Parts> PartsOf(const ArrayType& type) {
  Parts parts;
  std::map<std::vector<int64_t>, size_t> known;  // by offset
  const size_t count = type.sharding.mesh().devices().size();
  for (size_t i = 0; i < count; ++i) {
    GANGWAY_ASSIGN_OR_RETURN(const ShardRange range,
                             FromResult(type.sharding.RangeOf(i, type.shape)));
    const auto [found, is_new] = known.try_emplace(range.offset, parts.runs.size());
    if (is_new) {
      parts.runs.emplace_back(range, type.shape, ElementBytes(type.element_type));
      parts.positions.push_back(static_cast<uint32_t>(i));
    }
    parts.of_position.push_back(found->second);
  }
  return parts;
}

absl::StatusOr<ArrayTypeRef> CheckPut(const Session& session, size_t bytes,
                                      ElementType element_type, const Shape& shape,
                                      const Sharding& sharding) {
  GANGWAY_RETURN_IF_ERROR(session.Check(sharding.mesh()));
  GANGWAY_ASSIGN_OR_RETURN(ArrayTypeRef type, MakeType(element_type, shape, sharding));
  GANGWAY_ASSIGN_OR_RETURN(const int64_t wanted,
                           xla::DenseBytes(static_cast<int32_t>(element_type), shape));
  if (static_cast<size_t>(wanted) == bytes) return type;
  return absl::InvalidArgumentError(absl::StrCat(
      "an array of ", gangway::ToText(element_type), gangway::ToText(shape), " has ", wanted,
      " bytes and was put with ", bytes, ": give as many elements as its shape says"));
}

}  // namespace

Array PutElements(const std::shared_ptr<Session>& session, std::span<const std::byte> bytes,
                  ElementType element_type, const Shape& shape, const Sharding& sharding) {
  absl::StatusOr<ArrayTypeRef> type =
      CheckPut(*session, bytes.size(), element_type, shape, sharding);
  if (!type.ok()) return FailedArray(session, UnknownType(), type.status());
  const absl::StatusOr<Parts> parts = PartsOf(**type);
  if (!parts.ok()) return FailedArray(session, *type, parts.status());
  std::vector<std::string> gathered(parts->runs.size());
  std::vector<std::string_view> part_bytes(parts->runs.size());
  for (size_t i = 0; i < part_bytes.size(); ++i) {
    const ShardRuns& runs = parts->runs[i];
    if (!runs.is_one_run()) {
      gathered[i].resize(runs.shard_bytes());
      runs.Gather(bytes, reinterpret_cast<std::byte*>(gathered[i].data()));
      part_bytes[i] = gathered[i];
    } else if (runs.shard_bytes() > 0) {
      part_bytes[i] = {reinterpret_cast<const char*>(bytes.data()) + runs.first_offset(),
                       runs.shard_bytes()};
    }
  }
  std::vector<std::string_view> shards;
  for (const size_t part : parts->of_position) shards.push_back(part_bytes[part]);
  session->AwaitRoom();
  const ArrayHandle handle = session->client().NewArrayHandle();
  session->client().Put(handle,
                        {.element_type = static_cast<int32_t>(element_type),
                         .shard_dims = (*type)->shard_shape,
                         .devices = sharding.mesh().devices(),
                         .shard_bytes = parts->runs.front().shard_bytes()},
                        shards);
  return ArrayState::NewArray(session, *std::move(type), handle);
}

absl::Status GetElements(const ArrayState& array,
                         const std::function<std::byte*(size_t bytes)>& room) {
  const ArrayType& type = array.type();
  if (!type.sharding.status().ok())  // of an array that failed before its type was known
    return array.session()->Await(std::array{array.handle()});
  GANGWAY_ASSIGN_OR_RETURN(const Parts parts, PartsOf(type));
  GANGWAY_ASSIGN_OR_RETURN(const int64_t bytes,
                           xla::DenseBytes(static_cast<int32_t>(type.element_type), type.shape));
  std::byte* const to = room(static_cast<size_t>(bytes));
  std::vector<std::vector<std::byte>> apart(parts.runs.size());  // shards that are several runs
  std::vector<std::byte*> place(parts.runs.size());
  for (size_t i = 0; i < place.size(); ++i) {
    if (!parts.runs[i].is_one_run()) apart[i].resize(parts.runs[i].shard_bytes());
    place[i] = parts.runs[i].is_one_run() ? to + parts.runs[i].first_offset() : apart[i].data();
  }
  GANGWAY_RETURN_IF_ERROR(array.session()->Ask([&](StatusCallback done) {
    array.session()->client().Fetch(
        array.handle(), parts.positions,
        {.on_data =
             [&place](size_t index, uint64_t offset, std::string_view data) {
               std::memcpy(place[index] + offset, data.data(), data.size());
             },
         .on_done = std::move(done)});
  }));
  const std::span<std::byte> whole(to, static_cast<size_t>(bytes));
  for (size_t i = 0; i < apart.size(); ++i)
    if (!apart[i].empty()) parts.runs[i].Scatter(apart[i].data(), whole);
  return absl::OkStatus();
}

}  // namespace gangway::api
