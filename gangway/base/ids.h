// Numbers that identify things, as types that do not mix. The wire carries plain numbers: a
// message's reader makes the type, and its writer calls number().
#ifndef GANGWAY_BASE_IDS_H_
#define GANGWAY_BASE_IDS_H_

#include <compare>
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

// The shards that one node makes, on all its devices. Arrays are views of storages (OB-1).
// Cluster-wide, and never reused; 0: none.
using StorageId = Id<struct StorageTag>;

// A compiled program, loaded on its devices. Cluster-wide; clients name it by a handle of their own.
using ExecutableId = Id<struct ExecutableTag>;

// The index of a device among those of its island, as schedulers count them; device ids are
// cluster-wide.
using IslandDevice = Id<struct IslandDeviceTag, uint32_t>;

}  // namespace gangway

template <typename Tag, typename Number>
struct std::hash<gangway::Id<Tag, Number>> {
  size_t operator()(gangway::Id<Tag, Number> id) const noexcept {
    return std::hash<Number>()(id.number());
  }
};

#endif  // GANGWAY_BASE_IDS_H_
