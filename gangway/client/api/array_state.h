// What an Array shares with its copies: its type, and either its handle in the session, whose array it drops at its
// end, or the value of a program that is being traced for which it stands.
//
// Threading: constant. Its end may be on any thread.
#ifndef GANGWAY_CLIENT_API_ARRAY_STATE_H_
#define GANGWAY_CLIENT_API_ARRAY_STATE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"

#include "gangway/client/api/session.h"
#include "gangway/client/include/gangway/array.h"

namespace gangway::api {

class Tracing;

// What is known of an array before it is computed, shared by all arrays of the same making.
struct ArrayType {
  ElementType element_type = ElementType::kF32;
  Shape shape;
  Sharding sharding;
  Shape shard_shape;
};
using ArrayTypeRef = std::shared_ptr<const ArrayType>;

// INVALID_ARGUMENT: the sharding makes no sense, or does not fit the shape.
absl::StatusOr<ArrayTypeRef> MakeType(ElementType element_type, const Shape& shape,
                                      const Sharding& sharding);
// Of results whose call says nothing about them.
const ArrayTypeRef& UnknownType();
// "f32[8,4] in shards of [4,4], split as (data, -) over data=2 on devices 0,1"
std::string ToText(const ArrayType& type);
// Whether both split arrays of this shape into the same shards, in the same order: their devices may differ.
bool AreSameShards(const Sharding& left, const Sharding& right, const Shape& shape);

class ArrayState : public std::enable_shared_from_this<ArrayState> {
 public:
  ArrayState(std::shared_ptr<Session> session, ArrayTypeRef type, ArrayHandle handle)
      : session_(std::move(session)), type_(std::move(type)), handle_(handle) {}
  ArrayState(std::shared_ptr<Tracing> trace, ArrayTypeRef type, uint32_t value)
      : trace_(std::move(trace)), type_(std::move(type)), value_(value) {}
  ~ArrayState();
  ArrayState(const ArrayState&) = delete;
  ArrayState& operator=(const ArrayState&) = delete;

  // Null: no array.
  static const ArrayState* Of(const Array& array) { return array.state_.get(); }
  static Array ToArray(std::shared_ptr<const ArrayState> state) { return Array(std::move(state)); }
  static Array NewArray(std::shared_ptr<Session> session, ArrayTypeRef type, ArrayHandle handle) {
    return Array(std::make_shared<const ArrayState>(std::move(session), std::move(type), handle));
  }

  Array ToArray() const { return Array(shared_from_this()); }

  const ArrayType& type() const { return *type_; }
  const ArrayTypeRef& type_ref() const { return type_; }
  // Null: it stands for a value of a trace.
  const std::shared_ptr<Session>& session() const { return session_; }
  ArrayHandle handle() const { return handle_; }
  // Null: it is an array of the session.
  const Tracing* trace() const { return trace_.get(); }
  uint32_t value() const { return value_; }

 private:
  const std::shared_ptr<Session> session_;
  const std::shared_ptr<Tracing> trace_;
  const ArrayTypeRef type_;
  const ArrayHandle handle_{};
  const uint32_t value_ = 0;
};

// The session of an array, or that of its trace.
const std::shared_ptr<Session>& SessionOf(const ArrayState& array);

// An array that holds the mistake `why` from the start.
Array FailedArray(const std::shared_ptr<Session>& session, ArrayTypeRef type,
                  const absl::Status& why);
// Why an array has no elements: it is none, or stands in a trace. OK: it is one of the session.
absl::Status CheckHasElements(const ArrayState* array);

}  // namespace gangway::api

#endif  // GANGWAY_CLIENT_API_ARRAY_STATE_H_
