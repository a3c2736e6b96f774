// What a Callable calls: a compiled function or a program. It has a name, takes a number of arguments, and makes arrays
// of known types.
//
// Threading: constant. Failure: a call that cannot be made spoils its results with the reason.
#ifndef GANGWAY_CLIENT_API_CALLEE_H_
#define GANGWAY_CLIENT_API_CALLEE_H_

#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

#include "gangway/client/api/array_state.h"
#include "gangway/client/include/gangway/function.h"

namespace gangway::api {

// "fan_out.cc:42", which nodes of programs and failures are named by.
std::string ToText(const std::source_location& where);

// INVALID_ARGUMENT with a failure record: what calls `callee` in this line made a mistake.
absl::Status Mistake(const std::string& callee, const std::source_location& where,
                     const std::string& message, const std::string& advice);

// What copies of arrays are named by, as callees are by their names.
inline constexpr char kCopy[] = "CopyTo";

// OK: an array of this type has the same shards where `sharding` says.
absl::Status CheckCopy(const ArrayType& type, const Sharding& sharding,
                       const std::source_location& where);

class Callee {
 public:
  virtual ~Callee() = default;
  Callee(const Callee&) = delete;
  Callee& operator=(const Callee&) = delete;

  // `results` has room for result_types().
  virtual void Call(std::span<const Argument> arguments, std::span<Array> results,
                    const std::source_location& where) const = 0;

  const std::shared_ptr<Session>& session() const { return session_; }
  const std::string& name() const { return name_; }
  size_t argument_count() const { return argument_count_; }
  const std::vector<ArrayTypeRef>& result_types() const { return result_types_; }

  // Spoils any number of results.
  void Fail(std::span<Array> results, const absl::Status& why) const;

 protected:
  Callee(std::shared_ptr<Session> session, std::string name, size_t argument_count,
         std::vector<ArrayTypeRef> result_types)
      : session_(std::move(session)),
        name_(std::move(name)),
        argument_count_(argument_count),
        result_types_(std::move(result_types)) {}

  absl::Status CheckCount(size_t arguments, const std::source_location& where) const;
  // OK: the argument is an array of this callee's session.
  absl::Status CheckOurs(size_t index, const ArrayState* array,
                         const std::source_location& where) const;
  void ToArrays(std::span<const ArrayHandle> handles, std::span<Array> results) const;

 private:
  const std::shared_ptr<Session> session_;
  const std::string name_;
  const size_t argument_count_;
  const std::vector<ArrayTypeRef> result_types_;
};

}  // namespace gangway::api

#endif  // GANGWAY_CLIENT_API_CALLEE_H_
