// Array: a dense array of numbers on devices of a cluster, as a value of the program that uses it.
//
// A copy shares the elements. When the last copy is gone, so is the memory, once all calls that were made with it have
// read it; so `x = f(x)` in a loop holds no more than two or three of them. Elements never change.
//
// No operation that makes an array waits for its elements. What goes wrong sticks to the array, and to all that is
// computed of it (ER-1): Wait and Get tell it.
//
// Threading: a value; different ones may be used by different threads, also copies of one array. One Array object is
// used like any variable: by one thread at a time while it is assigned.
#ifndef GANGWAY_ARRAY_H_
#define GANGWAY_ARRAY_H_

#include <cstddef>
#include <memory>
#include <source_location>
#include <span>
#include <utility>
#include <vector>

#include "element_type.h"
#include "sharding.h"
#include "status.h"

namespace gangway {

namespace api {
class ArrayState;
}  // namespace api

// A value that shares elements with its copies.
class Array {
 public:
  // No array: everything that is made of it fails with INVALID_ARGUMENT.
  Array() = default;

  // Of the whole array, in elements. Empty for no array, as for a scalar.
  const Shape& shape() const;
  // kF32 for no array.
  ElementType element_type() const;
  // Which device has which part.
  const Sharding& sharding() const;

  // Waits until its elements are there. OK, or why they never will be, with the failure's record (Status::record): a
  // call that failed, lost workers (DATA_LOSS), a mistake in a call that made it (INVALID_ARGUMENT), a lost session
  // (UNAVAILABLE). FAILED_PRECONDITION: an array inside of Trace, which has no elements.
  Status Wait() const;

  // Waits, and brings all elements of the whole array, row-major: size is the product of the shape. T has to be the
  // C++ type of element_type(), else INVALID_ARGUMENT. Other errors: those of Wait.
  template <Element T>
  Result<std::vector<T>> Get() const {
    std::vector<T> values;
    auto room = [](void* to, size_t bytes) -> std::byte* {
      auto& made = *static_cast<std::vector<T>*>(to);
      made.resize(bytes / sizeof(T));
      return reinterpret_cast<std::byte*>(made.data());
    };
    if (Status status = GetInto(ElementTypeOf<T>::value, room, &values); !status.ok())
      return status;
    return values;
  }
  // Likewise, as bytes, of any element type.
  Result<std::vector<std::byte>> GetBytes() const;

  // An array with the same elements on other devices: shard i goes to device i of the sharding's mesh, from worker to
  // worker. The sharding has to split the array into the same shards, else the copy fails with INVALID_ARGUMENT, naming
  // both. An array that is there already is its own copy. Within Trace, it is a node of the program, named by this line
  // of the caller.
  Array CopyTo(const Sharding& sharding,
               std::source_location where = std::source_location::current()) const;

  // Whether it is an array at all.
  explicit operator bool() const { return state_ != nullptr; }

 private:
  friend class api::ArrayState;
  using Room = std::byte* (*)(void* to, size_t bytes);
  explicit Array(std::shared_ptr<const api::ArrayState> state) : state_(std::move(state)) {}
  Status GetInto(ElementType type, Room room, void* to) const;

  std::shared_ptr<const api::ArrayState> state_;  // null: no array
};

}  // namespace gangway

#endif  // GANGWAY_ARRAY_H_
