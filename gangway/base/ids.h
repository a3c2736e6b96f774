// Numbers that identify things, as types that do not mix. The wire carries plain numbers: a
// message's reader makes the type, and its writer calls number(), or NumberOf() of what the client's users see.
#ifndef GANGWAY_BASE_IDS_H_
#define GANGWAY_BASE_IDS_H_

#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <ostream>
#include <utility>

#include "absl/strings/str_cat.h"

namespace gangway {

template <typename Tag, typename Number = uint64_t>
class Id {
 public:
  constexpr Id() = default;
  constexpr explicit Id(Number number) : number_(number) {}

  constexpr Number number() const { return number_; }

  friend constexpr auto operator<=>(Id, Id) = default;
  template <typename H>
  friend H AbslHashValue(H hash, Id id) {
    return H::combine(std::move(hash), id.number_);
  }
  friend std::ostream& operator<<(std::ostream& out, Id id) { return out << id.number_; }
  // For absl::StrCat and absl::StrAppend, which have no other extension point in this version.
  operator absl::AlphaNum() const {  // NOLINT(google-explicit-constructor)
    return absl::AlphaNum(number_);
  }

 private:
  Number number_ = 0;
};

// One client's connection and what it owns. 0: none; in data tokens, the streams between workers.
using SessionId = Id<struct SessionTag>;

// A node's place in the one order of the cluster (GS-1), and its name in every role. 0: none.
using Ordinal = Id<struct OrdinalTag>;

// The position of a release in the order of its island (GS-1), the same for all workers. The first is 1; 0: none.
using OrderPosition = Id<struct OrderPositionTag>;

// One life of a worker: each process that registers has a number of its own. 0: none.
using Incarnation = Id<struct IncarnationTag>;

// The shards that one node makes, on all its devices. Arrays are views of storages (OB-1).
// Cluster-wide, and never reused; 0: none.
using StorageId = Id<struct StorageTag>;

// A compiled program, loaded on its devices. Cluster-wide; clients name it by a handle of their own.
using ExecutableId = Id<struct ExecutableTag>;

// A device's number in the cluster, from the declared topology. Of all indices, only the next one is a type: those of a
// worker in its island and of a device on its worker are plain numbers.
using DeviceId = Id<struct DeviceTag, uint32_t>;

// The index of a device among those of its island, as schedulers count them; device ids are
// cluster-wide.
using IslandDevice = Id<struct IslandDeviceTag, uint32_t>;

// The following are numbers that a session's client chooses. Each means something in that session only (OB-3), and is
// never reused there. 0: none.

// An operation that brings bytes to the client, and the bytes of its shards on the data streams.
using FetchId = Id<struct FetchTag>;

// A question whether arrays are ready.
using AwaitId = Id<struct AwaitTag>;

// A question about the cluster, which belongs to no operation.
using QueryId = Id<struct QueryTag>;

// The bytes of an array that is uploaded. It is the number of the operation that declares the array.
enum class UploadId : uint64_t;

// These are part of the client library's public header, which includes nothing of this and declares them as well: that
// is possible with an enum. Each names what its name says; an operation's number is that of the last of its nodes, as
// the client counts them.
enum class OperationId : uint64_t;
enum class ArrayHandle : uint64_t;
enum class ExecutableHandle : uint64_t;
enum class ProgramHandle : uint64_t;

template <typename T>
concept PublicId =
    std::same_as<T, UploadId> || std::same_as<T, OperationId> || std::same_as<T, ArrayHandle> ||
    std::same_as<T, ExecutableHandle> || std::same_as<T, ProgramHandle>;

template <PublicId T>
constexpr uint64_t NumberOf(T id) {
  return static_cast<uint64_t>(id);
}

template <PublicId T>
std::ostream& operator<<(std::ostream& out, T id) {
  return out << NumberOf(id);
}

}  // namespace gangway

template <typename Tag, typename Number>
struct std::hash<gangway::Id<Tag, Number>> {
  size_t operator()(gangway::Id<Tag, Number> id) const noexcept {
    return std::hash<Number>()(id.number());
  }
};

#endif  // GANGWAY_BASE_IDS_H_
